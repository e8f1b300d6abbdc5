//! The places of block groups, of inodes in groups, and of the fixed metadata of each group.
//!
//! Everything here is arithmetic on the superblock, which is checked once when the volume is
//! opened. No later computation overflows or divides by zero.

use std::ops::Range;

use journal::{BLOCK_BYTES, HomeBlock};

use super::checksum::Checksums;
use super::features::{MAKE_ANEW, compat, incompat, ro_compat};
use crate::error::NoVolume;
use crate::layout::group::{LONG_DESC_BYTES, SHORT_DESC_BYTES};
use crate::layout::inode::INODE_BYTES;
use crate::layout::superblock::{SUPERBLOCK_MAGIC, SuperBlock};
use crate::{Error, InodeNo, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bits of a bitmap block.
pub(crate) const BITS_PER_BLOCK: u32 = 8 * 4096;
/// Inodes of an inode table block.
pub(crate) const INODES_PER_BLOCK: u32 = 4096 / 256;
const _: () = assert!(INODES_PER_BLOCK as usize == BLOCK_BYTES / INODE_BYTES);

/// Where a group keeps copies of superblock and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backups {
    /// In every group.
    All,
    /// In group 0, 1 and powers of 3, 5 and 7 (`sparse_super`).
    Sparse,
    /// In group 0 and these two (`sparse_super2`).
    Two([u32; 2]),
}

/// The geometry of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    /// Blocks of the volume.
    pub(crate) block_count: u64,
    /// Blocks of a group (the last may have less).
    pub(crate) blocks_per_group: u32,
    /// Inodes of a group.
    pub(crate) inodes_per_group: u32,
    /// Groups.
    pub(crate) group_count: u32,
    /// Inodes of the volume.
    pub(crate) inode_count: u32,
    /// First inode that is not reserved.
    pub(crate) first_inode: u32,
    /// Size of a descriptor in bytes: 32 or 64.
    pub(crate) desc_bytes: usize,
    /// Blocks of the group descriptors.
    desc_block_count: u32,
    /// Number of groups whose bitmaps and inode tables are stored together (a power of two, or all
    /// groups; 1 without `flex_bg`).
    pub(crate) groups_per_flex: u32,
    /// The `64bit` feature: counts have an upper half.
    pub(crate) wide: bool,
    reserved_desc_block_count: u32,
    backups: Backups,
}

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::Incompatible(why))
}

fn corrupt<T>(what: &str) -> Result<T> {
    Err(Error::corrupt(what, "the superblock"))
}

/// The volume has more blocks than its device. If the superblock can be believed, the end of the
/// device is missing, and e2fsck cannot help.
fn too_large(superblock: &SuperBlock, block_count: u64, device_bytes: u64) -> Error {
    if !Checksums::new(superblock).superblock_ok(superblock) {
        return Error::corrupt("block count: more than the device has", "the superblock");
    }
    Error::EndMissing { device_bytes, needed_bytes: block_count.saturating_mul(BLOCK) }
}

impl Geometry {
    /// Checks the superblock's numbers against each other and the size of the device in bytes.
    pub(crate) fn new(superblock: &SuperBlock, device_bytes: u64) -> Result<Geometry> {
        check_sizes(superblock)?;
        let has_incompat = |bit| superblock.s_feature_incompat.get() & bit != 0;
        let wide = has_incompat(incompat::SIXTY_FOUR_BIT);
        let block_count = superblock.block_count(wide);
        if block_count > device_bytes / BLOCK {
            return Err(too_large(superblock, block_count, device_bytes));
        }
        let blocks_per_group = superblock.s_blocks_per_group.get();
        let group_count = match blocks_per_group {
            256..=BITS_PER_BLOCK if blocks_per_group.is_multiple_of(8) => {
                u32::try_from(block_count.div_ceil(u64::from(blocks_per_group)))
            }
            _ => return corrupt("number of blocks per group"),
        };
        let Ok(group_count @ 1..) = group_count else { return corrupt("block count") };
        let desc_bytes = if wide { LONG_DESC_BYTES } else { SHORT_DESC_BYTES };
        if wide && usize::from(superblock.s_desc_size.get()) != desc_bytes {
            let found = superblock.s_desc_size.get();
            return refuse(format!(
                "its group descriptors have {found} bytes, and only 64 are supported; {MAKE_ANEW}"
            ));
        }
        let desc_block_count = (u64::from(group_count) * desc_bytes as u64).div_ceil(BLOCK);
        let geometry = Geometry {
            block_count,
            blocks_per_group,
            inodes_per_group: superblock.s_inodes_per_group.get(),
            group_count,
            inode_count: superblock.s_inodes_count.get(),
            first_inode: superblock.s_first_ino.get(),
            desc_bytes,
            desc_block_count: desc_block_count as u32, // at most 2^32 * 64 / 4096
            groups_per_flex: groups_per_flex(superblock)?,
            wide,
            reserved_desc_block_count: reserved_desc_block_count(superblock),
            backups: backups(superblock),
        };
        geometry.check_inodes()?;
        geometry.check_descriptors()?;
        Ok(geometry)
    }

