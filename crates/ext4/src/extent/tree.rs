//! The extent tree of an inode on the volume: mapping, allocating, converting, freeing.
//!
//! Connects the tree (`walk`, `update`) with inodes and operations. Inodes with a
//! block map are mapped and freed here, too. Before anything is allocated for them, `to_extents`
//! replaces the map by a tree. A function that changes the tree also keeps `i_blocks` (which counts
//! the tree's own blocks) up to date in the caller's copy of the inode; the caller puts that back.

use journal::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock};

use super::block_map;
use super::block_map_free;
use super::free_budget::FreeBudget;
use super::mapping::{Mapping, Target};
use super::node::{NodeView, encode_root};
use super::run::Run;
use super::update::{self, NodeStore};
use super::walk::{self, NodeSource, Root};
use crate::facts::{self, Source};
use crate::inode::{Inode, flags};
use crate::layout::extent::{UNWRITTEN_COUNT_MAX, WRITTEN_COUNT_MAX};
use crate::op::Op;
use crate::{Error, InodeNo, Result};

/// Reads an inode's tree from the volume or an operation.
struct Reader<'a, S> {
    source: &'a S,
    owner: InodeNo,
    seed: Option<u32>,
}

impl<S: Source> NodeSource for Reader<'_, S> {
    fn owner(&self) -> InodeNo {
        self.owner
    }

    fn node(&self, block: HomeBlock) -> Result<BlockRef> {
        self.source.block(block)
    }

    fn seed(&self) -> Option<u32> {
        self.seed
    }

    fn holds(&self, start: u64, count: u64) -> bool {
        is_on_volume(self.source, start, count)
    }
}

/// Why a tree needs more nodes.
#[derive(Debug, Clone, Copy)]
enum Growth {
    /// For data that get new blocks. This may fail for lack of space.
    NewData,
    /// Existing blocks become written, unwritten or free. This must not fail for lack of a node.
    SameData,
}

/// Changes an inode's tree in an operation, and counts the blocks of its nodes.
struct Writer<'a, 'v> {
    op: &'a mut Op<'v>,
    owner: InodeNo,
    seed: Option<u32>,
    growth: Growth,
    /// Added nodes minus freed nodes.
    added: i64,
    released: Vec<HomeBlock>,
}

impl NodeSource for Writer<'_, '_> {
    fn owner(&self) -> InodeNo {
        self.owner
    }

    fn node(&self, block: HomeBlock) -> Result<BlockRef> {
        self.op.block(block)
    }

    fn seed(&self) -> Option<u32> {
        self.seed
    }

    fn holds(&self, start: u64, count: u64) -> bool {
        is_on_volume(&*self.op, start, count)
    }
}

impl NodeStore for Writer<'_, '_> {
    fn allocate(&mut self, goal: HomeBlock) -> Result<HomeBlock> {
        let block = match self.growth {
            Growth::NewData => self.op.alloc_blocks(goal, 1)?.0,
            Growth::SameData => self.op.alloc_node(goal)?,
        };
        self.added += 1;
        Ok(block)
    }

    fn release(&mut self, block: HomeBlock) -> Result<()> {
        self.op.free_blocks(block, 1)?;
        self.added -= 1;
        self.released.push(block);
        Ok(())
    }

    fn node_mut(&mut self, block: HomeBlock, fresh: bool) -> Result<&mut BlockBytes> {
        if fresh { self.op.create_block(block) } else { self.op.write_block(block) }
    }
}

fn is_on_volume(source: &impl Source, start: u64, count: u64) -> bool {
    let block_count = source.facts().geometry.block_count;
    start > 0 && start.checked_add(count).is_some_and(|end| end <= block_count)
}

/// The seed of the checksums of an inode's nodes.
pub(crate) fn seed(source: &impl Source, inode: &Inode) -> Option<u32> {
    let checksums = &source.facts().checksums;
    checksums.enabled().then(|| checksums.inode_seed(inode.ino, inode.generation()))
}

fn reader<'a, S: Source>(source: &'a S, inode: &Inode) -> Reader<'a, S> {
    Reader { source, owner: inode.ino, seed: seed(source, inode) }
}

