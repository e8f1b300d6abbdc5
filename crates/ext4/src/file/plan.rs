//! Where the content of a file goes, and in which form (`docs/reference/modes.md`).

use std::ops::Range;

use journal::codec::extent::Ranges;
use journal::{BlockRef, Form, HomeBlock};

use crate::Result;
use crate::data_mode::{Asked, DataMode};
use crate::facts::Source;
use crate::inode::{Inode, flags, read_inode};
use crate::memory::{InCoreInode, Mounted};
use crate::op::Op;
use crate::xattr;

/// A shorter append goes through the journal in `auto` mode.
const AUTO_IN_PLACE_BYTES: usize = 256 << 10;
/// The same bound for a file that was synced before, if data in place need a flush of their own.
/// Then one write to the journal is worth more than writing the data only once.
const AUTO_IN_PLACE_SYNCED_BYTES: usize = 1 << 20;
/// The same bound for a file that was synced before, if one flush makes its data in place and the
/// record durable ([`journal::Journal::checks_data`]). Writing the data once is worth one more
/// write.
const AUTO_IN_PLACE_CHECKED_BYTES: usize = 64 << 10;
/// If this many bytes were written to blocks that held nothing, without a sync, the next whole
/// blocks go in place, however small the writes are. Only if data in place need a flush of their
/// own; otherwise the commit finds the long runs ([`journal::Handle::put_fresh`]).
const AUTO_BULK_BYTES: u64 = 1 << 20;

/// How the data of one operation on one file are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) mode: DataMode,
    /// Bytes that the operation writes.
    len_bytes: usize,
    threshold_bytes: usize,
    was_synced: bool,
    /// Whether one flush makes data in place and the record durable.
    checks_data: bool,
    /// Whether much was appended without a sync.
    is_bulk: bool,
}

/// Some bytes of a block of data.
pub(crate) struct Put {
    pub(crate) home: HomeBlock,
    /// The whole block, as it will be.
    pub(crate) bytes: BlockRef,
    /// The bytes that differ from the previous version.
    pub(crate) written: Range<usize>,
    /// Whether there is no previous version that counts.
    pub(crate) fresh: bool,
    /// Whether a crash cannot bring back a previous version either.
    pub(crate) unused: bool,
}

impl Put {
    fn is_unused_whole(&self) -> bool {
        self.unused && self.written.len() == journal::BLOCK_BYTES
    }
}

impl Plan {
    /// Whether runs of whole blocks may go home directly from the caller's buffer. With `Auto` only
    /// if they are unused: before the commit, the blocks are not part of the file, whatever a crash
    /// leaves in them.
    pub(super) fn allows_direct(&self) -> bool {
        match self.mode {
            DataMode::Ordered | DataMode::Writeback => true,
            DataMode::Journal | DataMode::Wasteless | DataMode::Delta => false,
            DataMode::Selective => self.len_bytes >= self.threshold_bytes,
            DataMode::Auto if self.was_synced && self.checks_data => {
                self.len_bytes >= AUTO_IN_PLACE_CHECKED_BYTES
            }
            DataMode::Auto if self.was_synced => self.len_bytes >= AUTO_IN_PLACE_SYNCED_BYTES,
            DataMode::Auto => self.len_bytes >= AUTO_IN_PLACE_BYTES,
        }
    }

    /// Whether a long run of blocks that hold data may get other blocks, which are written in
    /// place, instead of going through the journal and then home.
    pub(super) fn may_redirect(&self) -> bool {
        self.mode == DataMode::Auto && self.checks_data && self.allows_direct()
    }

    /// The same, but never in place.
    pub(super) fn journaled(self) -> Plan {
        let mode = if self.mode.is_journaled() { self.mode } else { DataMode::Delta };
        Plan { mode, ..self }
    }

