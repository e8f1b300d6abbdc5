//! The checksums of metadata: CRC32C with a seed (`metadata_csum`), CRC16 of group descriptors
//! (`gdt_csum`), or none. Each kind of structure has its own function. Without the feature, every
//! function returns 0 and every check passes.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use crate::InodeNo;
use crate::layout::group::GroupDesc;
use crate::layout::inode::RawInode;
use crate::layout::orphan::ORPHANS_PER_BLOCK;
use crate::layout::superblock::{SUPERBLOCK_BYTES, SuperBlock};
use journal::{BlockBytes, HomeBlock};

/// CRC32C as ext4 chains it: `state` goes in and out without inversion.
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// CRC16 (polynomial 0x8005, reflected) as `gdt_csum` uses it.
fn crc16(mut state: u16, bytes: &[u8]) -> u16 {
    for byte in bytes {
        state ^= u16::from(*byte);
        for _ in 0..8 {
            state = if state & 1 == 1 { state >> 1 ^ 0xA001 } else { state >> 1 };
        }
    }
    state
}

/// How group descriptors are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    GroupCrc16,
    Crc32c,
}

/// The checksum functions of one volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksums {
    kind: Kind,
    seed: u32,
    uuid: [u8; 16],
    wide: bool,
}

impl Checksums {
    /// The functions that this superblock asks for.
    pub(crate) fn new(superblock: &SuperBlock) -> Checksums {
        use super::features::{incompat, ro_compat};
        let ro = superblock.s_feature_ro_compat.get();
        let inc = superblock.s_feature_incompat.get();
        let kind = if ro & ro_compat::METADATA_CSUM != 0 {
            Kind::Crc32c
        } else if ro & ro_compat::GDT_CSUM != 0 {
            Kind::GroupCrc16
        } else {
            Kind::None
        };
        let seed = if inc & incompat::CSUM_SEED != 0 {
            superblock.s_checksum_seed.get()
        } else {
            crc32c(!0, &superblock.s_uuid)
        };
        Checksums { kind, seed, uuid: superblock.s_uuid, wide: inc & incompat::SIXTY_FOUR_BIT != 0 }
    }

    /// Whether every metadata block carries a CRC32C (`metadata_csum`).
    pub(crate) fn enabled(&self) -> bool {
        self.kind == Kind::Crc32c
    }

    /// Whether groups may be uninitialised (`metadata_csum` or `gdt_csum`).
    pub(crate) fn groups_enabled(&self) -> bool {
        self.kind != Kind::None
    }

    fn of(&self, seed: u32, parts: &[&[u8]]) -> u32 {
        if !self.enabled() {
            return 0;
        }
        parts.iter().fold(seed, |state, part| crc32c(state, part))
    }

    /// `s_checksum`.
    pub(crate) fn superblock(&self, superblock: &SuperBlock) -> u32 {
        self.of(!0, &[&superblock.as_bytes()[..SUPERBLOCK_BYTES - 4]])
    }

    /// `bg_checksum` of group `group_index`.
    pub(crate) fn group_desc(&self, group_index: u32, desc: &GroupDesc) -> u16 {
        let bytes = desc.as_bytes();
        let index = group_index.to_le_bytes();
        let tail: &[u8] = if self.wide { &bytes[0x20..] } else { &[] };
        match self.kind {
            Kind::None => 0,
            Kind::GroupCrc16 => {
                [&self.uuid[..], &index, &bytes[..0x1E], tail].iter().fold(!0, |c, p| crc16(c, p))
            }
            Kind::Crc32c => {
                let crc = self.of(self.seed, &[&index, &bytes[..0x1E], &[0, 0], tail]);
                (crc & 0xFFFF) as u16
            }
        }
    }

    /// `bg_block_bitmap_csum` or `bg_inode_bitmap_csum` of the bytes of a bitmap block that have
    /// bits of the group, as wide as the descriptor can hold it.
    pub(crate) fn bitmap(&self, bytes: &[u8]) -> u32 {
        let crc = self.of(self.seed, &[bytes]);
        if self.wide { crc } else { crc & 0xFFFF }
    }

