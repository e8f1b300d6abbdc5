//! Why a process that serves a block device can be killed.
//!
//! The end of a `fuseblk` file system waits for the answer to DESTROY, and only the closing of
//! `/dev/fuse` ends this wait. A process that is killed gives up its files first, then its
//! namespaces. Both leave work for the end (the kernel's `task_work`), of which the newest is done
//! first. So if it was the last process in its mount namespace, the end of the file system came
//! before the closing of `/dev/fuse`, and waited for it. The process could not be killed, and every
//! `sync` of the machine waited with it.
//!
//! With a descriptor of the namespace among its files, leaving the namespace does not end it. The
//! closing of that descriptor does. It is a piece of work itself, and what it leaves to be done is
//! done after all others, the closing of `/dev/fuse` among them. That is true for each thread that
//! happens to be the last: the thread that closes the files never waits.
//!
//! No other process is needed, so it does not matter what else is killed at the same time.

use std::fs::File;
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::error::MountError;

const NAMESPACE: &str = "/proc/self/ns/mnt";

/// Opens the mount namespace of this process for as long as it lives. Called before a block device
/// is mounted.
pub(crate) fn hold_namespace() -> Result<(), MountError> {
    static HELD: OnceLock<File> = OnceLock::new();
    let opened = File::open(NAMESPACE).map_err(|error| MountError::System {
        what: "opening /proc/self/ns/mnt (is /proc mounted?)",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    HELD.get_or_init(|| opened);
    Ok(())
}
