//! The place of a volume's journal: in the journal inode, or on a medium of its own.
//!
//! | the volume | medium given | |
//! |---|---|---|
//! | closed | none | the journal inode |
//! | closed | empty | becomes the volume's journal |
//! | closed | with this volume's label | used |
//! | not closed, journal inode | none | recovered |
//! | not closed, journal inode | any | recovered from the inode; then as if closed |
//! | not closed, external journal | that journal in that incarnation | recovered |
//! | not closed, external journal | none, empty, an old copy, or another one | refused |
//! | any | with another volume's label, or with anything else on it | refused |

use journal::{End, Header, JournalError, Label, Medium, Space, space_of};

use super::found::FoundVolume;
use super::options::OpenOptions;
use crate::layout::jbd2::ExternalJournal;
use crate::{Error, Result};

/// The place of a journal.
pub(crate) struct JournalPlace {
    pub(crate) space: Space,
    /// UUID of the external journal, if there is one, and its incarnation if it has begun one.
    pub(crate) external_journal: Option<([u8; 16], Option<u64>)>,
}

/// The journal of a volume that was not closed.
pub(super) fn to_recover(found: &FoundVolume, given: Option<&Medium>) -> Result<Space> {
    let Some(noted) = found.area.external_journal else {
        return Ok(found.area.space(found.raw.device.clone())?);
    };
    let volume_uuid = found.superblock.s_uuid;
    let wanted = Label { journal_uuid: noted.journal_uuid, volume_uuid };
    let refused = |why: String| Err(Error::WrongJournal(why));
    let wanted_name = uuid_text(&wanted.journal_uuid);
    let Some(medium) = given else {
        return refused(format!(
            "the volume was not closed, and its journal {wanted_name} is elsewhere; say where it \
             is: onejournal mount -o journal=PATH TARGET DIR, or onejournal fsck --journal PATH TARGET. \
             If it is lost for good: onejournal fsck -y --journal-lost TARGET"
        ));
    };
    match label_of(medium, &wanted.volume_uuid)? {
        Some(label) if label == wanted => {
            let space = space_of(medium)?;
            check_incarnation(&Header::read(&space, &volume_uuid)?, &noted)?;
            Ok(space)
        }
        Some(label) => refused(format!(
            "the journal given is {}, but the volume was not closed and its newest changes are in \
             journal {wanted_name}: give that one. If it is lost for good: onejournal fsck -y --journal-lost TARGET",
            uuid_text(&label.journal_uuid)
        )),
        None => refused(format!(
            "the journal given is empty, but the volume was not closed and its newest changes are \
             in journal {wanted_name}: give that one. If it is lost for good: onejournal fsck -y --journal-lost TARGET"
        )),
    }
}

/// Checks that the journal is in the incarnation that the volume records. Otherwise one of them is
/// a copy from another time.
fn check_incarnation(header: &Header, noted: &ExternalJournal) -> Result<()> {
    if header.is_of_incarnation(noted.incarnation)
        || header.is_of_incarnation(noted.next_incarnation)
    {
        return Ok(());
    }
    Err(Error::WrongJournal(format!(
        "journal and volume do not belong together any more: the journal given is in incarnation \
         {:016x}, but the volume was not closed in incarnation {:016x}. Is one of them an old copy? Give \
         the journal that the volume was mounted with last. If it is lost for good: \
         onejournal fsck -y --journal-lost TARGET",
        header.incarnation, noted.next_incarnation
    )))
}

/// The journal that the volume uses from now on. It has been recovered if that was necessary.
pub(super) fn to_use(found: &FoundVolume, options: &OpenOptions) -> Result<JournalPlace> {
    let Some(medium) = &options.journal else {
        let space = found.area.space(found.raw.device.clone())?;
        return Ok(JournalPlace { space, external_journal: None });
    };
    let volume_uuid = found.superblock.s_uuid;
    let (label, incarnation) = match label_of(medium, &volume_uuid)? {
        Some(label) => (label, check_nothing_left(medium, &volume_uuid)?),
        None => {
            let label = Label { journal_uuid: random_uuid(options.random_seed), volume_uuid };
            label.write(medium)?;
            (label, None)
        }
    };
    Ok(JournalPlace {
        space: space_of(medium)?,
        external_journal: Some((label.journal_uuid, incarnation)),
    })
}

/// Checks that this journal holds no history. The volume was closed or has been recovered, so such
/// history would belong to a copy of the volume, and would be lost. Returns the incarnation of the
/// journal.
fn check_nothing_left(medium: &Medium, volume_uuid: &[u8; 16]) -> Result<Option<u64>> {
    let scan = match journal::scan(&space_of(medium)?, volume_uuid) {
        Ok(scan) => scan,
        // No header yet: the first opening was cut.
        Err(JournalError::NoHeader) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if scan.records.is_empty() && scan.end == End::Tail {
        return Ok(Some(scan.header.incarnation));
    }
    Err(Error::WrongJournal(
        "the journal given holds changes that this volume does not wait for: was a copy of the \
         volume mounted with it? Recover that one, or give another journal"
            .into(),
    ))
}

/// The journal as it is, for reading only.
pub(super) fn to_look_at(found: &FoundVolume, given: Option<&Medium>) -> Result<Space> {
    match given {
        Some(medium) if found.area.external_journal.is_none() => {
            match label_of(medium, &found.superblock.s_uuid)? {
                Some(_) => Ok(space_of(medium)?),
                None => Err(Error::WrongJournal(
                    "the journal given is empty: no volume was mounted with it yet".into(),
                )),
            }
        }
        _ => to_recover(found, given),
    }
}

/// The label of a journal of this volume; `None`: the medium is empty.
fn label_of(medium: &Medium, volume_uuid: &[u8; 16]) -> Result<Option<Label>> {
    let label = Label::read(medium).map_err(|error| match error {
        JournalError::Incompatible(why) => {
            Error::WrongJournal(format!("the journal given cannot be used: {why}"))
        }
        error => error.into(),
    })?;
    match label {
        Some(label) if label.volume_uuid != *volume_uuid => Err(Error::WrongJournal(format!(
            "the journal given belongs to volume {}, not to this one ({}): give another path",
            uuid_text(&label.volume_uuid),
            uuid_text(volume_uuid)
        ))),
        label => Ok(label),
    }
}

/// A random (version 4) UUID.
fn random_uuid(seed: u64) -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(seed);
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
