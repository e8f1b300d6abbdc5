//! The group descriptor: 64 bytes, or the first 32 of them without the `64bit` feature.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a descriptor in bytes without the `64bit` feature.
pub const SHORT_DESC_BYTES: usize = 32;
/// Size of a descriptor in bytes with the `64bit` feature.
pub const LONG_DESC_BYTES: usize = 64;

/// `bg_flags`: the inode bitmap and table are not initialised.
pub const INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap is not initialised.
pub const BLOCK_UNINIT: u16 = 2;
/// `bg_flags`: the inode table is zeroed after the used inodes.
pub const INODE_ZEROED: u16 = 4;

/// A group descriptor under the kernel's names. In a short descriptor the second half counts as
/// zeros.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // the kernel's ext4 format documentation describes every field
pub struct GroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const _: () = assert!(size_of::<GroupDesc>() == LONG_DESC_BYTES);
const _: () = assert!(std::mem::offset_of!(GroupDesc, bg_checksum) == 0x1E);
const _: () = assert!(std::mem::offset_of!(GroupDesc, bg_block_bitmap_csum_hi) == 0x38);

fn join(lo: U16, hi: U16) -> u32 {
    u32::from(lo.get()) | u32::from(hi.get()) << 16
}

fn split(value: u32) -> (U16, U16) {
    (U16::new((value & 0xFFFF) as u16), U16::new((value >> 16) as u16))
}

impl GroupDesc {
    /// A descriptor from its 32 or 64 bytes on the volume.
    pub fn from_disk(bytes: &[u8]) -> GroupDesc {
        let mut desc = GroupDesc::new_zeroed();
        desc.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        desc
    }

    /// Block of the block bitmap.
    pub fn block_bitmap(&self) -> u64 {
        u64::from(self.bg_block_bitmap_lo.get()) | u64::from(self.bg_block_bitmap_hi.get()) << 32
    }

    /// Block of the inode bitmap.
    pub fn inode_bitmap(&self) -> u64 {
        u64::from(self.bg_inode_bitmap_lo.get()) | u64::from(self.bg_inode_bitmap_hi.get()) << 32
    }

    /// First block of the inode table.
    pub fn inode_table(&self) -> u64 {
        u64::from(self.bg_inode_table_lo.get()) | u64::from(self.bg_inode_table_hi.get()) << 32
    }

    /// Free blocks of the group.
    pub fn free_block_count(&self) -> u32 {
        join(self.bg_free_blocks_count_lo, self.bg_free_blocks_count_hi)
    }

    /// Sets the free blocks of the group.
    pub fn set_free_block_count(&mut self, count: u32) {
        (self.bg_free_blocks_count_lo, self.bg_free_blocks_count_hi) = split(count);
    }

    /// Free inodes of the group.
    pub fn free_inode_count(&self) -> u32 {
        join(self.bg_free_inodes_count_lo, self.bg_free_inodes_count_hi)
    }

    /// Sets the free inodes of the group.
    pub fn set_free_inode_count(&mut self, count: u32) {
        (self.bg_free_inodes_count_lo, self.bg_free_inodes_count_hi) = split(count);
    }

    /// Directories of the group.
    pub fn directory_count(&self) -> u32 {
        join(self.bg_used_dirs_count_lo, self.bg_used_dirs_count_hi)
    }

    /// Sets the directories of the group.
    pub fn set_directory_count(&mut self, count: u32) {
        (self.bg_used_dirs_count_lo, self.bg_used_dirs_count_hi) = split(count);
    }

    /// Inodes at the end of the table that were never used.
    pub fn unused_inode_count(&self) -> u32 {
        join(self.bg_itable_unused_lo, self.bg_itable_unused_hi)
    }

    /// Sets the inodes at the end of the table that were never used.
    pub fn set_unused_inode_count(&mut self, count: u32) {
        (self.bg_itable_unused_lo, self.bg_itable_unused_hi) = split(count);
    }

    /// Checksum of the block bitmap (16 bits of it in a short descriptor).
    pub fn block_bitmap_csum(&self) -> u32 {
        join(self.bg_block_bitmap_csum_lo, self.bg_block_bitmap_csum_hi)
    }

    /// Sets the checksum of the block bitmap.
    pub fn set_block_bitmap_csum(&mut self, csum: u32) {
        (self.bg_block_bitmap_csum_lo, self.bg_block_bitmap_csum_hi) = split(csum);
    }

    /// Checksum of the inode bitmap (16 bits of it in a short descriptor).
    pub fn inode_bitmap_csum(&self) -> u32 {
        join(self.bg_inode_bitmap_csum_lo, self.bg_inode_bitmap_csum_hi)
    }

    /// Sets the checksum of the inode bitmap.
    pub fn set_inode_bitmap_csum(&mut self, csum: u32) {
        (self.bg_inode_bitmap_csum_lo, self.bg_inode_bitmap_csum_hi) = split(csum);
    }

    /// Whether this one of the `bg_flags` is set.
    pub fn has_flag(&self, flag: u16) -> bool {
        self.bg_flags.get() & flag != 0
    }

    /// Clears this one of the `bg_flags`.
    pub fn clear_flag(&mut self, flag: u16) {
        self.bg_flags = U16::new(self.bg_flags.get() & !flag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = [0u8; LONG_DESC_BYTES];
        bytes[0x00] = 1;
        bytes[0x20] = 2;
        bytes[0x08] = 3;
        bytes[0x0C] = 4;
        bytes[0x2C] = 1;
        bytes[0x12] = 6;
        bytes[0x1C] = 7;
        bytes[0x18] = 8;
        bytes[0x38] = 9;
        let desc = GroupDesc::from_disk(&bytes);
        assert_eq!(desc.block_bitmap(), 0x2_0000_0001);
        assert_eq!(desc.inode_table(), 3);
        assert_eq!(desc.free_block_count(), 0x1_0004);
        assert!(desc.has_flag(BLOCK_UNINIT) && desc.has_flag(INODE_ZEROED));
        assert!(!desc.has_flag(INODE_UNINIT));
        assert_eq!(desc.unused_inode_count(), 7);
        assert_eq!(desc.block_bitmap_csum(), 0x9_0008);
        assert_eq!(desc.as_bytes(), bytes);
    }

    #[test]
    fn a_short_descriptor_has_no_upper_half() {
        let mut bytes = [0u8; SHORT_DESC_BYTES];
        bytes[0x0D] = 0x80;
        assert_eq!(GroupDesc::from_disk(&bytes).free_block_count(), 0x8000);
    }
}
