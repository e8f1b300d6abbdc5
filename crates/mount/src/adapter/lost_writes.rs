//! Failed writes of pages that the kernel had collected.
//!
//! The kernel keeps the error for the next `fsync` or `close` of the file, and answers a flush of
//! pages with success. A request that flushed pages first asks here whether they arrived.

use device::sync::Mutex;
use rustix::io::Errno;

/// How many failed, of all files, and how the last one did.
#[derive(Default)]
pub(super) struct LostWrites(Mutex<(u64, Option<Errno>)>);

impl LostWrites {
    pub(super) fn note(&self, errno: Errno) {
        let mut lost = self.0.lock();
        *lost = (lost.0 + 1, Some(errno));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.lock().0
    }

    /// The error of a write that failed since there were `before`. It may be another file's: then a
    /// request fails that could have succeeded, on a volume that is full or broken.
    pub(super) fn since(&self, before: u64) -> Result<(), Errno> {
        let (count, last) = *self.0.lock();
        last.filter(|_| count != before).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_seen_by_who_flushed_meanwhile() {
        let lost = LostWrites::default();
        let before = lost.count();
        assert_eq!(lost.since(before), Ok(()));
        lost.note(Errno::NOSPC);
        assert_eq!(lost.since(before), Err(Errno::NOSPC));
        assert_eq!(lost.since(lost.count()), Ok(()));
    }
}
