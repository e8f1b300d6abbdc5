//! Newtypes of numbers that must not be confused, and the block.

use std::fmt;
use std::sync::Arc;

/// Size of a home block in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// The bytes of one home block.
pub type BlockBytes = [u8; BLOCK_BYTES];

/// An immutable version of a home block. A holder sees this version even if the block is changed
/// meanwhile.
pub type BlockRef = Arc<BlockBytes>;

/// Number of a 4 KiB block on the volume (its home location).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HomeBlock(pub u64);

impl HomeBlock {
    /// Byte offset of the block on the volume.
    pub fn offset_bytes(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }
}

impl fmt::Display for HomeBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// Number of a transaction. It counts up by one within an incarnation of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

impl Tid {
    /// The transaction after this one.
    pub fn next(self) -> Tid {
        Tid(self.0 + 1)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
