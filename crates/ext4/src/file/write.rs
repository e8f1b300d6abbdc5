//! Writing a file.
//!
//! A write is one operation if a transaction can hold it. Otherwise it is cut into chunks, each of
//! which is one operation. A chunk that is cut ends at a multiple of [`Mounted::unit_bytes`] in the
//! file, so that no aligned page of that size is in two operations (`untorn.rs`). An operation maps
//! blocks, allocates missing ones, and sets the size. All of this is in one transaction with the
//! data, or ordered after them:
//!
//! - Data that go through the journal are blocks of the same operation.
//! - Data that go in place (`data_mode` decides) are written in one of two ways. A run of at least
//!   64 KiB of whole blocks is written home from the caller's buffer after the operation was
//!   published; a guard holds the commit back until it is home. Other blocks are buffered, and the
//!   engine writes them home before it commits. The file's content lock is held until then, so no
//!   reader sees data that are not there yet.

use std::sync::Arc;

use journal::{BLOCK_BYTES, BlockRef, HomeBlock, InPlaceGuard};

use super::attempt::{Ask, Next, Way, next_attempt};
use super::content::{
    BLOCK, FILE_BYTES_MAX, block_of, change_data, check_may_change, place_in_block, regular_file,
    touch, zero_tail,
};
use super::plan::{Plan, Put};
use super::truncate::budget;
use super::untorn::cut_at_unit;
use crate::extent::{self, FREE_CREDIT_COUNT, Target, edit_credit_count};
use crate::facts::Source;
use crate::inode::{Inode, flags};
use crate::memory::{InCoreInode, Mounted};
use crate::op::{Op, Spending, Undone};
use crate::{DataMode, Error, InodeNo, Result, faults};

/// The number of allocations and conversions that an operation asks credits for at first. Most of
/// them change the same blocks, so the operation can do many more. If the credits run out, it is
/// repeated with as many as it may take.
pub(super) const EDIT_COUNT: usize = 8;

/// The largest possible depth of a tree.
pub(super) const DEPTH_MAX: u16 = 5;

/// The number of levels by which a tree may grow during one operation.
pub(super) const GROWTH_LEVEL_COUNT: u16 = 2;

/// The least number of whole blocks that get an I/O of their own.
const IN_PLACE_COUNT_MIN: usize = 16;

/// Data are redirected only as long as more than one block of this many is free, so that they find
/// blocks next to each other.
const REDIRECT_FREE_PART: u64 = 8;

/// The most blocks of one chunk whose data go home directly.
const DIRECT_CHUNK_COUNT: usize = 2048;

/// Blocks of metadata that an operation with this many allocations or conversions may change.
pub(super) fn edits_credit_count(edit_count: usize, depth: u16) -> usize {
    // Each: bitmap and descriptor, its leaf, and the leaf's new half with bitmap and descriptor.
    // Then the nodes above, the inode, and the block that held the old end of the file.
    6 * edit_count + edit_credit_count(depth) + 2
}

/// Whether an operation has credits for one more allocation or conversion, and for `other_count`
/// more blocks.
pub(super) fn has_room_for_edit(op: &Op<'_>, inode: &Inode, other_count: usize) -> bool {
    // The block that held the old end of the file was changed before.
    let edit_credits = edits_credit_count(1, extent::depth(inode)) - 1;
    op.credits_left() >= edit_credits + other_count
}

/// Blocks of a file that are adjacent on the volume and in the file.
struct Piece {
    logical: u32,
    count: u32,
    home: HomeBlock,
    /// Whether they hold nothing yet.
    fresh: bool,
    /// Whether a crash cannot bring back a file with data there either.
    unused: bool,
}

/// Data of the caller that go home after the operation was published.
struct InPlace {
    home: HomeBlock,
    /// Byte range of the chunk's data.
    range: std::ops::Range<usize>,
}

/// What an operation has written of a chunk.
pub(crate) struct Written {
    pub(crate) len_bytes: usize,
    /// Allocations and conversions.
    pub(super) edit_count: usize,
    in_place: Vec<InPlace>,
    guard: Option<InPlaceGuard>,
    /// Whether some of its data go through the journal.
    journaled: bool,
}

/// What [`Spending::write_some`] has written.
struct SomeWritten {
    len_bytes: usize,
    /// The file has `chattr +S`: the write returns when it is durable.
    is_sync: bool,
}

/// The part of a write that one operation does.
pub(super) struct Chunk<'a> {
    ino: InodeNo,
    offset: u64,
    data: &'a [u8],
    plan: Plan,
    way: Way,
    ask: Ask,
    /// The whole blocks in `data`, with [`Way::Copied`].
    copies: Vec<BlockRef>,
    kill_privileges: bool,
}

