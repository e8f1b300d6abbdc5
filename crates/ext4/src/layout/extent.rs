//! The bytes of an extent tree: header, extent, index entry, checksum tail.
//!
//! A node is a header followed by `eh_max` slots of 12 bytes. `eh_entries` of them are used, sorted
//! by logical block. The root is stored in the inode (60 bytes, 4 slots). Every other node fills a
//! block (340 slots) and ends with a checksum. `eh_depth` counts the levels below a node. The slots
//! of a node of depth 0 are extents; those of other nodes point to nodes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic` of every node.
pub const EXTENT_MAGIC: u16 = 0xf30a;
/// Size of header, extent and index entry in bytes: all the same.
pub const EXTENT_SLOT_BYTES: usize = 12;
/// Size of the root in the inode in bytes.
pub const EXTENT_ROOT_BYTES: usize = 60;
/// Slots of the root.
pub const EXTENT_ROOT_SLOTS: usize = 4;
/// Slots of a node that fills a block.
pub const EXTENT_BLOCK_SLOTS: usize = 340;
/// The largest depth: more levels than 2^32 blocks could ever need.
pub const EXTENT_DEPTH_MAX: u16 = 5;
/// Blocks of the longest written extent. A larger `ee_len` marks an unwritten extent, whose length
/// is `ee_len` minus this.
pub const WRITTEN_COUNT_MAX: u32 = 0x8000;
/// Blocks of the longest unwritten extent.
pub const UNWRITTEN_COUNT_MAX: u32 = 0x7fff;

/// The start of every node.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ExtentHeader {
    /// [`EXTENT_MAGIC`].
    pub eh_magic: U16,
    /// Used slots.
    pub eh_entries: U16,
    /// All slots.
    pub eh_max: U16,
    /// Levels below this node; 0 = leaf.
    pub eh_depth: U16,
    /// Not used.
    pub eh_generation: U32,
}

/// A run of blocks: a slot of a leaf.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Extent {
    /// First logical block.
    pub ee_block: U32,
    /// Number of blocks. Above [`WRITTEN_COUNT_MAX`] the extent is unwritten, and its length is
    /// this number minus [`WRITTEN_COUNT_MAX`].
    pub ee_len: U16,
    /// First physical block, bits 32-47.
    pub ee_start_hi: U16,
    /// First physical block, bits 0-31.
    pub ee_start_lo: U32,
}

/// A pointer to a node one level below: a slot of an inner node.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ExtentIndex {
    /// First logical block below.
    pub ei_block: U32,
    /// Block of the node, bits 0-31.
    pub ei_leaf_lo: U32,
    /// Block of the node, bits 32-47.
    pub ei_leaf_hi: U16,
    /// Not used.
    pub ei_unused: U16,
}

/// Stored after the last slot of a node that fills a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ExtentTail {
    /// CRC32C of inode number, generation and the node up to here, seeded with the volume's.
    pub et_checksum: U32,
}

const _: () = assert!(size_of::<ExtentHeader>() == EXTENT_SLOT_BYTES);
const _: () = assert!(size_of::<Extent>() == EXTENT_SLOT_BYTES);
const _: () = assert!(size_of::<ExtentIndex>() == EXTENT_SLOT_BYTES);
const _: () = assert!(size_of::<ExtentTail>() == 4);
const _: () = assert!(EXTENT_ROOT_BYTES == (1 + EXTENT_ROOT_SLOTS) * EXTENT_SLOT_BYTES);
const _: () = assert!((1 + EXTENT_BLOCK_SLOTS) * EXTENT_SLOT_BYTES + 4 == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let header = ExtentHeader {
            eh_magic: EXTENT_MAGIC.into(),
            eh_entries: 1.into(),
            eh_max: 4.into(),
            eh_depth: 0.into(),
            eh_generation: 0.into(),
        };
        assert_eq!(header.as_bytes(), [0x0a, 0xf3, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        let extent = Extent {
            ee_block: 0x0102_0304.into(),
            ee_len: 0x8003.into(),
            ee_start_hi: 0x0506.into(),
            ee_start_lo: 0x2104.into(),
        };
        assert_eq!(extent.as_bytes(), [4, 3, 2, 1, 3, 0x80, 6, 5, 4, 0x21, 0, 0]);
        let index = ExtentIndex {
            ei_block: 7.into(),
            ei_leaf_lo: 0x1122_3344.into(),
            ei_leaf_hi: 0x5566.into(),
            ei_unused: 0.into(),
        };
        assert_eq!(index.as_bytes(), [7, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0x66, 0x55, 0, 0]);
    }
}
