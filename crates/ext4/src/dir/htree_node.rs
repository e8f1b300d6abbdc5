//! One block of a directory index: the root or a node, checked and edited in memory.
//!
//! Entry 0 has no hash of its own: its lower bound is that of the block, which counts as 0. The
//! entries after it are in ascending order of their hashes.

use journal::{BLOCK_BYTES, BlockBytes};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::hash::HashVersion;
use crate::error::{Error, Result};
use crate::layout::dir::DirEntryHeader;
use crate::layout::htree::{
    DX_ENTRY_BYTES, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, DX_ROOT_INFO_OFFSET,
    DX_TAIL_BYTES, DxCountLimit, DxEntry, DxRootInfo,
};

/// Levels of nodes below the root that are possible without the feature large_dir.
pub(super) const MAX_INDIRECT_LEVELS: u8 = 1;

/// The upper four bits of a block number are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Where the entries of a checked index block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Byte offset of entry 0.
    pub offset: usize,
    /// Entries that fit.
    pub limit: usize,
    /// Entries in use, at least one.
    pub count: usize,
}

/// Fields of the root that concern the whole index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RootInfo {
    pub version: HashVersion,
    pub indirect_levels: u8,
}

fn limit(offset: usize, has_tail: bool) -> usize {
    let tail_bytes = if has_tail { DX_TAIL_BYTES } else { 0 };
    (BLOCK_BYTES - offset - tail_bytes) / DX_ENTRY_BYTES
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::corrupt(what, "a directory index")
}

/// Checks a root block.
pub(super) fn parse_root(block: &BlockBytes, has_tail: bool) -> Result<(RootInfo, Shape)> {
    let (info, _) =
        DxRootInfo::ref_from_prefix(&block[DX_ROOT_INFO_OFFSET..]).map_err(|_| corrupt("root"))?;
    if info.reserved_zero.get() != 0 || info.info_length != 8 || info.unused_flags & 1 != 0 {
        return Err(corrupt("root"));
    }
    if info.indirect_levels > MAX_INDIRECT_LEVELS {
        return Err(corrupt(format!("depth {}", info.indirect_levels)));
    }
    let version = HashVersion::from_disk(info.hash_version)?;
    let root = RootInfo { version, indirect_levels: info.indirect_levels };
    Ok((root, parse_shape(block, DX_ROOT_ENTRIES_OFFSET, has_tail)?))
}

/// Checks a node.
pub(super) fn parse_node(block: &BlockBytes, has_tail: bool) -> Result<Shape> {
    let (header, _) = DirEntryHeader::ref_from_prefix(block).map_err(|_| corrupt("node"))?;
    if header.inode.get() != 0 || usize::from(header.rec_len.get()) != BLOCK_BYTES {
        return Err(corrupt("node"));
    }
    parse_shape(block, DX_NODE_ENTRIES_OFFSET, has_tail)
}

fn parse_shape(block: &BlockBytes, offset: usize, has_tail: bool) -> Result<Shape> {
    let (numbers, _) =
        DxCountLimit::ref_from_prefix(&block[offset..]).map_err(|_| corrupt("node"))?;
    let count = usize::from(numbers.count.get());
    let limit = limit(offset, has_tail);
    if usize::from(numbers.limit.get()) != limit || count == 0 || count > limit {
        return Err(corrupt(format!("entry count {count} of {}", numbers.limit)));
    }
    Ok(Shape { offset, limit, count })
}

impl Shape {
    fn entry(&self, block: &BlockBytes, at: usize) -> DxEntry {
        assert!(at < self.count, "index entry {at} of {}", self.count);
        let offset = self.offset + at * DX_ENTRY_BYTES;
        DxEntry::read_from_bytes(&block[offset..offset + DX_ENTRY_BYTES])
            .expect("a checked shape lies inside of its block")
    }

    fn set_entry(&self, block: &mut BlockBytes, at: usize, entry: DxEntry) {
        let offset = self.offset + at * DX_ENTRY_BYTES;
        block[offset..offset + DX_ENTRY_BYTES].copy_from_slice(entry.as_bytes());
    }

