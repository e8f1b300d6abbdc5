//! Notices that a mapped file became shorter, without a system call for each store.
//!
//! The file's last page is mapped a second time, for reading. If the file becomes shorter, that
//! page disappears, and a load from it raises SIGBUS, which `bus` turns into an error. Because the
//! second mapping is the one that is lost, the rest of the file can still be read through the first
//! one.
//!
//! | the file was cut | noticed by |
//! |---|---|
//! | at a page boundary or before the last page | the next access, wherever that is |
//! | inside its last page, where no load raises anything | the next read of the lost part; the next store into that page, which compares the length |
//! | and made as long again before any access | nothing |
//!
//! After a cut was noticed, nothing is stored any more, whatever the file's length is later.

use std::io;
use std::os::fd::AsFd;

use host::Access;

use crate::length::Length;
use crate::mapping::memory::{LOST, Mapping, Sharing};

/// A file that is mapped whole, and that only this process uses.
pub(super) struct CutWatch {
    length: Length,
    /// The mapping of the last page, or of a little more.
    last: Mapping,
    /// Where that page begins in the file. A store after it compares the length.
    last_page_start: u64,
}

impl CutWatch {
    /// Watches the file `fd` of `len_bytes` bytes. Its file system maps multiples of `block_bytes`
    /// bytes.
    pub(super) fn of_file(
        fd: impl AsFd,
        len_bytes: usize,
        block_bytes: usize,
    ) -> rustix::io::Result<CutWatch> {
        let page_bytes = rustix::param::page_size();
        let start_of_last = |unit_bytes: usize| (len_bytes - 1) / unit_bytes * unit_bytes;
        let from = start_of_last(block_bytes.max(page_bytes));
        let last = Mapping::of_file_from(
            fd.as_fd(),
            from as u64,
            len_bytes - from,
            Access::ReadOnly,
            Sharing::PageCache,
        )?;
        let last_page_start = start_of_last(page_bytes) as u64;
        Ok(CutWatch { length: Length::of_itself(len_bytes as u64), last, last_page_start })
    }

    /// An error if bytes before `end` are lost, or were lost before.
    pub(super) fn check_read(&self, fd: impl AsFd, end: u64) -> io::Result<()> {
        self.length.check_up_to(fd, end)
    }

    /// An error if the file is, or was, too short. `end` is where the store will end.
    #[inline]
    pub(super) fn check_store(&self, fd: impl AsFd, end: u64) -> io::Result<()> {
        let is_whole = self.last.is_last_byte_there() && !self.length.was_short();
        if is_whole && end <= self.last_page_start {
            return Ok(());
        }
        // Also notes the length that was left, up to which reads still succeed.
        self.length.check(fd)?;
        match is_whole {
            true => Ok(()),
            // It is long again, or the machine has lost the page.
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, LOST)),
        }
    }
}
