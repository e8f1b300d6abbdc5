//! Whether I/O bypasses the page cache. That a file system accepts `O_DIRECT` does not say so: ext4
//! with `data=journal` accepts it and buffers.

use std::os::fd::BorrowedFd;

use host::DiskKind;
use rustix::fs::{AtFlags, Statx, StatxFlags};

/// Whether I/O of a descriptor with `O_DIRECT` bypasses the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The file system accepts `O_DIRECT`, and does not say what it does with it.
    Unknown,
}

impl DirectIo {
    /// Whether I/O of `fd`, which has `O_DIRECT`, bypasses the page cache.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> DirectIo {
        let is_block =
            rustix::fs::fstat(fd).is_ok_and(|stat| DiskKind::of(&stat) == Ok(DiskKind::Block));
        let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        match statx {
            _ if is_block => DirectIo::Yes,
            Ok(statx) => DirectIo::reported(&statx),
            Err(_) => DirectIo::Unknown,
        }
    }

    fn reported(statx: &Statx) -> DirectIo {
        let mask = StatxFlags::from_bits_retain(statx.stx_mask);
        match (mask.contains(StatxFlags::DIOALIGN), statx.stx_dio_offset_align) {
            (false, _) => DirectIo::Unknown,
            (true, 0) => DirectIo::No,
            (true, _) => DirectIo::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alignment_of_zero_is_no_direct_io() {
        let mut statx =
            rustix::fs::statx(rustix::fs::CWD, "/", AtFlags::empty(), StatxFlags::empty())
                .expect("statx");
        for (mask, align, expected) in [
            (StatxFlags::DIOALIGN, 0, DirectIo::No),
            (StatxFlags::DIOALIGN, 512, DirectIo::Yes),
            (StatxFlags::SIZE, 0, DirectIo::Unknown),
            (StatxFlags::SIZE, 512, DirectIo::Unknown),
        ] {
            (statx.stx_mask, statx.stx_dio_offset_align) = (mask.bits(), align);
            assert_eq!(DirectIo::reported(&statx), expected);
        }
    }
}
