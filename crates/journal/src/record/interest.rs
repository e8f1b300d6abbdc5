//! Whose blocks are worth a search for bytes that the region already holds.
//!
//! A search costs several microseconds a block, and finds nothing in data that do not repeat
//! themselves. So each owner has a *credit*: a search that finds nothing takes one from it, and one
//! that finds something adds many, also to the owner of the bytes that were found. (SQLite's
//! checkpoint writes pages that its WAL has, and each file is of use by the other one.) An owner
//! without credit *rests*: its blocks are neither searched nor made known to later searches. Then
//! it has a trial. Each trial in vain makes the next rest twice as long.
//!
//! Only the engine knows this. Recovery finds the sources of a change in the change.

use crate::observer::BlockOwner;

/// Owners that are known at the same time. Two with the same remainder displace each other.
const OWNER_COUNT: usize = 256;

/// Searches in vain until an owner rests: 4 MiB.
pub(super) const CREDIT_MAX: u32 = 1024;
/// What a search earns that finds something. It saves a write of kilobytes.
const GAIN: u32 = 16;
/// The first rest has so many times the blocks of the credit, and the longest one.
const REST_MIN: u32 = 8;
const REST_MAX: u32 = 64;

/// What is known of all owners.
pub(crate) struct Interest {
    /// By the remainder of the owner.
    owners: Vec<Owner>,
    credit_max: u32,
}

/// What is known of one owner.
#[derive(Clone)]
struct Owner {
    owner: BlockOwner,
    /// 0: it rests.
    credit: u32,
    /// Blocks that are left of its rest.
    rest: u32,
    /// How long the next one is, as [`REST_MIN`].
    next_rest: u32,
}

impl Owner {
    fn new(owner: BlockOwner, credit: u32) -> Owner {
        Owner { owner, credit, rest: 0, next_rest: REST_MIN }
    }
}

impl Interest {
    /// Owners rest after so many searches in vain.
    pub(crate) fn new(credit_max: u32) -> Interest {
        let owners = (0..OWNER_COUNT as u64).map(BlockOwner);
        let owners = owners.map(|owner| Owner::new(owner, credit_max)).collect();
        Interest { owners, credit_max }
    }

    fn place(owner: BlockOwner) -> usize {
        (owner.0 % OWNER_COUNT as u64) as usize
    }

    fn of(&mut self, owner: BlockOwner) -> &mut Owner {
        let known = &mut self.owners[Interest::place(owner)];
        if known.owner != owner {
            *known = Owner::new(owner, self.credit_max);
        }
        known
    }

    /// Whether the next block of this owner is searched.
    pub(crate) fn is_searched(&self, owner: BlockOwner) -> bool {
        let known = &self.owners[Interest::place(owner)];
        known.owner != owner || known.credit > 0
    }

    /// A block of this owner was searched, if it does not rest, and bytes of a block of `found`
    /// were found.
    pub(crate) fn note(&mut self, owner: BlockOwner, found: Option<BlockOwner>) {
        let credit_max = self.credit_max;
        let known = self.of(owner);
        if known.credit == 0 {
            known.rest -= 1;
            known.credit = if known.rest == 0 { credit_max } else { 0 };
            return;
        }
        if let Some(source) = found {
            self.gain(owner);
            self.gain(source);
            return;
        }
        known.credit -= 1;
        if known.credit == 0 {
            known.rest = known.next_rest * credit_max;
            known.next_rest = (2 * known.next_rest).min(REST_MAX);
        }
    }

    fn gain(&mut self, owner: BlockOwner) {
        let credit_max = self.credit_max;
        let known = self.of(owner);
        known.credit = (known.credit + GAIN).min(credit_max);
        known.next_rest = REST_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: BlockOwner = BlockOwner(1);
    const OTHER: BlockOwner = BlockOwner(2);

    /// How many blocks until the owner is searched, or is not.
    fn blocks_until(interest: &mut Interest, is_searched: bool) -> u32 {
        let mut count = 0;
        while interest.is_searched(ONE) != is_searched {
            interest.note(ONE, None);
            count += 1;
        }
        count
    }

    #[test]
    fn an_owner_whose_searches_find_nothing_rests_longer_each_time_up_to_a_bound() {
        let mut interest = Interest::new(CREDIT_MAX);
        for rest in [8, 16, 32, 64, 64, 64] {
            assert_eq!(blocks_until(&mut interest, false), CREDIT_MAX);
            assert!(interest.is_searched(OTHER));
            assert_eq!(blocks_until(&mut interest, true), rest * CREDIT_MAX);
        }
        interest.note(ONE, Some(ONE));
        assert_eq!(blocks_until(&mut interest, false), CREDIT_MAX);
        assert_eq!(blocks_until(&mut interest, true), 8 * CREDIT_MAX);
    }

    #[test]
    fn an_owner_is_searched_for_ever_if_one_search_in_sixteen_finds_something() {
        let mut interest = Interest::new(CREDIT_MAX);
        for at in 0..100 * CREDIT_MAX {
            assert!(interest.is_searched(ONE));
            interest.note(ONE, (at % GAIN == 0).then_some(ONE));
        }
    }

    #[test]
    fn an_owner_whose_bytes_are_found_for_another_one_is_searched_for_ever() {
        let mut interest = Interest::new(CREDIT_MAX);
        for _ in 0..100 * CREDIT_MAX {
            interest.note(ONE, None);
            interest.note(OTHER, Some(ONE));
            assert!(interest.is_searched(ONE));
        }
    }

    #[test]
    fn a_resting_owner_whose_earlier_bytes_are_found_is_searched_again() {
        let mut interest = Interest::new(CREDIT_MAX);
        blocks_until(&mut interest, false);
        interest.note(OTHER, Some(ONE));
        assert!(interest.is_searched(ONE));
    }

    #[test]
    fn owners_in_one_place_displace_each_other() {
        let mut interest = Interest::new(CREDIT_MAX);
        blocks_until(&mut interest, false);
        let same_place = BlockOwner(ONE.0 + OWNER_COUNT as u64);
        assert!(interest.is_searched(same_place));
        interest.note(same_place, None);
        assert!(interest.is_searched(ONE));
    }
}
