//! Writes several pieces of a file atomically: after a crash all of them are there, or none.
//!
//! All pieces go through one operation, so they are in one transaction. That transaction must have
//! room for them: [`Volume::atomic_block_limit`] blocks, or fewer if the blocks that have to be
//! allocated are in many block groups. The data are always journaled. Modes that may write data in
//! place over existing data do not offer atomic writes.

use super::attempt::Way;
use super::content::{FILE_BYTES_MAX, block_of, regular_file};
use super::write::{Chunk, DEPTH_MAX, EDIT_COUNT, GROWTH_LEVEL_COUNT, edits_credit_count};
use crate::extent::{self, Target};
use crate::inode::{Inode, flags};
use crate::memory::Mounted;
use crate::op::{Op, Spending};
use crate::{Error, InodeNo, Result};

/// Some bytes of a file and where they go.
pub type Piece<'a> = (u64, &'a [u8]);

impl Mounted {
    /// [`Volume::atomic_block_limit`](crate::Volume::atomic_block_limit).
    pub(crate) fn atomic_block_limit(&self) -> usize {
        if !self.settings.data_mode.is_atomic() {
            return 0;
        }
        let others = edits_credit_count(EDIT_COUNT, DEPTH_MAX + GROWTH_LEVEL_COUNT);
        self.journal.max_credit_count().saturating_sub(others)
    }
}

impl Spending<'_> {
    /// [`VolumeAs::write_atomic`](crate::VolumeAs::write_atomic).
    pub(crate) fn write_atomic<'a>(&self, ino: InodeNo, pieces: &[Piece<'a>]) -> Result<()> {
        self.check_writable()?;
        if !self.settings.data_mode.is_atomic() {
            return Err(Error::NotSupported);
        }
        check_pieces(pieces)?;
        if pieces.is_empty() {
            return Ok(());
        }
        let in_core = self.in_core(ino);
        let content = in_core.content.write();
        let inode = self.use_extents(regular_file(&**self, ino)?)?;
        let plan = self.plan(&inode, &in_core, 0)?.journaled();
        let chunk = |piece: &Piece<'a>| Chunk::new(plan, ino, piece.0, piece.1, false, Way::Copied);
        let chunks: Vec<_> = pieces.iter().map(chunk).collect();
        let credit_count = credit_count(self, &inode, pieces)?;
        in_core.note_appended(self.with_op(credit_count, |op| write_chunks(op, &chunks))?);
        drop(content);
        if inode.has_flag(flags::SYNC) { self.fsync(ino, true) } else { Ok(()) }
    }
}

fn check_pieces(pieces: &[Piece<'_>]) -> Result<()> {
    let mut end = 0;
    for (offset, data) in pieces {
        if *offset < end || data.is_empty() {
            return Err(Error::InvalidArgument);
        }
        end = offset.checked_add(data.len() as u64).ok_or(Error::FileTooBig)?;
    }
    if end > FILE_BYTES_MAX { Err(Error::FileTooBig) } else { Ok(()) }
}

/// The credits of the operation. They are enough for one edit for each block that holds nothing
/// yet, or as many as a transaction has room for beside the data: blocks that are allocated
/// together need one edit.
fn credit_count(volume: &Mounted, inode: &Inode, pieces: &[Piece<'_>]) -> Result<usize> {
    let (mut block_count, mut fresh_count) = (0, 0);
    for (offset, data) in pieces {
        let last = block_of(offset + data.len() as u64 - 1);
        let mut next = block_of(*offset);
        while next <= last {
            let mapping = extent::map(volume, inode, next, last - next + 1)?;
            let count = mapping.count as usize;
            block_count += count;
            if !matches!(mapping.target, Target::Written(_)) {
                fresh_count += count;
            }
            next += mapping.count;
        }
    }
    let depth = extent::depth(inode) + GROWTH_LEVEL_COUNT;
    let credits = |edit_count| block_count + edits_credit_count(EDIT_COUNT + edit_count, depth);
    let most = volume.journal.max_credit_count();
    if credits(0) > most { Err(Error::NoSpace) } else { Ok(credits(fresh_count).min(most)) }
}

/// Writes every chunk whole. Returns how many bytes count as appended.
fn write_chunks(op: &mut Op<'_>, chunks: &[Chunk<'_>]) -> Result<usize> {
    let mut data_count: usize = chunks.iter().map(Chunk::data_credit_count).sum();
    let mut appended_bytes = 0;
    for chunk in chunks {
        data_count -= chunk.data_credit_count();
        // Without credits: the transaction has no room for so many changes of the tree.
        appended_bytes += chunk.write(op, data_count)?.appended_bytes();
    }
    Ok(appended_bytes)
}