/// What bounds the operations of a write.
struct Bounds {
    credits_max: usize,
    depth: u16,
    unit_bytes: u64,
}

impl Spending<'_> {
    /// [`VolumeAs::write_accepting`](crate::VolumeAs::write_accepting).
    pub(crate) fn write_accepting(
        &self,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        kill: bool,
        accepted: &mut dyn FnMut(usize),
    ) -> Result<usize> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_BYTES_MAX {
            return Err(Error::FileTooBig);
        }
        let left = usize::try_from(FILE_BYTES_MAX - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(left)];
        let in_core = self.in_core(ino);
        let content = in_core.content.write();
        let mut done = 0;
        let mut is_sync = false;
        while done < data.len() {
            let mut mapped = |len_bytes| {
                if done + len_bytes == data.len() {
                    accepted(data.len());
                }
            };
            let at = offset + done as u64;
            match self.write_some(&in_core, ino, at, &data[done..], kill, &mut mapped) {
                Ok(some) => {
                    done += some.len_bytes;
                    is_sync = some.is_sync;
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        drop(content);
        self.file_stats.note_write(ino, done);
        if is_sync {
            self.fsync(ino, true)?;
        }
        Ok(done)
    }

    /// Writes the start of `data`, as much as one operation can. When only data in place are left
    /// to write, calls `mapped` with the number of bytes, unless the file has `chattr +S`. The
    /// caller holds the content lock of `in_core`.
    fn write_some(
        &self,
        in_core: &InCoreInode,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
        kill: bool,
        mapped: &mut dyn FnMut(usize),
    ) -> Result<SomeWritten> {
        let inode = regular_file(&**self, ino)?;
        let is_sync = inode.has_flag(flags::SYNC);
        check_may_change(&inode, offset)?;
        let inode = self.use_extents(inode)?;
        let plan = self.plan(&inode, in_core, data.len())?;
        let way = if plan.allows_direct() { Way::Direct } else { Way::Copied };
        let bounds = self.bounds(extent::depth(&inode));
        let data = faults::first_operation(&data[..bounds.cut(offset, data.len(), way)]);
        let mut chunk = Chunk::new(plan, ino, offset, data, kill, way);
        chunk.way = self.find_way(&chunk, &inode, &bounds)?;
        let written = loop {
            match self.try_op(bounds.credit_count(&chunk), |op| chunk.write(op, 0)) {
                Ok(written) => break written,
                Err(undone) => chunk = bounds.next_chunk(chunk, undone)?,
            }
        };
        if !chunk.holds_only_data() {
            in_core.note_appended(written.appended_bytes());
        }
        let is_free = written.guard.is_none() && !written.in_place.is_empty();
        let _answered = is_free.then(|| self.answered.read());
        if !written.in_place.is_empty() && !is_sync {
            mapped(written.len_bytes);
        }
        self.write_home(in_core, &chunk, &written)?;
        drop(written.guard);
        Ok(SomeWritten { len_bytes: written.len_bytes, is_sync })
    }
}

impl Mounted {
    fn bounds(&self, depth: u16) -> Bounds {
        let (credits_max, unit_bytes) = (self.journal.max_credit_count(), self.unit_bytes());
        Bounds { credits_max, depth, unit_bytes }
    }

    /// The way of a chunk: a direct one is redirected if that is allowed, helps and fits.
    fn find_way(&self, chunk: &Chunk<'_>, inode: &Inode, bounds: &Bounds) -> Result<Way> {
        let free_count_min = self.facts.geometry.block_count / REDIRECT_FREE_PART;
        if chunk.way == Way::Copied
            || !chunk.plan.may_redirect()
            || self.totals.free_block_count() <= free_count_min
        {
            return Ok(chunk.way);
        }
        let held_count = chunk.held_count(self, inode)?;
        let credit_count = chunk.credit_count(EDIT_COUNT, bounds.depth) + FREE_CREDIT_COUNT;
        let fits = credit_count <= bounds.credits_max;
        Ok(if held_count > 0 && fits { Way::Redirect { held_count } } else { Way::Direct })
    }

    /// Writes the data in place of a chunk home.
    fn write_home(
        &self,
        in_core: &InCoreInode,
        chunk: &Chunk<'_>,
        written: &Written,
    ) -> Result<()> {
        let fresh_of = written.guard.as_ref().filter(|_| chunk.plan.mode == DataMode::Auto);
        for place in &written.in_place {
            let data = &chunk.data[place.range.clone()];
            let sent = match fresh_of {
                Some(guard) => self.journal.write_fresh_in_place(guard, place.home, data),
                None => self.journal.write_in_place(place.home, data),
            };
            sent.inspect_err(|_| written.note_not_sent(in_core))?;
            self.file_stats.note_in_place(chunk.ino, place.range.len());
        }
        Ok(())
    }
}

impl Bounds {
    /// The length of the longest start of `len_bytes` bytes at `offset` that one operation writes
    /// this way.
    fn cut(&self, offset: u64, len_bytes: usize, way: Way) -> usize {
        let others = edits_credit_count(EDIT_COUNT, self.depth);
        let count = match way {
            Way::Copied => self.credits_max.saturating_sub(others).max(1),
            Way::Redirect { .. } | Way::Direct => DIRECT_CHUNK_COUNT,
        };
        let room_bytes = count.saturating_mul(BLOCK_BYTES) - place_in_block(offset);
        cut_at_unit(offset, len_bytes, room_bytes, self.unit_bytes)
    }

    /// The credits that an operation asks for to write the chunk.
    fn credit_count(&self, chunk: &Chunk<'_>) -> usize {
        let few = chunk.credit_count(EDIT_COUNT, self.depth);
        match (chunk.way, chunk.ask) {
            (Way::Redirect { .. }, _) => few + FREE_CREDIT_COUNT,
            (_, Ask::Few) => few,
            (_, Ask::Most) => {
                let most = chunk.credit_count(usize::MAX, self.depth + GROWTH_LEVEL_COUNT);
                most.min(self.credits_max)
            }
        }
    }

    /// The chunk to write after the operation of this one was undone.
    fn next_chunk<'a>(&self, chunk: Chunk<'a>, undone: Undone) -> Result<Chunk<'a>> {
        let (offset, len_bytes) = (chunk.offset, chunk.data.len());
        let (len_bytes, way) = match next_attempt(chunk.way, chunk.ask, undone)? {
            Next::AskForMost => return Ok(Chunk { ask: Ask::Most, ..chunk }),
            Next::Copy => (self.cut(offset, len_bytes, Way::Copied), Way::Copied),
            Next::CutAtUnit(fitting_bytes) => {
                (cut_at_unit(offset, len_bytes, fitting_bytes, self.unit_bytes), chunk.way)
            }
            Next::CutAt(fitting_bytes) => (fitting_bytes, chunk.way),
        };
        let data = &chunk.data[..len_bytes];
        Ok(Chunk::new(chunk.plan, chunk.ino, offset, data, chunk.kill_privileges, way))
    }
}

