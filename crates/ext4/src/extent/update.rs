//! Changes of an extent tree: of one leaf at a time, and of the nodes above it as far as needed.
//!
//! A leaf is decoded together with the path to it, its runs are edited as a list, and the list is
//! stored:
//! - If it fits, the node is rewritten. If its first block changed, so do the keys above it.
//! - If it does not fit, the node is split in two, and the parent gets an entry, which may split
//!   the parent, and so on. A root that overflows moves into a block, and the tree becomes one
//!   level deeper.
//! - If it is empty, the node is freed, and the parent loses an entry.
//!
//! Invariants: the key of an index entry equals the first key of the node that it points to (e2fsck
//! requires that). No node except the root is empty.
//!
//! If an edit fails half way, for lack of space for a node, the tree is between two states. The
//! caller drops the operation, which undoes all of it.

use journal::{BlockBytes, HomeBlock};

use super::node::{Child, Slot, encode_block, encode_root};
use super::run::{self, Run};
use super::walk::{NodeSource, Path, Root, check_block, check_root, descend};
use crate::layout::extent::{EXTENT_BLOCK_SLOTS, EXTENT_DEPTH_MAX, EXTENT_ROOT_SLOTS};
use crate::{Error, Result};

/// Where nodes of an inode's tree are changed.
pub(super) trait NodeStore: NodeSource {
    /// A block for a new node, near `goal`.
    fn allocate(&mut self, goal: HomeBlock) -> Result<HomeBlock>;
    /// Frees the block of a removed node.
    fn release(&mut self, block: HomeBlock) -> Result<()>;
    /// The bytes of a node, to be written; zeros if `fresh`.
    fn node_mut(&mut self, block: HomeBlock, fresh: bool) -> Result<&mut BlockBytes>;
}

/// The most blocks that storing one edited leaf may change in a tree of this depth. Includes a
/// bitmap and a group descriptor for each node that is allocated or freed.
pub(crate) fn edit_credit_count(depth: u16) -> usize {
    // A level: left and right node, and two blocks for the new one. A grown root: one more level.
    4 * (usize::from(depth) + 1)
}

/// What happened to a node, as far as its parent must know.
enum Change {
    /// Nothing that concerns the parent.
    None,
    /// Its first block changed to this one.
    Begins(u32),
    /// It is empty and was freed.
    Gone,
    /// Its first block is this one, and its second half is now a node of its own.
    Split(u32, Child),
}

/// Adds a run in a hole.
pub(crate) fn insert(store: &mut impl NodeStore, root: &mut Root, run: Run) -> Result<()> {
    let (path, mut runs) = descend(store, root, run.logical)?;
    let appended = runs.last().is_none_or(|last| last.logical < run.logical);
    run::insert(&mut runs, run);
    store_path(store, root, path, runs, appended)
}

/// Makes `start..end` written or unwritten. One run must hold all of it.
pub(crate) fn mark(
    store: &mut impl NodeStore,
    root: &mut Root,
    start: u64,
    end: u64,
    unwritten: bool,
) -> Result<()> {
    let logical = u32::try_from(start).map_err(|_| Error::InvalidArgument)?;
    let (path, mut runs) = descend(store, root, logical)?;
    run::mark(&mut runs, start, end, unwritten);
    store_path(store, root, path, runs, false)
}

/// Removes the runs in `start..end` from the leaf that contains `start`. Each is offered to `take`
/// first (see [`run::remove`]). Returns where to continue: after this leaf, or (with `true`) where
/// `take` refused. `None` at the end.
pub(super) fn remove_in_leaf(
    store: &mut impl NodeStore,
    root: &mut Root,
    start: u64,
    end: u64,
    take: &mut dyn FnMut(Run) -> u32,
) -> Result<Option<(u64, bool)>> {
    let Ok(logical) = u32::try_from(start) else { return Ok(None) };
    let (path, mut runs) = descend(store, root, logical)?;
    let behind = path.window.end;
    let mut taken = false;
    let stopped = run::remove(&mut runs, start, end, &mut |part| {
        let accepted_count = take(part);
        taken |= accepted_count > 0;
        accepted_count
    });
    if taken || runs.is_empty() {
        store_path(store, root, path, runs, false)?;
    }
    Ok(match stopped {
        Some(at) => Some((at, true)),
        None if behind < end => Some((behind, false)),
        None => None,
    })
}