    fn check_inodes(&self) -> Result<()> {
        let per_group = self.inodes_per_group;
        let is_sane = (INODES_PER_BLOCK..=BITS_PER_BLOCK).contains(&per_group)
            && per_group.is_multiple_of(INODES_PER_BLOCK)
            && u64::from(per_group) * u64::from(self.group_count) == u64::from(self.inode_count);
        if !is_sane {
            return corrupt("number of inodes");
        }
        if !(11..=per_group).contains(&self.first_inode) {
            return corrupt("first inode");
        }
        Ok(())
    }

    fn check_descriptors(&self) -> Result<()> {
        let head = 1 + u64::from(self.desc_block_count) + u64::from(self.reserved_desc_block_count);
        if head >= u64::from(self.blocks_per_group) || head >= self.block_count {
            return corrupt("number of group descriptors");
        }
        Ok(())
    }

    /// The group that a block of the volume belongs to.
    pub(crate) fn group_of_block(&self, block: HomeBlock) -> u32 {
        assert!(block.0 < self.block_count, "{block} is outside of the volume");
        (block.0 / u64::from(self.blocks_per_group)) as u32 // below group_count, a u32
    }

    /// The group that an inode belongs to, and its index there. An error for a number that does not
    /// exist.
    pub(crate) fn group_of_inode(&self, ino: InodeNo) -> Result<(u32, u32)> {
        if ino.0 == 0 || ino.0 > self.inode_count {
            return Err(Error::corrupt("inode number outside of the volume", ino));
        }
        Ok(((ino.0 - 1) / self.inodes_per_group, (ino.0 - 1) % self.inodes_per_group))
    }

    /// The inode with this index in a group.
    pub(crate) fn inode_at(&self, group: u32, index: u32) -> InodeNo {
        assert!(group < self.group_count && index < self.inodes_per_group);
        InodeNo(group * self.inodes_per_group + index + 1)
    }

    /// First block of a group.
    pub(crate) fn first_block(&self, group: u32) -> HomeBlock {
        HomeBlock(u64::from(group) * u64::from(self.blocks_per_group))
    }

    /// Blocks of this group. The last group has fewer.
    pub(crate) fn blocks_in_group(&self, group: u32) -> u32 {
        assert!(group < self.group_count);
        let left = self.block_count - self.first_block(group).0;
        left.min(u64::from(self.blocks_per_group)) as u32 // at most blocks_per_group
    }

    /// Blocks of a group's inode table.
    pub(super) fn inode_table_block_count(&self) -> u32 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    /// The block with a group's descriptor, and the descriptor's byte offset in it.
    pub(crate) fn desc_place(&self, group: u32) -> (HomeBlock, usize) {
        assert!(group < self.group_count);
        let offset = u64::from(group) * self.desc_bytes as u64;
        (HomeBlock(1 + offset / BLOCK), (offset % BLOCK) as usize)
    }

    /// Whether these blocks are on the volume, and none of them holds the superblock.
    pub(crate) fn holds(&self, start: u64, count: u64) -> bool {
        start != 0 && start.checked_add(count).is_some_and(|end| end <= self.block_count)
    }

    /// Refuses the number of a block that no pointer may name: it is outside of the volume, or
    /// block 0, which holds the superblock.
    pub(crate) fn check_pointer(&self, block: HomeBlock) -> Result<()> {
        if self.holds(block.0, 1) {
            return Ok(());
        }
        Err(Error::corrupt("pointer outside of the volume", block))
    }

