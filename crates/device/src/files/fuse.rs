//! Which files are on a FUSE file system, and what the ioctls of a volume answer on another server.

use std::os::fd::AsFd;

use rustix::fs::StatFs;
use rustix::io::Errno;

/// Type of a FUSE file system.
const MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Whether a file is on a FUSE file system, of which statfs(2) said this.
pub fn is_fuse(found: &StatFs) -> bool {
    found.f_type == MAGIC
}

/// `EOPNOTSUPP` if the file is not on a FUSE file system: an ioctl could mean anything there.
pub(super) fn check_fuse(file: impl AsFd) -> rustix::io::Result<()> {
    match is_fuse(&rustix::fs::fstatfs(file)?) {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP),
    }
}

/// The error of an ioctl of a volume: `EOPNOTSUPP` if the server does not know it.
pub(super) fn ioctl_error(errno: Errno) -> Errno {
    match errno {
        Errno::NOTTY | Errno::NOSYS | Errno::INVAL => Errno::OPNOTSUPP,
        errno => errno,
    }
}
