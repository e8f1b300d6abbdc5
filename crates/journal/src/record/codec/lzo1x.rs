//! LZO1X, the compressed format of DJFS' deltas, for one block.
//!
//! The Rust libraries that encode this format fast are under the GPL; the others need 0.1 to 1 ms
//! for a block. This encoder is greedy with one hash table, as `lzo1x_1` is. It uses a part of the
//! instructions of the format, and every LZO1X decoder can read its output: a test of the
//! laboratory tries another one. The decoder here knows this part only.
//!
//! ```text
//! literals    first:        17 + n                                       n <= 238
//!             n <= 3:       low two bits of the match before
//!             n <= 18:      n - 3
//!             longer:       0, (n - 18) in units of 255
//! match       M2: length 3 to 8, distance <= 2048
//!                           (len - 1) << 5 | ((dist - 1) & 7) << 2 | n,  (dist - 1) >> 3
//!             M3:           32 | (len - 2), u16 (dist - 1) << 2 | n      length <= 33
//!                           32, (len - 33) in units of 255, u16          longer
//! end                       17, 0, 0
//! units of 255              a byte 0 for each 255 before the last 1 to 255, then those
//! ```

use super::CodecError;
use crate::types::{BLOCK_BYTES, BlockBytes};

const MIN_MATCH_BYTES: usize = 4;
const HASH_BITS: u32 = 10;
/// After this many literals without a match, the search takes longer steps.
const LITERALS_PER_STEP: usize = 32;
const END: [u8; 3] = [17, 0, 0];

/// The last place of each hash, plus one; 0 if there is none.
type Table = [u16; 1 << HASH_BITS];

/// Appends the compressed block and returns the number of bytes appended. Gives up, with `out` as
/// it was, if that would be more than `budget_bytes`.
pub(super) fn compress(
    block: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let mut table: Table = [0; 1 << HASH_BITS];
    let mut writer = Writer { start: out.len(), out, state_at: None };
    let limit = writer.start.saturating_add(budget_bytes);
    let (mut at, mut literals_at) = (0, 0);
    while let Some(word) = word_at(block, at) {
        let seen = std::mem::replace(&mut table[hash(word)], at as u16 + 1);
        let from = usize::from(seen).checked_sub(1);
        let Some(from) = from.filter(|from| word_at(block, *from) == Some(word)) else {
            at += 1 + (at - literals_at) / LITERALS_PER_STEP;
            continue;
        };
        let len = match_len(block, from, at);
        writer.literals(&block[literals_at..at]);
        writer.match_(at - from, len);
        if writer.out.len() > limit {
            break;
        }
        at += len;
        literals_at = at;
    }
    writer.literals(&block[literals_at..]);
    writer.out.extend_from_slice(&END);
    let (start, end) = (writer.start, out.len());
    if end > limit {
        out.truncate(start);
        return None;
    }
    Some(end - start)
}

