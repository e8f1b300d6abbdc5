//! Making changes durable.

use std::sync::atomic::Ordering;

use journal::{Synced, Tid, WhenDurable};

use crate::inode::read_inode;
use crate::memory::{FileStats, Mounted};
use crate::{DataMode, InodeNo, Result};

impl Mounted {
    /// [`Volume::fsync`](crate::Volume::fsync).
    pub(crate) fn fsync(&self, ino: InodeNo, data_only: bool) -> Result<()> {
        self.fsync_or_leave(ino, data_only, || None).map(|_| ())
    }

    /// [`Volume::fsync_or_leave`](crate::Volume::fsync_or_leave).
    pub(crate) fn fsync_or_leave(
        &self,
        ino: InodeNo,
        data_only: bool,
        leave: impl FnOnce() -> Option<WhenDurable>,
    ) -> Result<Synced> {
        if self.settings.read_only {
            return Ok(Synced::Durable);
        }
        self.file_stats.note_fsync(ino);
        let in_core = self.in_core(ino);
        in_core.set_synced(true);
        let mode = self.mode_in(&read_inode(self, ino)?, &in_core)?;
        let owner = FileStats::owner(ino);
        if !mode.is_journaled() {
            // A write that was accepted holds this lock until its data are home.
            drop(in_core.content.read());
            // Side by side with what others sync, and with a commit that is under way.
            self.journal.write_buffered_of(owner)?;
        }
        // A write that has been acknowledged has left its transaction in the in-core inode.
        let own_tid = if data_only { in_core.datasync_tid() } else { in_core.sync_tid() };
        // And so has a rename of a directory: the path to this inode may lead through it.
        let tid = own_tid.max(Tid(self.renamed_dir_tid.load(Ordering::Acquire)));
        // After the commit there is something left to do only for data that it does not bring home.
        let is_all =
            mode != DataMode::Writeback && (mode.is_journaled() || in_core.sync_tid() <= tid);
        let leave = || if is_all { leave() } else { None };
        if tid > self.committed() && self.journal.sync_or_leave(tid, leave)? == Synced::Left {
            return Ok(Synced::Left);
        }
        // Overwriting data in place changes nothing that a commit would have to carry. Such data
        // may also belong to a later transaction than the committed one. `Writeback` data belong to
        // no transaction.
        let has_more = in_core.sync_tid() > self.committed();
        if mode == DataMode::Writeback || !mode.is_journaled() && has_more {
            self.journal.flush_in_place_of(owner)?;
        }
        Ok(Synced::Durable)
    }

    /// [`Volume::sync`](crate::Volume::sync).
    pub(crate) fn sync(&self) -> Result<()> {
        if self.settings.read_only {
            return Ok(());
        }
        self.journal.sync(self.journal.running_tid())?;
        drop(self.answered.write());
        Ok(self.journal.flush_in_place()?)
    }
}
