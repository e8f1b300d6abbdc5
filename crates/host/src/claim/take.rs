//! Opens a disk for one user: finds its kind, and claims its bytes.
//!
//! A claim is on the bytes ([`Backing`]) and not on the path: on a span of a file or whole disk,
//! through any name, loop devices and partitions. Spans that do not overlap do not exclude each
//! other. A claim has four parts. The kernel gives up each of them when the process ends, however
//! it ends:
//!
//! 1. `O_EXCL` on a block device that is opened for writing. It excludes the kernel's own users (a
//!    mount, swap, RAID) in every namespace, and they exclude it. The kernel treats a disk and its
//!    partitions as one.
//! 2. `flock` of what the path names, for programs that ask for it (util-linux, udev).
//! 3. A lock on the span of the backing file ([`lock_range`]). This part excludes two users that
//!    reach one file by different ways.
//! 4. A look at every other block device that shares bytes with the disk ([`other_users`]).
//!
//! If the backing file of a loop device cannot be opened (its last name was removed, or it is in
//! another mount namespace), part 3 is impossible. Then the claim is [published], and every user
//! looks in `/proc/locks` for published claims and for locks of the file.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, Stat};
use rustix::io::Errno;
use rustix::ioctl::{self, Getter, Opcode};

use super::published::{self, Use};
use super::range_lock::lock_range;
use super::{in_use, other_users, swap};
use crate::access::Access;
use crate::below::backing::{Backing, Root};
use crate::below::kind::DiskKind;
use crate::descriptor::NUMBER_MIN;
use crate::error::{InUse, OpenError, Result, errno, refused};
use crate::files::found::Found;
use crate::files::trust::Trust;
use crate::files::trusted_file::Sought;

/// An open, locked disk.
pub struct Claimed {
    /// The disk, which also holds the `flock`.
    pub fd: OwnedFd,
    /// Holds the `O_EXCL` claim on a block device that is opened for writing.
    pub exclusive: Option<OwnedFd>,
    /// Holds the lock on the backing file of a loop device, if that can be opened.
    pub locked: Option<OwnedFd>,
    /// The backing file, and the offset at which the disk begins in it, in bytes.
    pub behind: Option<(OwnedFd, u64)>,
    /// What it is.
    pub kind: DiskKind,
    /// What fstat(2) said of it.
    pub stat: Stat,
}

/// Opens and claims `path`. With `trust`, refuses a file that other users may have made.
pub fn claim(path: &Path, access: Access, trust: Option<Trust>) -> Result<Claimed> {
    let sought = Sought::at(path, trust)?;
    let (found, stat) = (&sought.found, sought.found.stat);
    let kind = kind_of(path, &stat)?;
    refuse_swap(path, access, &stat)?;
    let fd = open_direct(found, access.flags()).map_err(|e| errno(path, e))?;
    sought.check(&fd)?;
    let backing = Backing::of(kind, &stat).map_err(|e| refused(path, e.kind(), e))?;
    let exclusive = match (kind, access) {
        (DiskKind::Block, Access::ReadWrite) => Some(open_exclusive(path, found, &backing)?),
        _ => None,
    };
    if kind == DiskKind::Block && access == Access::ReadWrite {
        refuse_read_only(path, &fd)?;
    }
    lock(path, &fd, access)?;
    let locked = lock_backing(path, &fd, access, &backing)?;
    refuse_other_users(path, access, &backing)?;
    let behind = match &locked {
        Some(Lock::File(file)) => {
            let file =
                rustix::io::fcntl_dupfd_cloexec(file, NUMBER_MIN).map_err(|e| errno(path, e))?;
            Some((file, backing.start))
        }
        _ => None,
    };
    Ok(Claimed { fd, exclusive, locked: locked.map(Lock::into_fd), behind, kind, stat })
}

/// Refuses swap space, before the kernel does with an error that does not name it.
pub fn refuse_swap(path: &Path, access: Access, stat: &Stat) -> Result<()> {
    let writes = access == Access::ReadWrite;
    match writes.then(|| swap::area_on(DiskKind::of(stat).ok()?, stat)).flatten() {
        Some(area) => Err(resource_busy(in_use::describe_swap(path, &area))),
        None => Ok(()),
    }
}

/// A reader excludes only writers that lock. A writer also excludes the kernel's users.
fn refuse_other_users(path: &Path, access: Access, backing: &Backing) -> Result<()> {
    let writes = access == Access::ReadWrite;
    match writes.then(|| other_users::through_another_device(backing)).flatten() {
        Some(device) => Err(busy(path, backing, Some(device))),
        None => Ok(()),
    }
}

/// How the backing file of a loop device is claimed.
enum Lock {
    /// By a lock on the file.
    File(OwnedFd),
    /// By a published lock.
    Published(OwnedFd),
}

impl Lock {
    fn into_fd(self) -> OwnedFd {
        match self {
            Lock::File(fd) | Lock::Published(fd) => fd,
        }
    }
}

/// Locks the span of the file that backs the open `fd`. Returns the holder of the lock, if that is
/// not `fd`.
fn lock_backing(
    path: &Path,
    fd: &OwnedFd,
    access: Access,
    backing: &Backing,
) -> Result<Option<Lock>> {
    if matches!(backing.root, Root::Disk(_)) {
        return Ok(None); // the kernel keeps its users apart
    }
    let lock = match &backing.name {
        None => {
            lock_span(path, fd, access, backing)?;
            None
        }
        Some(name) => Some(lock_by_name(path, name, access, backing)?),
    };
    refuse_published(path, access, backing, lock.as_ref())?;
    Ok(lock)
}

