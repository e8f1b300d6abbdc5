//! Whose blocks are worth a search for bytes that the region already holds.
//!
//! A search costs several microseconds a block, and finds nothing in data that do not repeat
//! themselves. So each owner has a *credit*: a search that finds nothing takes one from it, and one
//! that finds something adds many, also to the owner of the bytes that were found. (SQLite's
//! checkpoint writes pages that its WAL has, and each file is of use by the other one.) An owner
//! without credit *rests*: its blocks are neither searched nor made known to later searches. Then
//! it has a trial. Each trial in vain makes the next rest twice as long.
//!
//! The first blocks of an owner count for all *young* owners together. So a tree of small files
//! that is unpacked rests, too.
//!
//! Only the engine knows this. Recovery finds the sources of a change in the change.

use crate::observer::BlockOwner;

/// Owners that are known at the same time. Two with the same remainder displace each other.
const OWNER_COUNT: usize = 1024;
/// Metadata, and the young owners.
const METADATA: usize = OWNER_COUNT;
const YOUNG: usize = OWNER_COUNT + 1;

/// Blocks until an owner is no longer young.
const YOUNG_BLOCKS: u32 = 64;
/// Searches in vain until an owner rests: 4 MiB.
pub(super) const CREDIT_MAX: u32 = 1024;
/// A search that finds something earns so much: it saves a write of kilobytes.
const GAIN: u32 = 16;
/// The first rest has so many times the blocks of the credit, and the longest one.
const REST_MIN: u32 = 8;
const REST_MAX: u32 = 64;

/// What is known of all owners.
pub(crate) struct Interest {
    /// By the remainder of the owner; then those of [`METADATA`] and [`YOUNG`].
    owners: Vec<Owner>,
    credit_max: u32,
}

/// What is known of one owner.
#[derive(Clone)]
struct Owner {
    owner: BlockOwner,
    /// Blocks that are left until it is no longer young.
    young_blocks: u32,
    /// 0: it rests.
    credit: u32,
    /// Blocks that are left of its rest.
    rest: u32,
    /// How long the next one is, as [`REST_MIN`].
    next_rest: u32,
}

impl Owner {
    fn new(owner: BlockOwner, credit: u32) -> Owner {
        Owner { owner, young_blocks: YOUNG_BLOCKS, credit, rest: 0, next_rest: REST_MIN }
    }
}

impl Interest {
    /// Owners rest after so many searches in vain.
    pub(crate) fn new(credit_max: u32) -> Interest {
        assert!(credit_max > 0, "an owner that rests has something left of its rest");
        let owners = (0..OWNER_COUNT as u64 + 2).map(BlockOwner);
        let owners = owners.map(|owner| Owner::new(owner, credit_max)).collect();
        Interest { owners, credit_max }
    }

    fn place(owner: BlockOwner) -> usize {
        (owner.0 % OWNER_COUNT as u64) as usize
    }

    /// Where the credit is that an owner's blocks count for.
    fn credit_place(&self, owner: BlockOwner) -> usize {
        let place = Interest::place(owner);
        let known = &self.owners[place];
        match owner {
            BlockOwner::NOBODY => METADATA,
            _ if known.owner == owner && known.young_blocks == 0 => place,
            _ => YOUNG,
        }
    }

    /// The owner's number belongs to a new file.
    pub(crate) fn forget(&mut self, owner: BlockOwner) {
        self.owners[Interest::place(owner)] = Owner::new(owner, self.credit_max);
    }

    /// Whether the next block of this owner is searched.
    pub(crate) fn is_searched(&self, owner: BlockOwner) -> bool {
        self.owners[self.credit_place(owner)].credit > 0
    }

    /// A block of this owner was searched, if it does not rest, and bytes of a block of `found`
    /// were found.
    pub(crate) fn note(&mut self, owner: BlockOwner, found: Option<BlockOwner>) {
        let credit_max = self.credit_max;
        let place = self.credit_place(owner);
        let known = &mut self.owners[place];
        if known.credit == 0 {
            known.rest -= 1;
            known.credit = if known.rest == 0 { credit_max } else { 0 };
        } else if let Some(source) = found {
            self.gain(owner);
            self.gain(source);
        } else {
            known.credit -= 1;
            if known.credit == 0 {
                known.rest = known.next_rest * credit_max;
                known.next_rest = (2 * known.next_rest).min(REST_MAX);
            }
        }
        if place == YOUNG {
            self.age(owner);
        }
    }

