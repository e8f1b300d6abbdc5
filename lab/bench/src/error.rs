//! The errors of measuring.

use std::path::Path;

/// One failure, with what was tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SIGINT or SIGTERM: everything is undone.
    #[error("interrupted")]
    Interrupted,
    /// An error of the system.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// An error of a database.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// Text that is not the expected JSON.
    #[error("{what}: {source}")]
    Json { what: String, source: serde_json::Error },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error::Other(text)
    }
}

impl Error {
    /// An error with this sentence.
    pub fn other(text: impl Into<String>) -> Error {
        Error::Other(text.into())
    }

    /// For `map_err`: an I/O error with what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// For `map_err`: an I/O error of a path.
    pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
        Error::io(path.display().to_string())
    }

    /// For `map_err`: JSON that could not be read.
    pub fn json(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Error {
        let what = what.into();
        move |source| Error::Json { what, source }
    }
}
