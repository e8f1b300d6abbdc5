//! What the operations on a regular file's content share: limits, checks, and access to single
//! blocks.

use std::ops::Range;
use std::sync::Arc;

use journal::{BLOCK_BYTES, HomeBlock};

use super::plan::{Plan, Put};
use crate::extent::{self, Target};
use crate::facts::Source;
use crate::inode::{Inode, flags, read_inode};
use crate::op::Op;
use crate::{Error, FileKind, InodeNo, Result};

/// Size of a block in bytes.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// The largest file in bytes: 2^32 - 1 blocks.
pub(crate) const FILE_BYTES_MAX: u64 = (u32::MAX as u64) * BLOCK;

/// The logical block that holds this byte of a file. The offset must be below [`FILE_BYTES_MAX`].
pub(super) fn block_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK).expect("offsets are checked against the largest file")
}

/// The byte's place in its block.
pub(super) fn place_in_block(offset: u64) -> usize {
    usize::try_from(offset % BLOCK).expect("below the size of a block")
}

/// Reads the inode of a regular file.
pub(crate) fn regular_file(source: &impl Source, ino: InodeNo) -> Result<Inode> {
    let inode = read_inode(source, ino)?;
    match inode.kind() {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument),
    }
}

/// Refuses to change the content of an immutable file, or of an append-only one below its end.
pub(super) fn check_may_change(inode: &Inode, offset: u64) -> Result<()> {
    let appends = offset >= inode.size();
    if inode.has_flag(flags::IMMUTABLE) || (inode.has_flag(flags::APPEND) && !appends) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Marks the content as changed at the operation's time.
pub(super) fn touch(op: &Op<'_>, inode: &mut Inode) {
    inode.set_mtime(op.now());
    inode.set_ctime(op.now());
    inode.bump_version();
}

/// Changes a part of a block of data that was written before. `true`: the change goes through the
/// journal.
pub(super) fn change_data(
    op: &mut Op<'_>,
    plan: &Plan,
    home: HomeBlock,
    written: Range<usize>,
    change: impl FnOnce(&mut [u8]),
) -> Result<bool> {
    let mut bytes = op.block(home)?;
    change(&mut Arc::make_mut(&mut bytes)[written.clone()]);
    plan.put(op, Put { home, bytes, written, fresh: false, unused: false })
}

/// Makes the bytes from `from` up to `to` zeros. They must be in one block. If there are no data,
/// nothing is done. Changes at most one block.
pub(super) fn zero_bytes(op: &mut Op<'_>, inode: &Inode, from: u64, to: u64) -> Result<()> {
    let within = place_in_block(from)..place_in_block(to - 1) + 1;
    let mapping = extent::map(&*op, inode, block_of(from), 1)?;
    let Target::Written(block) = mapping.target else { return Ok(()) };
    if op.block(block)?[within.clone()].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    op.own_data(inode.ino);
    let plan = op.plan(inode, within.len())?;
    change_data(op, &plan, block, within, |bytes| bytes.fill(0))?;
    Ok(())
}

/// Makes the bytes of the last block after the end of the file zeros, so that they never appear
/// when the file grows. Changes at most one block.
pub(super) fn zero_tail(op: &mut Op<'_>, inode: &Inode, size: u64) -> Result<()> {
    if size.is_multiple_of(BLOCK) || size > FILE_BYTES_MAX {
        return Ok(());
    }
    zero_bytes(op, inode, size, size.next_multiple_of(BLOCK))
}
