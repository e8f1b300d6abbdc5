//! Notices that a file has become shorter while it is in use.
//!
//! Writing to a file that was cut makes it long again, with zeros in place of the data. Reading
//! through a loop device gives zeros for the missing part. No call fails. So the length is compared
//! before each write, and after each read and flush. Once a file was too short, it is not written
//! any more, whatever its length is later. So OneJournal never makes it long again, and what is
//! left of it can still be read. For a mapping the length is compared before each read, and before
//! a store only where a load cannot show the cut (`nvram/cut.rs`).
//!
//! For a loop device, the length of its backing file is compared. Three cases are not noticed: the
//! backing file cannot be opened (its last name was removed, or it is in another mount namespace);
//! a file is cut and extended again between two checks; a file is cut between the check and a write
//! to its very end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;

/// The length that a file must have.
pub(crate) struct Length {
    /// The file, if it is not the user's own descriptor.
    file: Option<OwnedFd>,
    /// Where the first byte of the disk is in the file.
    start_bytes: u64,
    /// The length that the file must have at least.
    needed_bytes: u64,
    /// The smallest length seen so far.
    shortest_bytes: AtomicU64,
}

impl Length {
    /// For a file that is used directly and needs `needed_bytes` bytes.
    pub(crate) fn of_itself(needed_bytes: u64) -> Length {
        let shortest_bytes = AtomicU64::new(u64::MAX);
        Length { file: None, start_bytes: 0, needed_bytes, shortest_bytes }
    }

    /// For `file`, in which a disk of `size_bytes` bytes begins at `start_bytes`.
    pub(crate) fn of_another(file: OwnedFd, start_bytes: u64, size_bytes: u64) -> Length {
        let needed_bytes = start_bytes.saturating_add(size_bytes);
        let shortest_bytes = AtomicU64::new(u64::MAX);
        Length { file: Some(file), start_bytes, needed_bytes, shortest_bytes }
    }

    /// The file, if it is not the user's own descriptor, and where the disk begins in it.
    pub(crate) fn another(&self) -> Option<(&OwnedFd, u64)> {
        self.file.as_ref().map(|file| (file, self.start_bytes))
    }

    /// An error if the other file is too short already.
    pub(crate) fn check_at_opening(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let len_bytes = length_of(file.as_fd())?;
        if len_bytes >= self.needed_bytes {
            return Ok(());
        }
        let why = format!(
            "its backing file has {len_bytes} bytes and needs {}: it was made shorter. Put back \
             what was cut off; or, if nothing was, make the device as short as the file: losetup \
             --set-capacity",
            self.needed_bytes
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }

    /// An error if the file is, or was, too short. `own` is the user's own descriptor.
    pub(crate) fn check(&self, own: impl AsFd) -> io::Result<()> {
        self.check_up_to(own, self.needed_bytes.saturating_sub(self.start_bytes))
    }

    /// Whether a check has found the file too short. Does not check again.
    #[inline]
    pub(crate) fn was_short(&self) -> bool {
        self.shortest_bytes.load(Ordering::Relaxed) < self.needed_bytes
    }

    /// An error if the file lacks, or lacked, bytes of the disk before `end`.
    pub(crate) fn check_up_to(&self, own: impl AsFd, end: u64) -> io::Result<()> {
        let file = self.file.as_ref().map_or(own.as_fd(), |file| file.as_fd());
        let len_bytes = length_of(file)?;
        let shortest_bytes =
            self.shortest_bytes.fetch_min(len_bytes, Ordering::Relaxed).min(len_bytes);
        if shortest_bytes >= self.needed_bytes.min(self.start_bytes.saturating_add(end)) {
            return Ok(());
        }
        let why = format!(
            "the file has become shorter while it was in use: {shortest_bytes} of {} bytes were \
             left. The rest is lost",
            self.needed_bytes
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }
}

/// The length by `lseek`, which takes less than half the time of `fstat`. No code reads or writes
/// at the position of the descriptor.
fn length_of(file: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    rustix::fs::seek(file, SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_too_short_stays_so_and_what_is_left_can_be_read() {
        let file = tempfile::tempfile().expect("a temporary file");
        let set = |len_bytes| file.set_len(len_bytes).expect("its length");
        set(8192);
        let length = Length::of_itself(8192);
        length.check(&file).expect("whole");
        set(9000);
        length.check(&file).expect("longer");
        assert!(!length.was_short());
        set(5000);
        for len_bytes in [5000, 8192] {
            set(len_bytes);
            let error = length.check(&file).expect_err("it was cut");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains("5000 of 8192"), "{error}");
            assert!(length.was_short());
            length.check_up_to(&file, 5000).expect("it is left");
            length.check_up_to(&file, 5001).expect_err("it is lost");
        }
    }
}
