//! Extended attributes: heads and entries in the inode's spare bytes and in one external block.
//!
//! ```text
//! inode  magic (4)        entries ->   four zero bytes   ...   <- values
//! block  XattrHeader (32) entries ->   four zero bytes   ...   <- values
//! ```
//! `e_value_offs` counts from the first entry in the inode and from byte 0 in the block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ext4_xattr_header`, at the start of an external block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrHeader {
    /// [`XATTR_MAGIC`].
    pub h_magic: U32,
    /// Inodes that share the block.
    pub h_refcount: U32,
    /// 1.
    pub h_blocks: U32,
    /// Hash of all entries; 0 forbids sharing.
    pub h_hash: U32,
    /// CRC32C over the block number and the block.
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// `ext4_xattr_entry`; the name (without its prefix) follows, padded to four bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrEntry {
    pub e_name_len: u8,
    /// The number that stands for the prefix of the name.
    pub e_name_index: u8,
    /// Where the value starts; 0 for an empty value.
    pub e_value_offs: U16,
    /// Inode that holds the value (feature ea_inode), otherwise 0.
    pub e_value_inum: U32,
    /// Bytes of the value.
    pub e_value_size: U32,
    /// Hash of name and value; 0 in the inode.
    pub e_hash: U32,
}

/// Magic number of both places.
pub(crate) const XATTR_MAGIC: u32 = 0xea02_0000;
/// Bytes of the block's header.
pub(crate) const XATTR_HEADER_BYTES: usize = size_of::<XattrHeader>();
/// Bytes of an entry without its name.
pub(crate) const XATTR_ENTRY_BYTES: usize = size_of::<XattrEntry>();

const _: () = assert!(XATTR_HEADER_BYTES == 32 && XATTR_ENTRY_BYTES == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        // user.a = "value of a" at offset 0xfe4 of a block.
        let bytes = [1, 1, 0xe4, 0x0f, 0, 0, 0, 0, 10, 0, 0, 0, 0x78, 0x56, 0x34, 0x12];
        let entry = XattrEntry::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.e_name_len, entry.e_name_index), (1, 1));
        assert_eq!((entry.e_value_offs.get(), entry.e_value_size.get()), (0xfe4, 10));
        assert_eq!(entry.e_hash.get(), 0x1234_5678);
    }
}
