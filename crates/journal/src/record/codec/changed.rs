//! Finds the runs of bytes in which a block differs from its base, from the masks of
//! [`device::compare`], which have one bit for each byte.

use std::ops::Range;

use device::compare::{CHUNK_BYTES, Difference, compare};

use crate::types::BlockBytes;

/// Gaps of equal bytes up to this length become part of a run, because a run's header takes at
/// least two bytes.
pub(super) const MERGE_GAP_BYTES: usize = 2;

/// Runs of bytes of `new` that differ from `base`, ascending, more than [`MERGE_GAP_BYTES`] apart.
pub(super) struct ChangedRuns {
    /// Its `chunks` were not examined yet.
    difference: Difference,
    /// The caller gives up at a run of this length, so its end need not be found.
    too_long_bytes: usize,
    /// Changed bytes of the chunk at `chunk_at` that were not examined yet, with short gaps closed.
    mask: u64,
    chunk_at: usize,
    /// A run that was found while looking for the end of the previous one.
    pending: Option<Range<usize>>,
}

impl ChangedRuns {
    pub(super) fn new(base: &BlockBytes, new: &BlockBytes, too_long_bytes: usize) -> ChangedRuns {
        let difference = compare(base, new);
        ChangedRuns { difference, too_long_bytes, mask: 0, chunk_at: 0, pending: None }
    }

    /// The next run within one chunk.
    fn next_piece(&mut self) -> Option<Range<usize>> {
        if self.mask == 0 {
            if self.difference.chunks == 0 {
                return None;
            }
            let index = self.difference.chunks.trailing_zeros() as usize;
            self.difference.chunks &= self.difference.chunks - 1;
            self.mask = close_gaps(self.difference.masks[index]);
            self.chunk_at = index * CHUNK_BYTES;
        }
        let first = self.mask.trailing_zeros();
        let count = (self.mask >> first).trailing_ones();
        // The addition carries through the run's bits and clears them.
        self.mask &= self.mask.wrapping_add(1 << first);
        let start = self.chunk_at + first as usize;
        Some(start..start + count as usize)
    }
}

impl Iterator for ChangedRuns {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let mut run = self.pending.take().or_else(|| self.next_piece())?;
        while run.len() < self.too_long_bytes
            && let Some(piece) = self.next_piece()
        {
            if piece.start > run.end + MERGE_GAP_BYTES {
                self.pending = Some(piece);
                break;
            }
            run.end = piece.end;
        }
        Some(run)
    }
}

/// Sets the bits of gaps of one or two zeros between ones ([`MERGE_GAP_BYTES`]).
fn close_gaps(mask: u64) -> u64 {
    mask | ((mask << 1) & ((mask >> 1) | (mask >> 2))) | ((mask << 2) & (mask >> 1))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one run is meant")]
mod tests {
    use super::*;
    use crate::types::BLOCK_BYTES;
    use proptest::prelude::*;

    /// The same, byte by byte.
    fn scalar_runs(base: &BlockBytes, new: &BlockBytes) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..BLOCK_BYTES).filter(|at| base[*at] != new[*at]) {
            match runs.last_mut() {
                Some(run) if at <= run.end + MERGE_GAP_BYTES => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn runs(base: &BlockBytes, new: &BlockBytes) -> Vec<Range<usize>> {
        ChangedRuns::new(base, new, usize::MAX).collect()
    }

    #[test]
    fn a_run_at_every_place_of_every_short_length() {
        let base = [7; BLOCK_BYTES];
        for start in 0..200 {
            for end in start + 1..(start + 140).min(300) {
                let mut new = base;
                new[start..end].fill(8);
                new[BLOCK_BYTES - 1] = 0;
                assert_eq!(runs(&base, &new), [start..end, BLOCK_BYTES - 1..BLOCK_BYTES]);
            }
        }
    }

    #[test]
    fn gaps_of_two_are_closed_and_gaps_of_three_are_not_also_between_chunks() {
        let base = [0; BLOCK_BYTES];
        for at in 0..200 {
            for gap in 1..6 {
                let mut new = base;
                (new[at], new[at + gap + 1]) = (1, 255);
                let whole = [at..at + gap + 2];
                let split = [at..at + 1, at + gap + 1..at + gap + 2];
                assert_eq!(runs(&base, &new), if gap <= 2 { &whole[..] } else { &split });
            }
        }
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        #[test]
        fn as_byte_by_byte(seed: u64, change_count in 0..600usize, spread in 1..BLOCK_BYTES) {
            let mut random = fastrand::Rng::with_seed(seed);
            let base: BlockBytes = std::array::from_fn(|_| random.u8(..));
            let mut new = base;
            let at = random.usize(..BLOCK_BYTES);
            for _ in 0..change_count {
                new[(at + random.usize(..spread)) % BLOCK_BYTES] = random.u8(..);
            }
            prop_assert_eq!(runs(&base, &new), scalar_runs(&base, &new));
        }
    }
}
