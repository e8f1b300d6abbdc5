//! What to do about an error of a crate below, in the words of the commands.

use std::path::Path;

use ext4::{Error, NoVolume, WrongJournal, uuid_text};
use journal::JournalError;
use mount::{MountError, SessionError};

use crate::error::CliError;

/// What to do about a mount whose daemon is gone.
pub const DAEMON_GONE: &str = "a mount whose daemon died is still there; mount its volume again, \
                               which recovers it, or take it off: onejournal umount DIR";

/// The error of a mount at a directory.
pub fn of_mount(error: &MountError) -> CliError {
    match error {
        MountError::DaemonGone(dir) => CliError::at(dir, DAEMON_GONE),
        error => CliError::new(error.to_string()),
    }
}

/// The error of a session with the volume `TARGET`.
pub fn of_session(error: &SessionError) -> String {
    match error {
        SessionError::Close(why) => {
            let why = of_volume(why);
            format!("closing the volume: {why}; it will be recovered at the next mount")
        }
        SessionError::Connection(_) | SessionError::MayTear(_) => error.to_string(),
    }
}

/// The advice for an error of the journal of `TARGET`.
pub fn of_journal(error: &JournalError) -> &'static str {
    match error {
        JournalError::Damaged(_) | JournalError::NoHeader => {
            "; copy the volume first. To see what the journal holds: onejournal dump TARGET. To \
             give up its history from the damage on: onejournal fsck --discard-damaged TARGET"
        }
        _ => "",
    }
}

/// The error of the volume at `path`.
pub fn at_volume(path: &Path, error: &Error) -> CliError {
    CliError::at(path, of_volume(error))
}

/// The error of the volume `TARGET`, in words.
pub fn of_volume(error: &Error) -> String {
    let advice = match error {
        Error::Corrupt { .. } | Error::MarkedAsDamaged => "; run: onejournal fsck -y TARGET",
        Error::NotClosed => "; to recover and close it: onejournal fsck TARGET",
        Error::NoVolume(NoVolume::NoSuperblock) => {
            "; to make one, which overwrites what is there: onejournal mkfs --force TARGET"
        }
        Error::NoVolume(NoVolume::Unfinished) => {
            "; to make the volume anew, run: onejournal mkfs --force TARGET"
        }
        Error::EndMissing { needed_bytes, .. } => {
            return format!(
                "{error}. If it is lost: truncate -s {needed_bytes} TARGET makes an image long \
                 enough again, with zeros, and onejournal fsck -y TARGET repairs what is left"
            );
        }
        Error::NothingToGiveUp => {
            ". To use the journal in the volume from now on: onejournal set-journal --internal \
             TARGET"
        }
        Error::WrongJournal(
            WrongJournal::WithoutChanges { .. } | WrongJournal::OtherIncarnation { .. },
        ) => {
            ". If it is lost for good, these changes are lost, too: onejournal fsck -y \
             --journal-lost TARGET"
        }
        Error::WrongJournal(WrongJournal::NotOwn { .. }) => {
            ". To give the volume another journal: onejournal set-journal TARGET DEVICE"
        }
        Error::WrongJournal(WrongJournal::OfOtherVolume { .. }) => {
            ". If this is a copy that got another UUID, give it a journal of its own: onejournal \
             set-journal TARGET DEVICE"
        }
        Error::WrongJournal(WrongJournal::RecordDamaged) => {
            ". To record its journal again: onejournal set-journal TARGET DEVICE, or with \
             --internal in place of DEVICE for the journal in the volume"
        }
        Error::JournalMissing { holds_changes: true, journal_uuid } => {
            return format!(
                "the volume was not closed, and its newest changes are in its journal {}, which is \
                 elsewhere: connect its disk. If it is a file or NVRAM, say where it is: \
                 onejournal mount -o journal=PATH TARGET DIR, or onejournal fsck --journal PATH \
                 TARGET. If it is lost for good, these changes are lost, too: onejournal fsck -y \
                 --journal-lost TARGET",
                uuid_text(journal_uuid)
            );
        }
        Error::JournalMissing { holds_changes: false, .. } => {
            ": connect its disk. If it is a file or NVRAM, say where it is: onejournal mount -o \
             journal=PATH TARGET DIR. Nothing is lost without it, because the volume holds \
             everything. To mount it once with the journal in the volume: onejournal mount -o \
             journal=internal TARGET DIR. To give it another journal: onejournal set-journal \
             TARGET DEVICE"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_volume_name_the_command_that_helps() {
        let journal_uuid = [7; 16];
        let missing = |holds_changes| Error::JournalMissing { journal_uuid, holds_changes };
        let own = WrongJournal::NotOwn { given: None, own: journal_uuid };
        let other = WrongJournal::OfOtherVolume { of: [8; 16], volume: [9; 16] };
        let newest = WrongJournal::WithoutChanges { given: None, wanted: journal_uuid };
        let old = WrongJournal::OtherIncarnation { given: 1, wanted: 2 };
        let cases = [
            (Error::corrupt("extent", "inode 12"), "inode 12; run: onejournal fsck -y /d"),
            (Error::MarkedAsDamaged, "errors; run: onejournal fsck -y /d"),
            (Error::NotClosed, "onejournal fsck /d"),
            (NoVolume::NoSuperblock.into(), "onejournal mkfs --force /d"),
            (NoVolume::Unfinished.into(), "run: onejournal mkfs --force /d"),
            (NoVolume::Journal(journal_uuid).into(), "it finds its journal"),
            (Error::EndMissing { device_bytes: 1, needed_bytes: 2 }, "truncate -s 2 /d makes"),
            (Error::NothingToGiveUp, "onejournal set-journal --internal /d"),
            (newest.into(), "onejournal fsck -y --journal-lost /d"),
            (old.into(), "old copy? Give the journal that the volume was mounted with last. If it"),
            (own.into(), "onejournal set-journal /d DEVICE"),
            (other.into(), "a journal of its own: onejournal set-journal /d DEVICE"),
            (WrongJournal::RecordDamaged.into(), "onejournal set-journal /d DEVICE, or"),
            (
                missing(true),
                "onejournal mount -o journal=PATH /d DIR, or onejournal fsck --journal",
            ),
            (missing(false), "Nothing is lost without it"),
            (missing(false), "onejournal mount -o journal=internal /d DIR"),
        ];
        for (error, command) in cases {
            let text = at_volume(Path::new("/d"), &error).text;
            assert!(text.starts_with("/d: ") && text.contains(command), "{text}");
        }
    }
}
