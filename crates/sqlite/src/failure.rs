//! What can go wrong, and what SQLite is told.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use log::LogError;

use crate::ffi::*;

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
    /// The log's records are none of this extension's.
    #[error("{0}")]
    Damaged(String),
    /// The database was changed after a crash without the extension, or is another one.
    #[error("{0}")]
    Conflict(String),
    /// It cannot be opened this way now.
    #[error("{0}")]
    CannotOpen(String),
}

impl Failure {
    /// Whether the log's records themselves are at fault, today and tomorrow.
    pub fn is_damage(&self) -> bool {
        matches!(self, Failure::Damaged(_) | Failure::Log(LogError::Damaged { .. }))
    }

    /// SQLite's result code; `default` where nothing says more.
    pub fn code(&self, default: c_int) -> c_int {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let is_full = |e: &std::io::Error| matches!(e.kind(), StorageFull | QuotaExceeded);
        match self {
            Failure::Sqlite { code, .. } => *code,
            Failure::Conflict(_) | Failure::CannotOpen(_) => SQLITE_CANTOPEN,
            Failure::Log(LogError::Io(e)) if is_full(&e.source) => SQLITE_FULL,
            Failure::Log(LogError::System { source, .. }) if is_full(source) => SQLITE_FULL,
            Failure::Log(LogError::Full { .. } | LogError::NoRoom(_)) => SQLITE_FULL,
            Failure::Log(_) | Failure::Damaged(_) => default,
        }
    }
}

/// Runs `f`; a panic, which is a bug, becomes `otherwise` and does not reach SQLite.
pub fn guard<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}
