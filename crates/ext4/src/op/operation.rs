//! An operation: one journal handle, and the changes that it makes beside blocks.
//!
//! Until [`Op::finish`] no change of it is visible, and dropping it undoes everything. What an
//! operation changes in memory (free counts, freed ranges, changed inodes) is collected here and
//! applied at the end. Only the orphan table is changed at once. If an operation that changed it is
//! dropped, the table is read again from the volume.

use std::cell::OnceCell;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering;

use journal::{BlockBytes, BlockOwner, BlockRef, Form, Handle, HomeBlock, InPlaceGuard, Tid};
use zerocopy::IntoBytes;

use super::undone::Undone;
use crate::facts::{Facts, Source, Spender};
use crate::inode::{Inode, inode_place, read_inode};
use crate::layout::inode::INODE_BYTES;
use crate::layout::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, SuperBlock};
use crate::memory::{FileStats, Mounted};
use crate::{Error, InodeNo, Result, Timestamp};

/// A volume whose operations take blocks for this spender.
#[derive(Clone, Copy)]
pub(crate) struct Spending<'v> {
    pub(crate) volume: &'v Mounted,
    pub(crate) spender: Spender,
}

impl Deref for Spending<'_> {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.volume
    }
}

impl Mounted {
    /// The volume for operations that may use reserved blocks, or that take none for data.
    pub(crate) fn as_root(&self) -> Spending<'_> {
        Spending { volume: self, spender: Spender::Privileged }
    }
}

/// An operation in progress. Only one exists at a time on a volume.
pub(crate) struct Op<'v> {
    volume: &'v Mounted,
    /// `None` only while `finish` consumes it.
    handle: Option<Handle<'v>>,
    /// Asked for when a change needs it.
    now: OnceCell<Timestamp>,
    changed: Vec<InodeNo>,
    touched: Vec<InodeNo>,
    unwritten: Vec<InodeNo>,
    directories: Vec<InodeNo>,
    pins: Vec<InodeNo>,
    freed: Vec<Range<u64>>,
    pub(crate) free_block_delta: i64,
    pub(crate) free_inode_delta: i64,
    pub(super) touched_orphans: bool,
    spender: Spender,
    renames_dir: bool,
    is_durable: bool,
}

impl<'v> Spending<'v> {
    /// Begins an operation that changes up to `credit_count` blocks. Waits while another operation
    /// is open, so never call it while one is open in the same thread. `Error::ReadOnly` on a
    /// read-only volume.
    pub(crate) fn op(self, credit_count: usize) -> Result<Op<'v>> {
        self.check_writable()?;
        let handle = self.volume.journal.begin(credit_count)?;
        Ok(Op {
            volume: self.volume,
            handle: Some(handle),
            now: OnceCell::new(),
            changed: Vec::new(),
            touched: Vec::new(),
            unwritten: Vec::new(),
            directories: Vec::new(),
            pins: Vec::new(),
            freed: Vec::new(),
            free_block_delta: 0,
            free_inode_delta: 0,
            touched_orphans: false,
            spender: self.spender,
            renames_dir: false,
            is_durable: false,
        })
    }

    /// Runs `body` in an operation and finishes it. If `body` fails, everything is undone.
    ///
    /// `body` must be able to run twice. If it fails with `NoSpace` while freed blocks wait for
    /// their commit, they are committed, and `body` runs once more in a new operation. So take
    /// results out through the return value, not through captured variables, and hold no
    /// `InPlaceGuard` of an earlier operation (the commit would wait for it for ever).
    pub(crate) fn with_op<T>(
        self,
        credit_count: usize,
        mut body: impl FnMut(&mut Op<'_>) -> Result<T>,
    ) -> Result<T> {
        let done = self.try_op::<T, ()>(credit_count, |op| Ok(body(op)?));
        done.map_err(Error::from)
    }

    /// [`Spending::with_op`] with a body that has its own reasons to undo the operation.
    pub(crate) fn try_op<T, F: Default>(
        self,
        credit_count: usize,
        mut body: impl FnMut(&mut Op<'_>) -> std::result::Result<T, Undone<F>>,
    ) -> std::result::Result<T, Undone<F>> {
        let mut attempt = || -> std::result::Result<T, Undone<F>> {
            let mut op = self.op(credit_count)?;
            let value = body(&mut op)?;
            let is_durable = op.is_durable;
            let tid = op.finish(&[])?;
            if is_durable {
                self.journal.sync(tid).map_err(Error::from)?;
            }
            Ok(value)
        };
        match attempt() {
            Err(undone @ Undone::NoSpace { .. }) => {
                let Some(tid) = self.pending_frees.newest(self.committed()) else {
                    return Err(undone);
                };
                self.journal.sync(tid).map_err(Error::from)?;
                attempt()
            }
            result => result,
        }
    }
}

impl Source for Op<'_> {
    fn block(&self, block: HomeBlock) -> Result<BlockRef> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle().read(block)?)
    }

    fn super_bytes(&self) -> Result<BlockRef> {
        Ok(self.handle().read(HomeBlock(0))?)
    }

    fn facts(&self) -> &Facts {
        &self.volume.facts
    }
}