/// Runs a change of the tree on the inode's root, and adjusts `i_blocks`. Frees the blocks of nodes
/// that were removed.
fn change<T>(
    op: &mut Op<'_>,
    inode: &mut Inode,
    growth: Growth,
    edit: impl FnOnce(&mut Writer<'_, '_>, &mut Root) -> Result<T>,
) -> Result<(T, Vec<HomeBlock>)> {
    check_extents(inode)?;
    let seed = seed(&*op, inode);
    let mut writer = Writer { op, owner: inode.ino, seed, growth, added: 0, released: Vec::new() };
    let result = edit(&mut writer, inode.i_block_mut())?;
    let (added, released) = (writer.added, writer.released);
    if added != 0 {
        inode.add_blocks(added)?;
    }
    Ok((result, released))
}

/// Checks that an inode that will grow has a tree. The caller has called `Mounted::use_extents`.
fn check_extents(inode: &Inode) -> Result<()> {
    let has_tree = inode.has_flag(flags::EXTENTS);
    if has_tree { Ok(()) } else { Err(Error::corrupt("block map that changed back", inode.ino)) }
}

/// Gives a new inode an empty tree.
pub(crate) fn init_root(inode: &mut Inode) {
    inode.set_flags(inode.flags() | flags::EXTENTS);
    inode.i_block_mut().fill(0);
    encode_root::<Run>(inode.i_block_mut(), 0, &[]);
}

/// Whether no blocks are mapped at all.
pub(crate) fn is_empty(inode: &Inode) -> bool {
    if !inode.has_flag(flags::EXTENTS) {
        return inode.i_block().iter().all(|byte| *byte == 0);
    }
    NodeView::of_root(inode.i_block(), |_, _| true).is_ok_and(|view| view.head().entry_count == 0)
}

/// Levels below the root, to count credits. (An invalid root is noticed later.)
pub(crate) fn depth(inode: &Inode) -> u16 {
    if !inode.has_flag(flags::EXTENTS) {
        return 0;
    }
    NodeView::of_root(inode.i_block(), |_, _| true).map_or(0, |view| view.head().depth)
}

/// The mapping of the blocks from `logical` on: the longest uniform range that one look-up gives,
/// at most `max_count` blocks (0 counts as 1). A hole or run may continue after it.
pub(crate) fn map(
    source: &impl Source,
    inode: &Inode,
    logical: u32,
    max_count: u32,
) -> Result<Mapping> {
    if !inode.has_flag(flags::EXTENTS) {
        return block_map::map(source, inode, logical, max_count);
    }
    let found = walk::find(&reader(source, inode), inode.i_block(), logical)?;
    let start = u64::from(logical);
    let (end, target) = match found.at {
        Some(run) => {
            let part = run.part(start, run.end());
            let block = HomeBlock(part.physical);
            // A crafted tree must not make metadata readable or writable as data.
            facts::check_not_fixed(source, block, u64::from(part.count))?;
            let unwritten = run.unwritten;
            (run.end(), if unwritten { Target::Unwritten(block) } else { Target::Written(block) })
        }
        None => (found.next, Target::Hole),
    };
    let count = u32::try_from(end - start).unwrap_or(u32::MAX).min(max_count.max(1));
    Ok(Mapping { logical, count, target })
}

/// Allocates blocks for the hole at `logical`: one contiguous run of at most `max_count` blocks,
/// which must all be in the hole. They continue the previous extent if there is room for that.
pub(crate) fn allocate(
    op: &mut Op<'_>,
    inode: &mut Inode,
    logical: u32,
    max_count: u32,
    unwritten: bool,
) -> Result<Run> {
    check_extents(inode)?;
    let goal = goal(op, inode, logical)?;
    let longest = if unwritten { UNWRITTEN_COUNT_MAX } else { WRITTEN_COUNT_MAX };
    let (block, count) = op.alloc_blocks(goal, max_count.min(longest))?;
    let run = Run { logical, count, physical: block.0, unwritten };
    inode.add_blocks(i64::from(count))?;
    change(op, inode, Growth::NewData, |writer, root| update::insert(writer, root, run))?;
    Ok(run)
}

