//! The block allocator.
//!
//! An allocation takes one contiguous run. The first choice is the goal itself, if it is free,
//! because the file continues there. The second is the first run after it that is long enough, in
//! the goal's group and then in the groups after it. If the nearest groups have none, the longest
//! run that was seen is taken. Groups without enough free blocks are skipped by their descriptors.
//!
//! Two kinds of free blocks are passed over: blocks that were freed by a transaction that is not
//! committed (`pending_frees`), and blocks that this operation freed itself.
//!
//! Some free blocks are only for root, and some only for nodes of extent trees: see
//! `facts::spenders`.

use std::ops::Range;
use std::sync::Arc;

use journal::{BlockBytes, BlockRef, HomeBlock};

use super::bitmap;
use crate::facts::{BITS_PER_BLOCK, Source, check_not_fixed, fixed_ranges, read_desc};
use crate::layout::group::{BLOCK_UNINIT, GroupDesc};
use crate::op::Op;
use crate::{Error, Result};

/// Groups that are searched for a run as long as wanted, before a shorter one is taken.
const NEAR_GROUP_COUNT: u32 = 64;

/// A run of this many blocks at the goal is taken even if it is shorter than wanted: continuing
/// where the file ends is worth more than length.
const GOOD_AT_GOAL: u32 = 16;

/// A run found in a group.
struct FreeRun {
    group: u32,
    desc: GroupDesc,
    /// The bitmap without the blocks that are passed over; `run` is in indexes of it.
    bits: BlockRef,
    run: Range<u32>,
}

impl FreeRun {
    fn count(&self) -> u32 {
        self.run.end - self.run.start
    }
}

