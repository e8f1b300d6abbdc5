//! The JSON of `onejournal_stat()`: the counters of this process, and its open databases.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::counters::COUNTERS;
use crate::databases;

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
    /// Syncs of a database file because of them, for which a caller waited.
    database_syncs: u64,
    /// And those in the background.
    background_syncs: u64,
    /// Checkpoints of a WAL in the background.
    background_checkpoints: u64,
    /// Checkpoints that a commit made in spite of `checkpoint=background`.
    commit_checkpoints: u64,
    databases: Vec<Database>,
}

#[derive(Serialize)]
struct Database {
    path: String,
    log_directory: String,
    log: Option<log::LogStat>,
    stream: Option<log::StreamStat>,
    /// Why it has no log in this process.
    no_log: Option<String>,
}

/// The counters and the open databases, as JSON.
pub fn to_json() -> String {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let databases = databases::all().into_iter().map(|database| Database {
        path: database.path.display().to_string(),
        log_directory: database.settings.directory.display().to_string(),
        log: database.log().map(|log| log.stat()),
        stream: database.with_stream(|stream| Ok(stream.stat()?)).ok().flatten(),
        no_log: database.plain.get().cloned(),
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
        background_checkpoints: get(&COUNTERS.background_checkpoints),
        commit_checkpoints: get(&COUNTERS.commit_checkpoints),
        databases: databases.collect(),
    };
    serde_json::to_string(&stat).expect("plain data")
}
