//! Why a mount, its service or its end failed.

use std::path::PathBuf;

use rustix::io::Errno;

/// The parameter of the kernel's module that allows FUSE over io_uring.
pub(crate) const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Why a mount, its service or its end failed. The text says what to do.
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
    /// A mount is still on the directory, and the process that served it has ended.
    #[error("{}: a mount whose daemon died is still there; unmount it first", .0.display())]
    DaemonGone(PathBuf),
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
    #[error(
        "{}: remount: {errno}{}",
        dir.display(),
        if *errno == Errno::PERM { " (needs root)" } else { "" }
    )]
    Remount {
        /// The directory.
        dir: PathBuf,
        /// What mount(2) said.
        errno: Errno,
    },
    /// There is no fusermount3, which users other than root need.
    #[error("fusermount3 is not installed (apt install fuse3), and only root can do without it")]
    NoFusermount,
    /// fusermount3 failed.
    #[error("fusermount3: {0}")]
    Fusermount(String),
    /// fusermount3 could not open /dev/fuse, and said this.
    #[error(
        "fusermount3: {0}; as root, let users open it (chmod 666 /dev/fuse; if it is missing: \
         modprobe fuse), or mount as root; in a container, give it the device (docker run --device \
         /dev/fuse)"
    )]
    FuseDenied(String),
    /// `allow_other` without permission for it.
    #[error("allow_other needs the line user_allow_other in /etc/fuse.conf")]
    NoUserAllowOther,
    /// The kernel's protocol is too old, or it did not speak it.
    #[error("FUSE protocol: {0}")]
    Protocol(String),
    /// io_uring was asked for by name and cannot be had.
    #[error(
        "io_uring=on: {0}; it needs Linux 6.14 and {ENABLE_URING} set to Y (leave the option out \
         to do without)"
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
