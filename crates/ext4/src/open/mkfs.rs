//! What `onejournal mkfs` does before and after mke2fs, which writes in no order that survives a
//! power cut.
//!
//! - Before: the superblock of an old volume may outlast the metadata that it describes. So the
//!   old volume gets the mark of a `mkfs` under way ([`MKFS_UNDER_WAY`]) first, durably. It is
//!   refused from then on.
//! - After: the new superblock may be durable when other metadata are not. So mke2fs makes a volume
//!   with the same mark. When all of it is durable, the volume's own journal is prepared and
//!   recorded, if it gets one elsewhere. Then the mark is removed: in the copies of the superblock,
//!   then in the superblock itself.

use std::sync::Arc;

use device::BlockDevice;
use journal::{BLOCK_BYTES, JournalError};
use zerocopy::{FromBytes, IntoBytes};

use super::feature_bits::{change_superblock, read_superblock};
use super::found::find_unfinished;
use super::own_journal::{NewJournal, record_new};
use super::raw::{read_block, write_block_cached};
use crate::facts::{Checksums, Geometry};
use crate::layout::superblock::{MKFS_UNDER_WAY, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SuperBlock};
use crate::{Error, Result};

/// Whether `mkfs` of the volume on the device was cut before its end.
pub fn is_mkfs_under_way(device: &dyn BlockDevice) -> Result<bool> {
    let superblock = read_superblock(device)?.superblock;
    let is_volume = superblock.s_magic.get() == SUPERBLOCK_MAGIC;
    Ok(is_volume && superblock.s_last_mounted == MKFS_UNDER_WAY)
}

/// Marks the volume on the device, if there is one, durably. It is refused from now on, whatever
/// mke2fs leaves of it.
pub fn begin_mkfs(device: &dyn BlockDevice) -> Result<()> {
    if device.size_bytes() < BLOCK_BYTES as u64 {
        return Ok(());
    }
    let superblock = read_superblock(device)?.superblock;
    if superblock.s_magic.get() != SUPERBLOCK_MAGIC || superblock.s_last_mounted == MKFS_UNDER_WAY {
        return Ok(());
    }
    change_superblock(device, |superblock| superblock.s_last_mounted = MKFS_UNDER_WAY)
}

/// Makes what mke2fs has made with [`MKFS_UNDER_WAY`] a volume. `journal`: its own journal, if that
/// is not in the volume. Returns the UUID of this journal.
pub fn finish_mkfs(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&NewJournal>,
) -> Result<Option<[u8; 16]>> {
    if !is_mkfs_under_way(&**device)? {
        return Err(Error::corrupt("s_last_mounted", "a new superblock"));
    }
    device.flush().map_err(JournalError::from)?;
    let record = |journal| record_new(&find_unfinished(device)?, journal);
    let journal_uuid = journal.map(record).transpose()?;
    remove_mark(&**device)?;
    Ok(journal_uuid)
}

fn remove_mark(device: &dyn BlockDevice) -> Result<()> {
    let superblock = read_superblock(device)?.superblock;
    let geometry = Geometry::new(&superblock, device.size_bytes())?;
    for group in (1..geometry.group_count).filter(|group| geometry.has_superblock(*group)) {
        finish_copy(device, &geometry, group)?;
    }
    device.flush().map_err(JournalError::from)?;
    change_superblock(device, |superblock| superblock.s_last_mounted = [0; 64])
}

/// Removes the mark from a copy of the superblock, which is at the start of its group.
fn finish_copy(device: &dyn BlockDevice, geometry: &Geometry, group: u32) -> Result<()> {
    let home = geometry.first_block(group);
    let mut block = read_block(device, home)?;
    let (mut copy, _) = SuperBlock::read_from_prefix(&block[..]).expect("a block is large enough");
    if copy.s_last_mounted != MKFS_UNDER_WAY {
        return Err(Error::corrupt("copy of the superblock", home));
    }
    copy.s_last_mounted = [0; 64];
    Checksums::new(&copy).seal_superblock(&mut copy);
    block[..SUPERBLOCK_BYTES].copy_from_slice(copy.as_bytes());
    write_block_cached(device, home, &block)
}
