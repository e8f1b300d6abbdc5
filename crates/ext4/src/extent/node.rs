//! One node of an extent tree: reading it with every check, writing it.
//!
//! A [`NodeView`] exists only of a node that was checked. So it guarantees:
//! 1. The depth is what the parent says (at most 5 for the root), so walks end.
//! 2. The slots are sorted, do not overlap, and are in the window that the parent gives.
//! 3. Every block that it names is on the volume and is not metadata of the file system.
//! 4. The checksum is right.

use std::ops::Range;

use journal::{BLOCK_BYTES, HomeBlock};
use zerocopy::{FromBytes, IntoBytes};

use super::run::Run;
use crate::layout::extent::{
    EXTENT_BLOCK_SLOTS, EXTENT_DEPTH_MAX, EXTENT_MAGIC, EXTENT_ROOT_BYTES, EXTENT_ROOT_SLOTS,
    EXTENT_SLOT_BYTES, Extent, ExtentHeader, ExtentIndex, ExtentTail, WRITTEN_COUNT_MAX,
};

/// The logical blocks that a node may contain.
pub(crate) type Window = Range<u64>;

/// All possible logical blocks.
pub(crate) const WHOLE_FILE: Window = 0..1 << 32;

/// A decoded pointer to a node one level below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Child {
    pub logical: u32,
    pub block: HomeBlock,
}

/// The header of a node, without the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeHead {
    pub entry_count: usize,
    pub capacity: usize,
    pub depth: u16,
}

/// A slot of either kind, to be written.
pub(crate) trait Slot: Copy {
    /// First logical block.
    fn key(&self) -> u32;
    /// A block of the volume near which a new node is best placed.
    fn nearby(&self) -> HomeBlock;
    /// The bytes.
    fn encode(&self) -> [u8; EXTENT_SLOT_BYTES];
}

impl Slot for Run {
    fn key(&self) -> u32 {
        self.logical
    }

    fn nearby(&self) -> HomeBlock {
        HomeBlock(self.physical)
    }

    fn encode(&self) -> [u8; EXTENT_SLOT_BYTES] {
        let bias = if self.unwritten { WRITTEN_COUNT_MAX } else { 0 };
        let (start_hi, start_lo) = split_block(self.physical);
        let extent = Extent {
            ee_block: self.logical.into(),
            ee_len: u16::try_from(self.count + bias)
                .expect("no run is longer than its kind")
                .into(),
            ee_start_hi: start_hi.into(),
            ee_start_lo: start_lo.into(),
        };
        extent.as_bytes().try_into().expect("an extent fills a slot")
    }
}

impl Slot for Child {
    fn key(&self) -> u32 {
        self.logical
    }

    fn nearby(&self) -> HomeBlock {
        self.block
    }

    fn encode(&self) -> [u8; EXTENT_SLOT_BYTES] {
        let (leaf_hi, leaf_lo) = split_block(self.block.0);
        let index = ExtentIndex {
            ei_block: self.logical.into(),
            ei_leaf_lo: leaf_lo.into(),
            ei_leaf_hi: leaf_hi.into(),
            ei_unused: 0.into(),
        };
        index.as_bytes().try_into().expect("an index entry fills a slot")
    }
}

fn split_block(block: u64) -> (u16, u32) {
    let high = u16::try_from(block >> 32).expect("block numbers have 48 bits");
    (high, u32::try_from(block & 0xffff_ffff).expect("masked to 32 bits"))
}

fn join_block(high: u16, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A checked node.
pub(crate) struct NodeView<'a> {
    slots: &'a [u8],
    head: NodeHead,
}

/// The reason why a node is invalid.
pub(crate) type Fault = &'static str;

