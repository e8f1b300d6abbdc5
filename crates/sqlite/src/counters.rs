//! Counters of this process, which `onejournal_stat()` shows (`stat`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of this process.
pub static COUNTERS: Counters = Counters {
    commits: AtomicU64::new(0),
    frames: AtomicU64::new(0),
    frame_bytes: AtomicU64::new(0),
    record_bytes: AtomicU64::new(0),
    real_syncs: AtomicU64::new(0),
    recoveries: AtomicU64::new(0),
    transactions: AtomicU64::new(0),
    pages: AtomicU64::new(0),
    page_record_bytes: AtomicU64::new(0),
    database_syncs: AtomicU64::new(0),
    background_syncs: AtomicU64::new(0),
    background_checkpoints: AtomicU64::new(0),
    commit_checkpoints: AtomicU64::new(0),
};

/// See `Stat` in `stat`.
pub struct Counters {
    pub commits: AtomicU64,
    pub frames: AtomicU64,
    pub frame_bytes: AtomicU64,
    pub record_bytes: AtomicU64,
    pub real_syncs: AtomicU64,
    pub recoveries: AtomicU64,
    pub transactions: AtomicU64,
    pub pages: AtomicU64,
    pub page_record_bytes: AtomicU64,
    pub database_syncs: AtomicU64,
    pub background_syncs: AtomicU64,
    pub background_checkpoints: AtomicU64,
    pub commit_checkpoints: AtomicU64,
}

impl Counters {
    /// A record was appended.
    pub fn logged(&self, frames: u64, frame_bytes: u64, record_bytes: u64) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.frame_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        self.record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }

    /// A WAL file was synced.
    pub fn real_sync(&self) {
        self.real_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction of a rollback mode became a record.
    pub fn transaction(&self, pages: u64, record_bytes: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.pages.fetch_add(pages, Ordering::Relaxed);
        self.page_record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }

    /// A background sync of a database file began.
    pub fn background_sync(&self) {
        self.background_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// A database file was synced so that the log can free its records, and a caller waited for it.
    pub fn database_sync(&self) {
        self.database_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// A checkpoint in the background began.
    pub fn background_checkpoint(&self) {
        self.background_checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// A commit makes a checkpoint that the background was to make.
    pub fn commit_checkpoint(&self) {
        self.commit_checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Syncs of WAL files so far.
    #[cfg(test)]
    pub fn real_sync_count(&self) -> u64 {
        self.real_syncs.load(Ordering::Relaxed)
    }

    /// A database was rolled forward.
    pub fn recovery(&self) {
        self.recoveries.fetch_add(1, Ordering::Relaxed);
    }
}
