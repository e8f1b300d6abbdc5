//! Why a process that serves a block device can be killed.
//!
//! The end of a `fuseblk` file system waits for the answer to DESTROY, and nothing interrupts that but the closing of
//! `/dev/fuse`. A process that is killed gives up its files first, then its namespaces. Both leave work to be done last
//! (the kernel's `task_work`), and the newest is done first. So when it was the last process in its mount namespace, the
//! end of the file system would come before the closing of `/dev/fuse` and wait for it: the process could not be killed,
//! and every `sync` of the machine would wait with it.
//!
//! With a descriptor of the namespace among its files, leaving the namespace does not end it. One of the pieces of work
//! does, and what it leaves to be done is done after all the others, the closing of `/dev/fuse` among them. That holds
//! for each thread that comes to be the last: the one that closes the files never waits.
//!
//! It needs no other process, so it makes no difference what else is killed at the same time.

use std::fs::File;
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::error::MountError;

const NAMESPACE: &str = "/proc/self/ns/mnt";

/// Opens our mount namespace for as long as the process lives. Called before a block device is mounted.
pub(crate) fn hold_namespace() -> Result<(), MountError> {
    static HELD: OnceLock<File> = OnceLock::new();
    let opened = File::open(NAMESPACE).map_err(|error| MountError::System {
        what: "opening /proc/self/ns/mnt (is /proc mounted?)",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    HELD.get_or_init(|| opened);
    Ok(())
}
