//! A span of mapped memory, unmapped when dropped.

use std::os::fd::BorrowedFd;
use std::ptr;

use host::Access;
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::bus::Span;

/// The message about memory that is gone.
pub(crate) const LOST: &str =
    "the mapped memory is gone: its file was made shorter, or the machine has lost it";

/// How stores to the mapping of a file reach the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The memory is the file's own, and all blocks of it are allocated (`MAP_SYNC`). A store to
    /// the memory is in the file at once, even if the file system still has something to write.
    Synchronous,
    /// The memory is the page cache's.
    PageCache,
}

/// Mapped memory. It is not a slice, because other threads and processes may store to it.
pub(crate) struct Mapping {
    start: *mut u8,
    len_bytes: usize,
    /// The registration of a file's mapping; other processes can make the file shorter.
    span: Option<&'static Span>,
}

// SAFETY: the pointer is a number to everybody but the functions that access the memory, and
// those do it atomically (see `processor`); only `drop` unmaps.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` bytes of `fd`. If the file becomes shorter, the next access after
    /// its end makes the mapping lost ([`Mapping::is_lost`]).
    pub(crate) fn of_file(
        fd: BorrowedFd<'_>,
        len_bytes: usize,
        access: Access,
        sharing: Sharing,
    ) -> rustix::io::Result<Self> {
        Self::of_file_from(fd, 0, len_bytes, access, sharing)
    }

    /// The same from `offset`, which is a multiple of the unit that the file system maps.
    pub(crate) fn of_file_from(
        fd: BorrowedFd<'_>,
        offset: u64,
        len_bytes: usize,
        access: Access,
        sharing: Sharing,
    ) -> rustix::io::Result<Self> {
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = match sharing {
            // Only with VALIDATE does a kernel refuse a flag that it does not know.
            Sharing::Synchronous => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Sharing::PageCache => MapFlags::SHARED,
        };
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mm::mmap(ptr::null_mut(), len_bytes, protection, flags, fd, offset) }?;
        let start = start.cast::<u8>();
        // The handler makes a pointer of the number.
        let _ = start.expose_provenance();
        Ok(Mapping { start, len_bytes, span: Some(Span::register(start, len_bytes)) })
    }

    /// Whether zeros have replaced the file, because it became shorter or the machine lost its
    /// memory. Ask after an access: if so, everything that was read since is meaningless, and what
    /// was stored is gone.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.span.is_some_and(Span::is_lost)
    }

    /// Loads the last byte. Returns whether the mapping is still valid ([`Mapping::is_lost`]).
    #[inline]
    pub(crate) fn is_last_byte_there(&self) -> bool {
        // SAFETY: the byte is the mapping's, which is readable; no reference to it is made.
        unsafe { self.start.add(self.len_bytes - 1).read_volatile() };
        !self.is_lost()
    }

    /// Maps zeros that belong to no file.
    pub(crate) fn anonymous(len_bytes: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), len_bytes, protection, flags) }?;
        Ok(Mapping { start: start.cast(), len_bytes, span: None })
    }

    /// Makes every page present and writable now, so that no later store waits for a page or finds
    /// that there is none. Kernels before 5.14 cannot do that; then this does nothing.
    pub(crate) fn populate(&self) -> rustix::io::Result<()> {
        // SAFETY: the span is ours, and the advice changes no byte of it.
        let advised =
            unsafe { mm::madvise(self.start.cast(), self.len_bytes, Advice::LinuxPopulateWrite) };
        match advised {
            Err(Errno::INVAL) => Ok(()),
            advised => advised,
        }
    }

    /// Makes a forked process find zeros here, in its own memory. For anonymous mappings only.
    pub(crate) fn wipe_on_fork(&self) -> rustix::io::Result<()> {
        // SAFETY: the span is ours, and the advice changes no byte of it in this process.
        unsafe { mm::madvise(self.start.cast(), self.len_bytes, Advice::LinuxWipeOnFork) }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The address of the byte at `offset`. Panics after the end.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len_bytes, "outside of the mapping");
        // SAFETY: the result is in the mapping, or one after its end.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(span) = self.span {
            span.release();
        }
        // SAFETY: the span was mapped by us, and every use of it borrows `self`.
        let unmapped = unsafe { mm::munmap(self.start.cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
