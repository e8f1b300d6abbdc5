//! What is known of a volume before its journal is open.

use std::sync::Arc;

use device::BlockDevice;
use journal::{HomeBlock, Label, Medium};

use super::area::JournalArea;
use super::feature_bits::{FeatureBits, FoundSuperBlock, read_superblock};
use super::raw::RawVolume;
use crate::error::NoVolume;
use crate::facts::{Checksums, Geometry, compat, features, ro_compat};
use crate::layout::superblock::{MKFS_UNDER_WAY, SUPERBLOCK_MAGIC, SuperBlock};
use crate::memory::OrphanFile;
use crate::{Error, InodeNo, Result};

/// Blocks of the largest orphan file that the kernel takes.
const ORPHAN_FILE_BLOCK_LIMIT: u64 = 512;

/// What is known of a volume before its journal is open.
pub(crate) struct FoundVolume {
    pub(crate) raw: RawVolume,
    pub(crate) superblock: SuperBlock,
    pub(super) is_sound: bool,
    pub(super) is_torn: bool,
    pub(crate) area: JournalArea,
    pub(crate) orphan_file: Option<(OrphanFile, Vec<std::ops::Range<u64>>)>,
}

impl FoundVolume {
    /// The feature bits of the volume.
    pub(crate) fn feature_bits(&self) -> FeatureBits {
        FeatureBits::new(self.raw.device.clone(), self.area.jbd2_block)
    }

    /// Whether it was handed over, and not opened after that: there are files to free.
    pub(super) fn has_orphans(&self) -> bool {
        let features = self.superblock.s_feature_ro_compat.get();
        self.superblock.s_last_orphan.get() != 0 || features & ro_compat::ORPHAN_PRESENT != 0
    }
}

/// Reads and checks the superblock, and finds the journal. Writes nothing.
pub(crate) fn find(device: &Arc<dyn BlockDevice>) -> Result<FoundVolume> {
    let found = find_unfinished(device)?;
    if found.superblock.s_last_mounted == MKFS_UNDER_WAY {
        return Err(NoVolume::Unfinished.into());
    }
    Ok(found)
}

/// The same, also if the `mkfs` of the volume has not ended.
pub(super) fn find_unfinished(device: &Arc<dyn BlockDevice>) -> Result<FoundVolume> {
    let found = read_superblock(&**device)?;
    let superblock = found.superblock.clone();
    if superblock.s_magic.get() != SUPERBLOCK_MAGIC {
        return Err(what_it_is(device).into());
    }
    features::check(&superblock)?;
    let geometry = Geometry::new(&superblock, device.size_bytes())?;
    let checksums = Checksums::new(&superblock);
    let mut raw = RawVolume::new(device.clone(), geometry, checksums);
    raw.find_packed_metadata()?;
    let area = JournalArea::find(&raw, &superblock)?;
    if !found.is_sound && !area.has_our_bits {
        return Err(Error::corrupt("checksum", "the superblock"));
    }
    let orphan_file = find_orphan_file(&raw, &superblock)?;
    let FoundSuperBlock { is_sound, is_torn, .. } = found;
    Ok(FoundVolume { raw, superblock, is_sound, is_torn, area, orphan_file })
}

fn what_it_is(device: &Arc<dyn BlockDevice>) -> NoVolume {
    match Label::read(&Medium::Block(device.clone())) {
        Ok(Some(label)) => NoVolume::Journal(label.volume_uuid),
        _ => NoVolume::NoSuperblock,
    }
}

fn find_orphan_file(
    raw: &RawVolume,
    superblock: &SuperBlock,
) -> Result<Option<(OrphanFile, Vec<std::ops::Range<u64>>)>> {
    if superblock.s_feature_compat.get() & compat::ORPHAN_FILE == 0 {
        return Ok(None);
    }
    let ino = InodeNo(superblock.s_orphan_file_inum.get());
    let inode = raw.read_inode(ino, "orphan file")?;
    let runs = raw.file_blocks(&inode, "orphan file")?;
    if inode.size() / 4096 > ORPHAN_FILE_BLOCK_LIMIT {
        return Err(Error::corrupt("orphan file: too large", ino));
    }
    let block_count = (inode.size() / 4096) as usize; // below the limit
    let blocks = runs.iter().cloned().flatten().map(HomeBlock).take(block_count).collect();
    let seed = raw.checksums.inode_seed(ino, inode.generation());
    Ok(Some((OrphanFile { blocks, seed }, runs)))
}
