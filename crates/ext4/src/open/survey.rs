//! Looking at a volume without opening it: is it one, is it clean, where is its journal?

use std::sync::Arc;

use device::BlockDevice;
use journal::{Medium, Space};

use super::claim;
use super::found::find;
use super::place;
use crate::Result;
use crate::layout::superblock::STATE_ERROR;

/// What a look at a volume tells. Nothing is changed.
pub struct Survey {
    /// The volume's UUID, which its journal bears too.
    pub uuid: [u8; 16],
    /// The volume was not closed: its journal may hold history that is not home.
    pub needs_recovery: bool,
    /// The superblock was torn while a feature bit was changed; it is readable, but not for other tools
    /// ([`crate::mend_superblock`]).
    pub is_torn: bool,
    /// The volume is marked as having errors.
    pub has_errors: bool,
    /// Who has the volume open, or has not closed it, if it says that.
    pub claimed_by: Option<String>,
    /// Where the engine's journal lies: `Err` when it is on a medium that was not given, or not on
    /// the one that was.
    pub space: Result<Space>,
    /// Size of the volume in 4 KiB blocks.
    pub block_count: u64,
}

impl Survey {
    /// Looks at the volume on `device`, whose journal is on `journal` if that is given. The errors are those of `Volume::open`: what that would
    /// refuse is refused here.
    pub fn take(device: &Arc<dyn BlockDevice>, journal: Option<&Medium>) -> Result<Survey> {
        let found = find(device)?;
        Ok(Survey {
            uuid: found.superblock.s_uuid,
            needs_recovery: found.area.has_our_bits,
            is_torn: found.is_torn,
            has_errors: found.superblock.s_state.get() & STATE_ERROR != 0,
            claimed_by: match &found.area.claim {
                Ok(Some(claim)) => Some(claim::describe(claim)),
                _ => None,
            },
            space: place::to_look_at(&found, journal),
            block_count: found.raw.geometry.block_count,
        })
    }
}
