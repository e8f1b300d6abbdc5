//! The ioctls of a volume on other file systems, and on other FUSE servers.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// `EOPNOTSUPP` if the file is not on a FUSE file system: an ioctl could mean anything there.
pub fn check_fuse(file: impl AsFd) -> rustix::io::Result<()> {
    match host::is_fuse(&rustix::fs::fstatfs(file)?) {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP),
    }
}

/// The error of an ioctl of a volume: `EOPNOTSUPP` if the server does not know it.
pub fn ioctl_error(errno: Errno) -> Errno {
    match errno {
        Errno::NOTTY | Errno::NOSYS | Errno::INVAL => Errno::OPNOTSUPP,
        errno => errno,
    }
}
