//! A lock on a range of a file's bytes, held by the open file and not by the process.
//!
//! It goes when the last copy of the descriptor is closed, also by `SIGKILL`. It conflicts with every
//! other such lock on the same inode, in whatever mount, network or process namespace the other
//! process is, and through whatever name or open file of its own this process has it. `/proc/locks`
//! shows it everywhere. QEMU locks its images in the same way.

use std::ffi::{c_int, c_short};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::access::Access;

/// Locks `start..end` of the open `fd`, shared for reading or alone for writing; `end` of
/// `u64::MAX` has no end. `false`: somebody else has a part of it.
pub(crate) fn lock_range(
    fd: impl AsFd,
    access: Access,
    start: u64,
    end: u64,
) -> rustix::io::Result<bool> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    let start = i64::try_from(start).map_err(|_| Errno::OVERFLOW)?;
    // Zero stands for no end; a span that is empty is locked at its first byte.
    let len = i64::try_from(end).map_or(0, |end| end.saturating_sub(start).max(1));
    let lock = libc::flock {
        l_type: kind as c_short,             // 0 to 2
        l_whence: libc::SEEK_SET as c_short, // 0
        l_start: start,
        l_len: len,
        l_pid: 0, // as these locks want it
    };
    let fd: c_int = fd.as_fd().as_raw_fd();
    // SAFETY: F_OFD_SETLK reads a `struct flock` through its argument, which lives during the
    // call; `fd` is open, because it is borrowed.
    let done = unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) };
    match done {
        0 => Ok(true),
        _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Some(errno) => Err(errno),
            None => Err(Errno::IO),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_exclude_each_other_and_go_with_their_descriptor() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let open = || std::fs::File::options().read(true).write(true).open(file.path());
        let (one, other) = (open().expect("open"), open().expect("open"));
        let (read, write) = (Access::ReadOnly, Access::ReadWrite);
        assert_eq!(lock_range(&one, write, 0, 4096), Ok(true));
        assert_eq!(lock_range(&other, write, 4095, u64::MAX), Ok(false));
        assert_eq!(lock_range(&other, read, 0, 1), Ok(false));
        assert_eq!(lock_range(&other, write, 4096, u64::MAX), Ok(true));
        drop(one);
        assert_eq!(lock_range(&other, write, 0, u64::MAX), Ok(true));
        let third = open().expect("open");
        assert_eq!(lock_range(&other, read, 0, u64::MAX), Ok(true));
        assert_eq!(lock_range(&third, read, 0, u64::MAX), Ok(true));
        assert_eq!(lock_range(&third, write, 7, 7), Ok(false));
    }
}
