//! The errors of the engine.

use device::DeviceError;

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, JournalError>;

/// An error of the engine. It can be cloned, because an abort is reported to every waiting caller.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The medium failed.
    #[error("journal I/O: {0}")]
    Io(std::sync::Arc<DeviceError>),
    /// An earlier write or flush failed. Nothing is accepted any more.
    #[error("the journal is aborted after an earlier error: {0}")]
    Aborted(String),
    /// There is no header: the journal was never made, or both copies of its header are damaged.
    #[error("the journal is damaged: neither of its two headers is valid")]
    NoHeader,
    /// The journal on the medium is damaged (not merely torn at its end).
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// The journal belongs to another volume.
    #[error("incompatible journal: it belongs to another volume")]
    OtherVolume,
    /// The journal has an unknown version, is not where it was written, or is no journal.
    #[error("incompatible journal: {0}")]
    Incompatible(String),
    /// An option has a value that cannot be.
    #[error("{0}")]
    Option(String),
    /// The journal area is too small for what was asked.
    #[error("the journal is too small: {0}")]
    TooSmall(String),
}

impl From<DeviceError> for JournalError {
    fn from(error: DeviceError) -> Self {
        JournalError::Io(std::sync::Arc::new(error))
    }
}
