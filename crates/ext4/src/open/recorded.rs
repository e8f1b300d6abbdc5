//! Which external journal a volume records, for callers that have to find its medium.

use std::sync::Arc;

use device::BlockDevice;

use super::found::{FoundVolume, find};
use crate::{Error, Result};

/// The external journal that a volume records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedJournal {
    /// UUID of the journal, as in its label.
    pub journal_uuid: [u8; 16],
    /// UUID of the volume.
    pub volume_uuid: [u8; 16],
    /// Whether the volume was not closed and its newest changes are in this journal.
    pub holds_changes: bool,
    /// Whether the volume was closed.
    pub is_closed: bool,
}

/// The external journal that the volume on `device` records: its own, or the one that it was
/// mounted with when it was not closed. `None`: the journal is in the volume. Writes nothing.
pub fn recorded_journal(device: &Arc<dyn BlockDevice>) -> Result<Option<RecordedJournal>> {
    RecordedJournal::of(&find(device)?)
}

impl RecordedJournal {
    pub(super) fn of(found: &FoundVolume) -> Result<Option<RecordedJournal>> {
        let in_use = found.area.journal_in_use();
        let noted = match in_use {
            Some(noted) => Some(noted),
            None => found.area.own_journal()?,
        };
        Ok(noted.map(|noted| RecordedJournal {
            journal_uuid: noted.journal_uuid,
            volume_uuid: found.superblock.s_uuid,
            holds_changes: in_use.is_some(),
            is_closed: !found.area.has_our_bits,
        }))
    }

    /// The refusal of the volume while this journal is not given.
    pub fn missing(&self) -> Error {
        let (journal_uuid, holds_changes) = (self.journal_uuid, self.holds_changes);
        Error::JournalMissing { journal_uuid, holds_changes }
    }
}
