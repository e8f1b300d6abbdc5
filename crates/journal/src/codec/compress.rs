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

/// Appends the compressed `payload` and returns true. Leaves `out` as it was and returns false if
/// the payload is smaller than [`MIN_BYTES`] or larger than [`MAX_BYTES`], or if compression saves
/// less than one part in [`GAIN_DIVISOR`].
pub fn compress_if_gain(payload: &[u8], out: &mut Vec<u8>) -> bool {
    if !(MIN_BYTES..=MAX_BYTES).contains(&payload.len()) {
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
    fn what_does_not_gain_is_left_alone() {
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
    fn a_size_that_cannot_be_is_refused_without_memory() {
        let mut out = Vec::new();
        let refused = decompress(&[0x10, b'a'], usize::MAX, &mut out);
        assert_eq!(refused, Err(CodecError::WrongSize { found: 510, expected: usize::MAX }));
        assert_eq!(out.capacity(), 0);
    }
}