/// The best place for a block. If there is a run before it, it is as far after that run as it is in
/// the file. Otherwise it is in a part of the inode's group that few other inodes share, so that
/// files that grow in parallel do not interleave.
fn goal(op: &Op<'_>, inode: &Inode, logical: u32) -> Result<HomeBlock> {
    let found = walk::find(&reader(op, inode), inode.i_block(), logical)?;
    let geometry = &op.facts().geometry;
    if let Some(run) = found.before {
        let goal = run.physical + (u64::from(logical) - u64::from(run.logical));
        if goal < geometry.block_count {
            return Ok(HomeBlock(goal));
        }
    }
    let (group, index) = geometry.group_of_inode(inode.ino)?;
    let start = geometry.first_block(group).0;
    let share = u64::from(geometry.blocks_in_group(group)) / 16;
    Ok(HomeBlock(start + u64::from(index % 16) * share))
}

/// Makes `count` blocks from `logical` on written or unwritten. All are within one mapping.
pub(crate) fn mark(
    op: &mut Op<'_>,
    inode: &mut Inode,
    logical: u32,
    count: u32,
    unwritten: bool,
) -> Result<()> {
    let start = u64::from(logical);
    let end = start + u64::from(count);
    if unwritten {
        op.blocks_unwritten(inode.ino);
    }
    change(op, inode, Growth::SameData, |writer, root| {
        update::mark(writer, root, start, end, unwritten)
    })?;
    Ok(())
}

/// Frees the blocks in `start..end` (logical), as many as the budget allows. Returns where the next
/// operation continues; `None` if all are free.
pub(crate) fn free_range(
    op: &mut Op<'_>,
    inode: &mut Inode,
    start: u64,
    end: u64,
    budget: &mut FreeBudget,
) -> Result<Option<u64>> {
    if !inode.has_flag(flags::EXTENTS) {
        return block_map_free::free_range(op, inode, start, end, budget);
    }
    let mut next = start;
    while next < end && budget.begin_leaf() {
        let mut freed = Vec::new();
        let (step, released) = change(op, inode, Growth::SameData, |writer, root| {
            update::remove_in_leaf(writer, root, next, end, &mut |run| {
                let count = budget.take(run.physical, run.count);
                if count > 0 {
                    freed.push(Run { count, ..run });
                }
                count
            })
        })?;
        released.iter().for_each(|block| budget.force(block.0));
        free_runs(op, inode, &freed)?;
        match step {
            None => next = end,
            Some((at, refused)) => {
                next = at;
                if refused {
                    break;
                }
            }
        }
    }
    let ((), released) =
        change(op, inode, Growth::SameData, |writer, root| update::shrink(writer, root))?;
    released.iter().for_each(|block| budget.force(block.0));
    Ok((next < end).then_some(next))
}

fn free_runs(op: &mut Op<'_>, inode: &mut Inode, runs: &[Run]) -> Result<()> {
    for run in runs {
        op.free_blocks(HomeBlock(run.physical), u64::from(run.count))?;
        inode.add_blocks(-i64::from(run.count))?;
    }
    Ok(())
}

/// The most blocks that [`append_block`] changes, without those of its caller, to count credits.
pub(crate) fn append_credit_count(inode: &Inode) -> usize {
    2 + update::edit_credit_count(depth(inode))
}

/// Appends a block to a directory or a long symbolic link: allocates it, and sets size and
/// `i_blocks`. The caller fills the block (`Op::create_block`) and puts the inode back.
pub(crate) fn append_block(op: &mut Op<'_>, inode: &mut Inode) -> Result<(u32, HomeBlock)> {
    let block_bytes = BLOCK_BYTES as u64;
    let logical =
        u32::try_from(inode.size().div_ceil(block_bytes)).map_err(|_| Error::FileTooBig)?;
    if map(&*op, inode, logical, 1)?.target != Target::Hole {
        return Err(Error::corrupt("blocks after the end", inode.ino));
    }
    let run = allocate(op, inode, logical, 1, false)?;
    inode.set_size((u64::from(logical) + 1) * block_bytes);
    Ok((logical, HomeBlock(run.physical)))
}
