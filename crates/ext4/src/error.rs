//! The errors of a file-system operation, without errno.

use std::sync::Arc;

use journal::JournalError;

use crate::InodeNo;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. A failed operation leaves no change behind.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The medium or the journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The volume holds invalid data. `place` is a block or an inode.
    #[error("corrupt {what} in {place}; run: onejournal fsck -y TARGET")]
    Corrupt {
        /// What is wrong.
        what: String,
        /// Where it is.
        place: String,
    },
    /// The device holds no ext4 volume, or one whose mkfs was cut. Nothing was changed.
    #[error("{0}")]
    NoVolume(String),
    /// The volume uses a feature that this driver does not know. Nothing was changed.
    #[error("{0}")]
    Incompatible(String),
    /// `e2fsck` has to repair or recover the volume first. Nothing was changed.
    #[error("{0}")]
    NeedsCheck(String),
    /// The journal given is not the one that the volume needs. Neither was changed.
    #[error("{0}")]
    WrongJournal(String),
    /// The volume needs its external journal, and none was given. Nothing was changed.
    #[error("{why}")]
    JournalMissing {
        /// UUID of the journal, as in its label.
        journal_uuid: [u8; 16],
        /// Whether the volume was not closed and its newest changes are in the journal.
        holds_changes: bool,
        /// The journal, and what to do, in words.
        why: String,
    },
    /// A repair was refused. Nothing was changed.
    #[error("{0}")]
    NotRepaired(String),
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
