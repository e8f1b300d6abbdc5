//! Writes that a crash does not tear (`docs/reference/atomicity.md`, "Untorn writes").
//!
//! A write is *untorn* if all of its data are in one operation, hence in one transaction. An
//! operation may have as many credits as a transaction has blocks. So the size of the largest write
//! that is untorn wherever its blocks are follows from the size of the journal's regions: each
//! block of the data may need a new home in a block group of its own, and a new leaf of the extent
//! tree. This size, a power of two, is the *unit*. A write that lies within one aligned unit is one
//! operation. A larger write is cut between units.
//!
//! Three more conditions are checked here: the data mode, that the volume can be written at all,
//! and how large writes the caller passes on whole ([`Mounted::set_unsplit_write_bytes`]).

use std::sync::atomic::Ordering;

use journal::BLOCK_BYTES;

use super::write::{DEPTH_MAX, GROWTH_LEVEL_COUNT, edits_credit_count};
use crate::inode::read_inode;
use crate::memory::Mounted;
use crate::{Error, FileKind, InodeNo, Result};

/// Blocks of the largest unit: 1 MiB.
const UNIT_COUNT_MAX: usize = 256;

impl Mounted {
    /// The unit in bytes.
    pub(super) fn unit_bytes(&self) -> u64 {
        (unit_count(self.journal.max_credit_count()) * BLOCK_BYTES) as u64
    }

    /// [`Volume::set_unsplit_write_bytes`](crate::Volume::set_unsplit_write_bytes).
    pub(crate) fn set_unsplit_write_bytes(&self, bytes: u64) {
        self.unsplit_write_bytes.store(bytes, Ordering::Relaxed);
    }

    /// [`Volume::untorn_bytes`](crate::Volume::untorn_bytes).
    pub(crate) fn untorn_bytes(&self) -> u64 {
        if self.settings.read_only {
            return 0;
        }
        let unsplit = self.unsplit_write_bytes.load(Ordering::Relaxed);
        let unsplit = unsplit.checked_ilog2().map_or(0, |log2| 1 << log2);
        self.unit_bytes().min(unsplit)
    }

    /// [`Volume::atomic_write_bytes`](crate::Volume::atomic_write_bytes).
    pub(crate) fn atomic_write_bytes(&self) -> u64 {
        if self.settings.data_mode.is_atomic() { self.untorn_bytes() } else { 0 }
    }

    /// [`Volume::atomic_write_bytes_of`](crate::Volume::atomic_write_bytes_of).
    pub(crate) fn atomic_write_bytes_of(&self, ino: InodeNo) -> Result<u64> {
        let inode = read_inode(self, ino)?;
        if !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) {
            return Err(Error::InvalidArgument);
        }
        let mode = self.mode_in(&inode, &self.in_core(ino))?;
        Ok(if mode.is_atomic() { self.untorn_bytes() } else { 0 })
    }
}

/// Blocks of the unit, if an operation can have `credits_max` credits.
fn unit_count(credits_max: usize) -> usize {
    let fits = |count: &usize| {
        count + edits_credit_count(*count, DEPTH_MAX + GROWTH_LEVEL_COUNT) <= credits_max
    };
    let halves = std::iter::successors(Some(UNIT_COUNT_MAX), |count| Some(count / 2));
    let mut counts = halves.take_while(|count| *count > 0);
    counts.find(fits).expect("a transaction has at least 128 blocks")
}

/// The length of the longest start of `len_bytes` bytes at `offset` of a file that has at most
/// `room_bytes` bytes. If it is not all of them, it ends at a multiple of `unit_bytes` in the file,
/// unless there is none.
pub(super) fn cut_at_unit(
    offset: u64,
    len_bytes: usize,
    room_bytes: usize,
    unit_bytes: u64,
) -> usize {
    if len_bytes <= room_bytes {
        return len_bytes;
    }
    let end = offset + room_bytes as u64;
    let over = usize::try_from(end % unit_bytes).expect("below the unit");
    if over < room_bytes { room_bytes - over } else { room_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_from_what_a_transaction_holds() {
        let sizes = [(128, 8), (200, 16), (257, 16), (258, 32), (1000, 128), (1825, 128)];
        for (credits_max, count) in sizes {
            assert_eq!(unit_count(credits_max), count, "{credits_max} credits");
        }
        assert_eq!(unit_count(1826), 256);
        assert_eq!(unit_count(16_384), 256, "1 MiB is the most");
    }

    #[test]
    fn a_write_is_cut_between_units() {
        let unit = 1 << 16;
        assert_eq!(cut_at_unit(0, 100, 100, unit), 100);
        assert_eq!(cut_at_unit(0, 1 << 20, 200_000, unit), 3 << 16);
        assert_eq!(cut_at_unit(1 << 16, 1 << 20, 200_000, unit), 3 << 16);
        // It begins in the middle of a unit: the first end is the end of that.
        assert_eq!(cut_at_unit(4096, 1 << 20, 100_000, unit), (1 << 16) - 4096);
        // There is no room for a whole unit.
        assert_eq!(cut_at_unit(0, 1 << 20, 40_960, unit), 40_960);
        assert_eq!(cut_at_unit(4096, 1 << 20, 8192, unit), 8192);
    }
}
