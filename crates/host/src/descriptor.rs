//! Descriptors whose numbers are 3 or more.
//!
//! Programs and C libraries write to the numbers 0, 1 and 2 whatever is open there. The kernel
//! gives a new descriptor the lowest free number. So in a program that closed one of the three, a
//! stray `printf` would write into the first file that was opened after that.
//!
//! 1. Every descriptor that this crate keeps, hands out or writes to is made by [`above_standard`].
//! 2. Before it makes one, it opens a *placeholder* for each of the three numbers that is closed:
//!    the directory `/` with `O_PATH`. Reads and writes of a placeholder fail with EBADF, as those
//!    of a closed descriptor do. Placeholders stay open until the program closes or replaces them.
//!    A program that the process executes does not inherit them.
//! 3. Another thread may close one of the numbers between that and the making. The descriptor is
//!    then moved to a higher number.
//!
//! Moving alone would not be enough: until the descriptor is moved, another thread can write to it.
//! SQLite keeps its own descriptors away from the three numbers in the same way, with `/dev/null`
//! as the placeholder.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd};

use crate::faults::{self, Fault};

/// The lowest number that a descriptor of ours may have.
pub const NUMBER_MIN: RawFd = 3;

/// Runs `make`, and returns the descriptor that it made, with a number of 3 or more.
///
/// # Errors
/// That of `make`, or that of moving the descriptor.
pub fn above_standard<E: From<Errno>>(
    make: impl FnOnce() -> Result<OwnedFd, E>,
) -> Result<OwnedFd, E> {
    occupy_standard();
    Ok(moved_above_standard(make()?)?)
}

/// Opens placeholders for those of the numbers 0, 1 and 2 that are closed. To be called before
/// several descriptors are made by one call, as when they are received through a socket, and before
/// one is made that cannot be moved.
pub fn occupy_standard() {
    if faults::is(Fault::UsesStandardNumbers) {
        return;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    while (0..NUMBER_MIN).any(is_closed) {
        match rustix::fs::open("/", flags, Mode::empty()) {
            Ok(placeholder) if placeholder.as_raw_fd() < NUMBER_MIN => {
                // It has no owner: the program may close it, or put another file there.
                std::mem::forget(placeholder);
            }
            // Another thread has opened a file there. Or no descriptor is free: `make` will say so.
            _ => return,
        }
    }
}

/// The link of `/proc` to an open file: a path that leads to it while it is open.
pub fn link_to(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// The descriptor, with a number of 3 or more.
pub fn moved_above_standard(descriptor: OwnedFd) -> rustix::io::Result<OwnedFd> {
    match descriptor.as_raw_fd() < NUMBER_MIN && !faults::is(Fault::UsesStandardNumbers) {
        true => fcntl_dupfd_cloexec(&descriptor, NUMBER_MIN),
        false => Ok(descriptor),
    }
}

fn is_closed(number: RawFd) -> bool {
    // SAFETY: the number is not -1. It is used for one call, which changes nothing, and which
    // reports a number without a file.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(descriptor) == Err(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use onejournal_testing::{close_standard_descriptors, own_process};

    use super::*;

    fn open_null() -> rustix::io::Result<OwnedFd> {
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    /// Whether writing to the number fails as if it was closed.
    fn is_no_target(number: RawFd) -> bool {
        // SAFETY: as in `is_closed`.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::write(descriptor, b"garbage") == Err(Errno::BADF)
    }

    #[test]
    fn descriptors_of_a_process_without_standard_ones_have_higher_numbers() {
        own_process!(silent);
        close_standard_descriptors();
        let made = above_standard(open_null).expect("made");
        let others = [open_null(), open_null()].map(|made| made.expect("made").as_raw_fd());
        assert!(made.as_raw_fd() >= NUMBER_MIN && others.iter().all(|it| *it >= NUMBER_MIN));
        assert!((0..NUMBER_MIN).all(is_no_target));
        // It was closed after the placeholders were opened.
        close_standard_descriptors();
        let low = open_null().expect("made");
        assert_eq!(low.as_raw_fd(), 0);
        assert!(moved_above_standard(low).expect("moved").as_raw_fd() >= NUMBER_MIN);
        assert!(is_closed(0));
        // A descriptor that is made in another way has such a number, too.
        occupy_standard();
        assert!(File::open("/dev/null").expect("open").as_raw_fd() >= NUMBER_MIN);
    }

    #[test]
    fn canary_without_placeholders_the_first_number_is_used() {
        own_process!(silent);
        close_standard_descriptors();
        let made = fault::with(Fault::UsesStandardNumbers, || above_standard(open_null));
        assert_eq!(made.expect("made").as_raw_fd(), 0);
    }

    #[test]
    fn standard_descriptors_that_are_open_stay_as_they_are() {
        let before = rustix::fs::fstat(rustix::stdio::stdout()).expect("stat");
        occupy_standard();
        let after = rustix::fs::fstat(rustix::stdio::stdout()).expect("stat");
        assert_eq!((before.st_dev, before.st_ino), (after.st_dev, after.st_ino));
    }
}