fn word_at(block: &BlockBytes, at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

/// The number of bytes at `at` that repeat those at `from`, up to the end of the block.
fn match_len(block: &BlockBytes, from: usize, at: usize) -> usize {
    let mut len = MIN_MATCH_BYTES;
    let eight = |at: usize| block[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    while let (Some(a), Some(b)) = (eight(from + len), eight(at + len)) {
        if a != b {
            return len + (a ^ b).trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    while at + len < BLOCK_BYTES && block[from + len] == block[at + len] {
        len += 1;
    }
    len
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// The byte of the last match whose low two bits count the literals after it.
    state_at: Option<usize>,
}

impl Writer<'_> {
    fn literals(&mut self, bytes: &[u8]) {
        match (self.state_at, bytes.len()) {
            (_, 0) => {}
            (Some(at), n @ 1..=3) => self.out[at] |= n as u8,
            (None, n @ ..=238) => self.out.push(17 + n as u8),
            (_, n @ ..=18) => self.out.push(n as u8 - 3),
            (_, n) => {
                self.out.push(0);
                self.units(n - 18);
            }
        }
        self.out.extend_from_slice(bytes);
    }

    fn match_(&mut self, distance: usize, len: usize) {
        let back = distance - 1;
        if len <= 8 && distance <= 2048 {
            self.state_at = Some(self.out.len());
            let first = (len - 1) << 5 | (back & 7) << 2;
            self.out.extend_from_slice(&[first as u8, (back >> 3) as u8]);
            return;
        }
        if len <= 33 {
            self.out.push(32 | (len - 2) as u8);
        } else {
            self.out.push(32);
            self.units(len - 33);
        }
        self.state_at = Some(self.out.len());
        self.out.extend_from_slice(&((back as u16) << 2).to_le_bytes());
    }

    fn units(&mut self, mut number: usize) {
        while number > 255 {
            self.out.push(0);
            number -= 255;
        }
        self.out.push(number as u8);
    }
}

/// Decodes what [`compress`] made of a block.
///
/// # Errors
/// If the bytes are something else. `block` is then garbage.
pub(super) fn decompress(bytes: &[u8], block: &mut BlockBytes) -> Result<(), CodecError> {
    let mut reader = Reader { rest: bytes, block, len: 0 };
    // Literals follow a match that counts none, and only there.
    let mut may_be_literals = true;
    if let Some(first @ 18..) = bytes.first().copied() {
        reader.byte()?;
        reader.literals(usize::from(first - 17))?;
        may_be_literals = false;
    }
    loop {
        match reader.byte()? {
            first @ ..=15 if may_be_literals => {
                let count = match first {
                    0 => 18 + reader.units()?,
                    first => 3 + usize::from(first),
                };
                reader.literals(count)?;
                may_be_literals = false;
            }
            first @ 32.. => may_be_literals = reader.match_(first)? == 0,
            17 => return reader.end(),
            first => return Err(damaged(format!("no instruction begins with {first} here"))),
        }
    }
}

fn damaged(why: impl Into<String>) -> CodecError {
    CodecError::Compressed(why.into())
}

struct Reader<'a> {
    /// What is not decoded yet.
    rest: &'a [u8],
    block: &'a mut BlockBytes,
    /// Bytes of the block that are decoded.
    len: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, CodecError> {
        let (first, rest) = self.rest.split_first().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// A number in units of 255. More than a block is an error, however many zeros there are.
    fn units(&mut self) -> Result<usize, CodecError> {
        let mut number = 0;
        loop {
            match self.byte()? {
                0 if number > BLOCK_BYTES => return Err(damaged("more than a block")),
                0 => number += 255,
                last => return Ok(number + usize::from(last)),
            }
        }
    }

    /// Makes room for so many bytes more, and returns where they begin.
    fn grow(&mut self, count: usize) -> Result<usize, CodecError> {
        let at = self.len;
        if count > BLOCK_BYTES - at {
            return Err(damaged("more than a block"));
        }
        self.len += count;
        Ok(at)
    }

    fn literals(&mut self, count: usize) -> Result<(), CodecError> {
        let (literals, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Truncated)?;
        let at = self.grow(count)?;
        self.block[at..at + count].copy_from_slice(literals);
        self.rest = rest;
        Ok(())
    }

    /// A match and the literals that it counts, whose number is returned.
    fn match_(&mut self, first: u8) -> Result<usize, CodecError> {
        let (len, back, literal_count) = if first >= 64 {
            let back = usize::from(first >> 2 & 7) | usize::from(self.byte()?) << 3;
            (usize::from(first >> 5) + 1, back, first & 3)
        } else {
            let len = match first & 31 {
                0 => 33 + self.units()?,
                len => 2 + usize::from(len),
            };
            let word = u16::from_le_bytes([self.byte()?, self.byte()?]);
            (len, usize::from(word >> 2), word.to_le_bytes()[0] & 3)
        };
        let at = self.grow(len)?;
        let from = at.checked_sub(back + 1).ok_or_else(|| damaged("a match before the block"))?;
        // They may overlap: then what was copied is copied again.
        (0..len).for_each(|n| self.block[at + n] = self.block[from + n]);
        let literal_count = usize::from(literal_count);
        self.literals(literal_count)?;
        Ok(literal_count)
    }

    /// After the first byte of [`END`].
    fn end(mut self) -> Result<(), CodecError> {
        if [self.byte()?, self.byte()?] != END[1..] {
            return Err(damaged("no instruction begins with 17 here"));
        }
        match (self.rest.len(), self.len) {
            (0, BLOCK_BYTES) => Ok(()),
            (0, found) => Err(CodecError::WrongSize { found, expected: BLOCK_BYTES }),
            (count, _) => Err(CodecError::Trailing(count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onejournal_testing::{noise_and_copies, tier};

    fn compressed(block: &BlockBytes) -> Vec<u8> {
        let mut out = Vec::new();
        let bytes = compress(block, usize::MAX, &mut out);
        assert_eq!(bytes, Some(out.len()));
        let mut decoded = [0xee; BLOCK_BYTES];
        assert_eq!(decompress(&out, &mut decoded), Ok(()));
        assert!(decoded == *block, "decoded as it was");
        out
    }

    #[test]
    fn golden_bytes() {
        // A literal; 4095 times the same: 33 + 15 * 255 + 237; the end.
        let zeros = [&[18, 0, 32][..], &[0; 15], &[237, 0, 0, 17, 0, 0]].concat();
        assert_eq!(compressed(&[0; BLOCK_BYTES]), zeros);

        let mut block = [0; BLOCK_BYTES];
        block[..16].copy_from_slice(b"abcdXabcdefghYab");
        // "abcdX"; 4 at distance 5 and no literal; "efghYab"; a zero; the rest.
        let golden = [
            &b"\x16abcdX"[..],
            b"\x70\0",
            b"\x05efghYab\0",
            &[32],
            &[0; 15],
            &[221, 0, 0, 17, 0, 0],
        ]
        .concat();
        assert_eq!(compressed(&block), golden);
    }

    #[test]
    fn matches_about_the_largest_distance_of_the_short_form() {
        for distance in 2040..2056 {
            for len in 4..12 {
                let mut block = [0; BLOCK_BYTES];
                for at in [1000, 1000 + distance] {
                    block[at..at + len].copy_from_slice(&b"abcdefghijkl"[..len]);
                }
                block[1000 + len] = 1;
                block[1000 + distance + len] = 2;
                compressed(&block);
            }
        }
    }

    #[test]
    fn every_kind_of_literals_and_matches_is_decoded() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(module_path!()));
        for _ in 0..tier::count(3000) {
            let bytes = noise_and_copies(&mut random, BLOCK_BYTES);
            compressed(bytes.first_chunk().expect("a block"));
        }
    }

    #[test]
    fn more_than_the_budget_is_given_up_and_leaves_no_trace() {
        let mut random = fastrand::Rng::with_seed(4);
        let noise: BlockBytes = std::array::from_fn(|_| random.u8(..));
        let needed = compressed(&noise).len();
        let mut out = b"before".to_vec();
        assert_eq!(compress(&noise, needed - 1, &mut out), None);
        assert_eq!(out, b"before");
        assert_eq!(compress(&noise, needed, &mut out), Some(needed));
    }
    #[test]
    fn instructions_that_the_encoder_does_not_make_are_refused() {
        let refused = |bytes: &[u8]| decompress(bytes, &mut [0; BLOCK_BYTES]).unwrap_err();
        let is_damaged = |bytes: &[u8]| matches!(refused(bytes), CodecError::Compressed(_));
        let zeros = compressed(&[0; BLOCK_BYTES]);
        for len in 0..zeros.len() {
            assert_eq!(refused(&zeros[..len]), CodecError::Truncated, "the first {len} bytes");
        }
        let longer = [&zeros[..], b"ab"].concat();
        assert_eq!(refused(&longer), CodecError::Trailing(2));
        assert!(is_damaged(&[18, 1, 32, 1, 4, 0, 17, 0, 0]), "a match before the block");
        assert!(is_damaged(&[18, 1, 17, 0, 1]) && is_damaged(&[18, 1, 16, 0, 0]), "another end");
        assert!(is_damaged(&[18, 1, 4, 0]), "literals after literals");
        assert!(is_damaged(&[&[18, 1, 32][..], &[0; 100]].concat()), "a number without an end");
        let mut random = fastrand::Rng::with_seed(tier::seed_of(module_path!()));
        for _ in 0..tier::count(20_000) {
            // It ends, in the block.
            let mut bytes = zeros.clone();
            (0..random.usize(1..6)).for_each(|_| {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            });
            let _ = decompress(&bytes, &mut [0; BLOCK_BYTES]);
        }
    }
}
