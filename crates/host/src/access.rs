//! What a disk, a file or memory is opened for.

use rustix::fs::OFlags;

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading, together with other readers.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}

impl Access {
    /// The flags of open(2) for it.
    pub fn flags(self) -> OFlags {
        match self {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        }
    }
}
