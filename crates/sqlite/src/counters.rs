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
    real_syncs: AtomicU64,
    recoveries: AtomicU64,
    /// Transactions of rollback modes that became records.
    transactions: AtomicU64,
    pages: AtomicU64,
    page_record_bytes: AtomicU64,
    /// Syncs of a database file because of them, for which a caller waited.
    database_syncs: AtomicU64,
    /// And those in the background.
    background_syncs: AtomicU64,
    /// Checkpoints of a WAL in the background.
    background_checkpoints: AtomicU64,
    /// Checkpoints that a commit made in spite of `checkpoint=background`.
    commit_checkpoints: AtomicU64,
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
