//! Failed writes of pages that the kernel had collected.
//!
//! The kernel keeps the error for the next `fsync` or `close` of the file, and answers a flush of
//! pages with success. A request that flushed pages first asks here whether they arrived.
//!
//! A program that only writes would not learn of the error, and could go on for ever on a full
//! volume. So after a failure the kernel is told to forget the attributes of the file. The next
//! `write` then asks for them, as a call on an open file, and an error is the result of the
//! `write`. Other calls on open files do not need what was forgotten.

use std::collections::HashMap;

use device::sync::Mutex;
use ext4::InodeNo;
use rustix::io::Errno;

#[derive(Default)]
struct State {
    /// How many failed, of all files, and how the last one did.
    count: u64,
    last: Option<Errno>,
    /// Files of which pages failed: what the next `write` would meet as well.
    files: HashMap<InodeNo, Errno>,
}

/// The failures.
#[derive(Default)]
pub(super) struct LostWrites(Mutex<State>);

impl LostWrites {
    pub(super) fn note(&self, ino: InodeNo, errno: Errno) {
        let mut state = self.0.lock();
        state.count += 1;
        state.last = Some(errno);
        state.files.insert(ino, errno);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The error of a write that failed since there were `before`. It may be another file's: then a
    /// request fails that could have succeeded, on a volume that is full or broken.
    pub(super) fn since(&self, before: u64) -> Result<(), Errno> {
        let state = self.0.lock();
        state.last.filter(|_| state.count != before).map_or(Ok(()), Err)
    }

    /// How the last failed write of this file failed, until it is [`LostWrites::forget`]ten.
    pub(super) fn of(&self, ino: InodeNo) -> Option<Errno> {
        let state = self.0.lock();
        if state.count == 0 { None } else { state.files.get(&ino).copied() }
    }

    /// The next write may succeed, or the number may be another file's.
    pub(super) fn forget(&self, ino: InodeNo) {
        let mut state = self.0.lock();
        if state.count > 0 {
            state.files.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(12);

    #[test]
    fn a_failure_is_seen_by_who_flushed_meanwhile() {
        let lost = LostWrites::default();
        let before = lost.count();
        assert_eq!(lost.since(before), Ok(()));
        lost.note(FILE, Errno::NOSPC);
        assert_eq!(lost.since(before), Err(Errno::NOSPC));
        assert_eq!(lost.since(lost.count()), Ok(()));
    }

    #[test]
    fn a_failure_of_a_file_is_known_until_it_is_forgotten() {
        let lost = LostWrites::default();
        lost.note(FILE, Errno::NOSPC);
        assert_eq!((lost.of(FILE), lost.of(InodeNo(13))), (Some(Errno::NOSPC), None));
        lost.forget(FILE);
        assert_eq!(lost.of(FILE), None);
    }
}
