//! What `onejournal_stat()` tells.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::vfs::open as vfs;

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
};

/// See [`Stat`].
pub struct Counters {
    commits: AtomicU64,
    frames: AtomicU64,
    frame_bytes: AtomicU64,
    record_bytes: AtomicU64,
    real_syncs: AtomicU64,
    recoveries: AtomicU64,
    transactions: AtomicU64,
    pages: AtomicU64,
    page_record_bytes: AtomicU64,
    database_syncs: AtomicU64,
    background_syncs: AtomicU64,
}

impl Counters {
    /// A record was appended.
    pub fn logged(&self, frames: u64, frame_bytes: u64, record_bytes: u64) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.frame_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        self.record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }

    /// A WAL was made durable itself.
    pub fn real_sync(&self) {
        self.real_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction of a rollback mode became a record.
    pub fn transaction(&self, pages: u64, record_bytes: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.pages.fetch_add(pages, Ordering::Relaxed);
        self.page_record_bytes.fetch_add(record_bytes, Ordering::Relaxed);
    }

    /// A database file is synced while others go on.
    pub fn background_sync(&self) {
        self.background_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// A database file was synced, so that the log need not hold what it holds, and somebody waited for it.
    pub fn database_sync(&self) {
        self.database_syncs.fetch_add(1, Ordering::Relaxed);
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

#[derive(Serialize)]
struct Stat {
    version: &'static str,
    /// Syncs of a WAL that became a record.
    commits: u64,
    frames: u64,
    /// Bytes of these frames in the WAL.
    frame_bytes: u64,
    /// Bytes of their records.
    record_bytes: u64,
    /// Syncs of a WAL file.
    real_syncs: u64,
    recoveries: u64,
    /// Transactions of rollback modes that became records.
    transactions: u64,
    pages: u64,
    page_record_bytes: u64,
    /// Syncs of a database file because of them, for which somebody waited.
    database_syncs: u64,
    /// And for which nobody did.
    background_syncs: u64,
    databases: Vec<Database>,
}

#[derive(Serialize)]
struct Database {
    path: String,
    log_directory: String,
    log: Option<log::LogStat>,
    stream: Option<log::StreamStat>,
}

/// The counters and the open databases, as JSON.
pub fn to_json() -> String {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let databases = vfs::open_databases().into_iter().map(|database| Database {
        path: database.path.display().to_string(),
        log_directory: database.settings.directory.display().to_string(),
        log: database.log().map(|log| log.stat()),
        stream: database.with_stream(|stream| Ok(stream.stat()?)).ok().flatten(),
    });
    let stat = Stat {
        version: env!("CARGO_PKG_VERSION"),
        commits: get(&COUNTERS.commits),
        frames: get(&COUNTERS.frames),
        frame_bytes: get(&COUNTERS.frame_bytes),
        record_bytes: get(&COUNTERS.record_bytes),
        real_syncs: get(&COUNTERS.real_syncs),
        recoveries: get(&COUNTERS.recoveries),
        transactions: get(&COUNTERS.transactions),
        pages: get(&COUNTERS.pages),
        page_record_bytes: get(&COUNTERS.page_record_bytes),
        database_syncs: get(&COUNTERS.database_syncs),
        background_syncs: get(&COUNTERS.background_syncs),
        databases: databases.collect(),
    };
    serde_json::to_string(&stat).expect("plain data")
}
