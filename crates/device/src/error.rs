//! The error of a device operation: which operation, where, and why.

use std::fmt;
use std::io;
use std::path::Path;

use host::{Forgeable, InUse, OpenError};
use rustix::io::Errno;

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// What was being done when a device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening the device.
    Open,
    /// A read.
    Read,
    /// A write, durable or not.
    Write,
    /// A flush of the write cache.
    Flush,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
        })
    }
}

/// A failed device operation.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", self.what())]
pub struct DeviceError {
    /// What was tried.
    pub operation: Operation,
    /// Byte offset on the device.
    pub offset: u64,
    /// Length in bytes (0 for a flush).
    pub len_bytes: usize,
    /// The reason.
    pub source: io::Error,
}

impl DeviceError {
    /// An error of `operation` on `len_bytes` bytes at `offset`.
    pub fn new(operation: Operation, offset: u64, len_bytes: usize, source: io::Error) -> Self {
        DeviceError { operation, offset, len_bytes, source }
    }

    /// The medium is shorter than it was when it was opened, so data that were written to it are
    /// lost.
    pub fn is_shrunk(&self) -> bool {
        self.source.kind() == io::ErrorKind::UnexpectedEof
    }

    /// The disk could not be opened because a block device is open exclusively, and neither a mount
    /// in this namespace nor a lock of a visible process explains that. A mount namespace that is
    /// just being made does this for a moment, because it has copies of all mounts.
    pub fn is_held_by_kernel(&self) -> bool {
        self.in_use().is_some_and(|why| why.is_held_by_kernel)
    }

    /// The user of the disk, if that is why it could not be opened.
    pub fn in_use(&self) -> Option<&InUse> {
        self.source.get_ref().and_then(|why| why.downcast_ref::<InUse>())
    }

    /// The operation, and its span if it has one.
    fn what(&self) -> String {
        let DeviceError { operation, offset, len_bytes, .. } = self;
        match operation {
            Operation::Open | Operation::Flush => operation.to_string(),
            Operation::Read | Operation::Write => {
                format!("{operation} of {len_bytes} bytes at offset {offset}")
            }
        }
    }

    pub(crate) fn outside(
        operation: Operation,
        offset: u64,
        len_bytes: usize,
        size_bytes: u64,
    ) -> Self {
        let why = format!("outside of the device, which has {size_bytes} bytes");
        Self::new(operation, offset, len_bytes, io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl From<OpenError> for DeviceError {
    fn from(error: OpenError) -> Self {
        Self::new(Operation::Open, 0, 0, error.source)
    }
}

/// An error while opening `path`.
pub(crate) fn refused(path: &Path, kind: io::ErrorKind, why: impl fmt::Display) -> DeviceError {
    let why = format!("{}: {why}", path.display());
    DeviceError::new(Operation::Open, 0, 0, io::Error::new(kind, why))
}

/// An error of the file at `path`, which may be a [`Forgeable`].
pub(crate) fn refused_in(path: &Path, error: io::Error) -> DeviceError {
    DeviceError::new(Operation::Open, 0, 0, Forgeable::at(path, error))
}

/// An error while opening `path` that the system reported.
pub(crate) fn errno(path: &Path, errno: Errno) -> DeviceError {
    let source = io::Error::from(errno);
    refused(path, source.kind(), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_failed_where_and_why() {
        let error = |operation| {
            let why = io::Error::other("no reason");
            DeviceError::new(operation, 512, 1024, why).to_string()
        };
        assert_eq!(error(Operation::Read), "read of 1024 bytes at offset 512: no reason");
        assert_eq!(error(Operation::Flush), "flush: no reason");
    }
}
