//! Allocating without writing, punching holes, zeroing ranges.
//!
//! Each is one operation. If the range has very many extents, it is done in several operations,
//! because an operation excludes all others and must fit into a transaction. An error on the way (a
//! full volume) leaves what was done before. Only the last operation changes the size, because a
//! caller that gets an error assumes the old size (the kernel's FUSE does).

use std::ops::Range;

use super::content::{
    BLOCK, FILE_BYTES_MAX, check_may_change, regular_file, touch, zero_bytes, zero_tail,
};
use super::truncate::budget;
use super::write::{EDIT_COUNT, edits_credit_count, has_room_for_edit};
use crate::extent::{self, FREE_CREDIT_COUNT, Target};
use crate::inode::{Inode, flags};
use crate::op::{Op, Spending, Undone};
use crate::{Error, InodeNo, Result};

/// What `VolumeAs::fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates it, and grows the file to its end. Holes read as zeros.
    Extend,
    /// Allocates it without changing the size.
    KeepSize,
    /// Makes it a hole without changing the size.
    PunchHole,
    /// Makes it allocated zeros.
    ZeroRange {
        /// Keep the size.
        keep_size: bool,
    },
}

/// Blocks at the edges of a range that is zeroed.
const EDGE_COUNT: usize = 2;

/// The most extents that one operation allocates or zeroes. No other operation runs or commits
/// meanwhile.
const EXTENT_COUNT_MAX: usize = 1024;
/// The most blocks that one operation may change to punch out a range.
const PUNCH_CREDIT_COUNT_MAX: usize = 2048;

/// A range that is to be allocated.
struct Filling {
    /// Logical blocks.
    blocks: Range<u64>,
    /// The range in bytes.
    bytes: Range<u64>,
    /// Whether data in the range become zeros.
    zero: bool,
    grow: bool,
}

impl Spending<'_> {
    /// [`VolumeAs::fallocate`](crate::VolumeAs::fallocate).
    pub(crate) fn fallocate(
        &self,
        ino: InodeNo,
        how: Allocate,
        offset: u64,
        len_bytes: u64,
    ) -> Result<()> {
        self.check_writable()?;
        let end = offset.checked_add(len_bytes).ok_or(Error::FileTooBig)?;
        if len_bytes == 0 {
            return Err(Error::InvalidArgument);
        }
        if end > FILE_BYTES_MAX {
            return Err(Error::FileTooBig);
        }
        let in_core = self.in_core(ino);
        let content = in_core.content.write();
        let bytes = offset..end;
        let done = match how {
            Allocate::Extend => self.fill(ino, Filling::new(bytes, false, true)),
            Allocate::KeepSize => self.fill(ino, Filling::new(bytes, false, false)),
            Allocate::ZeroRange { keep_size } => {
                self.fill(ino, Filling::new(bytes, true, !keep_size))
            }
            Allocate::PunchHole => self.punch(ino, bytes),
        };
        drop(content);
        done?;
        let is_sync = regular_file(&**self, ino)?.has_flag(flags::SYNC);
        if is_sync { self.fsync(ino, true) } else { Ok(()) }
    }

    fn fill(&self, ino: InodeNo, filling: Filling) -> Result<()> {
        let mut next = filling.blocks.start;
        let mut may_stop = false;
        while next < filling.blocks.end {
            let inode = self.use_extents(regular_file(&**self, ino)?)?;
            let depth = extent::depth(&inode);
            let mut until = filling.blocks.end;
            next = loop {
                let few = edits_credit_count(EDIT_COUNT, depth) + EDGE_COUNT;
                let credit_count = if may_stop { self.journal.max_credit_count() } else { few };
                let range = next..until;
                match self.try_op(credit_count, |op| filling.step(op, ino, range.clone(), may_stop))
                {
                    Ok(reached) => break reached,
                    // A small operation has too few credits for the rest of the range. The next
                    // operations are as large as possible, and each does the part that fits.
                    Err(Undone::NeedsCredits { .. }) => may_stop = true,
                    // The volume is full, and the last new blocks may have no room in the extent
                    // tree. The operation was undone, and the part up to `fitting` is done
                    // again, alone.
                    Err(Undone::NoSpace { fitting }) if fitting > next => until = fitting,
                    Err(undone) => return Err(undone.into()),
                }
            };
        }
        Ok(())
    }

    fn punch(&self, ino: InodeNo, bytes: Range<u64>) -> Result<()> {
        let size = regular_file(&**self, ino)?.size();
        let bytes = bytes.start..bytes.end.min(size.next_multiple_of(BLOCK));
        if bytes.start >= bytes.end {
            return Ok(());
        }
        let whole = whole_blocks(&bytes);
        let mut next = Some(whole.start);
        let mut edges_done = false;
        let mut may_stop = false;
        while let Some(from) = next {
            let most = self.journal.max_credit_count().min(PUNCH_CREDIT_COUNT_MAX);
            let credit_count = if may_stop { most } else { FREE_CREDIT_COUNT };
            let punched = self.try_op(credit_count, |op| {
                let mut inode = regular_file(op, ino)?;
                check_no_append(&inode)?;
                if !edges_done {
                    zero_edges(op, &inode, &bytes)?;
                }
                let mut budget = budget(op, &inode, credit_count);
                let rest = extent::free_range(op, &mut inode, from, whole.end, &mut budget)?;
                if rest.is_some() && !may_stop {
                    return Err(Undone::NeedsCredits { fitting: from });
                }
                touch(op, &mut inode);
                op.put_inode(&inode)?;
                Ok(rest)
            });
            match punched {
                Ok(rest) => {
                    next = rest;
                    edges_done = true;
                }
                Err(Undone::NeedsCredits { .. }) => may_stop = true,
                Err(undone) => return Err(undone.into()),
            }
        }
        Ok(())
    }
}

