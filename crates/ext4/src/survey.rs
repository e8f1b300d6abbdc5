//! Looking at a volume without opening it: is it one, is it clean, where is its journal?

use std::sync::Arc;

use device::BlockDevice;
use journal::Space;

use crate::Result;
use crate::open::find;

/// What a look at a volume tells. Nothing is changed.
pub struct Survey {
    /// The volume's UUID, which its journal bears too.
    pub uuid: [u8; 16],
    /// The volume was not closed: its journal may hold history that is not home.
    pub needs_recovery: bool,
    /// Where the engine's journal lies.
    pub space: Space,
    /// Size of the volume in 4 KiB blocks.
    pub block_count: u64,
}

impl Survey {
    /// Looks at the volume on `device`. The errors are those of `Volume::open`: what that would
    /// refuse is refused here.
    pub fn take(device: &Arc<dyn BlockDevice>) -> Result<Survey> {
        let found = find(device)?;
        Ok(Survey {
            uuid: found.superblock.s_uuid,
            needs_recovery: found.area.is_marked,
            space: found.area.space(device.clone())?,
            block_count: found.raw.geometry.block_count,
        })
    }
}
