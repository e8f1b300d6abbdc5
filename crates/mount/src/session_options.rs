//! What a mounted volume can be asked for.

use fuse::MountOptions;

/// Threads of each queue, at least, with atomic writes: all but one may wait for pages to be dropped.
const ATOMIC_THREAD_COUNT: usize = 4;
/// Type of the file system in the mount table, after `fuse.` or `fuseblk.`.
pub(crate) const SUBTYPE: &str = "onejournal";

/// Options of a [`crate::Session`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Those of the mount. With `noatime` the volume must be open with
    /// [`ext4::OpenOptions::noatime`], too. `fsync`s of as many threads can share a commit. The
    /// session sets the type of the file system, and the fewest threads.
    pub mount: MountOptions,
    /// Offers the ioctls for atomic writes. Then every open and close of a file is a request more.
    /// Not together with `writeback_cache`, nor where the volume has none.
    pub atomic_writes: bool,
}

impl SessionOptions {
    /// What the connection to the kernel is asked for.
    pub(crate) fn of_connection(&self) -> MountOptions {
        MountOptions {
            subtype: Some(SUBTYPE.into()),
            min_thread_count: if self.atomic_writes { ATOMIC_THREAD_COUNT } else { 1 },
            ..self.mount.clone()
        }
    }
}
