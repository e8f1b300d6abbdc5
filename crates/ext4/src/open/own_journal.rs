//! The volume's own journal elsewhere: prepared, recorded, forgotten.
//!
//! The record is the field for the external journal in the superblock of the kernel's journal
//! ([`crate::layout::jbd2`]), which remains on a closed volume. It is in one sector of 512 bytes,
//! so each change of it is atomic.
//!
//! A journal is complete and durable before the volume records it. So a power cut leaves a volume
//! with its old journal or with its new one. (If the old journal was on the same medium, it may
//! leave the record of a journal that is gone.) The volume was closed, so it holds everything,
//! whatever becomes of either journal. A journal that was prepared before such a cut has the label
//! of the volume and holds nothing. It is taken as it is when the command is run again.

use std::sync::Arc;

use device::BlockDevice;
use journal::{JournalError, Label, Medium, check_size, write_empty_header};

use super::claim::{self, Claimant};
use super::found::{FoundVolume, find};
use super::options::system_seed;
use super::place::check_nothing_left;
use super::uuid::random_uuid;
use crate::error::WrongJournal;
use crate::faults::{self, Fault};
use crate::layout::jbd2::{ExternalJournal, Standing};
use crate::types::uuid_text;
use crate::{Error, Result};

/// Journals occupy whole blocks of this size.
const BLOCK_BYTES: u64 = journal::BLOCK_BYTES as u64;

/// A medium that becomes a volume's own journal.
#[derive(Debug, Clone)]
pub struct NewJournal {
    /// The medium.
    pub medium: Medium,
    /// Number of bytes of it for the journal. `None`: all, but at most [`OWN_JOURNAL_BYTES_MAX`].
    pub size_bytes: Option<u64>,
    /// Overwrite what it holds.
    pub force: bool,
}

/// Bytes of a large medium that become a journal if no size is asked for. A larger journal takes
/// longer to recover, and the engine's memory bounds how much of it is used.
pub const OWN_JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// Makes `new` the own journal of the volume on `device`, which is closed, and returns its UUID.
/// `None`: the journal in the volume becomes its only one. The journal that the volume had before
/// is left as it is: the volume may be a copy of another one, which still needs that journal.
///
/// Refuses, without writing anything: a volume that was not closed or that another user has open;
/// and, without [`NewJournal::force`], a medium that is neither empty nor a journal of this volume
/// without changes.
pub fn change_journal(
    device: &Arc<dyn BlockDevice>,
    new: Option<&NewJournal>,
    claimant: Option<&Claimant>,
) -> Result<Option<[u8; 16]>> {
    let found = find_closed(device, claimant)?;
    if new.is_none() {
        found.feature_bits().write_external_journal(None)?;
    }
    new.map(|new| record_new(&found, new)).transpose()
}

fn find_closed(device: &Arc<dyn BlockDevice>, claimant: Option<&Claimant>) -> Result<FoundVolume> {
    let found = find(device)?;
    if let Some(claimant) = claimant {
        claim::check(&found, claimant)?;
    }
    if found.area.has_our_bits {
        return Err(Error::NotClosed);
    }
    Ok(found)
}

/// What a medium holds that becomes a journal.
enum Present {
    Nothing,
    /// A journal of this volume without changes, which is taken as it is, and its incarnation if it
    /// has begun one.
    Journal(Label, Option<u64>),
    /// Something that is overwritten.
    ToErase,
}

