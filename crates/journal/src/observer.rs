//! Telling the engine's user which bytes were written for whom.

use std::fmt::Debug;

/// Whose data a block holds: a number that means something to the engine's user alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockOwner(pub u64);

impl BlockOwner {
    /// Metadata, or not told.
    pub const NOBODY: BlockOwner = BlockOwner(0);
}

/// How bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenAs {
    /// To the journal, in this record form: tag and change before the payload is packed.
    Logged {
        /// The form's number, as [`crate::form_name`] takes it.
        form: u8,
    },
    /// Home by a checkpoint.
    Home,
    /// Home before the commit: ordered data that was buffered.
    InPlace,
}

/// Bytes that reached a device for an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Never [`BlockOwner::NOBODY`].
    pub owner: BlockOwner,
    /// Where and how.
    pub how: WrittenAs,
    /// How many.
    pub len_bytes: u64,
}

/// Hears of what was written for owners: after a commit, a checkpoint, a write-out. Called by the
/// thread that did it, in the case of a commit while others wait: it must be quick, take no lock
/// under which the journal is called, and not call the journal.
pub trait Observer: Debug + Send + Sync {
    /// These were written; never empty.
    fn written(&self, written: &[Written]);
}
