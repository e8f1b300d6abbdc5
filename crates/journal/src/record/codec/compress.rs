//! Compresses a whole payload with LZ4 (block format), if that makes it smaller.
//!
//! Runs of after-images repeat little. LZ4 gains on payloads with whole blocks or long text. It
//! saves wear and space; it does not make a small write faster.

use super::CodecError;

/// A smaller payload is not compressed: it fits into one sector as it is.
pub const MIN_BYTES: usize = 512;

/// A larger payload is neither compressed nor decompressed.
pub const MAX_BYTES: usize = 64 << 20;

/// Compression must save at least one part in this many.
pub const GAIN_DIVISOR: usize = 8;

/// The most bytes that one byte of LZ4 can stand for.
const MAX_RATIO: usize = 255;

/// The sample of a payload: this many words of [`SAMPLE_WORD_BYTES`], at a distance that is odd, so
/// that they are not always the same field of a structure.
const SAMPLE_WORDS: usize = 128;
const SAMPLE_WORD_BYTES: usize = 8;

/// Appends the compressed `payload` and returns true. Leaves `out` as it was and returns false if
/// the payload is smaller than [`MIN_BYTES`] or larger than [`MAX_BYTES`], if it looks random, or
/// if compression saves less than one part in [`GAIN_DIVISOR`].
pub fn compress_if_gain(payload: &[u8], out: &mut Vec<u8>) -> bool {
    if !(MIN_BYTES..=MAX_BYTES).contains(&payload.len()) || looks_random(payload) {
        return false;
    }
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(payload.len()), 0);
    let bytes = lz4_flex::block::compress_into(payload, &mut out[start..]);
    let bytes = bytes.expect("the output has the size that LZ4 needs at most");
    let gains = bytes <= payload.len() - payload.len() / GAIN_DIVISOR;
    out.truncate(if gains { start + bytes } else { start });
    gains
}

/// Whether all values of a byte are about equally frequent in a sample, as in encrypted or
/// compressed data. LZ4 would look through all of the payload for nothing, which takes some thirty
/// times as long as this. A payload that repeats random bytes looks random, too; it is logged as it
/// is.
fn looks_random(payload: &[u8]) -> bool {
    let distance = (payload.len() / SAMPLE_WORDS).max(SAMPLE_WORD_BYTES) | 1;
    let words = payload.chunks(distance).map(|piece| &piece[..piece.len().min(SAMPLE_WORD_BYTES)]);
    let mut counts = [0u32; 256];
    words.flatten().for_each(|byte| counts[usize::from(*byte)] += 1);
    // Ordered pairs of equal bytes. In random data, one pair in 256 is equal.
    let pairs = |count: u64| count * count.saturating_sub(1);
    let equal_pairs: u64 = counts.iter().map(|count| pairs(u64::from(*count))).sum();
    let sampled_bytes: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    equal_pairs * 256 * 2 < pairs(sampled_bytes) * 3
}

/// Appends the `expected_bytes` bytes of which `bytes` are the compressed form.
///
/// # Errors
/// If `bytes` are not LZ4, or have another size when decompressed. `out` is then as it was. A size
/// that is impossible for `bytes` is refused before memory is allocated.
pub fn decompress(
    bytes: &[u8],
    expected_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let most = bytes.len().saturating_mul(MAX_RATIO).min(MAX_BYTES);
    if expected_bytes > most {
        return Err(CodecError::WrongSize { found: most, expected: expected_bytes });
    }
    let start = out.len();
    out.resize(start + expected_bytes, 0);
    let result = match lz4_flex::block::decompress_into(bytes, &mut out[start..]) {
        Ok(found) if found == expected_bytes => return Ok(()),
        Ok(found) => CodecError::WrongSize { found, expected: expected_bytes },
        Err(error) => CodecError::Compressed(error.to_string()),
    };
    out.truncate(start);
    Err(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        // A literal; 4 + 15 + 255 + 255 + 65 at distance 1; five literals, as LZ4 must end.
        let golden = b"\x1fa\x01\0\xff\xff\x41\x50aaaaa";
        let mut out = b"-".to_vec();
        assert_eq!(decompress(golden, 600, &mut out), Ok(()));
        assert_eq!(out, [&b"-"[..], &[b'a'; 600]].concat());
        // LZ4 leaves the encoder free; this is what the locked version of it makes.
        out.truncate(1);
        assert!(compress_if_gain(&[b'a'; 600], &mut out));
        assert_eq!(out, b"-\x1fa\x01\0\xff\xff\x40\x60aaaaaa");
    }

    #[test]
    fn a_payload_that_gains_too_little_is_left_alone() {
        let mut out = b"before".to_vec();
        assert!(!compress_if_gain(&[0; MIN_BYTES - 1], &mut out));
        let mut random = fastrand::Rng::with_seed(1);
        let mut payload: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
        assert!(!compress_if_gain(&payload, &mut out));
        // Less than an eighth of it is worth something.
        payload[..400].fill(0);
        assert!(!compress_if_gain(&payload, &mut out));
        assert_eq!(out, b"before");
        payload[..600].fill(0);
        assert!(compress_if_gain(&payload, &mut out));
    }

    #[test]
    fn only_random_bytes_look_random() {
        let mut random = fastrand::Rng::with_seed(1);
        for len_bytes in [2048, 4096, 4097, 8192, 32 << 10] {
            for _ in 0..100 {
                let mut payload: Vec<u8> = (0..len_bytes).map(|_| random.u8(..)).collect();
                assert!(looks_random(&payload));
                // A part that LZ4 gains on is noticed wherever it is.
                let gain_bytes = len_bytes / GAIN_DIVISOR;
                let at = random.usize(..len_bytes - gain_bytes);
                payload[at..at + gain_bytes].fill(random.u8(..));
                assert!(!looks_random(&payload));
            }
        }
        let text = "Stored in whole lines, past the cache. ".repeat(20);
        assert!(!looks_random(text.as_bytes()));
        // One value in eight bytes is another one: numbers of eight bytes.
        let numbers: Vec<u8> = (0..512u64).flat_map(|n| (n * 977).to_le_bytes()).collect();
        assert!(!looks_random(&numbers));
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_without_memory() {
        let mut out = Vec::new();
        let refused = decompress(&[0x10, b'a'], usize::MAX, &mut out);
        assert_eq!(refused, Err(CodecError::WrongSize { found: 510, expected: usize::MAX }));
        assert_eq!(out.capacity(), 0);
    }
}
