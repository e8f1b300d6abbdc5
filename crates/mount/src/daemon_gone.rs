//! What to do about a mount whose daemon is gone, in the words of this project's commands.

use std::path::Path;

use fuse::{MountError, MountPoint};

/// What to do about a mount whose daemon is gone.
pub const DAEMON_GONE: &str = "a mount whose daemon died is still there; mount its volume again, \
                               which recovers it, or take it off: onejournal umount DIR";

/// The directory to mount a volume on ([`MountPoint::open`]).
pub fn mount_point(dir: &Path) -> Result<MountPoint, MountError> {
    MountPoint::open(dir).map_err(with_advice)
}

/// The same for a path that had no symbolic links when it was checked
/// ([`MountPoint::open_checked`]).
pub fn checked_mount_point(dir: &Path) -> Result<MountPoint, MountError> {
    MountPoint::open_checked(dir).map_err(with_advice)
}

/// The same error; of a mount whose daemon is gone it says what to do.
pub(crate) fn with_advice(error: MountError) -> MountError {
    match error {
        MountError::DaemonGone(dir) => MountError::Directory { dir, why: DAEMON_GONE.into() },
        error => error,
    }
}
