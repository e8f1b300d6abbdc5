//! DJFS' own delta: the XOR of a block and its base, compressed with LZO (DJFS §V.2).
//!
//! It exists for measurements against [`runs`](super::runs), which is smaller and faster for most
//! changes.
//!
//! **Not idempotent**: the XOR must be applied once, to exactly the base. Over a block that a
//! checkpoint has already brought home, or over a torn one, it gives garbage. So DJFS has two
//! states of a block. In the *normal* state a commit logs the whole block, in the *delta* state the
//! difference. When the journal switches to another region, the block is normal again. So every
//! region has the whole block before its first delta, and replay never starts from the block at
//! home (§V.3, §V.4).

use super::{CodecError, lzo1x};
use crate::types::{BLOCK_BYTES, BlockBytes};

/// Appends the compressed XOR of `base` and `new`.
///
/// Returns the number of bytes appended. `None`, with `out` as it was, if that would be more than
/// `budget_bytes`.
pub fn encode(
    base: &BlockBytes,
    new: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let mut difference = *base;
    xor(&mut difference, new);
    lzo1x::compress(&difference, budget_bytes, out)
}

/// Makes the new version of `block`, which must hold exactly the base.
///
/// # Errors
/// If the bytes are not those of [`encode`]. The block is then unchanged.
pub fn apply(block: &mut BlockBytes, bytes: &[u8]) -> Result<(), CodecError> {
    let mut difference = [0; BLOCK_BYTES];
    lzo1x::decompress(bytes, &mut difference)?;
    xor(block, &difference);
    Ok(())
}

fn xor(block: &mut BlockBytes, other: &BlockBytes) {
    block.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut base = [b'a'; BLOCK_BYTES];
        let mut new = base;
        new[1] = b'b';
        let mut out = b"-".to_vec();
        assert_eq!(encode(&base, &new, BLOCK_BYTES, &mut out), Some(26));
        // 0, 'a' ^ 'b', 0; 4093 more zeros: 33 + 15 * 255 + 235; the end.
        let golden = [&[b'-', 20, 0, 3, 0, 32][..], &[0; 15], &[235, 0, 0, 17, 0, 0]].concat();
        assert_eq!(out, golden);
        assert_eq!(apply(&mut base, &out[1..]), Ok(()));
        assert_eq!(base, new);
    }

    #[test]
    fn bytes_that_do_not_make_one_block_are_refused() {
        let mut block = [7; BLOCK_BYTES];
        let short = apply(&mut block, &[18, 1, 17, 0, 0]);
        assert_eq!(short, Err(CodecError::WrongSize { found: 1, expected: BLOCK_BYTES }));
        let long = [&[18, 1, 32][..], &[0; 17], &[1, 0, 0, 17, 0, 0]].concat();
        assert!(matches!(apply(&mut block, &long), Err(CodecError::Compressed(_))));
        assert_eq!(block, [7; BLOCK_BYTES]);
    }
}
