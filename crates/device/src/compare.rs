//! Finds the bytes in which two blocks differ, as bit masks. This is the only computation with
//! hand-written vector instructions.
//!
//! With AVX2, if the processor has it, a delta of a block takes 0.6 to 0.75 of the time that it
//! takes with the portable code, of which the compiler can vectorize only a part. (AVX-512 gains
//! another tenth, which was not worth a third variant.) The tests compare both with a comparison
//! byte by byte.

/// Size of a compared block in bytes.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of one mask, with one bit for each byte.
pub const CHUNK_BYTES: usize = 64;
const CHUNK_COUNT: usize = BLOCK_BYTES / CHUNK_BYTES;
const _: () = assert!(CHUNK_COUNT == u64::BITS as usize && CHUNK_BYTES == u64::BITS as usize);

type Block = [u8; BLOCK_BYTES];
type Chunk = [u8; CHUNK_BYTES];

/// Where two blocks differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Bit k: some byte of chunk k differs.
    pub chunks: u64,
    /// For each chunk, bit k: byte k of it differs.
    pub masks: [u64; CHUNK_COUNT],
}

/// Compares two blocks.
pub fn compare(a: &Block, b: &Block) -> Difference {
    let (a, b) = (a.as_chunks().0, b.as_chunks().0);
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the function asks of its caller.
        return unsafe { avx2::compare(a, b) };
    }
    compare_portable(a, b)
}

/// Finds the chunks that differ by XOR and OR of words, which become vector code on every target.
/// Then compares the bytes of these chunks, a word at a time.
fn compare_portable(a: &[Chunk], b: &[Chunk]) -> Difference {
    let mut difference = Difference { chunks: 0, masks: [0; CHUNK_COUNT] };
    for (index, (a, b)) in a.iter().zip(b).enumerate() {
        difference.chunks |= u64::from(differs(a, b)) << index;
    }
    let mut rest = difference.chunks;
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        difference.masks[index] = changed_bytes(&a[index], &b[index]);
    }
    difference
}

/// Not `a != b`, because the compiler turns that into a function call.
fn differs(a: &Chunk, b: &Chunk) -> bool {
    words(a).zip(words(b)).fold(0, |bits, (a, b)| bits | (a ^ b)) != 0
}

fn changed_bytes(a: &Chunk, b: &Chunk) -> u64 {
    let bytes = words(a).zip(words(b)).map(|(a, b)| nonzero_bytes(a ^ b));
    bytes.enumerate().fold(0, |bits, (index, byte)| bits | byte << (8 * index))
}

fn words(chunk: &Chunk) -> impl Iterator<Item = u64> {
    chunk.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Bit k of the result tells whether byte k (from the lowest) of the word is not zero.
fn nonzero_bytes(word: u64) -> u64 {
    const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // A byte's top bit, without a carry into the next byte.
    let tops = (((word & LOW_SEVEN) + LOW_SEVEN) | word) & !LOW_SEVEN;
    // Brings bit 8k to bit 56 + k, for each k.
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8};

    use super::{CHUNK_COUNT, Chunk, Difference};

    const VECTOR_BYTES: usize = size_of::<__m256i>();

    #[target_feature(enable = "avx2")]
    pub(super) fn compare(a: &[Chunk], b: &[Chunk]) -> Difference {
        let mut difference = Difference { chunks: 0, masks: [0; CHUNK_COUNT] };
        let pairs = a.iter().zip(b).zip(&mut difference.masks);
        for (index, ((a, b), mask)) in pairs.enumerate() {
            let ([a_low, a_high], [b_low, b_high]) = (halves(a), halves(b));
            *mask = !(equal_bytes(a_low, b_low) | equal_bytes(a_high, b_high) << VECTOR_BYTES);
            difference.chunks |= u64::from(*mask != 0) << index;
        }
        difference
    }

    fn halves(chunk: &Chunk) -> [&[u8; VECTOR_BYTES]; 2] {
        let (halves, _) = chunk.as_chunks();
        [&halves[0], &halves[1]]
    }

    /// Bit k: byte k is equal.
    #[target_feature(enable = "avx2")]
    fn equal_bytes(a: &[u8; VECTOR_BYTES], b: &[u8; VECTOR_BYTES]) -> u64 {
        let equal = _mm256_cmpeq_epi8(load(a), load(b));
        u64::from(_mm256_movemask_epi8(equal).cast_unsigned())
    }

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; VECTOR_BYTES]) -> __m256i {
        // SAFETY: the reference is valid for reading the 32 bytes that a vector has, and this load
        // asks for no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onejournal_testing::{test_name, tier};

    fn byte_by_byte(a: &Block, b: &Block) -> Difference {
        let mut difference = Difference { chunks: 0, masks: [0; CHUNK_COUNT] };
        for at in (0..BLOCK_BYTES).filter(|at| a[*at] != b[*at]) {
            difference.chunks |= 1 << (at / CHUNK_BYTES);
            difference.masks[at / CHUNK_BYTES] |= 1 << (at % CHUNK_BYTES);
        }
        difference
    }

    fn check(a: &Block, b: &Block) {
        let expected = byte_by_byte(a, b);
        assert_eq!(compare_portable(a.as_chunks().0, b.as_chunks().0), expected);
        assert_eq!(compare(a, b), expected);
    }

    #[test]
    fn every_single_byte_is_seen() {
        let a = [0x80; BLOCK_BYTES];
        for at in 0..BLOCK_BYTES {
            for byte in [0, 0x81, 0x7f, 0xff] {
                let mut b = a;
                b[at] = byte;
                check(&a, &b);
            }
        }
    }

    #[test]
    fn every_difference_of_two_bytes_is_seen() {
        // Miri is a thousand times slower.
        let step = if cfg!(miri) { 85 } else { 1 };
        for byte in (0..=255u8).step_by(step) {
            let a = [byte; BLOCK_BYTES];
            // Every other byte takes all values; the ones between are equal.
            let b = std::array::from_fn(|at| if at % 2 == 0 { (at / 2) as u8 } else { byte });
            check(&a, &b);
        }
    }

    #[test]
    fn blocks_at_any_alignment_with_many_or_few_changes() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut bytes = vec![0; 2 * (BLOCK_BYTES + CHUNK_BYTES)];
        for round in 0..tier::count(2000) {
            // Few symbols make many bytes equal.
            let symbols = [1, 3, 255][round % 3];
            bytes.fill_with(|| random.u8(..symbols));
            let (left, right) = bytes.split_at_mut(BLOCK_BYTES + CHUNK_BYTES);
            let a = left[random.usize(..CHUNK_BYTES)..].first_chunk().expect("a block");
            let b = right[random.usize(..CHUNK_BYTES)..].first_chunk_mut().expect("a block");
            for _ in 0..random.usize(..50) {
                b[random.usize(..BLOCK_BYTES)] ^= random.u8(..);
            }
            check(a, b);
        }
    }
}
