//! A list of byte runs as after-images: the bytes of a delta and of an extent.
//!
//! ```text
//! list:  | run | run | ... | 0 |
//! run:   | gap | len | len bytes |
//! ```
//!
//! | field | type | meaning |
//! |---|---|---|
//! | gap | varint, 1 to 4096 | bytes from the end of the run before to this run; for the first run its offset + 1 |
//! | len | varint, 1 to 4096 | bytes of the run |
//! | bytes | len bytes | what the block holds there after the change |
//! | 0 | one byte | the end of the list |
//!
//! A varint has one byte below 128, otherwise two: the seven low bits with the top bit set, then
//! the seven high bits (LEB128). Numbers are as short as possible and runs do not touch, so a list
//! has exactly one encoding. The list contains its own end: a list that is cut short is noticed,
//! even if it is cut between two runs.
//!
//! Three run headers were measured on pages of SQLite and on metadata blocks of ext4: this one, two
//! `u16`, and 12 + 12 bits; and nibbles with extensions. This one and the nibbles made the smallest
//! lists, within a byte of each other at the median. With this one, lists with merged gaps of one
//! or two bytes are smallest.

use std::ops::Range;

use super::CodecError;
use super::changed::ChangedRuns;
use super::window::Known;
use crate::types::{BLOCK_BYTES, BlockBytes};

/// Bytes of the encoding of no change, which is the shortest of all.
pub const EMPTY_BYTES: usize = 1;

/// Appends the after-images of the bytes of `new` that differ from `base`.
///
/// Returns the number of bytes appended. `None`, with `out` as it was, if that would be more than
/// `budget_bytes`; the comparison stops as soon as that is certain.
pub fn encode(
    base: &BlockBytes,
    new: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    encode_runs(ChangedRuns::new(base, new, budget_bytes), new, budget_bytes, out)
}

/// Appends the after-images of these runs of a block. The runs are not empty, are ascending, and do
/// not touch.
pub(super) fn encode_runs(
    runs: impl Iterator<Item = Range<usize>>,
    block: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let start = out.len();
    let limit = start.saturating_add(budget_bytes);
    let mut gap_start = None;
    for run in runs {
        let gap = gap_start.map_or(run.start + 1, |end| run.start - end);
        gap_start = Some(run.end);
        if out.len() + header_bytes(gap, run.len()) + run.len() + EMPTY_BYTES > limit {
            out.truncate(start);
            return None;
        }
        put_varint(gap, out);
        put_varint(run.len(), out);
        out.extend_from_slice(&block[run]);
    }
    if out.len() + EMPTY_BYTES > limit {
        return None;
    }
    out.push(0);
    Some(out.len() - start)
}

/// Writes the runs of an encoded list over `block`.
///
/// # Errors
/// If the bytes are not one whole canonical list of runs within a block. The block is then
/// unchanged.
pub fn apply(block: &mut BlockBytes, bytes: &[u8]) -> Result<(), CodecError> {
    check(bytes)?;
    let mut reader = Reader::new(bytes);
    while let Some((offset, data)) = reader.next_run()? {
        block[offset..offset + data.len()].copy_from_slice(data);
    }
    Ok(())
}

/// Checks an encoded list as [`apply`] does; returns how many bytes of the block it sets.
///
/// # Errors
/// As [`apply`].
pub fn check(bytes: &[u8]) -> Result<usize, CodecError> {
    let mut reader = Reader::new(bytes);
    let mut covered_bytes = 0;
    while let Some((_, data)) = reader.next_run()? {
        covered_bytes += data.len();
    }
    match bytes.len() - reader.at {
        0 => Ok(covered_bytes),
        rest => Err(CodecError::Trailing(rest)),
    }
}

/// The bytes that an encoded list sets.
pub(crate) fn made_by(bytes: &[u8], known: &mut Known) -> Result<(), CodecError> {
    let mut reader = Reader::new(bytes);
    while let Some((offset, data)) = reader.next_run()? {
        known.add(offset..offset + data.len());
    }
    Ok(())
}

fn header_bytes(gap: usize, len: usize) -> usize {
    2 + usize::from(gap >= 0x80) + usize::from(len >= 0x80)
}

pub(super) fn put_varint(number: usize, out: &mut Vec<u8>) {
    debug_assert!(number < 1 << 14, "fits two bytes");
    if number < 0x80 {
        out.push(number as u8);
    } else {
        out.extend_from_slice(&[number as u8 | 0x80, (number >> 7) as u8]);
    }
}

