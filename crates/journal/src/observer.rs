//! Reports to the engine's user which bytes were written for which owner.

use std::fmt::Debug;

/// The owner of the data in a block: a number that only the engine's user can interpret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockOwner(pub u64);

impl BlockOwner {
    /// Metadata, or data without a known owner.
    pub const NOBODY: BlockOwner = BlockOwner(0);
}

/// How bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenAs {
    /// To the journal, in this record form. Counts tag and change before the payload is compressed.
    Logged {
        /// The form's number, as [`crate::form_name`] takes it.
        form: u8,
    },
    /// Home by a checkpoint.
    Home,
    /// Home before the commit: ordered data that were buffered.
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

/// Is told what was written for owners after a commit, a checkpoint or a write in place. The thread
/// that wrote calls it; at a commit, other threads wait meanwhile. So it must be fast, must not
/// call the journal, and must take no lock under which the journal is called.
pub trait Observer: Debug + Send + Sync {
    /// This was written. `written` is never empty.
    fn written(&self, written: &[Written]);
}
