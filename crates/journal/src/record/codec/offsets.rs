//! Sets of offsets of a block, with one bit for each.

use std::ops::Range;

use device::compare::compare;

use crate::types::{BLOCK_BYTES, BlockBytes};

const WORD_COUNT: usize = BLOCK_BYTES / 64;

/// A set of offsets of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offsets(pub [u64; WORD_COUNT]);

impl Offsets {
    pub(crate) const NONE: Offsets = Offsets([0; WORD_COUNT]);

    /// The offsets from which at least [`RUN_BYTES`](Self::RUN_BYTES) bytes of both blocks are
    /// equal, or all bytes up to the end.
    pub(crate) fn of_equal_runs(one: &BlockBytes, other: &BlockBytes) -> Offsets {
        let mut runs = Offsets(compare(one, other).masks.map(|differ| !differ));
        let mut next = u64::MAX;
        for word in runs.0.iter_mut().rev() {
            let one = u128::from(*word) | u128::from(next) << u64::BITS;
            let two = one & one >> 1;
            let four = two & two >> 2;
            next = std::mem::replace(word, (four & two >> 4) as u64);
        }
        runs
    }

    /// As many equal bytes are a run.
    pub(crate) const RUN_BYTES: usize = 6;

    /// Whether an offset is in the set.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// The first offset of the range that any of the sets has.
    pub(crate) fn first_of_any(sets: [&Offsets; 3], range: Range<usize>) -> Option<usize> {
        let first_word = range.start / 64;
        let mut from_start = u64::MAX << (range.start % 64);
        for index in first_word..range.end.div_ceil(64) {
            let word = sets.iter().fold(0, |word, set| word | set.0[index]) & from_start;
            if word != 0 {
                let at = index * 64 + word.trailing_zeros() as usize;
                return (at < range.end).then_some(at);
            }
            from_start = u64::MAX;
        }
        None
    }

    /// Its offsets, ascending.
    pub(crate) fn each(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(index, word)| {
            let bits = std::iter::successors(Some(*word), |rest| Some(rest & rest.wrapping_sub(1)));
            let bits = bits.take_while(|rest| *rest != 0);
            bits.map(move |rest| index * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// Takes an offset out of the set.
    pub(crate) fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_set(random: &mut fastrand::Rng) -> (Offsets, Vec<usize>) {
        let mut set = Offsets::NONE;
        for _ in 0..random.usize(..40) {
            let at = random.usize(..BLOCK_BYTES);
            set.0[at / 64] |= 1 << (at % 64);
        }
        let offsets: Vec<usize> = (0..BLOCK_BYTES).filter(|at| set.has(*at)).collect();
        (set, offsets)
    }

    #[test]
    fn the_first_offset_of_a_range_in_three_sets_is_the_least_one() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let sets = [(); 3].map(|()| random_set(&mut random));
            let start = random.usize(..BLOCK_BYTES);
            let end = random.usize(start..=BLOCK_BYTES);
            let within = sets.iter().flat_map(|(_, offsets)| offsets);
            let expected = within.filter(|at| (start..end).contains(*at)).min().copied();
            let sets = sets.each_ref().map(|(set, _)| set);
            assert_eq!(Offsets::first_of_any(sets, start..end), expected);
        }
    }

    #[test]
    fn offsets_are_told_in_their_order_until_they_are_removed() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..100 {
            let (mut set, offsets) = random_set(&mut random);
            assert!(set.each().eq(offsets.iter().copied()));
            offsets.iter().filter(|at| *at % 3 > 0).for_each(|at| set.remove(*at));
            assert!(set.each().eq(offsets.into_iter().filter(|at| at % 3 == 0)));
        }
    }

    #[test]
    fn equal_runs_begin_where_six_bytes_or_all_up_to_the_end_are_equal() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100 {
            let one: BlockBytes = std::array::from_fn(|_| random.u8(..));
            let (mut other, step) = (one, random.usize(1..12));
            (0..BLOCK_BYTES).step_by(step).for_each(|at| other[at] ^= random.u8(..2));
            let runs = Offsets::of_equal_runs(&one, &other);
            for at in 0..BLOCK_BYTES {
                let end = (at + Offsets::RUN_BYTES).min(BLOCK_BYTES);
                assert_eq!(runs.has(at), one[at..end] == other[at..end], "at {at}");
            }
        }
    }
}
