//! Encodes the byte ranges of a block that were written, without a comparison (as in Okeanos'
//! multiwrite blocks, USENIX ATC'11 §4).
//!
//! The ranges must cover every byte in which the block differs from the previous version that is
//! logged or at home. Then replaying them is idempotent (see [`codec`](super)).
//!
//! Okeanos writes one tag with an offset and a length for each write. Here all ranges that were
//! written in one block within a transaction are one list. Ranges that touch are merged. The
//! encoding is that of [`runs`], and [`runs::apply`] decodes it.

use std::ops::Range;

use super::changed::MERGE_GAP_BYTES;
use super::runs;
use crate::types::{BLOCK_BYTES, BlockBytes};

/// Upper bound of the ranges of a block.
pub const MAX_RANGES: usize = 8;

/// A part of a block: `start..end`, not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Span {
    start: u16,
    end: u16,
}

/// Which bytes of a block were written: at most [`MAX_RANGES`] ranges, ascending.
///
/// Ranges that overlap, touch or are at most two bytes apart become one. If there are more than
/// [`MAX_RANGES`], the two that are nearest to each other are joined. So the ranges cover the bytes
/// that were written, and perhaps some bytes between them. That does no harm, because the bytes
/// that are logged for a range come from the version of the block that is committed. 38 bytes, no
/// allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges {
    /// One more than the bound: an insertion adds a range before two are joined.
    spans: [Span; MAX_RANGES + 1],
    count: u8,
}

impl Ranges {
    /// No bytes.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// All bytes of a block.
    pub fn whole() -> Ranges {
        let mut ranges = Ranges::new();
        ranges.insert(0, BLOCK_BYTES);
        ranges
    }

    /// Adds `len_bytes` bytes at `offset`.
    ///
    /// # Panics
    /// When they are not all in the block: a bug of the caller.
    pub fn insert(&mut self, offset: usize, len_bytes: usize) {
        let end = offset.checked_add(len_bytes).filter(|end| *end <= BLOCK_BYTES);
        let end = end.expect("a range lies within its block");
        if len_bytes > 0 {
            self.insert_span(Span { start: offset as u16, end: end as u16 });
            if self.spans().len() > MAX_RANGES {
                self.join_nearest();
            }
        }
    }

    /// Adds all ranges of `other`.
    pub fn merge(&mut self, other: &Ranges) {
        for range in other.iter() {
            self.insert(range.start, range.len());
        }
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.spans().iter().map(|span| usize::from(span.start)..usize::from(span.end))
    }

    /// Number of bytes in the ranges.
    pub fn covered_bytes(&self) -> usize {
        self.iter().map(|range| range.len()).sum()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all of the block was written.
    pub fn is_whole(&self) -> bool {
        self.covered_bytes() == BLOCK_BYTES
    }

    fn spans(&self) -> &[Span] {
        &self.spans[..usize::from(self.count)]
    }

    fn insert_span(&mut self, new: Span) {
        let gap = MERGE_GAP_BYTES as u16;
        let first = self.spans().partition_point(|span| span.end + gap < new.start);
        let after = self.spans().partition_point(|span| span.start <= new.end + gap);
        let near = &self.spans[first..after];
        let start = near.first().map_or(new.start, |span| span.start.min(new.start));
        let end = near.last().map_or(new.end, |span| span.end.max(new.end));
        self.replace(first..after, Span { start, end });
    }

    fn join_nearest(&mut self) {
        let gap = |at: &usize| self.spans[at + 1].start - self.spans[*at].end;
        let at = (0..self.spans().len() - 1).min_by_key(gap).expect("there are two ranges");
        let joined = Span { start: self.spans[at].start, end: self.spans[at + 1].end };
        self.replace(at..at + 2, joined);
    }

    /// Replaces the spans `old` by one span.
    fn replace(&mut self, old: Range<usize>, span: Span) {
        let count = usize::from(self.count);
        self.spans.copy_within(old.end..count, old.start + 1);
        self.spans[old.start] = span;
        let new_count = count + 1 - old.len();
        self.spans[new_count..].fill(Span::default());
        self.count = new_count as u8;
    }
}

/// Appends the bytes of `block` in `ranges`.
///
/// Returns the number of bytes appended. `None`, with `out` as it was, if that would be more than
/// `budget_bytes`.
pub fn encode(
    ranges: &Ranges,
    block: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    runs::encode_runs(ranges.iter(), block, budget_bytes, out)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one run is meant")]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ranges(list: &[(usize, usize)]) -> Ranges {
        let mut ranges = Ranges::new();
        list.iter().for_each(|(offset, len)| ranges.insert(*offset, *len));
        ranges
    }

