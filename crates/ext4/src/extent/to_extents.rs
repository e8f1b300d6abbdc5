//! Replaces a block map by an extent tree, before a change that may need new blocks.
//!
//! This is an operation of its own: after a crash the inode has the old map or the new tree, with
//! the same content. Data blocks stay where they are. The blocks of the old map become nodes of the
//! tree, and the rest of them is freed. So most inodes are converted without a new block, also on a
//! full volume.
//!
//! Limit: the operation changes the nodes, and the bitmap and descriptor of each group in which map
//! blocks are freed. A file that needs more blocks than one transaction can hold cannot be
//! converted. It can still be read, shortened and deleted.

use std::collections::HashSet;

use journal::HomeBlock;

use super::block_map::{self, Contents, Limits};
use super::node::{Child, Slot, encode_block, encode_root};
use super::run::Run;
use super::tree;
use crate::facts;
use crate::inode::{Inode, flags, read_inode};
use crate::layout::extent::{EXTENT_BLOCK_SLOTS, EXTENT_ROOT_SLOTS};
use crate::memory::Mounted;
use crate::op::{Op, credits};
use crate::{Error, Result};

impl Mounted {
    /// Replaces the block map of a file or directory by an extent tree. The caller holds the
    /// content lock of a regular file, and no operation is open in this thread. Returns the inode.
    pub(crate) fn use_extents(&self, inode: Inode) -> Result<Inode> {
        if !block_map_is_used(&inode) {
            return Ok(inode);
        }
        self.check_writable()?;
        let credits_max = self.journal.max_credit_count();
        let contents = self.block_map_of(&inode, credits_max * EXTENT_BLOCK_SLOTS)?;
        let credit_count = contents.as_ref().map(|contents| credit_count(self, contents));
        let (Some(contents), Some(credit_count)) =
            (contents, credit_count.filter(|count| *count <= credits_max))
        else {
            return Err(Error::LargeBlockMap(inode.ino));
        };
        self.as_root().with_op(credit_count, |op| {
            let mut now = op.inode(inode.ino)?;
            // Two threads may find the same directory unconverted; the second one has nothing to
            // do.
            if block_map_is_used(&now) {
                check_same(&inode, &now)?;
                replace(op, &mut now, &contents)?;
                op.put_inode(&now)?;
            }
            Ok(())
        })?;
        read_inode(self, inode.ino)
    }

    /// The whole map, checked; `None` if it has more runs than `run_count`.
    fn block_map_of(&self, inode: &Inode, run_count: usize) -> Result<Option<Contents>> {
        let limits = Limits { block_count: self.facts.geometry.block_count, run_count };
        let contents =
            block_map::walk(inode, limits, &mut |block| block_map::read_map_block(self, block))?;
        for run in contents.iter().flat_map(|contents| &contents.runs) {
            facts::check_not_fixed(self, HomeBlock(run.physical), run.count.into())?;
        }
        Ok(contents)
    }
}

/// Whether the inode has a block map. (Only files, directories and long symbolic links map blocks.)
fn block_map_is_used(inode: &Inode) -> bool {
    !inode.has_flag(flags::EXTENTS) && inode.maps_blocks()
}

/// Checks that the inode is the one that was read before. A directory that was freed and made again
/// meanwhile has extents. While the content is locked or the name is used, nothing else changes the
/// root of a block map.
fn check_same(before: &Inode, now: &Inode) -> Result<()> {
    if before.i_block() == now.i_block() && before.generation() == now.generation() {
        return Ok(());
    }
    Err(Error::NotFound)
}

/// The number of nodes below the root of a tree with this many runs, for each level.
fn node_count(run_count: usize) -> usize {
    let (mut slot_count, mut count) = (run_count, 0);
    while slot_count > EXTENT_ROOT_SLOTS {
        slot_count = slot_count.div_ceil(EXTENT_BLOCK_SLOTS);
        count += slot_count;
    }
    count
}

fn credit_count(volume: &Mounted, contents: &Contents) -> usize {
    let nodes = node_count(contents.runs.len());
    let spare = contents.map_blocks.iter().skip(nodes);
    let groups: HashSet<u32> = spare.map(|at| volume.facts.geometry.group_of_block(*at)).collect();
    let new_count = nodes.saturating_sub(contents.map_blocks.len());
    nodes
        + credits::FREE_BLOCKS * groups.len()
        + credits::ALLOC_BLOCKS * new_count
        + credits::PUT_INODE
}

fn replace(op: &mut Op<'_>, inode: &mut Inode, contents: &Contents) -> Result<()> {
    let nodes = node_count(contents.runs.len());
    let kept_count = nodes.min(contents.map_blocks.len());
    let (kept, spare) = contents.map_blocks.split_at(kept_count);
    let mut blocks = kept.to_vec();
    while blocks.len() < nodes {
        let goal = HomeBlock(contents.runs[0].physical); // nodes are for runs
        blocks.push(op.alloc_node(goal)?);
    }
    for block in spare {
        op.free_blocks(*block, 1)?;
    }
    tree::init_root(inode);
    build(op, inode, &contents.runs, &mut blocks.into_iter())?;
    // Both are far below 2^63.
    inode.add_blocks(nodes as i64 - contents.map_blocks.len() as i64)
}

/// Builds the tree from its leaves up.
fn build(
    op: &mut Op<'_>,
    inode: &mut Inode,
    runs: &[Run],
    blocks: &mut dyn Iterator<Item = HomeBlock>,
) -> Result<()> {
    if runs.len() <= EXTENT_ROOT_SLOTS {
        encode_root(inode.i_block_mut(), 0, runs);
        return Ok(());
    }
    let mut depth = 1;
    let mut children = put_level(op, inode, 0, runs, blocks)?;
    while children.len() > EXTENT_ROOT_SLOTS {
        children = put_level(op, inode, depth, &children, blocks)?;
        depth += 1;
    }
    encode_root(inode.i_block_mut(), depth, &children);
    Ok(())
}

/// Writes one level of nodes. Returns the pointers to them.
fn put_level<S: Slot>(
    op: &mut Op<'_>,
    inode: &Inode,
    depth: u16,
    slots: &[S],
    blocks: &mut dyn Iterator<Item = HomeBlock>,
) -> Result<Vec<Child>> {
    let seed = tree::seed(op, inode);
    let mut children = Vec::with_capacity(slots.len().div_ceil(EXTENT_BLOCK_SLOTS));
    for slots in slots.chunks(EXTENT_BLOCK_SLOTS) {
        let block = blocks.next().expect("counted by node_count");
        let bytes = op.write_block(block)?;
        bytes.fill(0);
        encode_block(bytes, EXTENT_BLOCK_SLOTS, depth, slots, seed);
        children.push(Child { logical: slots[0].key(), block });
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_on_every_level() {
        assert_eq!([0, 4, 5, 340, 341].map(node_count), [0, 0, 1, 1, 2]);
        assert_eq!(node_count(4 * 340), 4);
        assert_eq!(node_count(4 * 340 + 1), 5 + 1);
        assert_eq!(node_count(340 * 340 * 4 + 1), 340 * 4 + 1 + 5 + 1);
    }
}