/// Reads a list run by run and checks everything.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the previous run ended in the block.
    end: Option<usize>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, end: None }
    }

    /// Offset in the block and bytes of the next run, or the end of the list.
    fn next_run(&mut self) -> Result<Option<(usize, &'a [u8])>, CodecError> {
        let gap = self.varint()?;
        if gap == 0 {
            return Ok(None);
        }
        let offset = self.end.map_or(gap - 1, |end| end + gap);
        let len_at = self.at;
        let len = self.varint()?;
        if len == 0 {
            return Err(CodecError::NotCanonical(len_at));
        }
        let end = offset + len;
        if end > BLOCK_BYTES {
            return Err(CodecError::OutOfBlock(end));
        }
        let data = self.bytes.get(self.at..self.at + len).ok_or(CodecError::Truncated)?;
        self.at += len;
        self.end = Some(end);
        Ok(Some((offset, data)))
    }

    fn varint(&mut self) -> Result<usize, CodecError> {
        take_varint(self.bytes, &mut self.at)
    }
}

/// Reads the varint at `at`, and advances `at` to the byte after it.
pub(super) fn take_varint(bytes: &[u8], at: &mut usize) -> Result<usize, CodecError> {
    let low = take_byte(bytes, at)?;
    if low < 0x80 {
        return Ok(low);
    }
    let high_at = *at;
    let high = take_byte(bytes, at)?;
    if high == 0 || high >= 0x80 {
        return Err(CodecError::NotCanonical(high_at));
    }
    Ok((low & 0x7f) | (high << 7))
}

fn take_byte(bytes: &[u8], at: &mut usize) -> Result<usize, CodecError> {
    let byte = *bytes.get(*at).ok_or(CodecError::Truncated)?;
    *at += 1;
    Ok(usize::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(base: &BlockBytes, new: &BlockBytes) -> Vec<u8> {
        let mut out = Vec::new();
        encode(base, new, usize::MAX, &mut out).expect("within the budget");
        out
    }

    #[test]
    fn golden_bytes() {
        let base = [0; BLOCK_BYTES];
        assert_eq!(encoded(&base, &base), [0]);

        let mut new = base;
        new[0..2].copy_from_slice(b"ab");
        new[5] = b'c';
        new[5 + 1 + 300] = b'd';
        new[4095] = b'e';
        let golden = b"\x01\x02ab\x03\x01c\xac\x02\x01d\xcc\x1d\x01e\0";
        assert_eq!(encoded(&base, &new), golden);

        let golden = [&[0x01, 0x80, 0x20][..], &[9; 4096], &[0]].concat();
        assert_eq!(encoded(&base, &[9; BLOCK_BYTES]), golden);
    }

    #[test]
    fn more_than_the_budget_is_given_up_and_leaves_no_trace() {
        let base = [0; BLOCK_BYTES];
        let mut new = base;
        new[100..140].fill(1);
        new[2000] = 1;
        let bytes = encoded(&base, &new);
        let mut out = b"before".to_vec();
        for budget_bytes in 0..bytes.len() {
            assert_eq!(encode(&base, &new, budget_bytes, &mut out), None);
            assert_eq!(out, b"before");
        }
        assert_eq!(encode(&base, &new, bytes.len(), &mut out), Some(bytes.len()));
        assert_eq!(out, [b"before", &bytes[..]].concat());
    }

    #[test]
    fn bytes_that_are_not_canonical_are_refused_and_change_nothing() {
        use CodecError::{NotCanonical, OutOfBlock, Trailing, Truncated};
        let cases: [(&[u8], CodecError); 14] = [
            (b"", Truncated),
            (b"\x01", Truncated),
            (b"\x81", Truncated),
            (b"\x01\x02a", Truncated),
            (b"\x01\x02ab", Truncated),
            (b"\x01\x02ab\0\0", Trailing(1)),
            (b"\0\x01\x01a\0", Trailing(4)),
            (b"\x01\0\0", NotCanonical(1)),
            (b"\x81\0\x01a\0", NotCanonical(1)),
            (b"\x80\0", NotCanonical(1)),
            (b"\x81\x80\x01\x01a\0", NotCanonical(1)),
            (b"\x80\x20\x02ab\0", OutOfBlock(4097)),
            (b"\xff\x7f\x01a\0", OutOfBlock(16383)),
            (b"\x01\x01a\x80\x20\x01b\0", OutOfBlock(4098)),
        ];
        for (bytes, error) in cases {
            let mut block = [b'x'; BLOCK_BYTES];
            assert_eq!(apply(&mut block, bytes), Err(error), "{bytes:?}");
            assert_eq!(block, [b'x'; BLOCK_BYTES]);
        }
        // Up to the very end of the block is fine.
        let mut block = [b'x'; BLOCK_BYTES];
        assert_eq!(apply(&mut block, b"\x80\x20\x01a\0"), Ok(()));
        assert_eq!(block[4094..], *b"xa");
    }
}
