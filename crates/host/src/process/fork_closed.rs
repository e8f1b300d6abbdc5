//! Locked files that a forked process does not keep open.
//!
//! A `flock` lasts until the last copy of its descriptor is closed. A forked process that outlives
//! its parent would keep the parent's locks. So the file is closed in a forked process. In this
//! process the lock is given up before the file is closed, because a process that is being spawned
//! has copies of the descriptors until it runs its program.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::FlockOperation;

/// At most this many files at a time. A forked process keeps any further ones.
const COUNT_MAX: usize = 1024;
const NONE: c_int = -1;

/// The descriptors that a forked process closes.
static OPEN: [AtomicI32; COUNT_MAX] = [const { AtomicI32::new(NONE) }; COUNT_MAX];

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
    fn close(file: c_int) -> c_int;
}

unsafe extern "C" fn close_in_child() {
    for open in &OPEN {
        let file = open.swap(NONE, Ordering::Relaxed);
        if file != NONE {
            // SAFETY: a descriptor that a `ForkClosed` had when the process was forked, which
            // closes it no more. close(2) may be called after a fork of a process with threads.
            unsafe { close(file) };
        }
    }
}

/// A file that is closed in a forked process (by fork(3); not by `vfork` or a bare `clone`).
pub struct ForkClosed {
    /// `None` only while this is dropped.
    file: Option<File>,
    place: Option<usize>,
}

impl ForkClosed {
    /// Takes over `file`.
    pub fn new(file: File) -> ForkClosed {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: a function that lives as long as the program, or as the library, with which
            // its handlers go. Without memory for it forked processes keep the files.
            let _ = unsafe { pthread_atfork(None, None, Some(close_in_child)) };
        });
        let number = file.as_raw_fd();
        let take = |open: &AtomicI32| {
            open.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        ForkClosed { file: Some(file), place: OPEN.iter().position(take) }
    }
}

impl AsFd for ForkClosed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("until it is dropped").as_fd()
    }
}

impl Drop for ForkClosed {
    fn drop(&mut self) {
        let was_closed =
            self.place.is_some_and(|place| OPEN[place].swap(NONE, Ordering::Relaxed) == NONE);
        let Some(file) = self.file.take() else { return };
        if was_closed {
            // In a forked process: the number may be another file's.
            let _ = file.into_raw_fd();
        } else if self.place.is_some() {
            // A file without a lock has none to give up, and is closed all the same.
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is being spawned has copies of all descriptors until it runs its program, and
    /// no fork handler is called in it.
    #[test]
    fn regression_a_copy_does_not_keep_the_lock_of_a_closed_file() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let lock = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        let kept = ForkClosed::new(file.reopen().expect("open"));
        let copy = kept.as_fd().try_clone_to_owned().expect("copy");
        let other = file.reopen().expect("open");
        rustix::fs::flock(&kept, FlockOperation::LockExclusive).expect("lock");
        assert!(lock(&other).is_err(), "it is locked");
        drop(kept);
        lock(&other).expect("it is closed");
        drop(copy);
    }

    #[test]
    fn a_file_is_listed_while_it_is_open() {
        let listed = |number: c_int| OPEN.iter().any(|open| open.load(Ordering::Relaxed) == number);
        let file = tempfile::tempfile().expect("file");
        let number = file.as_raw_fd();
        let kept = ForkClosed::new(file);
        assert!(listed(number) && kept.as_fd().as_raw_fd() == number);
        drop(kept);
        assert!(!listed(number));
    }
}
