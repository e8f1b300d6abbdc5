//! A number of operations and their bytes, counted by many threads.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Meter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counts an operation.
    pub(crate) fn add(&self, len_bytes: usize) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }

    /// Operations and bytes so far.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
