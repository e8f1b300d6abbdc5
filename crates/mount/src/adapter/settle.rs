//! Bringing a file home from the kernel's cache before it becomes immutable.
//!
//! Pages that were changed through a mapping, or with `writeback_cache` by any write, would be refused
//! when they are written back later, and lost. Having pages dropped writes the changed ones back.
//!
//! Who waits for that keeps a thread from answering requests, and the kernel needs one for these
//! pages: so fewer may wait than there are threads for any queue of requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use fuse::{ByteRange, Notifier};

/// How many wait.
#[derive(Default)]
pub(super) struct Settling {
    /// 0: nobody can.
    pub(super) limit: usize,
    count: AtomicUsize,
}

impl Settling {
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