impl<'a> NodeView<'a> {
    /// Checks the root, which is stored in the inode. `holds` says whether a run of blocks is on
    /// the volume.
    pub(crate) fn of_root(
        bytes: &'a [u8; EXTENT_ROOT_BYTES],
        holds: impl Fn(u64, u64) -> bool,
    ) -> Result<NodeView<'a>, Fault> {
        let view = NodeView::open(bytes, EXTENT_ROOT_SLOTS)?;
        if view.head.depth > EXTENT_DEPTH_MAX {
            return Err("extent tree depth");
        }
        view.check_slots(&WHOLE_FILE, holds)?;
        Ok(view)
    }

    /// Checks a node that fills a block, `depth` levels above the leaves.
    pub(crate) fn of_block(
        bytes: &'a [u8; BLOCK_BYTES],
        depth: u16,
        window: &Window,
        seed: Option<u32>,
        holds: impl Fn(u64, u64) -> bool,
    ) -> Result<NodeView<'a>, Fault> {
        let view = NodeView::open(bytes, EXTENT_BLOCK_SLOTS)?;
        if view.head.depth != depth {
            return Err("extent node depth");
        }
        if let Some(seed) = seed {
            let (covered, rest) = bytes.split_at(tail_offset(view.head.capacity));
            let (tail, _) = ExtentTail::read_from_prefix(rest).map_err(|_| "extent node size")?;
            if tail.et_checksum.get() != crate::facts::crc32c(seed, covered) {
                return Err("extent node checksum");
            }
        }
        view.check_slots(window, holds)?;
        Ok(view)
    }

    fn open(bytes: &'a [u8], slot_count: usize) -> Result<NodeView<'a>, Fault> {
        let (header, slots) =
            ExtentHeader::read_from_prefix(bytes).map_err(|_| "extent node size")?;
        let head = NodeHead {
            entry_count: usize::from(header.eh_entries.get()),
            capacity: usize::from(header.eh_max.get()),
            depth: header.eh_depth.get(),
        };
        if header.eh_magic.get() != EXTENT_MAGIC {
            return Err("extent node magic");
        }
        if head.capacity == 0 || head.capacity > slot_count || head.entry_count > head.capacity {
            return Err("extent node slot count");
        }
        if head.depth > 0 && head.entry_count == 0 {
            return Err("empty inner extent node");
        }
        Ok(NodeView { slots: &slots[..head.entry_count * EXTENT_SLOT_BYTES], head })
    }

    fn check_slots(&self, window: &Window, holds: impl Fn(u64, u64) -> bool) -> Result<(), Fault> {
        let mut free_from = window.start;
        for at in 0..self.head.entry_count {
            let (start, end, block, block_count) = self.reach(at);
            if start < free_from || end > window.end || start == end {
                return Err("extent order");
            }
            if !holds(block, block_count) {
                return Err("extent block number");
            }
            free_from = end;
        }
        Ok(())
    }

    /// Logical start and end of a slot, and the blocks that it names. The end of an index entry is
    /// not known: it is at least one more than the start.
    fn reach(&self, at: usize) -> (u64, u64, u64, u64) {
        if self.head.depth == 0 {
            let run = self.run(at);
            (u64::from(run.logical), run.end(), run.physical, u64::from(run.count))
        } else {
            let child = self.child(at);
            let start = u64::from(child.logical);
            (start, start + 1, child.block.0, 1)
        }
    }

    /// Entry count, capacity and depth.
    pub(crate) fn head(&self) -> NodeHead {
        self.head
    }

    fn slot(&self, at: usize) -> &'a [u8] {
        &self.slots[at * EXTENT_SLOT_BYTES..(at + 1) * EXTENT_SLOT_BYTES]
    }

    fn key(&self, at: usize) -> u32 {
        // Extent and index entry begin with the same field.
        Extent::ref_from_bytes(self.slot(at)).expect("a slot's size").ee_block.get()
    }

    /// A slot of a leaf.
    pub(crate) fn run(&self, at: usize) -> Run {
        let extent = Extent::ref_from_bytes(self.slot(at)).expect("a slot's size");
        let len = u32::from(extent.ee_len.get());
        let unwritten = len > WRITTEN_COUNT_MAX;
        Run {
            logical: extent.ee_block.get(),
            count: if unwritten { len - WRITTEN_COUNT_MAX } else { len },
            physical: join_block(extent.ee_start_hi.get(), extent.ee_start_lo.get()),
            unwritten,
        }
    }

    /// A slot of an inner node.
    pub(crate) fn child(&self, at: usize) -> Child {
        let index = ExtentIndex::ref_from_bytes(self.slot(at)).expect("a slot's size");
        let block = HomeBlock(join_block(index.ei_leaf_hi.get(), index.ei_leaf_lo.get()));
        Child { logical: index.ei_block.get(), block }
    }

    /// All slots of a leaf.
    pub(crate) fn runs(&self) -> Vec<Run> {
        (0..self.head.entry_count).map(|at| self.run(at)).collect()
    }

    /// All slots of an inner node.
    pub(crate) fn children(&self) -> Vec<Child> {
        (0..self.head.entry_count).map(|at| self.child(at)).collect()
    }

    /// The last slot that begins at or before `logical`.
    pub(crate) fn position(&self, logical: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.head.entry_count);
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// The window of the child in this slot of an inner node whose own window is `window`.
    pub(crate) fn child_window(&self, at: usize, window: &Window) -> Window {
        let end =
            if at + 1 < self.head.entry_count { u64::from(self.key(at + 1)) } else { window.end };
        u64::from(self.key(at))..end
    }
}

/// The offset of the checksum in a node with this many slots.
fn tail_offset(capacity: usize) -> usize {
    (1 + capacity) * EXTENT_SLOT_BYTES
}