    /// The seed for everything that belongs to an inode.
    pub(crate) fn inode_seed(&self, ino: InodeNo, generation: u32) -> u32 {
        self.of(self.seed, &[&ino.0.to_le_bytes(), &generation.to_le_bytes()])
    }

    /// Checksum of an inode, with its checksum fields taken as zero. The upper half is 0 if the
    /// inode has no room for it.
    pub(crate) fn inode(&self, ino: InodeNo, raw: &RawInode) -> u32 {
        if !self.enabled() {
            return 0;
        }
        let has_high = has_checksum_hi(raw);
        let mut copy = raw.clone();
        copy.i_checksum_lo = U16::ZERO;
        if has_high {
            copy.i_checksum_hi = U16::ZERO;
        }
        let crc = crc32c(self.inode_seed(ino, raw.i_generation.get()), copy.as_bytes());
        if has_high { crc } else { crc & 0xFFFF }
    }

    /// Whether the inode carries its right checksum.
    pub(crate) fn inode_ok(&self, ino: InodeNo, raw: &RawInode) -> bool {
        let hi = if has_checksum_hi(raw) { raw.i_checksum_hi.get() } else { 0 };
        let stored = u32::from(raw.i_checksum_lo.get()) | u32::from(hi) << 16;
        !self.enabled() || stored == self.inode(ino, raw)
    }

    /// Puts the right checksum into the inode.
    pub(crate) fn seal_inode(&self, ino: InodeNo, raw: &mut RawInode) {
        if !self.enabled() {
            return;
        }
        let crc = self.inode(ino, raw);
        raw.i_checksum_lo = U16::new((crc & 0xFFFF) as u16);
        if has_checksum_hi(raw) {
            raw.i_checksum_hi = U16::new((crc >> 16) as u16);
        }
    }

    /// Checksum of a directory leaf block, over the bytes before its 12-byte tail.
    pub(crate) fn dir_block(&self, inode_seed: u32, before_tail: &[u8]) -> u32 {
        self.of(inode_seed, &[before_tail])
    }

    /// Checksum of an htree node: over the bytes up to the end of its used entries, then the tail
    /// (`dt_reserved`) and a zero in place of the checksum.
    pub(crate) fn htree_block(&self, inode_seed: u32, used: &[u8], dt_reserved: u32) -> u32 {
        self.of(inode_seed, &[used, &dt_reserved.to_le_bytes(), &[0; 4]])
    }

    /// Checksum of an attribute block, whose `h_checksum` (bytes 16..20) is taken as zero.
    pub(crate) fn xattr_block(&self, block: HomeBlock, bytes: &BlockBytes) -> u32 {
        self.of(self.seed, &[&block.0.to_le_bytes(), &bytes[..16], &[0; 4], &bytes[20..]])
    }

    /// Checksum of a block of the orphan file.
    pub(crate) fn orphan_block(
        &self,
        inode_seed: u32,
        block: HomeBlock,
        bytes: &BlockBytes,
    ) -> u32 {
        self.of(inode_seed, &[&block.0.to_le_bytes(), &bytes[..ORPHANS_PER_BLOCK * 4]])
    }

    /// Puts the right checksum into the superblock.
    pub(crate) fn seal_superblock(&self, superblock: &mut SuperBlock) {
        if self.enabled() {
            superblock.s_checksum = U32::new(self.superblock(superblock));
        }
    }

    /// Whether the superblock carries its right checksum.
    pub(crate) fn superblock_ok(&self, superblock: &SuperBlock) -> bool {
        !self.enabled() || superblock.s_checksum.get() == self.superblock(superblock)
    }
}

/// Whether `i_extra_isize` covers `i_checksum_hi` (4 bytes of extra fields).
fn has_checksum_hi(raw: &RawInode) -> bool {
    raw.i_extra_isize.get() >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_matches_its_check_value() {
        // CRC-16/ARC of "123456789" from state 0.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    #[test]
    fn crc32c_chains_without_inversion() {
        // CRC-32C check value, before the final inversion.
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}
