//! Why a file or device could not be opened or claimed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Result of opening or claiming.
pub type Result<T> = std::result::Result<T, OpenError>;

/// A file or device could not be opened or claimed.
#[derive(Debug, thiserror::Error)]
#[error("open: {source}")]
pub struct OpenError {
    /// The reason, which names the path.
    pub source: io::Error,
}

/// Why a disk is refused as "in use". It is inside the reason of an [`OpenError`].
#[derive(Debug, thiserror::Error)]
#[error("{}: {text}", path.display())]
pub struct InUse {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// A block device is open exclusively, and neither a mount in this namespace nor a lock of a
    /// visible process explains that.
    pub is_held_by_kernel: bool,
    /// The path by which to unmount the OneJournal volume that has it.
    pub volume: Option<PathBuf>,
}

/// Why a file or directory of a log is refused. It is inside an error of its own kind,
/// `PermissionDenied`.
#[derive(Debug, thiserror::Error)]
#[error("{text}: what it holds could be forged")]
pub struct Forgeable {
    pub(crate) text: String,
    /// The user to whom it belongs, who is not trusted. `None`: others can write it.
    pub user: Option<u32>,
}

impl Forgeable {
    /// The error of the file at `path`, which it names. It stays a [`Forgeable`] if it is one.
    pub fn at(path: &Path, error: io::Error) -> io::Error {
        let kind = error.kind();
        let named = |text: &dyn fmt::Display| format!("{}: {text}", path.display());
        match error.get_ref().and_then(|why| why.downcast_ref::<Forgeable>()) {
            Some(Forgeable { text, user }) => {
                io::Error::new(kind, Forgeable { text: named(text), user: *user })
            }
            None => io::Error::new(kind, named(&error)),
        }
    }
}

/// An error while opening `path`.
pub(crate) fn refused(path: &Path, kind: io::ErrorKind, why: impl fmt::Display) -> OpenError {
    OpenError { source: io::Error::new(kind, format!("{}: {why}", path.display())) }
}

/// An error while opening `path` that the system reported.
pub(crate) fn errno(path: &Path, errno: Errno) -> OpenError {
    let source = io::Error::from(errno);
    refused(path, source.kind(), source)
}