    /// Whether this group has a (backup) superblock.
    pub(crate) fn has_superblock(&self, group: u32) -> bool {
        match self.backups {
            Backups::All => true,
            Backups::Sparse => group <= 1 || [3, 5, 7].iter().any(|base| is_power(group, *base)),
            Backups::Two(groups) => group == 0 || groups.contains(&group),
        }
    }

    /// Blocks at a group's start for the superblock, the descriptors, and more descriptors later.
    pub(super) fn head_block_count(&self, group: u32) -> u32 {
        if !self.has_superblock(group) {
            return 0;
        }
        let count = 1 + self.desc_block_count + self.reserved_desc_block_count;
        count.min(self.blocks_in_group(group))
    }

    /// The groups of the flex group that `group` belongs to.
    pub(crate) fn flex_groups(&self, group: u32) -> Range<u32> {
        let start = group - group % self.groups_per_flex;
        start..start.saturating_add(self.groups_per_flex).min(self.group_count)
    }

    /// The number of groups with a superblock, computed without a loop over all groups.
    fn superblock_group_count(&self) -> u64 {
        match self.backups {
            Backups::All => u64::from(self.group_count),
            Backups::Sparse => {
                let powers = |base: u64| {
                    let all = std::iter::successors(Some(base), move |p| p.checked_mul(base));
                    all.take_while(|p| *p < u64::from(self.group_count)).count() as u64
                };
                u64::from(self.group_count.min(2)) + powers(3) + powers(5) + powers(7)
            }
            Backups::Two(groups) => {
                let valid = |g: &&u32| **g != 0 && **g < self.group_count;
                1 + groups.iter().filter(valid).count() as u64
            }
        }
    }

    /// Blocks of the volume that hold superblocks, descriptors, bitmaps and inode tables.
    pub(crate) fn fixed_block_count(&self) -> u64 {
        let head = 1 + self.desc_block_count + self.reserved_desc_block_count;
        let tables = 2 + self.inode_table_block_count();
        self.superblock_group_count() * u64::from(head)
            + u64::from(self.group_count) * u64::from(tables)
    }
}

fn check_sizes(superblock: &SuperBlock) -> Result<()> {
    if superblock.s_magic.get() != SUPERBLOCK_MAGIC {
        return Err(NoVolume::NoSuperblock.into());
    }
    if superblock.s_rev_level.get() != 1 {
        return refuse(format!(
            "it has ext4 revision {}, and only 1 is supported; {MAKE_ANEW}",
            superblock.s_rev_level
        ));
    }
    match superblock.s_log_block_size.get() {
        2 => {}
        log @ 0..=6 => {
            let bytes = 1024u32 << log;
            return refuse(format!(
                "its blocks have {bytes} bytes, and only 4096 are supported; {MAKE_ANEW}"
            ));
        }
        _ => return corrupt("block size"),
    }
    let inode_bytes = superblock.s_inode_size.get();
    if usize::from(inode_bytes) != INODE_BYTES {
        return refuse(format!(
            "its inodes have {inode_bytes} bytes, and only 256 are supported; {MAKE_ANEW}"
        ));
    }
    if superblock.s_first_data_block.get() != 0 {
        return corrupt("first data block");
    }
    if superblock.s_log_cluster_size != superblock.s_log_block_size
        || superblock.s_clusters_per_group != superblock.s_blocks_per_group
    {
        return refuse(format!("it has clusters of blocks (bigalloc); {MAKE_ANEW}"));
    }
    Ok(())
}

fn groups_per_flex(superblock: &SuperBlock) -> Result<u32> {
    if superblock.s_feature_incompat.get() & incompat::FLEX_BG == 0 {
        return Ok(1);
    }
    match superblock.s_log_groups_per_flex {
        log @ 0..=31 => Ok(1 << log),
        _ => corrupt("size of a flex group"),
    }
}

fn reserved_desc_block_count(superblock: &SuperBlock) -> u32 {
    u32::from(superblock.s_reserved_gdt_blocks.get())
}

