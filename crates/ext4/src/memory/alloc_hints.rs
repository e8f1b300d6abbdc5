//! For each group, the place where the search for a free block begins.

use std::sync::atomic::{AtomicU32, Ordering};

/// Hints of all groups. A wrong hint costs only time.
pub(crate) struct AllocHints {
    /// Index in the group. Blocks before it are probably in use.
    block_hints: Vec<AtomicU32>,
}

impl AllocHints {
    /// Every search begins at the start of its group.
    pub(crate) fn new(group_count: u32) -> AllocHints {
        AllocHints { block_hints: (0..group_count).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Index in the group at which to begin searching a free block.
    pub(crate) fn block_hint(&self, group: u32) -> u32 {
        self.block_hints[group as usize].load(Ordering::Relaxed)
    }

    /// Remembers where to begin the next search.
    pub(crate) fn set_block_hint(&self, group: u32, index: u32) {
        self.block_hints[group as usize].store(index, Ordering::Relaxed);
    }

    /// A block of the group was freed.
    pub(crate) fn lower_block_hint(&self, group: u32, index: u32) {
        self.block_hints[group as usize].fetch_min(index, Ordering::Relaxed);
    }
}