    /// Lower bound of entry `at`. If bit 0 is set, the previous leaf continues into this one.
    pub(crate) fn hash(&self, block: &BlockBytes, at: usize) -> u32 {
        if at == 0 { 0 } else { self.entry(block, at).hash.get() }
    }

    /// Block of the directory that entry `at` leads to.
    pub(crate) fn block(&self, block: &BlockBytes, at: usize) -> u32 {
        self.entry(block, at).block.get() & BLOCK_MASK
    }

    /// The last entry whose lower bound is at most `hash`.
    pub(super) fn search(&self, block: &BlockBytes, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.hash(block, middle) <= hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    /// Whether no entry can be added.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.limit
    }

    fn set_count(&mut self, block: &mut BlockBytes, count: usize) {
        let count_limit = DxCountLimit {
            limit: u16::try_from(self.limit).expect("fits a block").into(),
            count: u16::try_from(count).expect("fits a block").into(),
        };
        block[self.offset..self.offset + size_of::<DxCountLimit>()]
            .copy_from_slice(count_limit.as_bytes());
        self.count = count;
    }

    /// Puts an entry before entry `at` (at least 1: entry 0 keeps the lower bound).
    pub(crate) fn insert(&mut self, block: &mut BlockBytes, at: usize, hash: u32, target: u32) {
        assert!(at >= 1 && at <= self.count && !self.is_full(), "no place for an index entry");
        let start = self.offset + at * DX_ENTRY_BYTES;
        let end = self.offset + self.count * DX_ENTRY_BYTES;
        block.copy_within(start..end, start + DX_ENTRY_BYTES);
        self.set_count(block, self.count + 1);
        self.set_entry(block, at, DxEntry { hash: hash.into(), block: target.into() });
    }

    /// Moves the entries from `at` (at least 1) to a new node; returns its lower bound.
    pub(crate) fn split(
        &mut self,
        block: &mut BlockBytes,
        at: usize,
        new: &mut BlockBytes,
        has_tail: bool,
    ) -> u32 {
        assert!(at >= 1 && at < self.count, "an index block is split inside");
        let lower_bound = self.hash(block, at);
        let moved = self.offset + at * DX_ENTRY_BYTES..self.offset + self.count * DX_ENTRY_BYTES;
        write_node(new, &block[moved], has_tail);
        self.set_count(block, at);
        lower_bound
    }

    /// Moves all entries of the root to a new node, to which the root's only entry then leads.
    pub(super) fn push_down(
        &mut self,
        root: &mut BlockBytes,
        new: &mut BlockBytes,
        new_block: u32,
        has_tail: bool,
    ) {
        let moved = self.offset..self.offset + self.count * DX_ENTRY_BYTES;
        write_node(new, &root[moved], has_tail);
        self.set_entry(root, 0, DxEntry { hash: 0.into(), block: new_block.into() });
        self.set_count(root, 1);
        root[DX_ROOT_INFO_OFFSET + 6] += 1;
    }

    /// Bytes from the block's start to the end of its last entry: what its checksum covers.
    pub(super) fn used_bytes(&self) -> usize {
        self.offset + self.count * DX_ENTRY_BYTES
    }

    /// Offset of the checksum tail.
    pub(crate) fn tail_offset(&self) -> usize {
        self.offset + self.limit * DX_ENTRY_BYTES
    }
}

/// Makes `block` a node with these entries, the first of which loses its hash.
fn write_node(block: &mut BlockBytes, entries: &[u8], has_tail: bool) {
    block.fill(0);
    let rec_len = u16::try_from(BLOCK_BYTES).expect("a block is 4096 bytes");
    let header = DirEntryHeader { rec_len: rec_len.into(), ..DirEntryHeader::new_zeroed() };
    block[..DX_NODE_ENTRIES_OFFSET].copy_from_slice(header.as_bytes());
    block[DX_NODE_ENTRIES_OFFSET..DX_NODE_ENTRIES_OFFSET + entries.len()].copy_from_slice(entries);
    let limit = limit(DX_NODE_ENTRIES_OFFSET, has_tail);
    let mut shape = Shape { offset: DX_NODE_ENTRIES_OFFSET, limit, count: 1 };
    shape.set_count(block, entries.len() / DX_ENTRY_BYTES);
}