/// Prepares the journal, then records it.
pub(super) fn record_new(found: &FoundVolume, new: &NewJournal) -> Result<[u8; 16]> {
    let volume_uuid = found.superblock.s_uuid;
    let present = Present::on(new, &volume_uuid)?;
    let label = match present {
        Present::Journal(label, _) => label,
        Present::Nothing | Present::ToErase => new.label(volume_uuid)?,
    };
    let begun = match present {
        Present::Journal(_, begun) => begun,
        Present::Nothing | Present::ToErase => None,
    };
    check_size(&label.space(&new.medium)?)?;
    let incarnation = begun.unwrap_or_else(system_seed);
    let record = || {
        let noted = ExternalJournal {
            standing: Standing::Own,
            journal_uuid: label.journal_uuid,
            incarnation,
            next_incarnation: incarnation,
        };
        found.feature_bits().write_external_journal(Some(noted))
    };
    if faults::is(Fault::RecordBeforeJournal) {
        record()?;
    }
    if let Present::ToErase = present {
        Label::erase(&new.medium)?;
    }
    if let Present::Nothing | Present::ToErase = present {
        label.write(&new.medium)?;
    }
    if begun.is_none() {
        write_empty_header(&label.space(&new.medium)?, volume_uuid, incarnation)?;
    }
    record()?;
    Ok(label.journal_uuid)
}

impl Present {
    /// What the medium holds, or why it must not become a journal of the volume.
    fn on(new: &NewJournal, volume_uuid: &[u8; 16]) -> Result<Present> {
        let refused = |why: String| Err(WrongJournal::Other(why).into());
        match Label::read(&new.medium) {
            Ok(None) => Ok(Present::Nothing),
            Ok(Some(label)) if label.volume_uuid == *volume_uuid => {
                Present::of_this_volume(new, label)
            }
            Ok(Some(_)) if new.force => Ok(Present::ToErase),
            Ok(Some(label)) => refused(format!(
                "is the journal of volume {}; to overwrite it, with all changes that this volume \
                 may still need: add --force",
                uuid_text(&label.volume_uuid)
            )),
            Err(error) if !is_content(&error) => Err(error.into()),
            Err(_) if new.force => Ok(Present::ToErase),
            Err(_) => refused("is not empty; to overwrite what it holds: add --force".into()),
        }
    }

    /// A journal of the volume. The volume is closed and needs nothing of it; changes in it belong
    /// to a copy of the volume.
    fn of_this_volume(new: &NewJournal, label: Label) -> Result<Present> {
        match check_nothing_left(&label, &new.medium) {
            Ok(begun) if new.has_size_of(&label) => Ok(Present::Journal(label, begun)),
            Ok(_) => Ok(Present::ToErase),
            Err(Error::Journal(error)) if !is_content(&error) => Err(error.into()),
            Err(_) if new.force => Ok(Present::ToErase),
            Err(error) => {
                Err(WrongJournal::Other(format!("{error}; to overwrite it: add --force")).into())
            }
        }
    }
}

/// Whether the error is about what a medium holds, and not about reading it.
fn is_content(error: &JournalError) -> bool {
    use JournalError::{Damaged, Incompatible, NoHeader, OtherVolume};
    matches!(error, Damaged(_) | Incompatible(_) | NoHeader | OtherVolume)
}

impl NewJournal {
    /// Refuses a medium that a new volume must not take, or that is too small. Writes nothing.
    pub fn check(&self) -> Result<()> {
        let no_volume = [0; 16];
        Present::on(self, &no_volume)?;
        Ok(check_size(&self.label(no_volume)?.space(&self.medium)?)?)
    }

    /// The label of a journal that is made.
    fn label(&self, volume_uuid: [u8; 16]) -> Result<Label> {
        let journal_uuid = random_uuid(system_seed());
        Ok(Label { journal_uuid, volume_uuid, block_count: self.block_count()? })
    }

    fn block_count(&self) -> Result<u32> {
        let all_bytes = self.medium.len_bytes();
        let size_bytes = self.size_bytes.unwrap_or(all_bytes.min(OWN_JOURNAL_BYTES_MAX));
        if size_bytes > all_bytes {
            let why = format!("it has {all_bytes} bytes, and {size_bytes} were asked for");
            return Err(JournalError::TooSmall(why).into());
        }
        u32::try_from(size_bytes / BLOCK_BYTES).map_err(|_| {
            WrongJournal::Other("a journal cannot be larger than 16 TiB".into()).into()
        })
    }

    /// Whether a journal with this label has the size that is asked for, if one is.
    fn has_size_of(&self, label: &Label) -> bool {
        self.size_bytes.is_none_or(|bytes| bytes / BLOCK_BYTES == u64::from(label.block_count))
    }
}