    fn list(list: &[(usize, usize)]) -> Vec<Range<usize>> {
        ranges(list).iter().collect()
    }

    #[test]
    fn golden_bytes() {
        let block: BlockBytes = std::array::from_fn(|at| at as u8);
        let mut out = Vec::new();
        let written = ranges(&[(0x41, 3), (0x61, 2), (0x44, 1)]);
        assert_eq!(encode(&written, &block, 4096, &mut out), Some(11));
        assert_eq!(out, b"\x42\x04ABCD\x1c\x02ab\0");
        assert_eq!(encode(&Ranges::new(), &block, 4096, &mut out), Some(1));
        assert_eq!(encode(&Ranges::whole(), &block, 4096, &mut out), None);
    }

    #[test]
    fn ranges_that_overlap_or_touch_become_one() {
        assert_eq!(list(&[(10, 5), (20, 5)]), [10..15, 20..25]);
        assert_eq!(list(&[(20, 5), (10, 5), (15, 5)]), [10..25]);
        assert_eq!(list(&[(10, 5), (12, 1), (8, 4)]), [8..15]);
        assert_eq!(list(&[(10, 5), (30, 5), (50, 5), (0, 4096)]), [0..4096]);
        assert_eq!(list(&[(10, 5), (17, 1)]), [10..18]);
        assert_eq!(list(&[(10, 5), (18, 1)]), [10..15, 18..19]);
        assert_eq!(list(&[(10, 0), (4096, 0)]), []);
    }

    #[test]
    fn the_nearest_two_become_one_when_there_are_too_many() {
        let apart: Vec<_> = (0..MAX_RANGES).map(|n| (n * 100, 10)).collect();
        let mut many = ranges(&apart);
        assert_eq!(many.iter().count(), MAX_RANGES);
        many.insert(3000, 10);
        assert_eq!(many.iter().count(), MAX_RANGES);
        assert_eq!(many.iter().next(), Some(0..110));
        many.insert(3020, 10);
        assert_eq!(many.iter().last(), Some(3000..3030));
    }

    #[test]
    #[should_panic(expected = "within its block")]
    fn a_range_past_the_end_is_a_bug() {
        Ranges::new().insert(4000, 97);
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        #[test]
        fn everything_written_is_covered_in_order(
            writes in vec((0..BLOCK_BYTES, 0..300usize), 0..40), split in 0..40usize
        ) {
            let writes: Vec<_> =
                writes.iter().map(|(at, len)| (*at, (*len).min(BLOCK_BYTES - at))).collect();
            let (left, right) = writes.split_at(split.min(writes.len()));
            let mut merged = ranges(left);
            merged.merge(&ranges(right));
            for ranges in [ranges(&writes), merged] {
                let found: Vec<_> = ranges.iter().collect();
                prop_assert!(found.len() <= MAX_RANGES);
                prop_assert!(found.iter().all(|range| !range.is_empty()));
                let apart = |pair: &[Range<usize>]| pair[0].end + MERGE_GAP_BYTES < pair[1].start;
                prop_assert!(found.windows(2).all(apart));
                for (at, len) in &writes {
                    let covers = |range: &Range<usize>| range.start <= *at && at + len <= range.end;
                    prop_assert!(*len == 0 || found.iter().any(covers));
                }
            }
        }
    }
}
