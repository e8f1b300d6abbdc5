//! Recovers a volume that was not closed.

use journal::RecoverOptions;

use super::found::FoundVolume;
use super::options::OpenOptions;
use super::place;
use crate::Result;

/// Brings home what the journal holds.
pub(crate) fn recover(found: &FoundVolume, options: &OpenOptions) -> Result<()> {
    let device = &found.raw.device;
    let space = place::to_recover(found, options.journal.medium())?;
    let how = RecoverOptions {
        discard_damaged: options.discard_damaged,
        memory: options.memory,
        ..RecoverOptions::default()
    };
    let recovery = journal::recover(device, &space, &found.superblock.s_uuid, &how)?;
    tracing::info!(
        "recovered {} transactions, {} blocks",
        recovery.transaction_count,
        recovery.replayed_blocks
    );
    Ok(())
}
