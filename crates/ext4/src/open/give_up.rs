//! Giving up a journal that is lost: the last resort for a volume whose journal was elsewhere.

use std::sync::Arc;

use device::BlockDevice;

use super::claim::{self, Claimant};
use super::feature_bits::note_errors;
use super::found::find;
use crate::{Error, Result};

/// Removes the feature bits from a volume that was not closed and whose journal, on a medium of its own, is
/// lost; first the volume is marked as having errors, because it has: parts of it are older than
/// others. Only `e2fsck -fy` can make a file system of it again.
///
/// Refuses, without writing anything, a volume whose journal is not elsewhere, or that somebody else has open. Can be cut anywhere and
/// called again.
pub fn give_up_journal(device: &Arc<dyn BlockDevice>, claimant: Option<&Claimant>) -> Result<()> {
    let found = find(device)?;
    if let Some(claimant) = claimant {
        claim::check(&found, claimant)?;
    }
    if found.area.elsewhere.is_none() {
        let why = "the volume waits for no journal elsewhere: there is nothing to give up";
        return Err(Error::NotRepaired(why.into()));
    }
    note_errors(&**device)?;
    found.feature_bits().remove()
}
