//! Walks down an extent tree to the leaf that contains a logical block.

use journal::{BlockRef, HomeBlock};

use super::node::{Child, NodeHead, NodeView, WHOLE_FILE, Window};
use super::run::Run;
use crate::layout::extent::EXTENT_ROOT_BYTES;
use crate::{Error, InodeNo, Result};

/// The root of a tree, as the inode holds it.
pub(super) type Root = [u8; EXTENT_ROOT_BYTES];

/// Where the nodes of one inode's tree are read.
pub(super) trait NodeSource {
    /// Whose tree it is.
    fn owner(&self) -> InodeNo;
    /// The bytes of a node, not checked.
    fn node(&self, block: HomeBlock) -> Result<BlockRef>;
    /// Seed of the nodes' checksums: volume, inode number and generation. `None`: no checksums.
    fn seed(&self) -> Option<u32>;
    /// Whether these blocks are on the volume.
    fn holds(&self, start: u64, count: u64) -> bool;
}

/// What a tree has at, before and after a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// The run that holds the block.
    pub at: Option<Run>,
    /// The last run that ends at or before the block, if the same leaf holds it.
    pub before: Option<Run>,
    /// No run begins after the block and before this one.
    pub next: u64,
}

/// Looks a logical block up.
pub(crate) fn find(source: &impl NodeSource, root: &Root, logical: u32) -> Result<Neighbours> {
    let mut window = WHOLE_FILE;
    let view = check_root(source, root)?;
    if view.head().depth == 0 {
        return Ok(find_in_leaf(&view, &window, logical));
    }
    let mut depth = view.head().depth;
    let mut child = step(&view, &mut window, logical).1;
    loop {
        depth -= 1;
        let bytes = source.node(child.block)?;
        let view = check_block(source, child.block, &bytes, depth, &window)?;
        if depth == 0 {
            return Ok(find_in_leaf(&view, &window, logical));
        }
        child = step(&view, &mut window, logical).1;
    }
}

/// Chooses the child of an inner node on the way to `logical`, and narrows the window to it. This
/// is the last child that begins at or before `logical`, or the first if all begin after it.
fn step(view: &NodeView<'_>, window: &mut Window, logical: u32) -> (usize, Child) {
    let slot = view.position(logical).unwrap_or(0);
    *window = view.child_window(slot, window);
    (slot, view.child(slot))
}

fn find_in_leaf(view: &NodeView<'_>, window: &Window, logical: u32) -> Neighbours {
    let position = view.position(logical);
    let following = position.map_or(0, |at| at + 1);
    let next = if following < view.head().entry_count {
        u64::from(view.run(following).logical)
    } else if u64::from(logical) < window.start {
        window.start // an empty first leaf, whose window begins after the block
    } else {
        window.end
    };
    let last = position.map(|at| view.run(at));
    match last {
        Some(run) if u64::from(logical) < run.end() => {
            let before = position.and_then(|at| at.checked_sub(1)).map(|at| view.run(at));
            Neighbours { at: last, before, next }
        }
        _ => Neighbours { at: None, before: last, next },
    }
}

/// An inner node on a path.
pub(crate) struct InnerLevel {
    /// `None` for the root.
    pub block: Option<HomeBlock>,
    pub head: NodeHead,
    pub children: Vec<Child>,
    /// The child through which the path goes.
    pub slot: usize,
}

/// The path from the root to a leaf, decoded so that it can be changed.
pub(crate) struct Path {
    /// From the root down.
    pub inner: Vec<InnerLevel>,
    /// `None` if the root is the leaf.
    pub leaf_block: Option<HomeBlock>,
    pub leaf_head: NodeHead,
    /// The logical blocks that the leaf may contain.
    pub window: Window,
}

/// Decodes the path to the leaf that contains `logical`, and the leaf's runs.
pub(super) fn descend(
    source: &impl NodeSource,
    root: &Root,
    logical: u32,
) -> Result<(Path, Vec<Run>)> {
    let mut window = WHOLE_FILE;
    let mut inner = Vec::new();
    let view = check_root(source, root)?;
    if view.head().depth == 0 {
        return Ok((Path { inner, leaf_block: None, leaf_head: view.head(), window }, view.runs()));
    }
    let mut depth = view.head().depth;
    let mut block = push_inner(&mut inner, None, &view, &mut window, logical);
    loop {
        depth -= 1;
        let bytes = source.node(block)?;
        let view = check_block(source, block, &bytes, depth, &window)?;
        if depth == 0 {
            let leaf_head = view.head();
            return Ok((Path { inner, leaf_block: Some(block), leaf_head, window }, view.runs()));
        }
        block = push_inner(&mut inner, Some(block), &view, &mut window, logical);
    }
}

fn push_inner(
    inner: &mut Vec<InnerLevel>,
    block: Option<HomeBlock>,
    view: &NodeView<'_>,
    window: &mut Window,
    logical: u32,
) -> HomeBlock {
    let (slot, child) = step(view, window, logical);
    inner.push(InnerLevel { block, head: view.head(), children: view.children(), slot });
    child.block
}

/// The root, checked.
pub(crate) fn check_root<'a>(source: &impl NodeSource, root: &'a Root) -> Result<NodeView<'a>> {
    NodeView::of_root(root, |start, count| source.holds(start, count))
        .map_err(|fault| Error::corrupt(fault, source.owner()))
}

/// A node that fills a block, checked.
pub(crate) fn check_block<'a>(
    source: &impl NodeSource,
    block: HomeBlock,
    bytes: &'a BlockRef,
    depth: u16,
    window: &Window,
) -> Result<NodeView<'a>> {
    NodeView::of_block(bytes, depth, window, source.seed(), |start, count| {
        source.holds(start, count)
    })
    .map_err(|fault| Error::corrupt(fault, format_args!("{} ({block})", source.owner())))
}