/// Writes header and slots. Bytes after them stay as they are.
fn encode<S: Slot>(bytes: &mut [u8], capacity: usize, depth: u16, slots: &[S]) {
    assert!(slots.len() <= capacity && tail_offset(capacity) <= bytes.len());
    let small = |n: usize| u16::try_from(n).expect("at most 340 slots");
    let generation =
        ExtentHeader::read_from_prefix(bytes).map_or(0, |(old, _)| old.eh_generation.get());
    let header = ExtentHeader {
        eh_magic: EXTENT_MAGIC.into(),
        eh_entries: small(slots.len()).into(),
        eh_max: small(capacity).into(),
        eh_depth: depth.into(),
        eh_generation: generation.into(),
    };
    bytes[..EXTENT_SLOT_BYTES].copy_from_slice(header.as_bytes());
    for (slot, out) in
        slots.iter().zip(bytes[EXTENT_SLOT_BYTES..].chunks_exact_mut(EXTENT_SLOT_BYTES))
    {
        out.copy_from_slice(&slot.encode());
    }
}

/// Writes the root.
pub(super) fn encode_root<S: Slot>(bytes: &mut [u8; EXTENT_ROOT_BYTES], depth: u16, slots: &[S]) {
    encode(bytes, EXTENT_ROOT_SLOTS, depth, slots);
}

/// Writes a node that fills a block, with its checksum.
pub(super) fn encode_block<S: Slot>(
    bytes: &mut [u8; BLOCK_BYTES],
    capacity: usize,
    depth: u16,
    slots: &[S],
    seed: Option<u32>,
) {
    encode(bytes, capacity, depth, slots);
    if let Some(seed) = seed {
        let (covered, rest) = bytes.split_at_mut(tail_offset(capacity));
        let tail = ExtentTail { et_checksum: crate::facts::crc32c(seed, covered).into() };
        rest[..size_of::<ExtentTail>()].copy_from_slice(tail.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere(_: u64, _: u64) -> bool {
        true
    }

    fn run(logical: u32, count: u32) -> Run {
        Run { logical, count, physical: 0x12_3456_7890, unwritten: logical % 2 == 1 }
    }

    fn block(runs: &[Run]) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        encode_block(&mut bytes, EXTENT_BLOCK_SLOTS, 0, runs, Some(1));
        bytes
    }

    fn fault(bytes: &[u8; BLOCK_BYTES]) -> Fault {
        NodeView::of_block(bytes, 0, &WHOLE_FILE, None, |b, n| b + n < 1 << 40).err().expect("bad")
    }

    #[test]
    fn comes_back_as_written() {
        let runs = [run(0, 0x8000), run(0x8001, 0x7fff), run(0x20000, 1)];
        let bytes = block(&runs);
        let view = NodeView::of_block(&bytes, 0, &WHOLE_FILE, Some(1), anywhere).expect("sound");
        assert_eq!(view.runs(), runs);
        assert_eq!(view.position(0x8000), Some(0));
        assert_eq!(view.position(0x8001), Some(1));
        assert_eq!(view.position(u32::MAX), Some(2));
    }

    #[test]
    fn refuses_what_cannot_be() {
        let good = block(&[run(0, 4), run(4, 4)]);
        let change = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            bytes
        };
        assert_eq!(fault(&change(0, 0)), "extent node magic");
        assert_eq!(fault(&change(3, 2)), "extent node slot count");
        assert_eq!(fault(&change(4, 0x55)), "extent node slot count");
        assert_eq!(fault(&change(6, 1)), "extent node depth");
        assert_eq!(fault(&change(16, 0)), "extent order"); // first extent has no blocks
        assert_eq!(fault(&change(24, 3)), "extent order"); // second begins inside of the first
        assert_eq!(fault(&change(19, 0xff)), "extent block number");
        let flipped = change(20, 1);
        assert!(NodeView::of_block(&flipped, 0, &WHOLE_FILE, Some(1), anywhere).is_err());
        assert!(NodeView::of_block(&good, 0, &(0..7), None, anywhere).is_err());
        assert!(NodeView::of_block(&good, 0, &(1..9), None, anywhere).is_err());
    }

    #[test]
    fn unwritten_of_no_length_cannot_be() {
        // 0x8000 is a written extent of the full length; an unwritten one of length 0 does not
        // exist.
        let mut bytes = block(&[run(0, 4)]);
        bytes[16..18].copy_from_slice(&0x8000u16.to_le_bytes());
        let view = NodeView::of_block(&bytes, 0, &WHOLE_FILE, None, anywhere).expect("sound");
        assert_eq!((view.run(0).count, view.run(0).unwritten), (0x8000, false));
    }
}
