//! Making changes durable.

use std::sync::atomic::Ordering;

use journal::Tid;

use crate::inode::read_inode;
use crate::op::data_owner;
use crate::volume::Volume;
use crate::{DataMode, InodeNo, Result};

impl Volume {
    /// Returns when everything that was done to the inode before is durable; with `data_only`, when
    /// its content and what is needed to reach it are. No I/O when that is so already.
    pub fn fsync(&self, ino: InodeNo, data_only: bool) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.file_stats.note_fsync(ino);
        let cell = self.cell(ino);
        cell.set_synced(true);
        let mode = self.mode_in(&read_inode(self, ino)?, &cell)?;
        let owner = data_owner(ino);
        if !mode.is_journaled() {
            // A write that was accepted holds this lock until its data are home.
            drop(cell.content.read());
            // Side by side with what others sync, and with a commit that is under way.
            self.journal().write_buffered_of(owner)?;
        }
        // A write that has been acknowledged has left its transaction in the cell.
        let own_tid = if data_only { cell.datasync_tid() } else { cell.sync_tid() };
        // And so has a rename of a directory: the path to this inode may lead through it.
        let tid = own_tid.max(Tid(self.renamed_dir_tid.load(Ordering::Acquire)));
        if tid > self.committed() {
            self.journal().sync(tid)?;
        }
        // Data that overwrote data in place changed nothing that a commit would have to carry, and
        // may belong to a later transaction than the one that was committed. `Writeback` data
        // belong to none.
        let has_more = cell.sync_tid() > self.committed();
        if mode == DataMode::Writeback || !mode.is_journaled() && has_more {
            self.journal().flush_in_place_of(owner)?;
        }
        Ok(())
    }

    /// Returns when everything that was done to the volume before is durable.
    pub fn sync(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.journal().sync(self.journal().running_tid())?;
        drop(self.answered.write());
        Ok(self.journal().flush_in_place()?)
    }
}
