//! What a mounted volume keeps in memory only.

mod alloc_hints;
mod cursors;
mod file_stats;
mod in_core;
mod mounted;
mod orphans;
mod pending_frees;
mod pins;
mod times;
mod totals;

pub(crate) use alloc_hints::AllocHints;
pub(crate) use cursors::{Cursors, Resume, SLOT_BITS, after_slot};
pub use file_stats::FileStat;
pub(crate) use file_stats::FileStats;
pub use in_core::Pin;
pub(crate) use in_core::{InCoreInode, InCoreInodes};
pub(crate) use mounted::{Mounted, Settings};
pub(crate) use orphans::{OrphanFile, OrphanLink, Orphans, TAIL_OFFSET, check_block, read_slot};
pub(crate) use pending_frees::PendingFrees;
pub(crate) use times::Times;
pub(crate) use totals::Totals;