impl Filling {
    fn new(bytes: Range<u64>, zero: bool, grow: bool) -> Filling {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        Filling { blocks, bytes, zero, grow }
    }

    /// One operation's part of `range` (logical blocks): all of it, or, if it may stop, the part
    /// that it has credits for. Returns where to continue. If it fails, `progress` says how far it
    /// came.
    fn step(
        &self,
        op: &mut Op<'_>,
        ino: InodeNo,
        range: Range<u64>,
        may_stop: bool,
    ) -> std::result::Result<u64, Undone<u64>> {
        let mut inode = regular_file(op, ino)?;
        check_may_change(&inode, if self.zero { self.bytes.start } else { inode.size() })?;
        let mut next = range.start;
        let mut count = 0;
        while next < range.end {
            count += 1;
            if count > EXTENT_COUNT_MAX || !has_room_for_edit(op, &inode, EDGE_COUNT + 1) {
                if may_stop {
                    break;
                }
                return Err(Undone::NeedsCredits { fitting: next });
            }
            let filled = self.fill_next(op, &mut inode, next..range.end);
            next += u64::from(filled.map_err(|error| Undone::new(error, next))?);
        }
        if self.zero && range.start == self.blocks.start {
            zero_edges(op, &inode, &self.bytes)?;
        }
        if next == self.blocks.end {
            self.grow(op, &mut inode)?;
        }
        touch(op, &mut inode);
        op.put_inode(&inode)?;
        Ok(next)
    }

    /// Allocates or zeroes the start of `range`. Returns the number of blocks.
    fn fill_next(&self, op: &mut Op<'_>, inode: &mut Inode, range: Range<u64>) -> Result<u32> {
        let short = |n: u64| u32::try_from(n).expect("the range ends below the largest file");
        let logical = range.start;
        let at = short(logical);
        let mapping = extent::map(&*op, inode, at, short(range.end - logical))?;
        match mapping.target {
            Target::Hole => {
                let run = extent::allocate(op, inode, at, mapping.count, true)?;
                Ok(run.count)
            }
            Target::Unwritten(_) => Ok(mapping.count),
            Target::Written(_) if !self.zero => Ok(mapping.count),
            Target::Written(_) => {
                let whole = whole_blocks(&self.bytes);
                if !whole.contains(&logical) {
                    return Ok(1); // an edge, which zero_edges does
                }
                let count = mapping.count.min(short(whole.end - logical));
                extent::mark(op, inode, at, count, true)?;
                Ok(count)
            }
        }
    }

    /// Grows the file to the end of the range.
    fn grow(&self, op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
        let old_size = inode.size();
        if self.grow && self.bytes.end > old_size {
            zero_tail(op, inode, old_size)?;
            inode.set_size(self.bytes.end);
        }
        Ok(())
    }
}

/// Logical blocks that are wholly within a range of bytes. If there are none, an empty range at its
/// start.
fn whole_blocks(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start.div_ceil(BLOCK);
    start..(bytes.end / BLOCK).max(start)
}

/// Zeroes the bytes of the range in blocks that are only partly in it. Changes at most two blocks.
fn zero_edges(op: &mut Op<'_>, inode: &Inode, bytes: &Range<u64>) -> Result<()> {
    let whole = whole_blocks(bytes);
    let head_end = bytes.end.min(whole.start * BLOCK);
    if bytes.start < head_end {
        zero_bytes(op, inode, bytes.start, head_end)?;
    }
    let tail_start = (whole.end * BLOCK).max(head_end);
    if tail_start < bytes.end {
        zero_bytes(op, inode, tail_start, bytes.end)?;
    }
    Ok(())
}

fn check_no_append(inode: &Inode) -> Result<()> {
    if inode.has_flag(flags::IMMUTABLE | flags::APPEND) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}
