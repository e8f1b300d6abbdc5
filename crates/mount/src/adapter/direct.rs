//! Direct writes beside the kernel's page cache.
//!
//! The kernel drops the pages of a direct write when it begins. When it is synchronous, the kernel
//! drops them again at its end; when it is asynchronous (libaio, io_uring), the kernel does not. A
//! page that was read meanwhile would then stay, with what the file held before. So the volume has
//! the pages dropped, and the write is answered afterwards, by the thread that tells the kernel:
//! that waits for requests for these pages, and every thread that serves must be free to answer them.
//!
//! A file of which nothing is cached needs none of this, and databases that use direct I/O cache
//! nothing. So what is read through the page cache is noted of those files that are written
//! directly. The order of events makes that sound: a read is noted *before* it takes its data, a
//! write looks *after* its data are in the volume. A read that the write does not see therefore
//! finds the new data, or the kernel still holds its page locked when the pages are dropped.
//!
//! Lock: one mutex, a leaf.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use ext4::InodeNo;
use parking_lot::Mutex;

use crate::notifier::Range;

/// After so many direct writes between which nothing went through the page cache, all of the file is
/// dropped from it, and direct writes need not drop anything until the next time.
const QUIET_COUNT: u32 = 64;

/// All pages of a file.
const WHOLE: Range = (0, 0);

/// The files that are written directly.
#[derive(Default)]
pub(super) struct DirectWrites {
    files: Mutex<HashMap<InodeNo, DirectFile>>,
    /// Entries of `files`. While it is 0, reads need not look.
    file_count: AtomicUsize,
}

#[derive(Default)]
struct DirectFile {
    /// Something may be cached.
    is_cached: bool,
    /// Direct writes since something was cached.
    quiet_count: u32,
    /// Droppings that have not ended.
    pending_count: usize,
}

impl DirectWrites {
    /// A request through the page cache begins.
    pub(super) fn note_cached(&self, ino: InodeNo) {
        if self.file_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(file) = self.files.lock().get_mut(&ino) {
            file.is_cached = true;
            file.quiet_count = 0;
        }
    }

    /// What is to be dropped after a direct write of `range`, before its answer; `None`: nothing.
    /// Otherwise the caller calls [`DirectWrites::dropped`] when that is done.
    pub(super) fn to_drop(&self, ino: InodeNo, range: Range) -> Option<Range> {
        let mut files = self.files.lock();
        let file_count = &self.file_count;
        let mut is_first = false;
        let file = files.entry(ino).or_insert_with(|| {
            is_first = true;
            file_count.fetch_add(1, Ordering::SeqCst);
            DirectFile::default()
        });
        file.quiet_count = file.quiet_count.saturating_add(u32::from(file.is_cached));
        let is_quiet = file.is_cached && file.quiet_count > QUIET_COUNT;
        if is_quiet {
            file.is_cached = false;
        }
        // What others have begun to drop may be this write's.
        if !is_first && !is_quiet && !file.is_cached && file.pending_count == 0 {
            return None;
        }
        file.pending_count += 1;
        // What was cached before the first write was not noted.
        Some(if is_first || is_quiet { WHOLE } else { range })
    }

    /// What [`DirectWrites::to_drop`] said was dropped.
    pub(super) fn dropped(&self, ino: InodeNo) {
        if let Some(file) = self.files.lock().get_mut(&ino) {
            file.pending_count = file.pending_count.saturating_sub(1);
        }
    }

    /// A direct write would have nothing to drop now.
    pub(super) fn is_settled(&self, ino: InodeNo) -> bool {
        let files = self.files.lock();
        files.get(&ino).is_some_and(|file| !file.is_cached && file.pending_count == 0)
    }

    /// The kernel does not know the file any more: nothing of it is cached.
    pub(super) fn forget(&self, ino: InodeNo) {
        if self.file_count.load(Ordering::SeqCst) > 0 && self.files.lock().remove(&ino).is_some() {
            self.file_count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeNo = InodeNo(12);
    const RANGE: Range = (4096, 8192);

    #[test]
    fn only_what_may_be_cached_is_dropped() {
        let direct = DirectWrites::default();
        assert!(!direct.is_settled(INO));
        assert_eq!(direct.to_drop(INO, RANGE), Some(WHOLE), "nobody noted what was read before");
        assert_eq!(direct.to_drop(INO, RANGE), Some(RANGE), "that has not ended");
        direct.dropped(INO);
        direct.dropped(INO);
        assert!(direct.is_settled(INO));
        assert_eq!(direct.to_drop(INO, RANGE), None);
        direct.note_cached(InodeNo(13));
        assert!(direct.is_settled(INO));
        direct.note_cached(INO);
        assert!(!direct.is_settled(INO));
        for _ in 0..QUIET_COUNT {
            assert_eq!(direct.to_drop(INO, RANGE), Some(RANGE));
            direct.dropped(INO);
        }
        assert_eq!(direct.to_drop(INO, RANGE), Some(WHOLE), "nothing was read for long");
        direct.dropped(INO);
        assert_eq!(direct.to_drop(INO, RANGE), None);
    }

    #[test]
    fn a_read_between_two_droppings_counts() {
        let direct = DirectWrites::default();
        direct.to_drop(INO, RANGE);
        direct.note_cached(INO);
        direct.dropped(INO);
        assert_eq!(direct.to_drop(INO, RANGE), Some(RANGE));
        direct.forget(INO);
        assert_eq!(direct.file_count.load(Ordering::SeqCst), 0);
        assert_eq!(direct.to_drop(INO, RANGE), Some(WHOLE));
    }
}