fn lock_by_name(path: &Path, name: &Path, access: Access, backing: &Backing) -> Result<Lock> {
    for access in [access, Access::ReadOnly] {
        if let Some(file) = open_backing(name, access, backing) {
            // A file that cannot be written to is on a read-only file system: who reads it keeps
            // writers away, and there are none.
            lock_span(path, &file, access, backing)?;
            return Ok(Lock::File(file));
        }
    }
    let published = published::publish_use(backing, access);
    published.map(Lock::Published).map_err(|e| refused(path, e.kind(), e))
}

/// Refuses a disk whose file is used by a process that could not lock it, or that this process
/// could not lock out.
fn refuse_published(
    path: &Path,
    access: Access,
    backing: &Backing,
    lock: Option<&Lock>,
) -> Result<()> {
    let own = match lock {
        Some(Lock::Published(fd)) => Some(rustix::fs::fstat(fd).map_err(|e| errno(path, e))?),
        _ => None,
    };
    match (published::find_use(backing, access, own.as_ref()), own) {
        (Use::Excluding, _) => Err(busy(path, backing, None)),
        (Use::None, _) => Ok(()),
        // The lock on the file excludes at least the processes that can open the file.
        (Use::Unknown(_), None) => Ok(()),
        (Use::Unknown(error), Some(_)) => {
            let why = format!("whether it is in use cannot be found out: /proc/locks: {error}");
            Err(refused(path, io::ErrorKind::ResourceBusy, why))
        }
    }
}

/// The backing file of a loop device, opened by its present name. `None` if another file has that
/// name, or a user who is not trusted serves a part of the path.
fn open_backing(name: &Path, access: Access, backing: &Backing) -> Option<OwnedFd> {
    let is_it = |stat: &Stat| {
        backing.root == Root::File { device: stat.st_dev, inode: stat.st_ino }
            && DiskKind::of(stat) == Ok(DiskKind::File)
    };
    let place = Trust::own().and_root().reach_trusted(name).ok()?;
    let found = Found::of(place).ok()?;
    is_it(&found.stat).then(|| found.open(access.flags()).ok())?
}

fn lock_span(path: &Path, fd: impl AsFd, access: Access, backing: &Backing) -> Result<()> {
    match lock_range(fd, access, backing.start, backing.end).map_err(|e| errno(path, e))? {
        true => Ok(()),
        false => Err(busy(path, backing, None)),
    }
}

/// The error of a disk that another user has. `through`: the block device that is in use.
fn busy(path: &Path, backing: &Backing, through: Option<u64>) -> OpenError {
    resource_busy(in_use::describe(path, backing, through))
}

fn resource_busy(why: InUse) -> OpenError {
    OpenError { source: io::Error::new(io::ErrorKind::ResourceBusy, why) }
}

fn kind_of(path: &Path, stat: &Stat) -> Result<DiskKind> {
    DiskKind::of(stat).map_err(|what| {
        let why = format!("is {what}, neither a file nor a block device");
        refused(path, io::ErrorKind::InvalidInput, why)
    })
}

/// Opens without the page cache, unless the file system cannot do that.
fn open_direct(found: &Found, mode: OFlags) -> rustix::io::Result<OwnedFd> {
    match found.open(mode | OFlags::DIRECT) {
        Err(Errno::INVAL) => found.open(mode),
        opened => opened,
    }
}

/// Claims a block device.
fn open_exclusive(path: &Path, found: &Found, backing: &Backing) -> Result<OwnedFd> {
    match found.open(OFlags::RDONLY | OFlags::EXCL) {
        Err(Errno::BUSY) => Err(busy(path, backing, Some(found.stat.st_rdev))),
        opened => opened.map_err(|e| errno(path, e)),
    }
}

/// Refuses a read-only block device: the kernel lets it be opened for writing, and then fails the
/// writes.
fn refuse_read_only(path: &Path, fd: impl AsFd) -> Result<()> {
    const BLKROGET: Opcode = 0x125e;
    // SAFETY: BLKROGET stores an `int` through its argument.
    let read_only = unsafe { ioctl::ioctl(fd, Getter::<BLKROGET, c_int>::new()) };
    match read_only.map_err(|e| errno(path, e))? {
        0 => Ok(()),
        _ => Err(refused(path, io::ErrorKind::ReadOnlyFilesystem, "the device is read-only")),
    }
}

/// Claims the open `fd`, shared for reading, exclusive for writing. If it is a file, claims all its
/// bytes.
pub fn lock_file(path: &Path, fd: impl AsFd, stat: &Stat, access: Access) -> Result<()> {
    lock(path, &fd, access)?;
    match DiskKind::of(stat) {
        Ok(kind @ DiskKind::File) => {
            let backing = Backing::of(kind, stat).map_err(|e| refused(path, e.kind(), e))?;
            lock_span(path, fd, access, &backing)?;
            refuse_other_users(path, access, &backing)
        }
        _ => Ok(()),
    }
}

/// `flock`: shared for reading, exclusive for writing.
fn lock(path: &Path, fd: impl AsFd, access: Access) -> Result<()> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&fd, operation) {
        Err(Errno::WOULDBLOCK) => {
            let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
            let backing = DiskKind::of(&stat).ok().and_then(|kind| Backing::of(kind, &stat).ok());
            Err(match backing {
                Some(backing) => busy(path, &backing, None),
                None => refused(path, io::ErrorKind::ResourceBusy, "in use by another process"),
            })
        }
        locked => locked.map_err(|e| errno(path, e)),
    }
}
