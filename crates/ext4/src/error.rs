//! The errors of a file-system operation, without errno.

use std::sync::Arc;

use journal::JournalError;

use crate::types::{InodeNo, uuid_text};

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. A failed operation leaves no change behind.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The medium or the journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The volume holds invalid data. `place` is a block or an inode.
    #[error("corrupt {what} in {place}")]
    Corrupt {
        /// What is wrong.
        what: String,
        /// Where it is.
        place: String,
    },
    /// The device holds no ext4 volume, or one whose mkfs was cut. Nothing was changed.
    #[error(transparent)]
    NoVolume(#[from] NoVolume),
    /// The device is smaller than its volume, whose superblock can be believed. Nothing was
    /// changed.
    #[error(
        "has {device_bytes} bytes, and its volume needs {needed_bytes}: the end is missing. Put \
         back what was cut off"
    )]
    EndMissing {
        /// Size of the device.
        device_bytes: u64,
        /// Size of the volume.
        needed_bytes: u64,
    },
    /// The volume uses a feature that this driver does not know. Nothing was changed.
    #[error("{0}")]
    Incompatible(String),
    /// `e2fsck` has to repair or recover the volume first. Nothing was changed.
    #[error("{0}")]
    NeedsCheck(String),
    /// Errors were found on the volume earlier. Nothing was changed.
    #[error("the volume is marked as having errors")]
    MarkedAsDamaged,
    /// The volume has to be recovered first. Nothing was changed.
    #[error("was not closed, and only a closed volume gets another journal")]
    NotClosed,
    /// The journal given is not the one that the volume needs. Neither was changed.
    #[error(transparent)]
    WrongJournal(#[from] WrongJournal),
    /// The volume needs its external journal, and none was given. Nothing was changed.
    #[error("the journal of the volume, {}, is elsewhere", uuid_text(journal_uuid))]
    JournalMissing {
        /// UUID of the journal, as in its label.
        journal_uuid: [u8; 16],
        /// Whether the volume was not closed and its newest changes are in the journal.
        holds_changes: bool,
    },
    /// A repair was refused. Nothing was changed.
    #[error("{0}")]
    NotRepaired(String),
    /// The volume was closed, so it needs nothing of its journal elsewhere. Nothing was changed.
    #[error("no changes are in its journal elsewhere: there is nothing to give up")]
    NothingToGiveUp,
    /// The block map of an inode is too large to be replaced by extents in one operation.
    #[error(
        "{0} has a block map (no extents) that is too large to be converted while it is mounted; \
         unmount and run: e2fsck -f -E bmap2extent TARGET"
    )]
    LargeBlockMap(InodeNo),
    /// The system gave no thread.
    #[error("no thread for the heartbeat: {0}")]
    NoThread(Arc<std::io::Error>),
    /// Its claim says that another user has the volume open. Nothing was changed.
    #[error("in use: {why}")]
    Claimed {
        /// Which user, as a case.
        by: Holder,
        /// Which user, in words.
        why: String,
        /// Whether [`crate::Claimant::take_over`] permits opening it nevertheless.
        may_take_over: bool,
    },
    /// No such name or inode.
    #[error("not found")]
    NotFound,
    /// The name exists.
    #[error("exists")]
    Exists,
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory where none is allowed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// No free block or inode.
    #[error("no space left on the volume")]
    NoSpace,
    /// A name over 255 bytes, or a symlink target over 4095.
    #[error("name too long")]
    NameTooLong,
    /// The link count is at its limit.
    #[error("too many links")]
    TooManyLinks,
    /// Arguments that are invalid (moving a directory into itself, a negative offset).
    #[error("invalid argument")]
    InvalidArgument,
    /// Forbidden by the file's nature or flags (immutable, append-only).
    #[error("operation not permitted")]
    NotPermitted,
    /// The volume is mounted read-only, or became read-only after an error.
    #[error("read-only volume")]
    ReadOnly,
    /// Past the largest file offset.
    #[error("file too large")]
    FileTooBig,
    /// No such extended attribute, or no data/hole past this offset.
    #[error("no such attribute")]
    NoAttribute,
    /// SEEK_DATA/SEEK_HOLE at or past the end, or nothing found.
    #[error("no such offset")]
    NoSuchOffset,
    /// An extended attribute value, or set of attributes, that is too large.
    #[error("attribute too large")]
    AttributeTooLarge,
    /// Writes that are declared to be atomic could be torn. Nothing was changed.
    #[error("writes that are declared to be atomic could be torn")]
    WouldTear,
    /// This driver, or this type of file, does not support that.
    #[error("not supported")]
    NotSupported,
}

/// What a device holds that has no volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoVolume {
    /// Too few bytes for a superblock.
    #[error("not an ext4 volume: too small")]
    TooSmall,
    /// Something else, or nothing.
    #[error("is not an ext4 volume (lsblk -f shows what is where)")]
    NoSuperblock,
    /// What a cut mkfs left.
    #[error("its mkfs was cut before the end, and it holds nothing")]
    Unfinished,
    /// The journal of the volume with this UUID. It must not be taken for something that may be
    /// overwritten.
    #[error(
        "is the journal of volume {}, not a volume itself; mount that volume: it finds its journal",
        uuid_text(.0)
    )]
    Journal([u8; 16]),
}

/// Why a journal is not the one that a volume needs. `given`: the UUID of the journal given, `None`
/// if it is empty.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // the texts have the fields
pub enum WrongJournal {
    /// The volume was not closed, and the journal `wanted` has its newest changes.
    #[error(
        "the journal given is {}, but the volume was not closed and its newest changes are in \
         journal {}: give that journal",
        name_of(given),
        uuid_text(wanted)
    )]
    WithoutChanges { given: Option<[u8; 16]>, wanted: [u8; 16] },
    /// The right journal, in an incarnation that the volume does not record.
    #[error(
        "journal and volume do not belong together any more: the journal given is in incarnation \
         {given:016x}, but the volume was not closed in incarnation {wanted:016x}. Is one of them \
         an old copy? Give the journal that the volume was mounted with last"
    )]
    OtherIncarnation { given: u64, wanted: u64 },
    /// The volume was closed, and has the journal `own`.
    #[error(
        "the journal given is {}, but the volume has journal {}: give that journal",
        name_of(given),
        uuid_text(own)
    )]
    NotOwn { given: Option<[u8; 16]>, own: [u8; 16] },
    /// The journal of another volume.
    #[error(
        "the journal given belongs to volume {}, not to this one ({}): give another path",
        uuid_text(of),
        uuid_text(volume)
    )]
    OfOtherVolume { of: [u8; 16], volume: [u8; 16] },
    /// Which journal a closed volume has cannot be read.
    #[error(
        "its record of which journal it has is damaged. Nothing is lost, because it was closed"
    )]
    RecordDamaged,
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

fn name_of(journal: &Option<[u8; 16]>) -> String {
    journal.as_ref().map_or("empty".into(), uuid_text)
}

/// Who has a volume open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A living process of this machine.
    ThisMachine,
    /// Another machine. It may have been switched off without closing the volume.
    OtherMachine,
    /// The claim cannot be read.
    Unknown,
}

impl Error {
    /// A [`Error::Corrupt`] from anything printable.
    pub fn corrupt(what: impl Into<String>, place: impl std::fmt::Display) -> Error {
        Error::Corrupt { what: what.into(), place: place.to_string() }
    }
}
