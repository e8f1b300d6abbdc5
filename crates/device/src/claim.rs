//! Opening a disk for oneself: its kind, the exclusive claim, the lock.
//!
//! Two claims keep others away. `flock` keeps away every program that asks for it (we do,
//! util-linux and udev do). `O_EXCL` on a block device keeps away, and is kept away by, the
//! kernel's own users: a mount, swap, RAID. A *file* that the kernel has mounted through a loop
//! device is looked for in the mount table.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::ioctl::{self, Getter, Opcode};

use crate::geometry::Kind;
use crate::{DeviceError, Operation, Result, loop_mounts};

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading, together with other readers.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}

/// An open, locked disk.
pub(crate) struct Claimed {
    pub(crate) fd: OwnedFd,
    /// Holds the `O_EXCL` claim on a block device that is opened for writing.
    pub(crate) exclusive: Option<OwnedFd>,
    pub(crate) kind: Kind,
    pub(crate) stat: Stat,
}

/// Opens and locks `path`.
pub(crate) fn claim(path: &Path, access: Access) -> Result<Claimed> {
    // Looked at before it is opened: opening a pipe waits, opening a tape rewinds it.
    kind_of(path, &rustix::fs::stat(path).map_err(|e| errno(path, e))?)?;
    let mode = match access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let fd = open_direct(path, mode)?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
    let kind = kind_of(path, &stat)?;
    let exclusive = match (kind, access) {
        (Kind::Block, Access::ReadWrite) => Some(open_exclusive(path, &stat)?),
        _ => None,
    };
    if kind == Kind::Block && access == Access::ReadWrite {
        refuse_read_only(path, &fd)?;
    }
    lock(path, &fd, access)?;
    if kind == Kind::File
        && access == Access::ReadWrite
        && let Some(device) = loop_mounts::mounted_through(&stat)
    {
        let why = format!("in use: mounted through {}", device.display());
        return Err(refused(path, io::ErrorKind::ResourceBusy, why));
    }
    Ok(Claimed { fd, exclusive, kind, stat })
}

/// An error of opening `path`.
pub(crate) fn refused(path: &Path, kind: io::ErrorKind, why: impl fmt::Display) -> DeviceError {
    let why = format!("{}: {why}", path.display());
    DeviceError::new(Operation::Open, 0, 0, io::Error::new(kind, why))
}

/// An error of opening `path` that the system reported.
pub(crate) fn errno(path: &Path, errno: Errno) -> DeviceError {
    let source = io::Error::from(errno);
    match errno {
        Errno::BUSY => refused(path, source.kind(), "in use (mounted?)"),
        _ => refused(path, source.kind(), source),
    }
}

fn kind_of(path: &Path, stat: &Stat) -> Result<Kind> {
    Kind::of(stat).map_err(|what| {
        let why = format!("is {what}, neither a file nor a block device");
        refused(path, io::ErrorKind::InvalidInput, why)
    })
}

/// Without the page cache, unless the file system cannot do that.
fn open_direct(path: &Path, mode: OFlags) -> Result<OwnedFd> {
    let flags = mode | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    match open(flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => open(flags),
        opened => opened,
    }
    .map_err(|e| errno(path, e))
}

/// Claims the block device that `stat` describes, which must still be the one at `path`.
fn open_exclusive(path: &Path, stat: &Stat) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| errno(path, e))?;
    let claimed = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
    if claimed.st_rdev != stat.st_rdev || Kind::of(&claimed) != Ok(Kind::Block) {
        return Err(refused(path, io::ErrorKind::Other, "was replaced while it was opened"));
    }
    Ok(fd)
}

/// The kernel lets a read-only block device be opened for writing, and fails the writes.
fn refuse_read_only(path: &Path, fd: impl AsFd) -> Result<()> {
    const BLKROGET: Opcode = 0x125e;
    // SAFETY: BLKROGET stores an `int` through its argument.
    let read_only = unsafe { ioctl::ioctl(fd, Getter::<BLKROGET, c_int>::new()) };
    match read_only.map_err(|e| errno(path, e))? {
        0 => Ok(()),
        _ => Err(refused(path, io::ErrorKind::ReadOnlyFilesystem, "the device is read-only")),
    }
}

/// Locks the open `fd`: shared for reading, alone for writing.
pub(crate) fn lock(path: &Path, fd: impl AsFd, access: Access) -> Result<()> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(fd, operation) {
        Err(Errno::WOULDBLOCK) => {
            let why = "in use (mounted?): another process holds its lock";
            Err(refused(path, io::ErrorKind::ResourceBusy, why))
        }
        locked => locked.map_err(|e| errno(path, e)),
    }
}
