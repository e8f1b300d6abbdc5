//! The numbers of free blocks and inodes of the whole volume. They are kept in memory, and written
//! with the superblock when it changes for another reason. After a crash they are counted again
//! from the group descriptors.

use std::sync::atomic::{AtomicU64, Ordering};

/// Free blocks and inodes of the volume, as published operations left them.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    free_block_count: AtomicU64,
    free_inode_count: AtomicU64,
}

impl Totals {
    pub(crate) fn new(free_block_count: u64, free_inode_count: u64) -> Totals {
        Totals {
            free_block_count: AtomicU64::new(free_block_count),
            free_inode_count: AtomicU64::new(free_inode_count),
        }
    }

    pub(crate) fn free_block_count(&self) -> u64 {
        self.free_block_count.load(Ordering::Relaxed)
    }

    pub(crate) fn free_inode_count(&self) -> u64 {
        self.free_inode_count.load(Ordering::Relaxed)
    }

    /// Adds the changes of a finished operation.
    pub(crate) fn add(&self, block_count: i64, inode_count: i64) {
        add(&self.free_block_count, block_count);
        add(&self.free_inode_count, inode_count);
    }
}

/// Saturates: the totals of a clean volume come from its superblock and may be wrong.
fn add(total: &AtomicU64, count: i64) {
    let sum = |old: u64| Some(old.saturating_add_signed(count));
    let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}
