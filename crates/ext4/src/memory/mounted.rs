//! What all operations on a mounted volume share: the journal, the facts, and what is kept in
//! memory only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::RwLock;
use journal::{BlockRef, HomeBlock, Journal, Tid};

use super::alloc_hints::AllocHints;
use super::file_stats::FileStats;
use super::in_core::{InCoreInode, InCoreInodes};
use super::orphans::Orphans;
use super::pending_frees::PendingFrees;
use super::times::Times;
use super::totals::Totals;
use crate::data_mode::DataMode;
use crate::facts::{Facts, Source};
use crate::inode::Inode;
use crate::types::Attr;
use crate::{Error, InodeNo, Result, Timestamp};

/// The settings of a mount that operations use. See [`crate::OpenOptions`].
pub(crate) struct Settings {
    pub(crate) read_only: bool,
    pub(crate) noatime: bool,
    pub(crate) data_mode: DataMode,
    pub(crate) threshold_bytes: usize,
    pub(crate) times: Times,
}

/// A mounted volume, as its operations see it.
///
/// Dropping it without closing the journal is like a crash: nothing is brought home.
pub struct Mounted {
    pub(crate) journal: Journal,
    pub(crate) settings: Settings,
    pub(crate) facts: Facts,
    pub(crate) in_core: InCoreInodes,
    pub(crate) file_stats: Arc<FileStats>,
    pub(crate) alloc_hints: AllocHints,
    pub(crate) pending_frees: PendingFrees,
    pub(crate) totals: Totals,
    pub(crate) orphans: Orphans,
    /// State of [`Mounted::random`].
    pub(crate) random: AtomicU64,
    /// The last transaction that renamed a directory. Since then, everything below that directory
    /// has another path.
    pub(crate) renamed_dir_tid: AtomicU64,
    /// Held shared from the answer to a write in `writeback` mode until its data are home. No
    /// transaction waits for these data, but a sync of the volume must.
    pub(crate) answered: RwLock<()>,
    /// See [`crate::Volume::set_unsplit_write_bytes`].
    pub(crate) unsplit_write_bytes: AtomicU64,
    /// The largest size that was declared on the volume ([`crate::ATOMIC_VOLUME_XATTR`]), 0: none.
    /// Changed with the root's attribute lock held.
    pub(crate) declared_bytes: AtomicU64,
}

/// The published state.
impl Source for Mounted {
    fn block(&self, block: HomeBlock) -> Result<BlockRef> {
        self.facts.geometry.check_pointer(block)?;
        Ok(self.journal.read(block)?)
    }

    fn super_bytes(&self) -> Result<BlockRef> {
        Ok(self.journal.read(HomeBlock(0))?)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Mounted {
    /// Whether the volume is read-only: it was opened so, or the medium failed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.settings.read_only || self.journal.abort_reason().is_some()
    }

    /// The time of a change that happens now.
    pub(crate) fn now(&self) -> Timestamp {
        self.settings.times.now()
    }

    /// The attributes of an inode, for a caller who may show them to a program.
    pub(crate) fn give_out(&self, inode: &Inode) -> Attr {
        self.settings.times.note_seen();
        inode.attr()
    }

    /// An error on a volume that was opened read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.settings.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The in-core inode with this number. It is made if there is none.
    pub(crate) fn in_core(&self, ino: InodeNo) -> Arc<InCoreInode> {
        self.in_core.get(ino, || self.committed())
    }

    /// The newest transaction that is durable.
    pub(crate) fn committed(&self) -> Tid {
        self.journal.committed_tid()
    }

    /// A pseudo-random number (SplitMix64): for generations and for spreading directories.
    pub(crate) fn random(&self) -> u64 {
        let step = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.random.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}