impl Op<'_> {
    /// Allocates one contiguous run of 1 to `wanted_count` blocks, at or near `goal`, from the
    /// blocks that the operation's spender may use. The caller adds them to the inode and writes
    /// their content.
    pub(crate) fn alloc_blocks(
        &mut self,
        goal: HomeBlock,
        wanted_count: u32,
    ) -> Result<(HomeBlock, u32)> {
        let withheld_count = self.facts().withheld_block_count(self.spender());
        let allowed_count = self.free_block_count().saturating_sub(withheld_count);
        let allowed_count = u32::try_from(allowed_count).unwrap_or(u32::MAX);
        match wanted_count.min(allowed_count) {
            0 => Err(Error::NoSpace),
            count => self.alloc_any_blocks(goal, count),
        }
    }

    /// Allocates a block for a node of an extent tree whose data blocks exist already. Takes it
    /// from the pool if there is no other block.
    pub(crate) fn alloc_node(&mut self, goal: HomeBlock) -> Result<HomeBlock> {
        Ok(self.alloc_any_blocks(goal, 1)?.0)
    }

    fn alloc_any_blocks(&mut self, goal: HomeBlock, wanted_count: u32) -> Result<(HomeBlock, u32)> {
        assert!(wanted_count > 0, "an allocation of nothing");
        let found = self.find_blocks(goal, wanted_count)?;
        let first = self.facts().geometry.first_block(found.group).0;
        let start = HomeBlock(first + u64::from(found.run.start));
        // The bitmap says that they are free, but it may lie.
        check_not_fixed(self, start, u64::from(found.count()))?;
        let count = found.count();
        self.take_blocks(found)?;
        self.forget_former_owner(start, u64::from(count));
        Ok((start, count))
    }

    fn find_blocks(&self, goal: HomeBlock, wanted: u32) -> Result<FreeRun> {
        let geometry = &self.facts().geometry;
        let goal = if goal.0 < geometry.block_count { goal } else { HomeBlock(0) };
        let home = geometry.group_of_block(goal);
        let goal_index = (goal.0 - geometry.first_block(home).0) as u32; // below blocks_per_group
        let mut best: Option<FreeRun> = None;
        for step in 0..geometry.group_count {
            let group =
                ((u64::from(home) + u64::from(step)) % u64::from(geometry.group_count)) as u32;
            if step >= NEAR_GROUP_COUNT && best.is_some() {
                break;
            }
            let goal_index = if step == 0 { goal_index } else { 0 };
            let Some(found) = self.find_in_group(group, goal_index, wanted)? else { continue };
            let is_at_goal = step == 0 && goal_index != 0 && found.run.start == goal_index;
            if found.count() >= wanted || is_at_goal {
                return Ok(found);
            }
            if best.as_ref().is_none_or(|best| found.count() > best.count()) {
                best = Some(found);
            }
        }
        best.ok_or(Error::NoSpace)
    }

    fn find_in_group(&self, group: u32, goal_index: u32, wanted: u32) -> Result<Option<FreeRun>> {
        let volume = self.mounted();
        let desc = read_desc(self, group)?;
        if desc.free_block_count() == 0 {
            return Ok(None);
        }
        let bits = self.block_bitmap(group, &desc)?;
        let usable = self.without_uncommitted(group, &bits);
        let size = volume.facts.geometry.blocks_in_group(group);
        if let Some(run) = run_at_goal(&usable, goal_index, size, wanted) {
            return Ok(Some(FreeRun { group, desc, bits, run }));
        }
        let hint = volume.alloc_hints.block_hint(group).min(size);
        let from = if goal_index == 0 { hint } else { goal_index.min(size) };
        let behind = bitmap::find_run(&usable, from..size, wanted);
        let length = |run: &Option<Range<u32>>| run.as_ref().map_or(0, |run| run.end - run.start);
        let run = if length(&behind) >= wanted {
            behind
        } else {
            let before = bitmap::find_run(&usable, 0..from, wanted);
            if length(&before) > length(&behind) { before } else { behind }
        };
        Ok(run.map(|run| FreeRun { group, desc, bits, run }))
    }

    /// The bitmap, with every block set that must not be allocated before a commit.
    fn without_uncommitted(&self, group: u32, bits: &BlockRef) -> BlockRef {
        let volume = self.mounted();
        let first = volume.facts.geometry.first_block(group).0;
        let window = first..first + u64::from(volume.facts.geometry.blocks_in_group(group));
        let mut usable = bits.clone();
        let mut hide = |range: Range<u64>| {
            // Both ends are in the group.
            let range = (range.start - first) as u32..(range.end - first) as u32;
            bitmap::fill(Arc::make_mut(&mut usable), range, true);
        };
        volume.pending_frees.each_in(window.clone(), volume.committed(), &mut hide);
        for range in self.own_frees() {
            let part = range.start.max(window.start)..range.end.min(window.end);
            if part.start < part.end {
                hide(part);
            }
        }
        usable
    }

    fn take_blocks(&mut self, found: FreeRun) -> Result<()> {
        let FreeRun { group, mut desc, mut bits, run } = found;
        let count = run.end - run.start;
        assert!(bitmap::all_are(&bits, run.clone(), false), "allocating a block in use");
        let Some(left) = desc.free_block_count().checked_sub(count) else {
            return Err(Error::corrupt("free block count", format!("group {group}")));
        };
        bitmap::fill(Arc::make_mut(&mut bits), run.clone(), true);
        desc.set_free_block_count(left);
        self.put_block_bitmap(&mut desc, bits)?;
        self.put_desc(group, &desc)?;
        self.free_block_delta -= i64::from(count);
        self.mounted().alloc_hints.set_block_hint(group, run.end);
        Ok(())
    }

    /// Frees blocks in the bitmaps, in the counts, and in the engine. They are not allocated again
    /// before this operation's transaction has committed. An error if they are free already, or
    /// belong to the file system itself.
    pub(crate) fn free_blocks(&mut self, start: HomeBlock, count: u64) -> Result<()> {
        check_not_fixed(self, start, count)?;
        let volume = self.mounted();
        let end = start.0 + count;
        let mut at = start.0;
        while at < end {
            let group = volume.facts.geometry.group_of_block(HomeBlock(at));
            let first = volume.facts.geometry.first_block(group).0;
            let stop = end.min(first + u64::from(volume.facts.geometry.blocks_in_group(group)));
            // Both ends are in the group.
            self.free_in_group(group, (at - first) as u32..(stop - first) as u32)?;
            at = stop;
        }
        self.forget_blocks(start, count);
        Ok(())
    }

    fn free_in_group(&mut self, group: u32, run: Range<u32>) -> Result<()> {
        let mut desc = read_desc(self, group)?;
        let mut bits = self.block_bitmap(group, &desc)?;
        let count = run.end - run.start;
        let free_count = desc.free_block_count() + count;
        let fits = free_count <= self.facts().geometry.blocks_in_group(group);
        if !bitmap::all_are(&bits, run.clone(), true) || !fits {
            return Err(Error::corrupt("free of a free block", format!("group {group}")));
        }
        bitmap::fill(Arc::make_mut(&mut bits), run.clone(), false);
        desc.set_free_block_count(free_count);
        self.put_block_bitmap(&mut desc, bits)?;
        self.put_desc(group, &desc)?;
        self.free_block_delta += i64::from(count);
        self.mounted().alloc_hints.lower_block_hint(group, run.start);
        Ok(())
    }

    /// A group's block bitmap. It is read and checked, or made if it was never written.
    fn block_bitmap(&self, group: u32, desc: &GroupDesc) -> Result<BlockRef> {
        let volume = self.mounted();
        if volume.facts.checksums.groups_enabled() && desc.has_flag(BLOCK_UNINIT) {
            return self.first_block_bitmap(group);
        }
        let bits = self.block(HomeBlock(desc.block_bitmap()))?;
        let covered = (volume.facts.geometry.blocks_per_group / 8) as usize;
        if volume.facts.checksums.enabled()
            && volume.facts.checksums.bitmap(&bits[..covered]) != desc.block_bitmap_csum()
        {
            return Err(Error::corrupt("checksum of the block bitmap", format!("group {group}")));
        }
        Ok(bits)
    }

    /// The bitmap of a group that holds only fixed metadata.
    fn first_block_bitmap(&self, group: u32) -> Result<BlockRef> {
        let geometry = &self.facts().geometry;
        let size = geometry.blocks_in_group(group);
        let first = geometry.first_block(group).0;
        let mut bits = [0; 4096];
        bitmap::fill(&mut bits, size..BITS_PER_BLOCK, true);
        for range in fixed_ranges(self, group)?.iter() {
            let part = range.start.max(first)..range.end.min(first + u64::from(size));
            if part.start < part.end {
                // Both ends are in the group.
                let part = (part.start - first) as u32..(part.end - first) as u32;
                bitmap::fill(&mut bits, part, true);
            }
        }
        Ok(Arc::new(bits))
    }

    fn put_block_bitmap(&mut self, desc: &mut GroupDesc, bits: BlockRef) -> Result<()> {
        let volume = self.mounted();
        let covered = (volume.facts.geometry.blocks_per_group / 8) as usize;
        if volume.facts.checksums.enabled() {
            desc.set_block_bitmap_csum(volume.facts.checksums.bitmap(&bits[..covered]));
        }
        desc.clear_flag(BLOCK_UNINIT);
        let block = HomeBlock(desc.block_bitmap());
        self.put_metadata(block, bits)
    }

    /// Writes the block bitmap of a group that has none yet, as the kernel does when the group's
    /// first inode is allocated.
    pub(super) fn init_block_bitmap(&mut self, group: u32, desc: &mut GroupDesc) -> Result<()> {
        if !self.facts().checksums.groups_enabled() || !desc.has_flag(BLOCK_UNINIT) {
            return Ok(());
        }
        let bits = self.first_block_bitmap(group)?;
        self.put_block_bitmap(desc, bits)
    }
}

/// The run at the goal itself, if it is long enough. Index 0 stands for a group without a goal in
/// it.
fn run_at_goal(bits: &BlockBytes, goal: u32, size: u32, wanted: u32) -> Option<Range<u32>> {
    if goal == 0 || goal >= size || bitmap::is_set(bits, goal) {
        return None;
    }
    let limit = size.min(goal.saturating_add(wanted));
    let run = goal..bitmap::clear_until(bits, goal, limit);
    (run.end - run.start >= wanted.min(GOOD_AT_GOAL)).then_some(run)
}
