//! A lock on a range of a file's bytes, held by the open file and not by the process.
//!
//! The kernel gives the lock up when the last copy of the descriptor is closed, also after
//! `SIGKILL`. The lock conflicts with every other such lock on the same inode. The other process
//! may be in any mount, network or process namespace, and may have opened the file by any name. A
//! second open file of the same process conflicts, too. `/proc/locks` shows the lock in every
//! namespace. QEMU locks its images in the same way.

use std::ffi::{c_int, c_short};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::access::Access;

/// Locks `start..end` of the open `fd`: shared for reading, exclusive for writing. An `end` of
/// `u64::MAX` means no end. `false`: another user has a lock on a part of it.
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
