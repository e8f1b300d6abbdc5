//! The superblock: 1024 bytes at byte 1024 of the volume.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the superblock on the volume (and within block 0).
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// Size of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const SUPERBLOCK_MAGIC: u16 = 0xEF53;

/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were detected.
pub const STATE_ERROR: u16 = 2;

/// `s_last_mounted` until `onejournal mkfs` has ended; after that, zeros.
pub const MKFS_UNDER_WAY: [u8; 64] = *b"(onejournal mkfs is under way)\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// `s_flags`: directory hashes treat characters as signed.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes treat characters as unsigned.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// The superblock as stored on the volume, under the kernel's names.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the kernel's ext4 format documentation describes every field
pub struct SuperBlock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_update_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 94],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<SuperBlock>() == SUPERBLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_uuid) == 0x68);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_journal_inum) == 0xE0);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_blocks_count_hi) == 0x150);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_kbytes_written) == 0x178);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_mount_opts) == 0x200);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_checksum_seed) == 0x270);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_orphan_file_inum) == 0x280);
const _: () = assert!(std::mem::offset_of!(SuperBlock, s_checksum) == 0x3FC);

fn join(lo: U32, hi: U32, wide: bool) -> u64 {
    u64::from(lo.get()) | if wide { u64::from(hi.get()) << 32 } else { 0 }
}

impl SuperBlock {
    /// The superblock in block 0 of the volume.
    pub(crate) fn of_block(block: &journal::BlockBytes) -> SuperBlock {
        let (superblock, _) = SuperBlock::read_from_prefix(&block[SUPERBLOCK_OFFSET..])
            .expect("block 0 is large enough");
        superblock
    }

    /// Blocks of the volume. The upper half is used only with the `64bit` feature.
    pub fn block_count(&self, wide: bool) -> u64 {
        join(self.s_blocks_count_lo, self.s_blocks_count_hi, wide)
    }

    /// Blocks that are reserved for root.
    pub fn reserved_block_count(&self, wide: bool) -> u64 {
        join(self.s_r_blocks_count_lo, self.s_r_blocks_count_hi, wide)
    }

    /// Free blocks.
    pub fn free_block_count(&self, wide: bool) -> u64 {
        join(self.s_free_blocks_count_lo, self.s_free_blocks_count_hi, wide)
    }

    /// Sets the number of free blocks. The upper half is set only with the `64bit` feature.
    pub fn set_free_block_count(&mut self, count: u64, wide: bool) {
        self.s_free_blocks_count_lo = U32::new((count & 0xFFFF_FFFF) as u32);
        if wide {
            self.s_free_blocks_count_hi = U32::new((count >> 32) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = [0u8; SUPERBLOCK_BYTES];
        bytes[0x04..0x08].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]);
        bytes[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
        bytes[0x58..0x5A].copy_from_slice(&[0x00, 0x01]);
        bytes[0x60..0x64].copy_from_slice(&[0x04, 0, 0, 0]);
        bytes[0xE0] = 8;
        bytes[0xFE] = 64;
        bytes[0x150] = 1;
        bytes[0x280] = 12;
        bytes[0x3FF] = 0xAA;
        let superblock = SuperBlock::read_from_bytes(&bytes).unwrap();
        assert_eq!(superblock.block_count(true), 0x1_1234_5678);
        assert_eq!(superblock.block_count(false), 0x1234_5678);
        assert_eq!(superblock.s_magic.get(), SUPERBLOCK_MAGIC);
        assert_eq!(superblock.s_inode_size.get(), 256);
        assert_eq!(superblock.s_feature_incompat.get(), 4);
        assert_eq!(superblock.s_journal_inum.get(), 8);
        assert_eq!(superblock.s_desc_size.get(), 64);
        assert_eq!(superblock.s_orphan_file_inum.get(), 12);
        assert_eq!(superblock.s_checksum.get(), 0xAA00_0000);
        assert_eq!(superblock.as_bytes(), bytes);
    }

    #[test]
    fn free_count_has_two_halves() {
        let mut superblock = SuperBlock::read_from_bytes(&[0u8; SUPERBLOCK_BYTES]).unwrap();
        superblock.set_free_block_count(0x7_0000_0009, true);
        assert_eq!(superblock.free_block_count(true), 0x7_0000_0009);
        assert_eq!(superblock.as_bytes()[0x0C], 9);
        assert_eq!(superblock.as_bytes()[0x158], 7);
    }
}
