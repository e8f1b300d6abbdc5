//! Indexed directories: a tree over the hashes of names, one or two levels of index blocks deep.
//!
//! Block 0 is the root. Each index entry gives the lowest hash of the names below it. If the names
//! of one hash fill more than a leaf, the lower bound of the next leaf has bit 0 set: a search for
//! that hash begins in the previous leaf and continues in the next one.
//!
//! Crafted indexes cannot loop: a walk takes at most as many steps as the directory has blocks.

use std::cmp::Ordering;

use journal::{BlockRef, HomeBlock};

use super::block;
use super::hash::{NameHash, NameHasher};
use super::htree_node::{self, MAX_INDIRECT_LEVELS, RootInfo, Shape};
use super::leaf::{self, FoundEntry};
use super::seal::Sealer;
use crate::error::{Error, Result};
use crate::extent;
use crate::facts::Source;
use crate::inode::{Inode, flags};
use crate::op::Op;
use crate::types::InodeNo;

/// An index block on the way to a leaf, and the entry that was followed.
struct Frame {
    home: HomeBlock,
    block: BlockRef,
    shape: Shape,
    at: usize,
}

impl Frame {
    fn target(&self) -> u32 {
        self.shape.block(&self.block, self.at)
    }
}

/// The way from the root to a leaf.
pub(crate) struct Path<'a, S: Source> {
    source: &'a S,
    dir: &'a Inode,
    pub hasher: NameHasher,
    /// One frame, or two if there is a level of nodes.
    frames: Vec<Frame>,
    steps_left: u32,
}

fn read_root(source: &impl Source, dir: &Inode) -> Result<(RootInfo, Frame)> {
    let (home, block) = leaf::read_block(source, dir, 0)?;
    let sealer = Sealer::new(source, dir);
    let (info, shape) = htree_node::parse_root(&block, sealer.has_tail())?;
    sealer.check_index(&block, &shape, dir.ino)?;
    Ok((info, Frame { home, block, shape, at: 0 }))
}

fn read_node(source: &impl Source, dir: &Inode, logical: u32) -> Result<Frame> {
    let (home, block) = leaf::read_block(source, dir, logical)?;
    let sealer = Sealer::new(source, dir);
    let shape = htree_node::parse_node(&block, sealer.has_tail())?;
    sealer.check_index(&block, &shape, dir.ino)?;
    Ok(Frame { home, block, shape, at: 0 })
}

/// The checked root block, which begins with `.` and `..`.
pub(super) fn read_root_block(source: &impl Source, dir: &Inode) -> Result<(HomeBlock, BlockRef)> {
    let (_, root) = read_root(source, dir)?;
    Ok((root.home, root.block))
}

impl<'a, S: Source> Path<'a, S> {
    /// The way to the first leaf that can hold the hash that `hash_of` computes.
    pub(crate) fn find(
        source: &'a S,
        dir: &'a Inode,
        hash_of: impl FnOnce(&NameHasher) -> u32,
    ) -> Result<Path<'a, S>> {
        let (info, mut root) = read_root(source, dir)?;
        let hasher = leaf::hasher(source.facts(), info.version);
        let hash = hash_of(&hasher);
        root.at = root.shape.search(&root.block, hash);
        let mut frames = vec![root];
        for _ in 0..info.indirect_levels {
            let above = frames.last().expect("the root is there");
            let mut node = read_node(source, dir, above.target())?;
            node.at = node.shape.search(&node.block, hash);
            frames.push(node);
        }
        Ok(Path { source, dir, hasher, frames, steps_left: leaf::block_count(dir)? })
    }

    fn last(&self) -> &Frame {
        self.frames.last().expect("the root is there")
    }

    /// Block number of the leaf within the directory.
    fn leaf_logical(&self) -> u32 {
        self.last().target()
    }

    /// The leaf.
    pub(crate) fn leaf(&self) -> Result<(HomeBlock, BlockRef)> {
        leaf::read_leaf(self.source, self.dir, self.leaf_logical())
    }

    /// Goes to the next leaf and returns its lower bound, with the continuation bit. `None` at the
    /// end.
    pub(crate) fn advance(&mut self) -> Result<Option<u32>> {
        self.steps_left = self
            .steps_left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("directory index with a loop", self.dir.ino))?;
        let depth = self.frames.len();
        while self.frames.last().is_some_and(|frame| frame.at + 1 == frame.shape.count) {
            self.frames.pop();
        }
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        frame.at += 1;
        let bound = frame.shape.hash(&frame.block, frame.at);
        while self.frames.len() < depth {
            let node = read_node(self.source, self.dir, self.last().target())?;
            self.frames.push(node);
        }
        Ok(Some(bound))
    }
}

