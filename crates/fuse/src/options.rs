//! What a mount can be asked for.

use std::path::PathBuf;

/// What the mount table shows as the source of the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A block device. As root this becomes a `fuseblk` mount: the kernel sends SYNCFS, `umount`
    /// waits for the answer to DESTROY, and no other file system can be mounted from the device.
    BlockDevice(PathBuf),
    /// Anything else: a `fuse` mount.
    Plain {
        /// Shown as the source of the mount.
        name: String,
    },
}

/// Options of a mount. [`MountOptions::default`] is a writable mount, for all users when this
/// process is root, otherwise for its own user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// Let other users use the mount. Without root, `/etc/fuse.conf` must allow it.
    pub allow_other: bool,
    /// Let the kernel check permissions and access lists. Without, the file system checks them.
    pub default_permissions: bool,
    /// With `default_permissions`: let the kernel check access lists, too, which it asks the file
    /// system for.
    pub posix_acl: bool,
    /// Ignore set-user-ID bits.
    pub nosuid: bool,
    /// Ignore device files.
    pub nodev: bool,
    /// Execute nothing.
    pub noexec: bool,
    /// Shown in the mount table. The kernel leaves access times to a FUSE server, so the file
    /// system must keep them as they are by itself.
    pub noatime: bool,
    /// Let the kernel collect writes. Small writes are faster; the file system gets them later, in
    /// the kernel's order, and also after close.
    pub writeback_cache: bool,
    /// Let direct I/O to a file be asynchronous, so that several requests of one file are under way
    /// at a time. Only for files that are not read through the page cache: a page that is read
    /// during such a write stays. After such a write with `O_DSYNC` the kernel sends no FSYNC.
    pub async_direct_io: bool,
    /// How requests come from the kernel.
    pub io_uring: IoUring,
    /// Most threads that answer requests at a time. With io_uring each CPU has its share of them,
    /// at least two.
    pub thread_count: usize,
    /// Threads of each queue, at least (one queue for each CPU with io_uring, else one in all). A
    /// file system whose requests wait for other requests of the same queue needs more than one.
    pub min_thread_count: usize,
    /// More threads than this do not block at a time ([`crate::Reply::block_in_place`]), and others
    /// stand in for them. Through io_uring it is one less than the threads of a queue; one, if
    /// [`MountOptions::min_thread_count`] is more than 1.
    pub stand_in_count: usize,
    /// Shown as the source of the mount instead of the device or file.
    pub fsname: Option<String>,
    /// Type of the file system after `fuse.` or `fuseblk.` in the mount table; without, the type is
    /// `fuse` or `fuseblk`.
    pub subtype: Option<String>,
}

/// Whether requests come from the kernel through io_uring rather than through `/dev/fuse`: fewer
/// system calls, and a request is answered on the CPU of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoUring {
    /// Never.
    Off,
    /// When the kernel offers it: Linux 6.14, with the parameter `enable_uring` of its module
    /// `fuse` set.
    Auto,
    /// Sets that parameter (as root; it stays set) and fails if the kernel still does not offer it.
    On,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            posix_acl: true,
            nosuid: false,
            nodev: false,
            noexec: false,
            noatime: false,
            writeback_cache: false,
            async_direct_io: false,
            io_uring: IoUring::Auto,
            thread_count: DEFAULT_THREAD_COUNT,
            min_thread_count: 1,
            stand_in_count: MAX_STAND_IN_COUNT,
            fsname: None,
            subtype: None,
        }
    }
}

/// Most threads that block at a time, unless asked otherwise.
pub const MAX_STAND_IN_COUNT: usize = 64;

/// Most threads that answer requests, unless asked otherwise.
const DEFAULT_THREAD_COUNT: usize = 32;
