//! What can go wrong while measuring.

use std::path::Path;

/// One failure, with what was tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A sentence of one's own.
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
}