    /// Puts a block of data. `true`: it goes through the journal.
    pub(crate) fn put(&self, op: &mut Op<'_>, put: Put) -> Result<bool> {
        // A block stays on the way that its first change took until it is home (Okeanos' update
        // sequence).
        let form = match self.mode {
            // The commit decides, when it is known how many adjacent blocks are fresh.
            DataMode::Auto if self.checks_data && put.unused => {
                op.put_fresh_block(put.home, put.bytes, Form::Delta)?;
                return Ok(true);
            }
            DataMode::Journal => Some(Form::Block),
            DataMode::Wasteless => Some(extent(&put)),
            DataMode::Auto if self.is_bulk && put.is_unused_whole() && !op.is_logged(put.home) => {
                None
            }
            DataMode::Delta | DataMode::Auto => Some(Form::Delta),
            DataMode::Ordered | DataMode::Writeback => {
                op.is_logged(put.home).then_some(Form::Delta)
            }
            DataMode::Selective if op.is_logged(put.home) => Some(extent(&put)),
            DataMode::Selective if op.is_buffered_in_place(put.home) => None,
            DataMode::Selective => (self.len_bytes < self.threshold_bytes).then(|| extent(&put)),
        };
        let journaled = form.is_some();
        match form {
            Some(form) => op.put_block(put.home, put.bytes, form)?,
            None => op.put_ordered(put.home, put.bytes)?,
        }
        Ok(journaled)
    }
}

/// The form of a change of written bytes. A block that held nothing may still have an older version
/// in memory, of its previous owner or from before it was punched out. Then only a comparison shows
/// what changed.
fn extent(put: &Put) -> Form {
    if put.fresh {
        return Form::Delta;
    }
    let mut ranges = Ranges::new();
    ranges.insert(put.written.start, put.written.len());
    Form::Extent(ranges)
}

/// The mode of an inode with the flag of `chattr +j`, which counts before its attributes.
pub(crate) fn flagged_mode(inode: &Inode) -> Option<DataMode> {
    inode.has_flag(flags::JOURNAL_DATA).then_some(DataMode::Journal)
}

/// What the attributes of the inode ask for. No other thread may be setting them meanwhile, because
/// the result would overwrite what it set. So the source is an operation, or the caller holds the
/// inode's attribute lock and read the inode under it.
fn look_up(source: &impl Source, inode: &Inode, in_core: &InCoreInode) -> Result<Asked> {
    if let Some(asked) = in_core.asked() {
        return Ok(asked);
    }
    let asked = xattr::asked(source, inode)?;
    in_core.set_asked(Some(asked));
    Ok(asked)
}

impl Op<'_> {
    /// What the attributes of the inode ask for.
    pub(crate) fn asked(&self, inode: &Inode) -> Result<Asked> {
        look_up(self, inode, &self.mounted().in_core(inode.ino))
    }

    /// How this operation, which writes `len_bytes` bytes to this file, writes them.
    pub(crate) fn plan(&self, inode: &Inode, len_bytes: usize) -> Result<Plan> {
        let volume = self.mounted();
        let mode = match flagged_mode(inode) {
            Some(mode) => mode,
            None => self.asked(inode)?.mode_with(volume.settings.data_mode),
        };
        Ok(volume.plan_in(mode, &volume.in_core(inode.ino), len_bytes))
    }
}

impl Mounted {
    /// How an operation that will write `len_bytes` bytes to this file writes them.
    pub(crate) fn plan(
        &self,
        inode: &Inode,
        in_core: &InCoreInode,
        len_bytes: usize,
    ) -> Result<Plan> {
        Ok(self.plan_in(self.mode_in(inode, in_core)?, in_core, len_bytes))
    }

    fn plan_in(&self, mode: DataMode, in_core: &InCoreInode, len_bytes: usize) -> Plan {
        Plan {
            mode,
            len_bytes,
            threshold_bytes: self.settings.threshold_bytes,
            was_synced: in_core.was_synced(),
            checks_data: self.journal.checks_data(),
            is_bulk: in_core.appended_bytes() >= AUTO_BULK_BYTES,
        }
    }

    /// The mode in effect: the inode's own, or the volume's. Takes the inode's attribute lock, so
    /// never call it inside an operation.
    pub(crate) fn mode_in(&self, inode: &Inode, in_core: &InCoreInode) -> Result<DataMode> {
        if let Some(mode) = flagged_mode(inode) {
            return Ok(mode);
        }
        let asked = match in_core.asked() {
            Some(asked) => asked,
            None => {
                let _xattr = in_core.xattr.read();
                look_up(self, &read_inode(self, inode.ino)?, in_core)?
            }
        };
        Ok(asked.mode_with(self.settings.data_mode))
    }
}