/// Looks a name up.
pub(crate) fn find(source: &impl Source, dir: &Inode, name: &[u8]) -> Result<Option<FoundEntry>> {
    let mut hash = 0;
    let mut path = Path::find(source, dir, |hasher| {
        hash = hasher.hash(name).major;
        hash
    })?;
    let has_tail = Sealer::new(source, dir).has_tail();
    loop {
        let (home, block) = path.leaf()?;
        if let Some(entry) = block::find(&block, has_tail, name)? {
            return Ok(Some(FoundEntry::new(home, &entry)));
        }
        if path.advance()? != Some(hash | 1) {
            return Ok(None);
        }
    }
}

/// Whether no leaf holds an entry.
pub(crate) fn is_empty(source: &impl Source, dir: &Inode) -> Result<bool> {
    let mut path = Path::find(source, dir, |_| 0)?;
    loop {
        let (_, block) = path.leaf()?;
        if !leaf::leaf_is_empty(source, dir, &block)? {
            return Ok(false);
        }
        if path.advance()?.is_none() {
            return Ok(true);
        }
    }
}

/// Sets the parent directory. The caller has checked the root's `..`.
pub(crate) fn set_parent(op: &mut Op<'_>, dir: &Inode, parent: InodeNo) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let (_, root) = read_root(op, dir)?;
    let block = op.write_block(root.home)?;
    block[12..16].copy_from_slice(&parent.0.to_le_bytes());
    sealer.seal_index(block, &root.shape);
    Ok(())
}

/// Makes a directory of one linear block indexed: its entries move to a new leaf.
pub(super) fn convert(op: &mut Op<'_>, dir: &mut Inode) -> Result<()> {
    // Checks that `.` and `..` are the first two entries, at 0 and 12, where the root keeps them.
    let (home, old) = leaf::read_leaf(op, dir, 0)?;
    leaf::check_dots(dir, &old)?;
    let sealer = Sealer::new(op, dir);
    let version = leaf::default_hasher(op.facts())?.version;
    let entries = collect(&old, &sealer)?;
    let moved = entries.iter().filter(|entry| !matches!(entry.0, b"." | b".."));
    let (leaf_logical, leaf_home) = extent::append_block(op, dir)?;
    let leaf = op.create_block(leaf_home)?;
    block::fill(leaf, sealer.has_tail(), moved.copied());
    sealer.seal_leaf(leaf);
    let root = op.write_block(home)?;
    let shape = htree_node::write_root(root, version, leaf_logical, sealer.has_tail());
    sealer.seal_index(root, &shape);
    dir.set_flags(dir.flags() | flags::INDEX);
    Ok(())
}

type Entry<'a> = (&'a [u8], u32, u8);

fn collect<'a>(block: &'a BlockRef, sealer: &Sealer) -> Result<Vec<Entry<'a>>> {
    block::used_entries(block, sealer.has_tail())
        .map(|entry| entry.map(|entry| (entry.name, entry.ino, entry.file_type)))
        .collect()
}

/// Why an entry cannot be added yet.
enum Obstacle {
    None,
    /// The leaf is full.
    Leaf {
        home: HomeBlock,
        block: BlockRef,
        index: Slot,
        hasher: NameHasher,
    },
    /// The leaf and the index block above it are full.
    Index(Vec<Slot>),
}

/// An index block and the entry that was followed in it.
struct Slot {
    home: HomeBlock,
    shape: Shape,
    at: usize,
}

/// Adds a name that is not there yet. The caller puts the inode back.
pub(crate) fn insert(
    op: &mut Op<'_>,
    dir: &mut Inode,
    name: &[u8],
    ino: InodeNo,
    file_type: u8,
) -> Result<()> {
    // At most: split a node (or push the root down and find room), then split a leaf.
    for _ in 0..3 {
        match try_insert(op, dir, name, ino, file_type)? {
            Obstacle::None => return Ok(()),
            Obstacle::Index(slots) => grow_index(op, dir, slots)?,
            Obstacle::Leaf { home, block, index, hasher } => {
                split_leaf(op, dir, (home, &block), index, &hasher, (name, ino.0, file_type))?;
                return Ok(());
            }
        }
    }
    Err(Error::corrupt("directory index that finds no room", dir.ino))
}

fn try_insert(
    op: &mut Op<'_>,
    dir: &Inode,
    name: &[u8],
    ino: InodeNo,
    file_type: u8,
) -> Result<Obstacle> {
    let path = Path::find(op, dir, |hasher| hasher.hash(name).major)?;
    let (home, block) = path.leaf()?;
    let hasher = path.hasher;
    let slots =
        path.frames.iter().map(|frame| Slot { home: frame.home, shape: frame.shape, at: frame.at });
    let mut slots: Vec<Slot> = slots.collect();
    if leaf::insert_into(op, dir, home, &block, name, ino, file_type)? {
        return Ok(Obstacle::None);
    }
    if slots.last().is_some_and(|slot| slot.shape.is_full()) {
        return Ok(Obstacle::Index(slots));
    }
    let index = slots.pop().expect("the root is there");
    Ok(Obstacle::Leaf { home, block, index, hasher })
}