/// Moves the content of a single small node up into the root, as often as possible.
pub(super) fn shrink(store: &mut impl NodeStore, root: &mut Root) -> Result<()> {
    loop {
        let view = check_root(store, root)?;
        let depth = view.head().depth;
        if depth == 0 || view.head().entry_count != 1 {
            return Ok(());
        }
        let (child, window) = (view.child(0), view.child_window(0, &super::node::WHOLE_FILE));
        let bytes = store.node(child.block)?;
        let node = check_block(store, child.block, &bytes, depth - 1, &window)?;
        if node.head().entry_count > EXTENT_ROOT_SLOTS {
            return Ok(());
        }
        if depth == 1 {
            encode_root(root, 0, &node.runs());
        } else {
            encode_root(root, depth - 1, &node.children());
        }
        store.release(child.block)?;
    }
}

/// Stores an edited leaf, and every node above it that changes with it.
fn store_path(
    store: &mut impl NodeStore,
    root: &mut Root,
    path: Path,
    runs: Vec<Run>,
    appended: bool,
) -> Result<()> {
    let mut appended = appended;
    let capacity = path.leaf_head.capacity;
    let mut change = store_node(store, root, path.leaf_block, 0, capacity, &runs, appended)?;
    for mut level in path.inner.into_iter().rev() {
        let slot = level.slot;
        match change {
            Change::None => return Ok(()),
            Change::Begins(key) if level.children[slot].logical == key => return Ok(()),
            Change::Begins(key) => level.children[slot].logical = key,
            Change::Gone => drop(level.children.remove(slot)),
            Change::Split(key, right) => {
                level.children[slot].logical = key;
                level.children.insert(slot + 1, right);
                appended = slot + 2 == level.children.len();
            }
        }
        let (block, head) = (level.block, level.head);
        change =
            store_node(store, root, block, head.depth, head.capacity, &level.children, appended)?;
    }
    Ok(())
}

fn store_node<S: Slot>(
    store: &mut impl NodeStore,
    root: &mut Root,
    block: Option<HomeBlock>,
    depth: u16,
    capacity: usize,
    slots: &[S],
    appended: bool,
) -> Result<Change> {
    let Some(block) = block else { return store_root(store, root, depth, slots) };
    let Some(first) = slots.first() else {
        store.release(block)?;
        return Ok(Change::Gone);
    };
    if slots.len() <= capacity {
        put(store, block, false, capacity, depth, slots)?;
        return Ok(Change::Begins(first.key()));
    }
    // A file that grows at its end leaves full nodes behind.
    let split_at = if appended { capacity } else { (slots.len() / 2).min(capacity) };
    let (left, right) = slots.split_at(split_at);
    let right_block = store.allocate(HomeBlock(block.0 + 1))?;
    put(store, block, false, capacity, depth, left)?;
    put(store, right_block, true, EXTENT_BLOCK_SLOTS, depth, right)?;
    Ok(Change::Split(first.key(), Child { logical: right[0].key(), block: right_block }))
}

/// Stores the root, or moves its entries into a block below it if they do not fit.
fn store_root<S: Slot>(
    store: &mut impl NodeStore,
    root: &mut Root,
    depth: u16,
    slots: &[S],
) -> Result<Change> {
    let Some(first) = slots.first() else {
        encode_root::<Run>(root, 0, &[]);
        return Ok(Change::None);
    };
    if slots.len() <= EXTENT_ROOT_SLOTS {
        encode_root(root, depth, slots);
        return Ok(Change::None);
    }
    if depth == EXTENT_DEPTH_MAX {
        return Err(Error::corrupt("extent tree depth", store.owner()));
    }
    let block = store.allocate(first.nearby())?;
    put(store, block, true, EXTENT_BLOCK_SLOTS, depth, slots)?;
    encode_root(root, depth + 1, &[Child { logical: first.key(), block }]);
    Ok(Change::None)
}

fn put<S: Slot>(
    store: &mut impl NodeStore,
    block: HomeBlock,
    fresh: bool,
    capacity: usize,
    depth: u16,
    slots: &[S],
) -> Result<()> {
    let seed = store.seed();
    encode_block(store.node_mut(block, fresh)?, capacity, depth, slots, seed);
    Ok(())
}
