//! Errors of the extension, and the result code that SQLite gets for each.

use std::ffi::c_int;
use std::path::PathBuf;

use log::LogError;
use rustix::io::Errno;

use crate::abi::ffi::*;

/// An error of the extension.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The VFS below failed.
    #[error("{what} the file failed with SQLite's code {code}")]
    Sqlite {
        /// SQLite's (extended) result code.
        code: c_int,
        /// What was tried.
        what: &'static str,
    },
    /// The log failed.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The log's records are not of a version that this extension knows.
    #[error("{0}")]
    Damaged(String),
    /// The database is not the one that the log's records were made for.
    #[error(
        "{}: {conflict}. It was changed or replaced after a crash without this extension; nothing \
         was overwritten. Either put the database and its WAL back as the crash left them, or give \
         up the logged transactions by opening with recover=discard",
        path.display()
    )]
    Conflict {
        /// The database.
        path: PathBuf,
        /// How it differs.
        conflict: Conflict,
    },
    /// It cannot be opened in this way at present.
    #[error("{0}")]
    CannotOpen(String),
}

/// How a database differs from the one that the log's records were made for. Recovery and replay
/// find it before they write anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Conflict(pub String);

/// Records of the log that cannot be read, or that are not whole.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Damage(Failure);

impl From<Damage> for Failure {
    fn from(Damage(failure): Damage) -> Failure {
        failure
    }
}

impl Failure {
    /// The failure as a value, if the log's records themselves are at fault, so that trying again
    /// is useless. Any other failure is an error.
    pub fn damage(self) -> Result<Damage, Failure> {
        match self {
            Failure::Damaged(_) | Failure::Log(LogError::Damaged { .. }) => Ok(Damage(self)),
            Failure::Sqlite { .. }
            | Failure::Log(_)
            | Failure::Conflict { .. }
            | Failure::CannotOpen(_) => Err(self),
        }
    }

    /// Whether a medium that cannot be written is the reason.
    pub fn is_read_only(&self) -> bool {
        let is_it = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ReadOnlyFilesystem;
        match self {
            Failure::Log(LogError::System { source, .. }) => is_it(source),
            Failure::Log(LogError::Io(e)) => is_it(&e.source),
            _ => false,
        }
    }

    /// Whether the reason is of this moment, such as too many open files.
    pub fn is_of_system(&self) -> bool {
        match self {
            Failure::Log(LogError::System { source, .. }) => is_of_system(source),
            Failure::Log(LogError::Io(e)) => is_of_system(&e.source),
            _ => false,
        }
    }

    /// Whether a file that this user may not use is the reason.
    pub fn is_denied(&self) -> bool {
        let is_it = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        matches!(self, Failure::Log(LogError::System { source, .. }) if is_it(source))
    }

    /// Whether the reason is that there is no place for the log's shared memory.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Failure::Log(LogError::NoMemory(_)))
    }

    /// SQLite's result code; `default` if there is no better one.
    pub fn code(&self, default: c_int) -> c_int {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let is_full = |e: &std::io::Error| matches!(e.kind(), StorageFull | QuotaExceeded);
        match self {
            Failure::Sqlite { code, .. } => *code,
            Failure::Conflict { .. } | Failure::CannotOpen(_) => SQLITE_CANTOPEN,
            Failure::Log(LogError::Io(e)) if is_full(&e.source) => SQLITE_FULL,
            Failure::Log(LogError::System { source, .. }) if is_full(source) => SQLITE_FULL,
            Failure::Log(LogError::Full { .. } | LogError::NoRoom(_)) => SQLITE_FULL,
            Failure::Log(_) | Failure::Damaged(_) => default,
        }
    }
}

/// Whether the error is of this moment, such as too many open files, and says nothing of a path.
pub fn is_of_system(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO]
        .map(Errno::raw_os_error)
        .contains(&errno.unwrap_or_default())
}
