//! What to do about a mount whose daemon is gone, in the words of this project's commands.

use std::path::{Path, PathBuf};

use fuse::MountError;

/// What to do about a mount whose daemon is gone.
pub const DAEMON_GONE: &str = "a mount whose daemon died is still there; mount its volume again, \
                               which recovers it, or take it off: onejournal umount DIR";

/// The directory without symbolic links, if a volume can be mounted on it.
pub fn check_directory(dir: &Path) -> Result<PathBuf, MountError> {
    fuse::check_directory(dir).map_err(with_advice)
}

/// The same error; of a mount whose daemon is gone it says what to do.
pub(crate) fn with_advice(error: MountError) -> MountError {
    match error {
        MountError::DaemonGone(dir) => MountError::Directory { dir, why: DAEMON_GONE.into() },
        error => error,
    }
}
