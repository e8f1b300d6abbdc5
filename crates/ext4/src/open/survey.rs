//! Examines a volume without opening it: whether it is one, whether it is clean, and where its
//! journal is.

use std::sync::Arc;

use device::BlockDevice;
use journal::{Medium, Space};

use super::claim;
use super::found::find;
use super::place;
use crate::Result;
use crate::layout::superblock::STATE_ERROR;

/// The result of examining a volume. Nothing is changed.
pub struct Survey {
    /// The volume's UUID, which its journal has, too.
    pub uuid: [u8; 16],
    /// Whether the volume was not closed, so that its journal may hold history that is not home, or
    /// it may have files to free.
    pub needs_recovery: bool,
    /// Whether the superblock was torn while a feature bit was changed. OneJournal can read it, but
    /// other tools cannot ([`crate::mend_superblock`]).
    pub is_torn: bool,
    /// Whether the volume is marked as having errors.
    pub has_errors: bool,
    /// Who has the volume open, or did not close it, if it has a claim.
    pub claimed_by: Option<String>,
    /// The space of the journal. `Err` if it is on a medium that was not given, or not on the given
    /// one.
    pub space: Result<Space>,
    /// Size of the volume in 4 KiB blocks.
    pub block_count: u64,
}

impl Survey {
    /// Examines the volume on `device`, whose journal is on `journal` if that is given. Refuses
    /// what `Volume::open` would refuse, with the same errors.
    pub fn take(device: &Arc<dyn BlockDevice>, journal: Option<&Medium>) -> Result<Survey> {
        let found = find(device)?;
        Ok(Survey {
            uuid: found.superblock.s_uuid,
            needs_recovery: found.area.has_our_bits || found.has_orphans(),
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
