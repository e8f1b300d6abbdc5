//! Allocating without writing, punching holes, zeroing ranges.
//!
//! Each goes through its range in operations of bounded size; an error on the way (a full volume)
//! leaves what was done before. Only the last one changes the size: whoever is told of an error
//! believes that the size is the old one (the kernel's FUSE does).

use std::cell::Cell;
use std::ops::Range;

use crate::extent_tree::{self, Target};
use crate::file::{
    BLOCK, FILE_BYTES_MAX, check_may_change, regular_file, touch, zero_bytes, zero_tail,
};
use crate::file_write::{EDIT_COUNT_MAX, edits_credit_count};
use crate::free_budget::FREE_CREDIT_COUNT;
use crate::inode::{Inode, flags};
use crate::op::Op;
use crate::truncate::budget;
use crate::volume::Volume;
use crate::{Error, InodeNo, Result};

/// What `Volume::fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates it, reading as zeros where it was a hole, and grows the file to its end.
    Extend,
    /// Allocates it; the size stays.
    KeepSize,
    /// Makes it a hole; the size stays.
    PunchHole,
    /// Makes it zeros, allocated.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
}

/// A range that is to be allocated.
struct Filling {
    /// Logical blocks.
    blocks: Range<u64>,
    /// Where the range starts and ends in bytes.
    bytes: Range<u64>,
    /// Data in the range become zeros.
    zero: bool,
    grow: bool,
}

impl Volume {
    /// Allocates, punches or zeroes `len_bytes` bytes from `offset` on.
    pub fn fallocate(
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
        let cell = self.cell(ino);
        let _content = cell.content.write();
        let bytes = offset..end;
        match how {
            Allocate::Extend => self.fill(ino, Filling::new(bytes, false, true)),
            Allocate::KeepSize => self.fill(ino, Filling::new(bytes, false, false)),
            Allocate::ZeroRange { keep_size } => {
                self.fill(ino, Filling::new(bytes, true, !keep_size))
            }
            Allocate::PunchHole => self.punch(ino, bytes),
        }
    }

    fn fill(&self, ino: InodeNo, filling: Filling) -> Result<()> {
        let mut next = filling.blocks.start;
        while next < filling.blocks.end {
            let depth = extent_tree::depth(&regular_file(self, ino)?);
            // Two more for the edges of a range that is zeroed.
            let credit_count = edits_credit_count(EDIT_COUNT_MAX, depth) + 2;
            let (mut until, fitting) = (filling.blocks.end, Cell::new(next));
            next = loop {
                match self.with_op(credit_count, |op| filling.step(op, ino, next..until, &fitting))
                {
                    // What was allocated last may have no node to be mapped by: nothing of this
                    // operation can be kept. What fits is done once more, alone.
                    Err(Error::NoSpace) if fitting.get() > next => until = fitting.get(),
                    stepped => break stepped?,
                }
            };
        }
        Ok(())
    }

    fn punch(&self, ino: InodeNo, bytes: Range<u64>) -> Result<()> {
        let size = regular_file(self, ino)?.size();
        let bytes = bytes.start..bytes.end.min(size.next_multiple_of(BLOCK));
        if bytes.start >= bytes.end {
            return Ok(());
        }
        let whole = whole_blocks(&bytes);
        let mut next = Some(whole.start);
        let mut edges_done = false;
        while let Some(from) = next {
            next = self.with_op(FREE_CREDIT_COUNT, |op| {
                let mut inode = regular_file(op, ino)?;
                check_no_append(&inode)?;
                if !edges_done {
                    zero_edges(op, &inode, &bytes)?;
                }
                let mut budget = budget(op, &inode);
                let rest = extent_tree::free_range(op, &mut inode, from, whole.end, &mut budget)?;
                touch(op, &mut inode);
                op.put_inode(&inode)?;
                Ok(rest)
            })?;
            edges_done = true;
        }
        Ok(())
    }
}

impl Filling {
    fn new(bytes: Range<u64>, zero: bool, grow: bool) -> Filling {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        Filling { blocks, bytes, zero, grow }
    }

    /// One operation's part of `range` (logical blocks). Returns where to go on. When there is no
    /// space, `fitting` says up to where there was.
    fn step(
        &self,
        op: &mut Op<'_>,
        ino: InodeNo,
        range: Range<u64>,
        fitting: &Cell<u64>,
    ) -> Result<u64> {
        let mut inode = regular_file(op, ino)?;
        check_may_change(&inode, if self.zero { self.bytes.start } else { inode.size() })?;
        let mut next = range.start;
        let mut edit_count = 0;
        while next < range.end && edit_count < EDIT_COUNT_MAX {
            fitting.set(next);
            let (count, edited) = self.fill_next(op, &mut inode, next..range.end)?;
            next += u64::from(count);
            edit_count += usize::from(edited);
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

    /// Allocates or zeroes the start of `range`: so many blocks, and whether the tree changed.
    fn fill_next(
        &self,
        op: &mut Op<'_>,
        inode: &mut Inode,
        range: Range<u64>,
    ) -> Result<(u32, bool)> {
        let short = |n: u64| u32::try_from(n).expect("the range ends below the largest file");
        let logical = range.start;
        let at = short(logical);
        let mapping = extent_tree::map(&*op, inode, at, short(range.end - logical))?;
        match mapping.target {
            Target::Hole => {
                let run = extent_tree::allocate(op, inode, at, mapping.count, true)?;
                Ok((run.count, true))
            }
            Target::Unwritten(_) => Ok((mapping.count, false)),
            Target::Written(_) if !self.zero => Ok((mapping.count, false)),
            Target::Written(_) => {
                let whole = whole_blocks(&self.bytes);
                if !whole.contains(&logical) {
                    return Ok((1, false)); // an edge, which zero_edges does
                }
                let count = mapping.count.min(short(whole.end - logical));
                extent_tree::mark(op, inode, at, count, true)?;
                Ok((count, true))
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

/// Logical blocks that lie wholly within a range of bytes; empty at its start when there is none.
fn whole_blocks(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start.div_ceil(BLOCK);
    start..(bytes.end / BLOCK).max(start)
}

/// Zeroes the bytes of the range that lie in blocks which are not wholly in it. Changes two blocks
/// at most.
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
