//! An inode as stored in the inode table: 256 bytes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of an inode in bytes. Only this size is supported.
pub const INODE_BYTES: usize = 256;
/// Bytes before `i_extra_isize`: the size of an inode in the first ext2.
pub const GOOD_OLD_INODE_BYTES: usize = 128;

/// An inode under the kernel's names (the Linux flavour of its two unions).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the kernel's ext4 format documentation describes every field
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version: U32,
    pub i_block: [u8; 60],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
    /// The attributes inside the inode, if `i_extra_isize` is 32, as usual.
    pub tail: [u8; 96],
}

const _: () = assert!(size_of::<RawInode>() == INODE_BYTES);
const _: () = assert!(std::mem::offset_of!(RawInode, i_block) == 0x28);
const _: () = assert!(std::mem::offset_of!(RawInode, i_checksum_lo) == 0x7C);
const _: () = assert!(std::mem::offset_of!(RawInode, i_extra_isize) == 0x80);
const _: () = assert!(std::mem::offset_of!(RawInode, i_projid) == 0x9C);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = [0u8; INODE_BYTES];
        bytes[0x00..0x02].copy_from_slice(&[0xA4, 0x81]);
        bytes[0x1A] = 1;
        bytes[0x20..0x24].copy_from_slice(&[0, 0, 8, 0]);
        bytes[0x28] = 0x0A;
        bytes[0x64] = 7;
        bytes[0x6C] = 2;
        bytes[0x7C] = 0xCD;
        bytes[0x80] = 32;
        bytes[0x82] = 0xAB;
        bytes[0x90] = 5;
        bytes[0xA0] = 9;
        let inode = RawInode::read_from_bytes(&bytes).unwrap();
        assert_eq!(inode.i_mode.get(), 0o100644);
        assert_eq!(inode.i_links_count.get(), 1);
        assert_eq!(inode.i_flags.get(), 0x80000);
        assert_eq!(inode.i_block[0], 0x0A);
        assert_eq!(inode.i_generation.get(), 7);
        assert_eq!(inode.i_size_high.get(), 2);
        assert_eq!(inode.i_checksum_lo.get(), 0xCD);
        assert_eq!(inode.i_extra_isize.get(), 32);
        assert_eq!(inode.i_checksum_hi.get(), 0xAB);
        assert_eq!(inode.i_crtime.get(), 5);
        assert_eq!(inode.tail[0], 9);
        assert_eq!(inode.as_bytes(), bytes);
    }
}
