//! Sets a file's size, and frees the blocks of a deleted file.
//!
//! Freeing may take several operations. The first one sets the new size and puts a file that is
//! being cut on the orphan list; the last one takes it off. So after a crash the next opening frees
//! the rest. A deleted file is on the orphan list already.

use super::content::{BLOCK, FILE_BYTES_MAX, check_may_change, regular_file, touch, zero_tail};
use crate::extent::{self, FREE_CREDIT_COUNT, FreeBudget};
use crate::facts::Source;
use crate::inode::{Inode, read_inode};
use crate::memory::Mounted;
use crate::op::Op;
use crate::{Error, FileKind, InodeNo, Result};

/// One more than the largest logical block.
const LOGICAL_END: u64 = 1 << 32;

impl Mounted {
    /// Sets the size of a regular file in bytes: cuts it, or extends it by a hole. `change` is
    /// applied to the inode in the same operation, and must be able to run twice.
    pub(crate) fn set_size(
        &self,
        ino: InodeNo,
        size_bytes: u64,
        mut change: impl FnMut(&mut Op<'_>, &mut Inode) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        if size_bytes > FILE_BYTES_MAX {
            return Err(Error::FileTooBig);
        }
        let in_core = self.in_core(ino);
        let _content = in_core.content.write();
        let rest = self.as_root().with_op(FREE_CREDIT_COUNT, |op| {
            let mut inode = regular_file(op, ino)?;
            check_may_change(&inode, size_bytes)?;
            let rest = resize(op, &mut inode, size_bytes)?;
            touch(op, &mut inode);
            change(op, &mut inode)?;
            op.put_inode(&inode)?;
            Ok(rest)
        })?;
        match rest {
            Some(from) => self.free_rest(ino, from),
            None => Ok(()),
        }
    }

    /// Continues cutting a file after a crash: frees the blocks after its end, and takes it off the
    /// orphan list.
    pub(crate) fn finish_truncate(&self, ino: InodeNo) -> Result<()> {
        let in_core = self.in_core(ino);
        let _content = in_core.content.write();
        let inode = regular_file(self, ino)?;
        self.free_rest(ino, inode.size().div_ceil(BLOCK))
    }

    /// Frees the blocks from logical block `from` on, in as many operations as that takes, and then
    /// takes the file off the orphan list, unless it has no name. The caller holds the content
    /// lock.
    fn free_rest(&self, ino: InodeNo, from: u64) -> Result<()> {
        let mut next = Some(from);
        while let Some(from) = next {
            next = self.as_root().with_op(FREE_CREDIT_COUNT, |op| {
                let mut inode = read_inode(op, ino)?;
                let rest = free_from(op, &mut inode, from)?;
                // Without a name it stays there until it is evicted.
                if rest.is_none() && inode.link_count() > 0 {
                    op.orphan_remove(&mut inode)?;
                }
                op.put_inode(&inode)?;
                Ok(rest)
            })?;
        }
        Ok(())
    }

    /// Frees all blocks of an inode that has neither a name nor a user, of any kind. It must be on
    /// the orphan list, and stays there.
    pub(crate) fn free_inode_blocks(&self, ino: InodeNo) -> Result<()> {
        let inode = read_inode(self, ino)?;
        if !inode.maps_blocks() || extent::is_empty(&inode) {
            return Ok(());
        }
        let in_core = self.in_core(ino);
        // A directory needs no lock: it is empty and has no name, so no thread reads its content.
        let _content = (inode.kind() == FileKind::Regular).then(|| in_core.content.write());
        self.free_rest(ino, 0)
    }
}

/// Sets the size and frees the blocks after it, as far as one operation can. If that is not all,
/// puts the file on the orphan list. Returns the logical block to continue from.
pub(crate) fn resize(op: &mut Op<'_>, inode: &mut Inode, size_bytes: u64) -> Result<Option<u64>> {
    let old_size = inode.size();
    zero_tail(op, inode, old_size.min(size_bytes))?;
    inode.set_size(size_bytes);
    if size_bytes > old_size {
        return Ok(None);
    }
    let rest = free_from(op, inode, size_bytes.div_ceil(BLOCK))?;
    if rest.is_some() {
        op.orphan_add(inode)?;
    }
    Ok(rest)
}

fn free_from(op: &mut Op<'_>, inode: &mut Inode, from: u64) -> Result<Option<u64>> {
    let mut budget = budget(op, inode, FREE_CREDIT_COUNT);
    extent::free_range(op, inode, from, LOGICAL_END, &mut budget)
}

/// What one operation with `credit_count` credits may free of this inode.
pub(crate) fn budget(op: &Op<'_>, inode: &Inode, credit_count: usize) -> FreeBudget {
    let blocks_per_group = op.facts().geometry.blocks_per_group;
    FreeBudget::new(credit_count, extent::depth(inode), blocks_per_group)
}
