//! Runs a function where no descriptor of the process is seen, and none of its own stays.
//!
//! POSIX locks belong to a table of descriptors and a file: closing *any* descriptor of a file
//! gives up all locks that the process has on it, also those of a library that knows nothing of it.
//! So a file that SQLite may have locked is opened and closed in a table of its own.

use rustix::io::Errno;

/// `CLOSE_RANGE_UNSHARE` (Linux 5.9).
const UNSHARE: libc::c_uint = 2;
/// The first descriptor that is not a standard one. The standard ones stay.
const FIRST: libc::c_uint = 3;

/// Runs `f` in a thread with a table of descriptors of its own, which is gone when it ends.
///
/// # Errors
/// If the kernel, or a filter of system calls, does not allow a table of its own; `f` did not run
/// then.
pub fn with_own_descriptors<T: Send>(f: impl FnOnce() -> T + Send) -> rustix::io::Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("onejournal-file".into());
        let thread = builder.spawn_scoped(scope, || {
            unshare()?;
            Ok(f())
        });
        let thread = thread.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
        thread.join().unwrap_or(Err(Errno::IO))
    })
}

/// Gives the calling thread a table of its own, without the descriptors from [`FIRST`] on.
fn unshare() -> rustix::io::Result<()> {
    // SAFETY: takes three numbers. The descriptors that it closes stay open in the table that the
    // other threads have, and this thread has made none yet.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, UNSHARE) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Whether another process could not lock the file.
    fn is_locked(path: &std::path::Path) -> bool {
        let script = "import fcntl, sys\n\
                      f = open(sys.argv[1], 'r+')\n\
                      try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
                      except OSError: sys.exit(3)";
        let mut command = std::process::Command::new("python3");
        let status = command.args(["-c", script]).arg(path).status().expect("python3");
        status.code() == Some(3)
    }

    #[test]
    fn locks_of_the_process_stay() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: 0,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the argument is a lock.
        let done = unsafe { libc::fcntl(file.as_file().as_raw_fd(), libc::F_SETLK, &lock) };
        assert_eq!(done, 0);
        let path = file.path();
        let seen = with_own_descriptors(|| {
            let opened = std::fs::File::open(path).expect("open");
            opened.sync_all().expect("sync");
            opened.as_raw_fd()
        });
        assert_eq!(seen, Ok(3), "no other descriptor is there");
        assert!(is_locked(path));
        // Without a table of its own the lock is gone.
        drop(std::fs::File::open(path).expect("open"));
        assert!(!is_locked(path));
    }
}
