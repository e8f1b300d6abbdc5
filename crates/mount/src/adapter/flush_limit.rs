//! How many requests may flush held writes at a time.
//!
//! The kernel holds writes in its cache: pages that were changed through a mapping, or with
//! `writeback_cache` by any write. When a file becomes immutable, later writes of these pages would
//! be refused, and lost. So the pages are dropped before, which makes the kernel write them back.
//!
//! A thread that waits for that answers no requests, and the kernel needs a thread to write these
//! pages. So fewer threads may wait than any queue of requests has.

use std::sync::atomic::{AtomicUsize, Ordering};

use fuse::{ByteRange, Notifier};

/// The number of threads that wait, and their limit.
#[derive(Default)]
pub(super) struct FlushLimit {
    /// 0: no thread may wait.
    pub(super) limit: usize,
    count: AtomicUsize,
}

impl FlushLimit {
    /// Drops these bytes from the kernel's cache in this thread, after the kernel has written changed
    /// ones back. `false`: too many threads wait already, and nothing was dropped.
    pub(super) fn drop_pages(&self, notifier: &Notifier, node: u64, range: ByteRange) -> bool {
        let enter = |count: usize| (count < self.limit).then_some(count + 1);
        let order = Ordering::SeqCst;
        if self.count.fetch_update(order, order, enter).is_err() {
            return false;
        }
        notifier.drop_pages_here(node, range);
        self.count.fetch_sub(1, order);
        true
    }
}