    fn gain(&mut self, owner: BlockOwner) {
        let (place, credit_max) = (self.credit_place(owner), self.credit_max);
        let known = &mut self.owners[place];
        known.credit = (known.credit + GAIN).min(credit_max);
        known.next_rest = REST_MIN;
    }

    fn age(&mut self, owner: BlockOwner) {
        let place = Interest::place(owner);
        if self.owners[place].owner != owner {
            self.forget(owner);
        }
        self.owners[place].young_blocks -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: BlockOwner = BlockOwner(1);
    const OTHER: BlockOwner = BlockOwner(2);

    /// These owners are no longer young.
    fn interest(owners: &[BlockOwner]) -> Interest {
        let mut interest = Interest::new(CREDIT_MAX);
        for owner in owners {
            (0..YOUNG_BLOCKS).for_each(|_| interest.note(*owner, None));
        }
        interest
    }

    /// How many blocks until the owner is searched, or is not.
    fn blocks_until(interest: &mut Interest, owner: BlockOwner, is_searched: bool) -> u32 {
        let mut count = 0;
        while interest.is_searched(owner) != is_searched {
            interest.note(owner, None);
            count += 1;
        }
        count
    }

    #[test]
    fn an_owner_whose_searches_find_nothing_rests_longer_each_time_up_to_a_bound() {
        let mut interest = interest(&[ONE, OTHER]);
        for rest in [8, 16, 32, 64, 64, 64] {
            assert_eq!(blocks_until(&mut interest, ONE, false), CREDIT_MAX);
            assert!(interest.is_searched(OTHER));
            assert_eq!(blocks_until(&mut interest, ONE, true), rest * CREDIT_MAX);
        }
        interest.note(ONE, Some(ONE));
        assert_eq!(blocks_until(&mut interest, ONE, false), CREDIT_MAX);
        assert_eq!(blocks_until(&mut interest, ONE, true), 8 * CREDIT_MAX);
    }

    #[test]
    fn an_owner_is_searched_for_ever_if_one_search_in_sixteen_finds_something() {
        let mut interest = interest(&[ONE]);
        for at in 0..100 * CREDIT_MAX {
            assert!(interest.is_searched(ONE));
            interest.note(ONE, (at % GAIN == 0).then_some(ONE));
        }
    }

    #[test]
    fn an_owner_whose_bytes_are_found_for_another_one_is_searched_for_ever() {
        let mut interest = interest(&[ONE, OTHER]);
        for _ in 0..100 * CREDIT_MAX {
            interest.note(ONE, None);
            interest.note(OTHER, Some(ONE));
            assert!(interest.is_searched(ONE));
        }
    }

    #[test]
    fn a_resting_owner_whose_earlier_bytes_are_found_is_searched_again() {
        let mut interest = interest(&[ONE]);
        blocks_until(&mut interest, ONE, false);
        interest.note(OTHER, Some(ONE));
        assert!(interest.is_searched(ONE));
    }

    #[test]
    fn many_small_files_rest_together_and_a_larger_one_does_not() {
        let mut interest = Interest::new(CREDIT_MAX);
        let mut small = (3..).map(BlockOwner);
        for owner in small.by_ref().take(CREDIT_MAX as usize) {
            assert!(interest.is_searched(owner));
            interest.note(owner, None);
        }
        for at in 0..YOUNG_BLOCKS {
            assert!(!interest.is_searched(ONE), "{at}");
            assert!(!interest.is_searched(small.next().expect("there are many")));
            interest.note(ONE, None);
        }
        assert!(interest.is_searched(ONE));
        assert!(interest.is_searched(BlockOwner::NOBODY));
    }

    #[test]
    fn owners_in_one_place_displace_each_other() {
        let same_place = BlockOwner(ONE.0 + OWNER_COUNT as u64);
        let mut interest = interest(&[ONE]);
        blocks_until(&mut interest, ONE, false);
        interest.note(same_place, None);
        assert!(interest.is_searched(ONE), "it is young again");
    }

    #[test]
    fn a_new_file_with_the_number_of_a_resting_one_is_searched() {
        let mut interest = interest(&[ONE]);
        blocks_until(&mut interest, ONE, false);
        interest.forget(ONE);
        assert!(interest.is_searched(ONE));
    }
}
