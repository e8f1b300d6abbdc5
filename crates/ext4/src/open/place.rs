//! The place of a volume's journal: in the journal inode, or on a medium of its own.
//!
//! A volume may have a journal of its own elsewhere ([`super::own_journal`]), which it records also
//! while it is closed. In this table, such a volume is one "with journal J".
//!
//! | the volume | medium given | |
//! |---|---|---|
//! | closed | none | the journal inode |
//! | closed | empty | becomes the volume's journal for this opening |
//! | closed | with this volume's label | used for this opening |
//! | closed, with journal J | J | used |
//! | closed, with journal J | none | refused, unless the journal inode is asked for |
//! | closed, with journal J | empty, or another one | refused |
//! | not closed, journal inode | none | recovered |
//! | not closed, journal inode | any | recovered from the inode; then as if closed |
//! | not closed, external journal | that journal in that incarnation | recovered |
//! | not closed, external journal | none, empty, an old copy, or another one | refused |
//! | any | with another volume's label, or with anything else on it | refused |

use journal::{End, Header, JournalError, Label, Medium, Space};

use super::found::FoundVolume;
use super::options::{JournalChoice, OpenOptions};
use super::recorded::RecordedJournal;
use super::uuid::random_uuid;
use crate::error::WrongJournal;
use crate::layout::jbd2::{ExternalJournal, Standing};
use crate::{Error, Result};

/// The place of a journal, and how the volume records it while it is open.
pub(super) struct JournalPlace {
    pub(super) space: Space,
    pub(super) noted: Noted,
}

/// What the field for the external journal has to say of the journal that is used.
pub(super) enum Noted {
    /// The journal inode is used. `own`: the volume's own journal elsewhere, which is not.
    Inside { own: Option<ExternalJournal> },
    /// An external journal is used. `incarnation`: its present one, if it has begun one.
    Elsewhere { journal_uuid: [u8; 16], standing: Standing, incarnation: Option<u64> },
}

/// The journal of a volume that was not closed.
pub(super) fn to_recover(found: &FoundVolume, given: Option<&Medium>) -> Result<Space> {
    let Some(noted) = found.area.journal_in_use() else {
        return Ok(found.area.space(found.raw.device.clone())?);
    };
    let volume_uuid = found.superblock.s_uuid;
    let wanted = noted.journal_uuid;
    let Some(medium) = given else { return missing(found) };
    match label_of(medium, &volume_uuid)? {
        Some(label) if label.journal_uuid == wanted => {
            let space = label.space(medium)?;
            check_incarnation(&Header::read(&space, &volume_uuid)?, &noted)?;
            Ok(space)
        }
        other => {
            let given = other.map(|label| label.journal_uuid);
            Err(WrongJournal::WithoutChanges { given, wanted }.into())
        }
    }
}

/// The refusal of a volume that needs an external journal.
fn missing<T>(found: &FoundVolume) -> Result<T> {
    let recorded = RecordedJournal::of(found)?;
    Err(recorded.expect("an external journal is recorded").missing())
}

/// Checks that the journal is in the incarnation that the volume records. Otherwise one of them is
/// a copy from another time.
fn check_incarnation(header: &Header, noted: &ExternalJournal) -> Result<()> {
    if header.is_of_incarnation(noted.incarnation)
        || header.is_of_incarnation(noted.next_incarnation)
    {
        return Ok(());
    }
    let (given, wanted) = (header.incarnation, noted.next_incarnation);
    Err(WrongJournal::OtherIncarnation { given, wanted }.into())
}

/// Refuses a volume that was not closed and is to go on with its own journal, which was not given.
/// Its newest changes may be in the journal inode, so it would be recovered first and refused then.
pub(super) fn check_before_recovery(found: &FoundVolume, options: &OpenOptions) -> Result<()> {
    match options.journal {
        JournalChoice::Own if found.area.own_journal()?.is_some() => missing(found),
        JournalChoice::Own | JournalChoice::Inside | JournalChoice::On(_) => Ok(()),
    }
}

