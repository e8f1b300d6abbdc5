//! Giving up a journal that is lost: the last resort for a volume whose journal was on another
//! medium.

use std::sync::Arc;

use device::BlockDevice;

use super::claim::{self, Claimant};
use super::feature_bits::note_errors;
use super::found::find;
use crate::{Error, Result};

/// Clears the feature bits of a volume that was not closed and whose external journal is lost. From
/// then on its journal is in the volume. First it marks the volume as having errors, because some
/// of its blocks are newer than others. Only `e2fsck -fy` can repair it.
///
/// Refuses a volume whose journal is not external, or that another user has open, without writing
/// anything. It can be cut at any point and called again.
pub fn give_up_journal(device: &Arc<dyn BlockDevice>, claimant: Option<&Claimant>) -> Result<()> {
    let found = find(device)?;
    if let Some(claimant) = claimant {
        claim::check(&found, claimant)?;
    }
    if found.area.journal_in_use().is_none() {
        let why = "the volume waits for no journal elsewhere: there is nothing to give up";
        return Err(match found.area.own_journal()? {
            Some(_) => Error::NothingToGiveUp,
            None => Error::NotRepaired(why.into()),
        });
    }
    note_errors(&**device)?;
    found.feature_bits().remove_with_journal()
}
