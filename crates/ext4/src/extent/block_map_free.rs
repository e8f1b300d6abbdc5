//! Freeing a range of a block map: truncate, punch hole, and the blocks of a deleted file.
//!
//! A map block without pointers is freed, and the pointer to it becomes 0. A budget bounds what one
//! operation may free, so a large file takes several operations. Each of them leaves a valid map.

use std::ops::Range;

use journal::{BlockRef, HomeBlock};

use super::block_map::{
    Branch, POINTER_COUNT, ROOT_COUNT, pointer, read_map_block, run_count, span,
};
use super::free_budget::FreeBudget;
use crate::Result;
use crate::inode::Inode;
use crate::op::Op;

/// One freeing in progress.
struct Freeing<'a, 'v> {
    op: &'a mut Op<'v>,
    budget: &'a mut FreeBudget,
    /// Logical blocks.
    range: Range<u64>,
    /// Blocks that were freed, including map blocks.
    freed_count: i64,
    /// The logical block at which the budget was spent.
    stopped: Option<u64>,
}

/// Frees the blocks in `start..end` (logical), as many as the budget allows. Returns where the next
/// operation continues; `None` if all are free. The caller puts the inode.
pub(crate) fn free_range(
    op: &mut Op<'_>,
    inode: &mut Inode,
    start: u64,
    end: u64,
    budget: &mut FreeBudget,
) -> Result<Option<u64>> {
    let mut freeing = Freeing { op, budget, range: start..end, freed_count: 0, stopped: None };
    let mut root = *inode.i_block();
    for index in 0..ROOT_COUNT {
        let branch = Branch::at(index);
        freeing.free_below(&mut root, index, branch.depth, branch.start)?;
    }
    let (freed_count, stopped) = (freeing.freed_count, freeing.stopped);
    *inode.i_block_mut() = root;
    inode.add_blocks(-freed_count)?;
    Ok(stopped)
}

fn clear(pointers: &mut [u8], index: usize) {
    pointers[index * 4..index * 4 + 4].fill(0);
}

impl Freeing<'_, '_> {
    /// Frees the part of the range that the pointer at `index` maps. `start` is the first logical
    /// block that it maps. Clears the pointer if nothing is left below it.
    fn free_below(
        &mut self,
        pointers: &mut [u8],
        index: usize,
        depth: u32,
        start: u64,
    ) -> Result<()> {
        let at = pointer(pointers, index);
        let is_outside = start >= self.range.end || start + span(depth) <= self.range.start;
        if at == 0 || is_outside || self.stopped.is_some() {
            return Ok(());
        }
        let is_gone = match depth {
            0 => self.take(at, 1, start)? == 1,
            _ => self.free_in(HomeBlock(at), depth, start)?,
        };
        if is_gone {
            clear(pointers, index);
        }
        Ok(())
    }

    /// Frees the part of the range that a map block maps. `true`: everything below it was freed,
    /// and the map block too.
    fn free_in(&mut self, block: HomeBlock, depth: u32, start: u64) -> Result<bool> {
        if !self.budget.begin_leaf() {
            self.stopped = Some(start.max(self.range.start));
            return Ok(false);
        }
        let old = read_map_block(&*self.op, block)?;
        let mut new: BlockRef = old.clone();
        let pointers = &mut std::sync::Arc::make_mut(&mut new)[..];
        if depth == 1 {
            self.free_runs(pointers, start)?;
        } else {
            for index in 0..POINTER_COUNT {
                let below = start + index as u64 * span(depth - 1);
                self.free_below(pointers, index, depth - 1, below)?;
            }
        }
        if new.iter().all(|byte| *byte == 0) {
            self.op.free_blocks(block, 1)?;
            self.budget.force(block.0);
            self.freed_count += 1;
            return Ok(true);
        }
        if new != old {
            *self.op.write_block(block)? = *new;
        }
        Ok(false)
    }

    /// Frees the data that one map block names, run by run.
    fn free_runs(&mut self, pointers: &mut [u8], start: u64) -> Result<()> {
        let in_block = |logical: u64| {
            // At most 1024.
            logical.saturating_sub(start).min(POINTER_COUNT as u64) as usize
        };
        let (mut index, end) = (in_block(self.range.start), in_block(self.range.end));
        while index < end && self.stopped.is_none() {
            // At most 1024.
            let count = run_count(pointers, index, (end - index) as u32);
            let at = pointer(pointers, index);
            if at != 0 {
                let taken = self.take(at, count, start + index as u64)? as usize;
                (index..index + taken).for_each(|index| clear(pointers, index));
            }
            index += count as usize;
        }
        Ok(())
    }

    /// Frees adjacent data blocks, as many as the budget allows.
    fn take(&mut self, physical: u64, count: u32, logical: u64) -> Result<u32> {
        let taken = self.budget.take(physical, count);
        if taken < count {
            self.stopped = Some(logical + u64::from(taken));
        }
        if taken > 0 {
            self.op.free_blocks(HomeBlock(physical), taken.into())?;
            self.freed_count += i64::from(taken);
        }
        Ok(taken)
    }
}
