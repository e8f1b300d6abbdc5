//! How much one operation may free.
//!
//! Freeing blocks changes the bitmap and the descriptor of every group that they are in, and a
//! transaction has room for a limited number of blocks. A file in few pieces is freed in one
//! operation. A file that is scattered over hundreds of groups is freed in several, each of which
//! leaves a valid file.

use std::collections::HashSet;

use super::update::edit_credit_count;

/// Credits that an operation asks for at first if it frees blocks. The engine grants at least 128.
pub(crate) const FREE_CREDIT_COUNT: usize = 120;

/// Other blocks that the operation changes: the inode, the orphan list (superblock or orphan file,
/// and a neighbour), and the edges of the range.
const RESERVED_COUNT: usize = 8;

/// The credits of an operation that are left.
pub(crate) struct FreeBudget {
    left: usize,
    leaf_cost: usize,
    blocks_per_group: u64,
    groups: HashSet<u64>,
}

impl FreeBudget {
    /// The budget of an operation with `credit_count` credits, at least [`FREE_CREDIT_COUNT`], on a
    /// tree of this depth.
    pub(crate) fn new(credit_count: usize, depth: u16, blocks_per_group: u32) -> FreeBudget {
        // At both ends a run may be cut in two and the nodes above it split.
        let edits = edit_credit_count(depth);
        // Otherwise each leaf is rewritten or freed, and at times the nodes above it.
        let leaf_cost = 3 * (usize::from(depth) + 1);
        FreeBudget {
            left: credit_count - RESERVED_COUNT - edits,
            leaf_cost,
            blocks_per_group: u64::from(blocks_per_group),
            groups: HashSet::new(),
        }
    }

    /// Whether another leaf may be changed. If so, its credits are spent.
    pub(super) fn begin_leaf(&mut self) -> bool {
        let enough = self.left >= self.leaf_cost;
        if enough {
            self.left -= self.leaf_cost;
        }
        enough
    }

    /// How many of these blocks, from the first on, may be freed as well. The credits of their
    /// groups are spent.
    pub(crate) fn take(&mut self, start: u64, count: u32) -> u32 {
        let mut taken = 0;
        while taken < count {
            let block = start + u64::from(taken);
            let group = block / self.blocks_per_group;
            if !self.groups.contains(&group) {
                if self.left < 2 {
                    break;
                }
                self.left -= 2;
                self.groups.insert(group);
            }
            let group_left = (group + 1) * self.blocks_per_group - block;
            taken += u32::try_from(group_left).map_or(count - taken, |n| n.min(count - taken));
        }
        taken
    }

    /// Adds the block of a freed node. `begin_leaf` has spent its credits.
    pub(crate) fn force(&mut self, block: u64) {
        self.groups.insert(block / self.blocks_per_group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_paid_for_once() {
        let mut budget = FreeBudget::new(FREE_CREDIT_COUNT, 0, 100);
        assert!(budget.begin_leaf());
        let before = budget.left;
        assert_eq!((budget.take(10, 20), budget.take(50, 20)), (20, 20));
        assert_eq!(before - budget.left, 2);
        assert_eq!(budget.take(150, 100), 100);
        assert_eq!(before - budget.left, 6);
    }

    #[test]
    fn takes_a_part_when_it_is_nearly_spent_and_always_some() {
        for depth in 0..=5 {
            let mut budget = FreeBudget::new(FREE_CREDIT_COUNT, depth, 256);
            assert!(budget.begin_leaf());
            let taken = budget.take(100, 32768);
            assert!((156..100 * 256).contains(&taken) && (taken - 156).is_multiple_of(256));
            assert_eq!(budget.take(1 << 30, 1), 0);
            assert_eq!(budget.take(256, 1), 1, "a group that is paid for");
        }
    }
}
