//! Counters of this process, which `onejournal_stat()` shows (`stat`).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters of this process.
pub static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::default);

/// The counters, in the order of `onejournal_stat()`.
#[derive(Default, Serialize)]
pub struct Counters {
    /// Syncs of a WAL that became a record.
    commits: AtomicU64,
    frames: AtomicU64,
    /// Bytes of these frames in the WAL.
    frame_bytes: AtomicU64,
    /// Bytes of their records.
    record_bytes: AtomicU64,
    /// Syncs of a WAL file.
    pub real_syncs: AtomicU64,
    pub recoveries: AtomicU64,
    /// Transactions of rollback modes that became records.
    transactions: AtomicU64,
    pages: AtomicU64,
    page_record_bytes: AtomicU64,
    /// Syncs of a database file because of them, for which a caller waited.
    pub database_syncs: AtomicU64,
    /// And those in the background.
    pub background_syncs: AtomicU64,
    /// Checkpoints of a WAL in the background.
    pub background_checkpoints: AtomicU64,
    /// Checkpoints that a commit made in spite of `checkpoint=background`.
    pub commit_checkpoints: AtomicU64,
}

/// One more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// A record was appended.
    pub fn logged(&self, frames: u64, frame_bytes: u64, record_bytes: u64) {
        count(&self.commits);
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.frame_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        self.record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }

    /// A transaction of a rollback mode became a record.
    pub fn transaction(&self, pages: u64, record_bytes: u64) {
        count(&self.transactions);
        self.pages.fetch_add(pages, Ordering::Relaxed);
        self.page_record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }
}