impl Written {
    /// Its data did not all reach the home device, which aborted the journal. New blocks are
    /// published without content.
    fn note_not_sent(&self, in_core: &InCoreInode) {
        if self.edit_count > 0 {
            in_core.lose_content();
        }
    }

    /// The number of its bytes that count as appended: all, if some of its blocks held nothing.
    pub(crate) fn appended_bytes(&self) -> usize {
        if self.edit_count > 0 { self.len_bytes } else { 0 }
    }
}

impl<'a> Chunk<'a> {
    pub(crate) fn new(
        plan: Plan,
        ino: InodeNo,
        offset: u64,
        data: &'a [u8],
        kill_privileges: bool,
        way: Way,
    ) -> Chunk<'a> {
        let (ask, copies) = (Ask::Few, Vec::new());
        let mut chunk = Chunk { ino, offset, data, plan, way, ask, copies, kill_privileges };
        let whole = chunk.whole_blocks();
        if way == Way::Copied || whole.len() < IN_PLACE_COUNT_MIN * BLOCK_BYTES {
            chunk.way = Way::Copied;
            let blocks = chunk.data[whole].chunks_exact(BLOCK_BYTES);
            chunk.copies = blocks.map(copy_block).collect();
        }
        chunk
    }

    /// Whether the whole blocks of a piece may be written home without passing through the journal.
    /// A block that the journal has a record of must stay in the journal until it is home.
    fn may_go_directly(&self, op: &Op<'_>, piece: &Piece) -> bool {
        let (whole, first) = (self.whole_logical(), u64::from(piece.logical));
        if first >= whole.end || first + u64::from(piece.count) <= whole.start {
            return true; // It has none.
        }
        let is_kept_whole = self.plan.mode != DataMode::Auto || piece.unused;
        is_kept_whole && !op.is_any_logged(piece.home, u64::from(piece.count))
    }

    /// Logical blocks that the data cover whole.
    fn whole_logical(&self) -> std::ops::Range<u64> {
        let whole = self.whole_blocks();
        let logical = |at: usize| (self.offset + at as u64) / BLOCK;
        logical(whole.start)..logical(whole.end)
    }

    /// Whether it is redirected, and each of its whole blocks holds data.
    fn holds_only_data(&self) -> bool {
        let whole_count = (self.whole_blocks().len() / BLOCK_BYTES) as u64;
        self.way == Way::Redirect { held_count: whole_count }
    }

    /// The number of whole blocks that hold data.
    fn held_count(&self, source: &impl Source, inode: &Inode) -> Result<u64> {
        let blocks = self.whole_logical();
        let (mut next, mut held_count) = (blocks.start, 0);
        while next < blocks.end {
            let short = |n: u64| u32::try_from(n).expect("the data end below the largest file");
            let mapping = extent::map(source, inode, short(next), short(blocks.end - next))?;
            if matches!(mapping.target, Target::Written(_)) {
                held_count += u64::from(mapping.count);
            }
            next += u64::from(mapping.count);
        }
        Ok(held_count)
    }

    /// Frees the whole blocks, so that the data get others. A crash before the commit leaves the
    /// old ones, which are not allocated again before that.
    fn free_old_blocks(
        &self,
        op: &mut Op<'_>,
        inode: &mut Inode,
    ) -> std::result::Result<(), Undone> {
        let blocks = self.whole_logical();
        let mut budget = budget(op, inode, FREE_CREDIT_COUNT);
        match extent::free_range(op, inode, blocks.start, blocks.end, &mut budget)? {
            None => Ok(()),
            Some(_) => Err(Undone::NeedsCopies),
        }
    }

    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn block_count(&self) -> usize {
        (place_in_block(self.offset) + self.data.len()).div_ceil(BLOCK_BYTES)
    }

    /// Byte range of the whole blocks in `data`.
    fn whole_blocks(&self) -> std::ops::Range<usize> {
        let skip = place_in_block(self.offset);
        let start = if skip == 0 { 0 } else { self.data.len().min(BLOCK_BYTES - skip) };
        start..start + (self.data.len() - start) / BLOCK_BYTES * BLOCK_BYTES
    }

    /// The credits that an operation asks for to write it, for up to `edit_count` allocations and
    /// conversions.
    fn credit_count(&self, edit_count: usize, depth: u16) -> usize {
        self.data_credit_count() + edits_credit_count(self.block_count().min(edit_count), depth)
    }

    /// Blocks of data that pass through the operation.
    pub(super) fn data_credit_count(&self) -> usize {
        self.block_count() - self.whole_blocks().len() / BLOCK_BYTES + self.copies.len()
    }

    /// Byte range of `data` that belongs to these logical blocks.
    fn range_of(&self, logical: u32, count: u32) -> std::ops::Range<usize> {
        let start = (u64::from(logical) * BLOCK).max(self.offset);
        let end = ((u64::from(logical) + u64::from(count)) * BLOCK).min(self.end());
        let in_data = |at: u64| usize::try_from(at - self.offset).expect("within the data");
        in_data(start)..in_data(end)
    }

    /// The operation: maps and allocates blocks, puts the data, sets size and times. Leaves credits
    /// for `reserved_count` blocks that the operation changes after that.
    pub(crate) fn write(
        &self,
        op: &mut Op<'_>,
        reserved_count: usize,
    ) -> std::result::Result<Written, Undone> {
        let mut inode = regular_file(op, self.ino)?;
        check_may_change(&inode, self.offset)?;
        let old_size = inode.size();
        op.own_data(self.ino);
        if self.offset > old_size {
            zero_tail(op, &inode, old_size)?;
        }
        if let Way::Redirect { .. } = self.way {
            self.free_old_blocks(op, &mut inode)?;
        }
        let pieces = self.map(op, &mut inode, reserved_count)?;
        if self.way != Way::Copied && !pieces.iter().all(|piece| self.may_go_directly(op, piece)) {
            return Err(Undone::NeedsCopies);
        }
        let (in_place, guard) = (Vec::new(), None);
        let edit_count = pieces.iter().filter(|piece| piece.fresh).count();
        let mut written = Written { len_bytes: 0, edit_count, in_place, guard, journaled: false };
        for piece in &pieces {
            written.len_bytes = self.range_of(piece.logical, piece.count).end;
            self.put_piece(op, piece, &mut written)?;
        }
        if !written.in_place.is_empty() {
            written.guard = match self.plan.mode {
                // No commit waits for the data.
                DataMode::Writeback => None,
                // Only blocks that hold nothing: `may_go_directly`.
                DataMode::Auto => Some(op.begin_fresh_in_place()),
                _ => Some(op.begin_in_place()),
            };
        }
        let end = self.offset + written.len_bytes as u64;
        inode.set_size(old_size.max(end));
        op.take_time_of_write();
        touch(op, &mut inode);
        if self.kill_privileges {
            inode.clear_set_ids(false);
        }
        if written.journaled || end > old_size || pieces.iter().any(|piece| piece.fresh) {
            op.put_inode(&inode)?;
        } else {
            op.put_inode_times(&inode)?;
        }
        Ok(written)
    }

    /// Finds a block for each block of the chunk, from its start on.
    fn map(
        &self,
        op: &mut Op<'_>,
        inode: &mut Inode,
        reserved_count: usize,
    ) -> std::result::Result<Vec<Piece>, Undone> {
        let mut pieces: Vec<Piece> = Vec::new();
        let other_count = self.data_credit_count() + reserved_count;
        let mut next = block_of(self.offset);
        let last = block_of(self.end() - 1);
        while next <= last {
            let fitting_bytes = pieces.last().map_or(0, |p| self.range_of(p.logical, p.count).end);
            if !has_room_for_edit(op, inode, other_count) {
                return Err(Undone::NeedsCredits { fitting: fitting_bytes });
            }
            let piece = map_piece(op, inode, next, last - next + 1);
            let piece = piece.map_err(|error| Undone::new(error, fitting_bytes))?;
            next += piece.count;
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn put_piece(&self, op: &mut Op<'_>, piece: &Piece, written: &mut Written) -> Result<()> {
        let whole = self.whole_blocks();
        let range = self.range_of(piece.logical, piece.count);
        let start = range.start.clamp(whole.start, whole.end);
        let end = range.end.clamp(whole.start, whole.end);
        let first = u64::from(piece.logical);
        let home_of =
            |at: usize| HomeBlock(piece.home.0 + (self.offset + at as u64) / BLOCK - first);
        if range.start < start {
            written.journaled |=
                self.put_part(op, piece, home_of(range.start), range.start..start)?;
        }
        if start < end && self.way != Way::Copied {
            written.in_place.push(InPlace { home: home_of(start), range: start..end });
        } else {
            for at in (start..end).step_by(BLOCK_BYTES) {
                let bytes = self.copies[(at - whole.start) / BLOCK_BYTES].clone();
                let (home, whole) = (home_of(at), 0..BLOCK_BYTES);
                let (fresh, unused) = (piece.fresh, piece.unused);
                let put = Put { home, bytes, written: whole, fresh, unused };
                written.journaled |= self.plan.put(op, put)?;
            }
        }
        if end < range.end {
            written.journaled |= self.put_part(op, piece, home_of(end), end..range.end)?;
        }
        Ok(())
    }

    /// Puts data that cover a part of one block. `true`: they go through the journal.
    fn put_part(
        &self,
        op: &mut Op<'_>,
        piece: &Piece,
        home: HomeBlock,
        range: std::ops::Range<usize>,
    ) -> Result<bool> {
        let place = place_in_block(self.offset + range.start as u64);
        let data = &self.data[range];
        let written = place..place + data.len();
        if !piece.fresh {
            return change_data(op, &self.plan, home, written, |part| part.copy_from_slice(data));
        }
        let mut bytes: BlockRef = Arc::new([0; BLOCK_BYTES]);
        Arc::make_mut(&mut bytes)[written.clone()].copy_from_slice(data);
        let (fresh, unused) = (true, piece.unused);
        self.plan.put(op, Put { home, bytes, written, fresh, unused })
    }
}

/// Finds or allocates a block, or several adjacent ones, for `logical` and the blocks after it.
fn map_piece(op: &mut Op<'_>, inode: &mut Inode, logical: u32, count: u32) -> Result<Piece> {
    let mapping = extent::map(&*op, inode, logical, count)?;
    let count = mapping.count;
    match mapping.target {
        Target::Written(home) => Ok(Piece { logical, count, home, fresh: false, unused: false }),
        Target::Unwritten(home) => {
            extent::mark(op, inode, logical, count, false)?;
            let unused = op.are_unwritten_blocks_unused(inode.ino);
            Ok(Piece { logical, count, home, fresh: true, unused })
        }
        Target::Hole => {
            let run = extent::allocate(op, inode, logical, count, false)?;
            let home = HomeBlock(run.physical);
            // A block is allocated only after the transaction that freed it is committed.
            Ok(Piece { logical, count: run.count, home, fresh: true, unused: true })
        }
    }
}

fn copy_block(bytes: &[u8]) -> BlockRef {
    Arc::new(bytes.try_into().expect("chunks of a block's size"))
}
