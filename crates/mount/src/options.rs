//! What a mount can be asked for, and what can go wrong with it.

use std::path::PathBuf;

use rustix::io::Errno;

/// The parameter of the kernel's module that allows FUSE over io_uring.
pub(crate) const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A block device. As root this becomes a `fuseblk` mount: `sync` reaches the volume, `umount`
    /// returns when everything is home, and nobody else can mount the device.
    BlockDevice(PathBuf),
    /// Anything else; the name is what `df` and `mount` show.
    Plain {
        /// Shown as the source of the mount.
        name: String,
    },
}

/// Options of a mount. [`MountOptions::default`] is a writable mount for everybody when we are
/// root, and for ourselves when we are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// Let other users in (for those who are not root, `/etc/fuse.conf` has to allow that).
    pub allow_other: bool,
    /// Let the kernel check permissions and ACLs.
    pub default_permissions: bool,
    /// Ignore set-user-ID bits.
    pub nosuid: bool,
    /// Ignore device files.
    pub nodev: bool,
    /// Execute nothing.
    pub noexec: bool,
    /// Shown in the mount table. The volume must be open with [`ext4::OpenOptions::noatime`], too: the kernel leaves
    /// access times to a FUSE server.
    pub noatime: bool,
    /// Let the kernel collect writes (faster for small ones, hides what was written when).
    pub writeback_cache: bool,
    /// Offer the ioctls for atomic writes. Then every open and close of a file is a request more.
    /// Not together with `writeback_cache`, nor where the volume has none.
    pub atomic_writes: bool,
    /// How requests come from the kernel.
    pub io_uring: IoUring,
    /// Most threads that answer requests at a time; as many `fsync`s can share a commit. With
    /// io_uring each CPU has its share of them, at least two.
    pub thread_count: usize,
    /// Shown as the source of the mount instead of the device or file.
    pub fsname: Option<String>,
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
            nosuid: false,
            nodev: false,
            noexec: false,
            noatime: false,
            writeback_cache: false,
            atomic_writes: false,
            io_uring: IoUring::Auto,
            thread_count: DEFAULT_THREAD_COUNT,
            fsname: None,
        }
    }
}

/// Most threads that answer requests, unless asked otherwise.
const DEFAULT_THREAD_COUNT: usize = 32;

/// Why there is no mount, or why it could not be taken away.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this container may not use it.
    #[error(
        "/dev/fuse: {0}; load the module (modprobe fuse), or in a container give it the device \
         (docker run --device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoFuse(Errno),
    /// The directory to mount on cannot be used.
    #[error("{}: {why}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The device is in use.
    #[error("{}: in use: mounted already, or opened exclusively by another program", .0.display())]
    DeviceBusy(PathBuf),
    /// The kernel refused the mount.
    #[error(
        "mounting on {}: {errno}{}", dir.display(),
        if *errno == Errno::PERM { " (needs root or CAP_SYS_ADMIN)" } else { "" }
    )]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// What mount(2) said.
        errno: Errno,
    },
    /// The kernel refused to change a mount.
    #[error("{}: remount: {errno}{}", dir.display(), if *errno == Errno::PERM { " (needs root)" } else { "" })]
    Remount {
        /// The directory.
        dir: PathBuf,
        /// What mount(2) said.
        errno: Errno,
    },
    /// There is no fusermount3, which those who are not root need.
    #[error("fusermount3 is not installed (apt install fuse3), and only root can do without it")]
    NoFusermount,
    /// fusermount3 failed.
    #[error("fusermount3: {0}")]
    Fusermount(String),
    /// `allow_other` without permission for it.
    #[error("allow_other needs the line user_allow_other in /etc/fuse.conf")]
    NoUserAllowOther,
    /// The kernel's protocol is too old, or it did not speak it.
    #[error("FUSE protocol: {0}")]
    Protocol(String),
    /// io_uring was asked for by name and cannot be had.
    #[error(
        "io_uring=on: {0}; it needs Linux 6.14 and {ENABLE_URING} set to Y (leave the option out to do without)"
    )]
    NoIoUring(String),
    /// The process that was to unmount could not.
    #[error("{why}")]
    Unmounter {
        /// What it said.
        why: String,
    },
    /// The mount is in use.
    #[error("{dir}: in use by a program; to see which: fuser -vm {dir}", dir = .0.display())]
    MountBusy(PathBuf),
    /// Any other failing system call.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        errno: Errno,
    },
}