/// Makes room in the lowest index block of a path, which is full.
fn grow_index(op: &mut Op<'_>, dir: &mut Inode, mut slots: Vec<Slot>) -> Result<()> {
    let full = slots.pop().expect("the root is there");
    match slots.pop() {
        None if MAX_INDIRECT_LEVELS > 0 => push_root_down(op, dir, full),
        Some(above) if !above.shape.is_full() => split_node(op, dir, above, full),
        _ => Err(Error::NoSpace),
    }
}

fn push_root_down(op: &mut Op<'_>, dir: &mut Inode, root: Slot) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let (node_logical, node_home) = extent::append_block(op, dir)?;
    let mut shape = root.shape;
    let mut node = Box::new([0; journal::BLOCK_BYTES]);
    let block = op.write_block(root.home)?;
    shape.push_down(block, &mut node, node_logical, sealer.has_tail());
    sealer.seal_index(block, &shape);
    write_new_node(op, &sealer, node_home, &mut node)
}

fn split_node(op: &mut Op<'_>, dir: &mut Inode, above: Slot, full: Slot) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let (new_logical, new_home) = extent::append_block(op, dir)?;
    let mut shape = full.shape;
    let mut new = Box::new([0; journal::BLOCK_BYTES]);
    let block = op.write_block(full.home)?;
    let bound = shape.split(block, shape.count / 2, &mut new, sealer.has_tail());
    sealer.seal_index(block, &shape);
    write_new_node(op, &sealer, new_home, &mut new)?;
    add_index_entry(op, &sealer, above, bound, new_logical)
}

fn write_new_node(
    op: &mut Op<'_>,
    sealer: &Sealer,
    home: HomeBlock,
    node: &mut journal::BlockBytes,
) -> Result<()> {
    let shape = htree_node::parse_node(node, sealer.has_tail())?;
    sealer.seal_index(node, &shape);
    *op.create_block(home)? = *node;
    Ok(())
}

/// Adds an entry after the one that was followed.
fn add_index_entry(
    op: &mut Op<'_>,
    sealer: &Sealer,
    slot: Slot,
    bound: u32,
    logical: u32,
) -> Result<()> {
    let mut shape = slot.shape;
    let block = op.write_block(slot.home)?;
    shape.insert(block, slot.at + 1, bound, logical);
    sealer.seal_index(block, &shape);
    Ok(())
}

/// Moves the upper half of a full leaf's hashes to a new leaf and inserts the new entry.
fn split_leaf(
    op: &mut Op<'_>,
    dir: &mut Inode,
    (home, old): (HomeBlock, &BlockRef),
    index: Slot,
    hasher: &NameHasher,
    new_entry: Entry<'_>,
) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let (sorted, split) = split_point(collect(old, &sealer)?, hasher, dir.ino)?;
    let (first_upper, last_lower) = (sorted[split].0.major, sorted[split - 1].0.major);
    let bound = first_upper | u32::from(first_upper == last_lower);
    let new_is_upper = hasher.hash(new_entry.0).major >= first_upper;
    let (new_logical, new_home) = extent::append_block(op, dir)?;
    let halves = [(&sorted[..split], !new_is_upper), (&sorted[split..], new_is_upper)];
    for (block_home, (half, with_new)) in [home, new_home].into_iter().zip(halves) {
        // Both are written as a whole.
        let block = op.create_block(block_home)?;
        let entries = half.iter().map(|(_, entry)| *entry);
        block::fill(block, sealer.has_tail(), entries.chain(with_new.then_some(new_entry)));
        sealer.seal_leaf(block);
    }
    add_index_entry(op, &sealer, index, bound, new_logical)
}

/// Sorts a leaf's entries by hash. The second half of the bytes begins at the returned index.
fn split_point<'a>(
    entries: Vec<Entry<'a>>,
    hasher: &NameHasher,
    ino: InodeNo,
) -> Result<(Vec<(NameHash, Entry<'a>)>, usize)> {
    let mut sorted: Vec<_> =
        entries.into_iter().map(|entry| (hasher.hash(entry.0), entry)).collect();
    sorted.sort_by(|a, b| match a.0.cmp(&b.0) {
        Ordering::Equal => a.1.0.cmp(b.1.0),
        other => other,
    });
    if sorted.len() < 2 {
        return Err(Error::corrupt("full directory block with less than two entries", ino));
    }
    let bytes = |entry: &Entry| block::entry_bytes(entry.0.len());
    let half = sorted.iter().map(|(_, entry)| bytes(entry)).sum::<usize>() / 2;
    let (mut split, mut below) = (0, 0);
    while split + 1 < sorted.len() && (split == 0 || below < half) {
        below += bytes(&sorted[split].1);
        split += 1;
    }
    Ok((sorted, split))
}