fn backups(superblock: &SuperBlock) -> Backups {
    if superblock.s_feature_compat.get() & compat::SPARSE_SUPER2 != 0 {
        Backups::Two([superblock.s_backup_bgs[0].get(), superblock.s_backup_bgs[1].get()])
    } else if superblock.s_feature_ro_compat.get() & ro_compat::SPARSE_SUPER != 0 {
        Backups::Sparse
    } else {
        Backups::All
    }
}

fn is_power(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// The superblock of a volume of `block_count` blocks as Debian's mke2fs would make it.
    pub(crate) fn superblock(block_count: u64) -> SuperBlock {
        let mut superblock = SuperBlock::new_zeroed();
        let groups = block_count.div_ceil(32768) as u32;
        superblock.s_magic.set(SUPERBLOCK_MAGIC);
        superblock.s_rev_level.set(1);
        superblock.s_log_block_size.set(2);
        superblock.s_log_cluster_size.set(2);
        superblock.s_blocks_per_group.set(32768);
        superblock.s_clusters_per_group.set(32768);
        superblock.s_inodes_per_group.set(8192);
        superblock.s_inodes_count.set(groups * 8192);
        superblock.s_blocks_count_lo.set(block_count as u32);
        superblock.s_blocks_count_hi.set((block_count >> 32) as u32);
        superblock.s_first_ino.set(11);
        superblock.s_inode_size.set(256);
        superblock.s_desc_size.set(64);
        superblock.s_log_groups_per_flex = 4;
        superblock.s_feature_incompat.set(0x2C2);
        superblock.s_feature_ro_compat.set(0x46B);
        superblock.s_reserved_gdt_blocks.set(1000);
        superblock
    }

    fn geometry(block_count: u64) -> Geometry {
        Geometry::new(&superblock(block_count), block_count * 4096).unwrap()
    }

    #[test]
    fn blocks_and_inodes_find_their_group() {
        let geometry = geometry(3 * 32768 + 100);
        assert_eq!(geometry.group_count, 4);
        assert_eq!(geometry.group_of_block(HomeBlock(32768)), 1);
        assert_eq!(geometry.blocks_in_group(3), 100);
        assert_eq!(geometry.group_of_inode(InodeNo(8193)).unwrap(), (1, 0));
        assert_eq!(geometry.inode_at(1, 0), InodeNo(8193));
        assert!(geometry.group_of_inode(InodeNo(0)).is_err());
        assert!(geometry.group_of_inode(InodeNo(4 * 8192 + 1)).is_err());
        assert_eq!(geometry.desc_place(3), (HomeBlock(1), 192));
    }

    #[test]
    fn sparse_backups() {
        let geometry = geometry(130 * 32768);
        let groups: Vec<u32> = (0..130).filter(|g| geometry.has_superblock(*g)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert_eq!(geometry.superblock_group_count(), groups.len() as u64);
        assert_eq!(geometry.head_block_count(2), 0);
        assert_eq!(geometry.head_block_count(3), 1 + 3 + 1000);
    }

    #[test]
    fn flex_groups_end_with_the_volume() {
        let geometry = geometry(20 * 32768);
        assert_eq!(geometry.flex_groups(5), 0..16);
        assert_eq!(geometry.flex_groups(17), 16..20);
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_panic() {
        let change: [fn(&mut SuperBlock); 12] = [
            |s| s.s_blocks_per_group.set(0),
            |s| s.s_blocks_per_group.set(65536),
            |s| s.s_inodes_per_group.set(0),
            |s| s.s_inodes_per_group.set(0xFFFF_FFF0),
            |s| s.s_inodes_count.set(7),
            |s| s.s_blocks_count_lo.set(0),
            |s| s.s_blocks_count_hi.set(0xFFFF_FFFF),
            |s| s.s_log_block_size.set(0xFFFF_FFFF),
            |s| s.s_first_ino.set(0),
            |s| s.s_log_groups_per_flex = 200,
            |s| s.s_desc_size.set(33),
            |s| s.s_reserved_gdt_blocks.set(0xFFFF),
        ];
        for (index, change) in change.iter().enumerate() {
            let mut superblock = superblock(65536);
            change(&mut superblock);
            assert!(Geometry::new(&superblock, 65536 * 4096).is_err(), "change {index}");
        }
    }
}
