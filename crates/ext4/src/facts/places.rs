//! The places of the file system's own metadata that were read so far. They do not change while the
//! volume is mounted.
//!
//! Lock: one mutex, taken last, held for a look-up.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use journal::HomeBlock;

/// Places of metadata, cached so that descriptors are read once.
pub(crate) struct Places {
    /// First block of each group's inode table; 0: not read yet.
    inode_tables: Vec<AtomicU64>,
    /// Superblocks, descriptors, bitmaps and inode tables of each flex group, by its first group.
    fixed: Mutex<HashMap<u32, Arc<[Range<u64>]>>>,
    /// Blocks of the journal and of the orphan file.
    reserved: Vec<Range<u64>>,
}

impl Places {
    /// No places are known yet of `group_count` groups. `reserved`: blocks of files that belong to
    /// the file system itself, sorted and merged.
    pub(crate) fn new(group_count: u32, reserved: Vec<Range<u64>>) -> Places {
        Places {
            inode_tables: (0..group_count).map(|_| AtomicU64::new(0)).collect(),
            fixed: Mutex::default(),
            reserved,
        }
    }

    /// First block of a group's inode table.
    pub(crate) fn inode_table(&self, group: u32) -> Option<HomeBlock> {
        let table = self.inode_tables[group as usize].load(Ordering::Relaxed);
        (table != 0).then_some(HomeBlock(table))
    }

    /// Stores the place that a group's descriptor gives.
    pub(crate) fn note_inode_table(&self, group: u32, table: HomeBlock) {
        self.inode_tables[group as usize].store(table.0, Ordering::Relaxed);
    }

    /// Fixed metadata of the flex group that begins with `first_group`, sorted and merged.
    pub(crate) fn fixed(&self, first_group: u32) -> Option<Arc<[Range<u64>]>> {
        self.fixed.lock().get(&first_group).cloned()
    }

    /// Stores the places that the descriptors of a flex group give.
    pub(super) fn note_fixed(&self, first_group: u32, ranges: Arc<[Range<u64>]>) {
        self.fixed.lock().insert(first_group, ranges);
    }

    /// Blocks of the journal and of the orphan file, sorted and merged.
    pub(crate) fn reserved(&self) -> &[Range<u64>] {
        &self.reserved
    }

    /// Number of blocks of the journal and of the orphan file.
    pub(crate) fn reserved_block_count(&self) -> u64 {
        self.reserved.iter().map(|range| range.end - range.start).sum()
    }
}
