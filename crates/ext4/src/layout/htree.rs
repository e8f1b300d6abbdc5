//! The index of a directory: a root in block 0, after `.` and `..`, and nodes that look like empty
//! directory blocks.
//!
//! ```text
//! root  0 `.` entry (12)  12 `..` entry (12)  24 DxRootInfo (8)  32 DxEntry ...  tail (8)
//! node  0 empty entry (8)                                         8 DxEntry ...  tail (8)
//! ```
//! The hash of the first `DxEntry` is not stored, because it is the lower bound of the node.
//! `DxCountLimit` is in its place.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `dx_root_info`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxRootInfo {
    pub reserved_zero: U32,
    /// 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// 8.
    pub info_length: u8,
    /// Levels of nodes between the root and the leaves: 0 or 1 (2 with large_dir).
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// `dx_countlimit`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxCountLimit {
    /// Entries that fit.
    pub limit: U16,
    /// Used entries, including the first one.
    pub count: U16,
}

/// `dx_entry`: names whose hash is at least `hash` are in or below `block`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxEntry {
    /// Lowest major hash. If bit 0 is set, the previous leaf has names with this hash, too.
    pub hash: U32,
    /// Block within the directory.
    pub block: U32,
}

/// `dx_tail`, after the space for entries, on volumes with checksums.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}

/// Offset of [`DxRootInfo`] in the root.
pub(crate) const DX_ROOT_INFO_OFFSET: usize = 24;
/// Offset of the entries in the root.
pub(crate) const DX_ROOT_ENTRIES_OFFSET: usize = 32;
/// Offset of the entries in a node.
pub(crate) const DX_NODE_ENTRIES_OFFSET: usize = 8;
/// Bytes of an entry.
pub(crate) const DX_ENTRY_BYTES: usize = size_of::<DxEntry>();
/// Bytes of the tail.
pub(crate) const DX_TAIL_BYTES: usize = size_of::<DxTail>();

const _: () = assert!(size_of::<DxRootInfo>() == 8 && size_of::<DxCountLimit>() == 4);
const _: () = assert!(DX_ENTRY_BYTES == 8 && DX_TAIL_BYTES == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_root() {
        // Info and first two entries of an index written by Linux (half MD4, 507 entries fit).
        let bytes = [
            0, 0, 0, 0, 1, 8, 0, 0, 0xfb, 0x01, 0x02, 0x00, 1, 0, 0, 0, 0x34, 0x12, 0xab, 0x80, 2,
            0, 0, 0,
        ];
        let (info, rest) = DxRootInfo::read_from_prefix(&bytes).unwrap();
        assert_eq!((info.hash_version, info.info_length, info.indirect_levels), (1, 8, 0));
        let (count, _) = DxCountLimit::read_from_prefix(rest).unwrap();
        assert_eq!((count.limit.get(), count.count.get()), (507, 2));
        let second = DxEntry::read_from_bytes(&rest[8..16]).unwrap();
        assert_eq!((second.hash.get(), second.block.get()), (0x80ab_1234, 2));
    }
}