impl<'v> Op<'v> {
    fn handle(&self) -> &Handle<'v> {
        self.handle.as_ref().expect("only finish takes the handle")
    }

    fn handle_mut(&mut self) -> &mut Handle<'v> {
        self.handle.as_mut().expect("only finish takes the handle")
    }

    /// The number of further blocks that the operation may change.
    pub(crate) fn credits_left(&self) -> usize {
        self.handle().credits_left()
    }

    /// The volume, with the lifetime that the operation may have.
    pub(crate) fn mounted(&self) -> &'v Mounted {
        self.volume
    }

    /// The kind of user for whom it takes blocks.
    pub(crate) fn spender(&self) -> Spender {
        self.spender
    }

    /// Free blocks of the volume, including the changes of this operation.
    pub(crate) fn free_block_count(&self) -> u64 {
        self.volume.totals.free_block_count().saturating_add_signed(self.free_block_delta)
    }

    /// The operation's time. It is the same at every call.
    pub(crate) fn now(&self) -> Timestamp {
        *self.now.get_or_init(|| self.volume.now())
    }

    /// The operation is a write, which gives out no attributes: its time may be that of the change
    /// before it.
    pub(crate) fn take_time_of_write(&self) {
        self.now.get_or_init(|| self.volume.settings.times.now_of_write());
    }

    /// Write access to a metadata block (or journaled data): a private copy of it.
    pub(crate) fn write_block(&mut self, block: HomeBlock) -> Result<&mut BlockBytes> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle_mut().write(block)?)
    }

    /// Write access to the block as zeros, without reading it.
    pub(crate) fn create_block(&mut self, block: HomeBlock) -> Result<&mut BlockBytes> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle_mut().create(block)?)
    }

    /// Counts the blocks that are put from now on as data of this file.
    pub(crate) fn own_data(&mut self, ino: InodeNo) {
        self.handle_mut().set_owner(FileStats::owner(ino));
    }

    /// The number belongs to a new file.
    pub(crate) fn begin_owner(&mut self, ino: InodeNo) {
        self.handle_mut().begin_owner(FileStats::owner(ino));
    }

    /// [`Op::put_block`] with metadata, which are counted for no file.
    pub(crate) fn put_metadata(&mut self, block: HomeBlock, bytes: BlockRef) -> Result<()> {
        let owner = self.handle_mut().set_owner(BlockOwner::NOBODY);
        let put = self.put_block(block, bytes, Form::Delta);
        self.handle_mut().set_owner(owner);
        put
    }

    /// Replaces the whole block, to be logged in `form`.
    pub(crate) fn put_block(
        &mut self,
        block: HomeBlock,
        bytes: BlockRef,
        form: Form,
    ) -> Result<()> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle_mut().put(block, bytes, form)?)
    }

    /// [`Op::put_block`] of a block that no file had before, whatever a crash leaves.
    pub(crate) fn put_fresh_block(
        &mut self,
        block: HomeBlock,
        bytes: BlockRef,
        form: Form,
    ) -> Result<()> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle_mut().put_fresh(block, bytes, form)?)
    }

    /// Replaces the whole block with data that goes home in place before this commits.
    pub(crate) fn put_ordered(&mut self, block: HomeBlock, bytes: BlockRef) -> Result<()> {
        self.volume.facts.geometry.check_pointer(block)?;
        Ok(self.handle_mut().put_ordered(block, bytes)?)
    }

    /// Whether the journal holds a record of the block, or will get one.
    pub(crate) fn is_logged(&self, block: HomeBlock) -> bool {
        self.handle().is_logged(block)
    }

    /// Whether the journal holds a record of one of the blocks, or will get one.
    pub(crate) fn is_any_logged(&self, start: HomeBlock, count: u64) -> bool {
        self.handle().is_any_logged(start, count)
    }

    /// Whether data of the block wait to be written home before this transaction commits.
    pub(crate) fn is_buffered_in_place(&self, block: HomeBlock) -> bool {
        self.handle().is_buffered_in_place(block)
    }

    /// The commit of this operation waits until the guard is dropped.
    pub(crate) fn begin_in_place(&mut self) -> InPlaceGuard {
        self.handle_mut().begin_in_place()
    }

    /// [`Op::begin_in_place`] for blocks that no file had before.
    pub(crate) fn begin_fresh_in_place(&mut self) -> InPlaceGuard {
        self.handle_mut().begin_fresh_in_place()
    }

    /// The inode as this operation sees it.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Inode> {
        read_inode(self, ino)
    }

    /// Writes the inode (with its checksum) into its table block. From then on, `fsync` and
    /// `fdatasync` of it commit this operation.
    pub(crate) fn put_inode(&mut self, inode: &Inode) -> Result<()> {
        self.changed.push(inode.ino);
        self.store_inode(inode)
    }

    /// [`Op::put_inode`] for a change of times only: `fdatasync` need not commit this operation.
    pub(crate) fn put_inode_times(&mut self, inode: &Inode) -> Result<()> {
        self.touched.push(inode.ino);
        self.store_inode(inode)
    }

    /// [`Op::put_inode`] for a change that `fsync` need not commit.
    pub(crate) fn store_inode(&mut self, inode: &Inode) -> Result<()> {
        let (block, offset) = inode_place(self, inode.ino)?;
        let mut raw = inode.raw.clone();
        if let Some(next) = self.volume.orphans.next_of(self, inode.ino)? {
            // i_dtime is the orphan list's; the caller's copy of it may be older than the list.
            raw.i_dtime = next.into();
        }
        self.volume.facts.checksums.seal_inode(inode.ino, &mut raw);
        let bytes = self.handle_mut().write(block)?;
        bytes[offset..offset + INODE_BYTES].copy_from_slice(raw.as_bytes());
        Ok(())
    }

    /// Records that this directory's content changed. Its content lock is held while the operation
    /// is published.
    pub(crate) fn directory_changed(&mut self, ino: InodeNo) {
        self.directories.push(ino);
    }

    /// Records that written blocks of this inode become unwritten. A crash may still bring them
    /// back.
    pub(crate) fn blocks_unwritten(&mut self, ino: InodeNo) {
        self.unwritten.push(ino);
    }

    /// Whether no crash can bring back the content of the inode's unwritten blocks.
    pub(crate) fn are_unwritten_blocks_unused(&self, ino: InodeNo) -> bool {
        self.volume.in_core(ino).unwritten_tid() <= self.volume.committed()
    }

    /// Records that a directory gets another name or parent. Every `fsync` then waits for this
    /// operation, because it cannot know whether its file is below that directory.
    pub(crate) fn dir_renamed(&mut self) {
        self.renames_dir = true;
    }

    /// [`Spending::try_op`] and [`Spending::with_op`] return when the operation is durable.
    pub(crate) fn make_durable(&mut self) {
        self.is_durable = true;
    }

    /// Pins the inode once, when the operation is published, before other threads can see it.
    pub(crate) fn pin(&mut self, ino: InodeNo) {
        self.pins.push(ino);
    }

    /// A generation for a new inode.
    pub(crate) fn new_generation(&mut self) -> u32 {
        (self.volume.random() >> 32) as u32 // 32 random bits are wanted
    }

    /// Records that these blocks were freed, so that the engine drops what it still holds of them.
    pub(crate) fn forget_blocks(&mut self, start: HomeBlock, count: u64) {
        self.handle_mut().forget(start, count);
        self.freed.push(start.0..start.0 + count);
    }

    /// Records that these blocks were allocated. Anything that was read of them while they were
    /// free is dropped.
    pub(crate) fn forget_former_owner(&mut self, start: HomeBlock, count: u64) {
        self.handle_mut().forget(start, count);
    }

    /// Ranges that this operation itself freed.
    pub(crate) fn own_frees(&self) -> &[Range<u64>] {
        &self.freed
    }

    /// The superblock as this operation sees it.
    pub(crate) fn superblock(&self) -> Result<SuperBlock> {
        Ok(SuperBlock::of_block(&*self.super_bytes()?))
    }

    /// Changes the superblock. Its free counts and write time are updated, too.
    pub(crate) fn change_superblock(&mut self, change: impl FnOnce(&mut SuperBlock)) -> Result<()> {
        let mut superblock = self.superblock()?;
        change(&mut superblock);
        self.fill_in_totals(&mut superblock);
        let now = self.now();
        superblock.s_wtime.set((now.seconds & 0xFFFF_FFFF) as u32);
        superblock.s_wtime_hi = (now.seconds >> 32 & 0xFF) as u8;
        self.volume.facts.checksums.seal_superblock(&mut superblock);
        let bytes = self.handle_mut().write(HomeBlock(0))?;
        bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
            .copy_from_slice(superblock.as_bytes());
        Ok(())
    }

    fn fill_in_totals(&self, superblock: &mut SuperBlock) {
        let (totals, geometry) = (&self.volume.totals, &self.volume.facts.geometry);
        let blocks = self.free_block_count();
        let inodes = totals.free_inode_count().saturating_add_signed(self.free_inode_delta);
        let inodes = u32::try_from(inodes).unwrap_or(geometry.inode_count);
        superblock.set_free_block_count(blocks.min(geometry.block_count), geometry.wide);
        superblock.s_free_inodes_count.set(inodes.min(geometry.inode_count));
    }

    /// Publishes everything at once. The content locks of these directories, and of those given
    /// to [`Op::directory_changed`], are held meanwhile.
    pub(crate) fn finish(mut self, directories: &[InodeNo]) -> Result<Tid> {
        let volume = self.volume;
        let mut locked = std::mem::take(&mut self.directories);
        locked.extend_from_slice(directories);
        locked.sort_unstable();
        locked.dedup();
        let in_core: Vec<_> = locked.iter().map(|ino| volume.in_core(*ino)).collect();
        let guards: Vec<_> = in_core.iter().map(|in_core| in_core.content.write()).collect();
        let handle = self.handle.take().expect("an operation is finished once");
        let tid = handle.tid();
        self.apply(tid);
        handle.stop();
        drop(guards);
        Ok(tid)
    }

    /// Applies what the operation changed in memory. This happens before it is published, so that
    /// every thread that sees its blocks sees these changes, too.
    fn apply(&mut self, tid: Tid) {
        let volume = self.volume;
        self.pins.drain(..).for_each(|ino| volume.in_core.pin(ino));
        self.freed.drain(..).for_each(|range| volume.pending_frees.add(range, tid));
        volume.totals.add(self.free_block_delta, self.free_inode_delta);
        if self.renames_dir {
            volume.renamed_dir_tid.fetch_max(tid.0, Ordering::AcqRel);
        }
        for ino in self.changed.drain(..) {
            volume.in_core(ino).note_change(tid, true);
        }
        for ino in self.touched.drain(..) {
            volume.in_core(ino).note_change(tid, false);
        }
        for ino in self.unwritten.drain(..) {
            volume.in_core(ino).note_unwritten(tid);
        }
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        let unfinished = self.handle.is_some();
        if unfinished && self.touched_orphans {
            // The handle is still open here, so no other operation can have looked meanwhile.
            self.volume.orphans.invalidate();
        }
    }
}
