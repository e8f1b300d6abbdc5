//! A failed command: one sentence for the user, and an exit code of fsck(8).

use std::fmt;
use std::path::Path;

use crate::letters::{plain, plain_path};

/// Exit code: errors were corrected.
pub const CORRECTED: u8 = 1;
/// Exit code: errors are left.
pub const UNCORRECTED: u8 = 4;
/// Exit code: the operation could not be done.
pub const OPERATIONAL: u8 = 8;
/// Exit code: the command line is wrong.
pub const USAGE: u8 = 16;

/// Result of a command: its exit code.
pub type Result<T> = std::result::Result<T, CliError>;

/// Why a command failed.
#[derive(Debug)]
pub struct CliError {
    /// The message.
    pub text: String,
    /// The exit code.
    pub code: u8,
}

impl CliError {
    /// An operational error.
    pub fn new(text: impl Into<String>) -> CliError {
        CliError { text: text.into(), code: OPERATIONAL }
    }

    /// A usage error.
    pub fn usage(text: impl Into<String>) -> CliError {
        CliError { text: text.into(), code: USAGE }
    }

    /// An error about a path. If the text names a command to run on `TARGET`, the path replaces
    /// `TARGET`.
    pub fn at(path: &Path, what: impl fmt::Display) -> CliError {
        let shown = plain_path(path);
        CliError::new(format!("{shown}: {}", what.to_string().replace("TARGET", &shown)))
    }
}

/// On one line: the text may have a path from a crate below in it.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.text))
    }
}