/// The journal that the volume uses from now on. It has been recovered if that was necessary.
pub(super) fn to_use(found: &FoundVolume, options: &OpenOptions) -> Result<JournalPlace> {
    let own = found.area.own_journal()?;
    match &options.journal {
        JournalChoice::Own if own.is_some() => missing(found),
        JournalChoice::Own | JournalChoice::Inside => {
            let space = found.area.space(found.raw.device.clone())?;
            let own = own.and_then(ExternalJournal::unused);
            Ok(JournalPlace { space, noted: Noted::Inside { own } })
        }
        JournalChoice::On(medium) => elsewhere(found, medium, own, options.random_seed),
    }
}

fn elsewhere(
    found: &FoundVolume,
    medium: &Medium,
    own: Option<ExternalJournal>,
    seed: u64,
) -> Result<JournalPlace> {
    let volume_uuid = found.superblock.s_uuid;
    let label = match (label_of(medium, &volume_uuid)?, own) {
        (Some(label), None) => label,
        (Some(label), Some(own)) if label.journal_uuid == own.journal_uuid => label,
        (other, Some(own)) => {
            let given = other.map(|label| label.journal_uuid);
            return Err(WrongJournal::NotOwn { given, own: own.journal_uuid }.into());
        }
        (None, None) => {
            let journal_uuid = random_uuid(seed);
            let label = Label { journal_uuid, volume_uuid, block_count: 0 };
            label.write(medium)?;
            label
        }
    };
    let noted = Noted::Elsewhere {
        journal_uuid: label.journal_uuid,
        standing: own.map_or(Standing::OneMount, |_| Standing::OwnInUse),
        incarnation: check_nothing_left(&label, medium)?,
    };
    Ok(JournalPlace { space: label.space(medium)?, noted })
}

/// Checks that this journal holds no history. The volume was closed or has been recovered, so such
/// history would belong to a copy of the volume, and would be lost. Returns the incarnation of the
/// journal.
pub(super) fn check_nothing_left(label: &Label, medium: &Medium) -> Result<Option<u64>> {
    let scan = match journal::scan(&label.space(medium)?, &label.volume_uuid) {
        Ok(scan) => scan,
        // No header yet: the first opening was cut.
        Err(JournalError::NoHeader) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if scan.records.is_empty() && scan.end == End::Tail {
        return Ok(Some(scan.header.incarnation));
    }
    let why = "the journal given holds changes that this volume does not wait for: was a copy of \
               the volume mounted with it? Recover that copy, or give another journal";
    Err(WrongJournal::Other(why.into()).into())
}

/// The journal as it is, for reading only.
pub(super) fn to_look_at(found: &FoundVolume, given: Option<&Medium>) -> Result<Space> {
    match given {
        Some(medium) if found.area.journal_in_use().is_none() => {
            match label_of(medium, &found.superblock.s_uuid)? {
                Some(label) => Ok(label.space(medium)?),
                None => {
                    let why = "the journal given is empty: no volume was mounted with it yet";
                    Err(WrongJournal::Other(why.into()).into())
                }
            }
        }
        None if !found.area.has_our_bits && found.area.own_journal()?.is_some() => missing(found),
        _ => to_recover(found, given),
    }
}

/// The label of a journal of this volume; `None`: the medium is empty.
fn label_of(medium: &Medium, volume_uuid: &[u8; 16]) -> Result<Option<Label>> {
    let label = Label::read(medium).map_err(|error| match error {
        JournalError::Incompatible(why) => {
            WrongJournal::Other(format!("the journal given cannot be used: {why}")).into()
        }
        error => Error::from(error),
    })?;
    match label.as_ref().map(|label| label.volume_uuid) {
        Some(of) if of != *volume_uuid => {
            Err(WrongJournal::OfOtherVolume { of, volume: *volume_uuid }.into())
        }
        _ => Ok(label),
    }
}