/// Turns block 0, whose `.` and `..` stay, into a root with one leaf.
pub(super) fn write_root(
    block: &mut BlockBytes,
    version: HashVersion,
    leaf_block: u32,
    has_tail: bool,
) -> Shape {
    let dot_dot_len = u16::try_from(BLOCK_BYTES - 12).expect("a block is 4096 bytes");
    block[16..18].copy_from_slice(&dot_dot_len.to_le_bytes());
    block[DX_ROOT_INFO_OFFSET..].fill(0);
    let info =
        DxRootInfo { hash_version: version.to_disk(), info_length: 8, ..DxRootInfo::new_zeroed() };
    block[DX_ROOT_INFO_OFFSET..DX_ROOT_ENTRIES_OFFSET].copy_from_slice(info.as_bytes());
    let limit = limit(DX_ROOT_ENTRIES_OFFSET, has_tail);
    let mut shape = Shape { offset: DX_ROOT_ENTRIES_OFFSET, limit, count: 1 };
    shape.set_entry(block, 0, DxEntry { hash: 0.into(), block: leaf_block.into() });
    shape.set_count(block, 1);
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (Box<BlockBytes>, Shape) {
        let mut block = Box::new([0xee; BLOCK_BYTES]);
        let shape = write_root(&mut block, HashVersion::Tea, 1, true);
        (block, shape)
    }

    #[test]
    fn root_is_parsed_as_written() {
        let (block, shape) = root();
        assert_eq!(shape, Shape { offset: 32, limit: 507, count: 1 });
        let info = RootInfo { version: HashVersion::Tea, indirect_levels: 0 };
        assert_eq!(parse_root(&block, true).unwrap(), (info, shape));
        assert_eq!(block[16..18], 4084_u16.to_le_bytes());
        assert_eq!((shape.used_bytes(), shape.tail_offset()), (40, 4088));
        assert!(parse_root(&block, false).is_err(), "the limit depends on the tail");
    }

    #[test]
    fn insert_keeps_order_and_search_finds_bounds() {
        let (mut block, mut shape) = root();
        for n in (1..507_u32).rev() {
            shape.insert(&mut block, 1, n * 10, 1000 + n);
        }
        assert!(shape.is_full());
        for n in 1..507 {
            assert_eq!(shape.search(&block, n * 10), n as usize);
            assert_eq!(shape.search(&block, n * 10 + 9), n as usize);
            assert_eq!(shape.block(&block, n as usize), 1000 + n);
        }
        assert_eq!(shape.search(&block, 9), 0);
        assert_eq!(shape.block(&block, 0), 1);
    }

    #[test]
    fn push_down_and_split_keep_all_entries() {
        let (mut block, mut shape) = root();
        for n in 1..507_u32 {
            shape.insert(&mut block, n as usize, n * 2, n);
        }
        let mut node = Box::new([0; BLOCK_BYTES]);
        shape.push_down(&mut block, &mut node, 600, true);
        let (info, root_shape) = parse_root(&block, true).unwrap();
        assert_eq!((info.indirect_levels, root_shape.count), (1, 1));
        assert_eq!(root_shape.block(&block, 0), 600);
        let mut lower = parse_node(&node, true).unwrap();
        assert_eq!((lower.limit, lower.count), (510, 507));
        let mut upper = Box::new([0; BLOCK_BYTES]);
        assert_eq!(lower.split(&mut node, 250, &mut upper, true), 500);
        let upper_shape = parse_node(&upper, true).unwrap();
        assert_eq!((lower.count, upper_shape.count), (250, 257));
        assert_eq!((lower.hash(&node, 249), lower.block(&node, 249)), (498, 249));
        assert_eq!((upper_shape.hash(&upper, 1), upper_shape.block(&upper, 0)), (502, 250));
    }

    #[test]
    fn damaged_blocks_are_errors() {
        let (good, _) = root();
        let damages: [(usize, u8); 7] =
            [(24, 1), (28, 9), (29, 7), (30, 2), (32, 1), (34, 0), (35, 255)];
        for (offset, byte) in damages {
            let mut block = good.clone();
            block[offset] = byte;
            assert!(parse_root(&block, true).is_err(), "byte {offset}");
        }
        assert!(parse_node(&good, true).is_err());
    }
}
