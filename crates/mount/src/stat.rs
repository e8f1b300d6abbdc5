//! What the mount tells about itself through extended attributes of every file and directory:
//! `user.onejournal.stat` (counters, as JSON), `user.onejournal.pid` (the serving process),
//! `user.onejournal.mode` (the data mode that holds for the file).
//! They are not listed and cannot be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

/// The attribute that holds the counters.
pub const STAT_XATTR: &[u8] = b"user.onejournal.stat";
/// The attribute that says which data mode holds for a file, whoever asked for it.
pub const MODE_XATTR: &[u8] = b"user.onejournal.mode";
/// The attribute that holds the process number.
pub const PID_XATTR: &[u8] = b"user.onejournal.pid";

/// What the mount does not know by itself.
#[derive(Clone)]
pub struct StatSource {
    /// The device or image file.
    pub target: String,
    /// The program's version.
    pub version: String,
    /// What a commit survives: `power`, `reboot` or `process`.
    pub durability: &'static str,
    /// What reached the device so far.
    pub device_counters: Arc<dyn Fn() -> device::Counters + Send + Sync>,
}

/// Counted by the adapter itself.
#[derive(Default)]
pub(crate) struct AdapterCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) app_writes: AtomicU64,
    pub(crate) app_bytes: AtomicU64,
    pub(crate) last_error: Mutex<Option<String>>,
}

impl AdapterCounters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// The content of [`STAT_XATTR`]. Bytes and counts since the mount; `_ns` are nanoseconds.
#[derive(Debug, Serialize)]
struct Stat<'a> {
    version: &'a str,
    target: &'a str,
    durability: &'a str,
    data_mode: &'a str,
    /// How requests come from the kernel: `io_uring` or `dev_fuse`.
    transport: &'a str,
    read_only: bool,
    requests: u64,
    fsyncs: u64,
    app_writes: u64,
    app_bytes: u64,
    commits: u64,
    handles: u64,
    syncs: u64,
    syncs_without_io: u64,
    mean_syncs_per_commit: f64,
    journal_bytes: u64,
    logged_blocks: u64,
    revokes: u64,
    home_bytes: u64,
    in_place_bytes: u64,
    checkpoints: u64,
    cancelled_blocks: u64,
    stalls: u64,
    stall_ns: u64,
    device_reads: u64,
    device_bytes_read: u64,
    device_writes: u64,
    device_bytes_written: u64,
    device_durable_writes: u64,
    device_flushes: u64,
    last_error: Option<String>,
}

/// Renders the counters, padded with spaces so that the size hardly changes between the call that
/// asks for it and the one that fetches the value.
pub(crate) fn render(
    source: &StatSource,
    counters: &AdapterCounters,
    volume: &ext4::Volume,
    transport: &'static str,
) -> Vec<u8> {
    let journal = volume.journal().stats();
    let device = (source.device_counters)();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let stat = Stat {
        version: &source.version,
        target: &source.target,
        durability: source.durability,
        data_mode: volume.data_mode().name(),
        transport,
        read_only: volume.is_read_only(),
        requests: load(&counters.requests),
        fsyncs: load(&counters.fsyncs),
        app_writes: load(&counters.app_writes),
        app_bytes: load(&counters.app_bytes),
        commits: journal.commits,
        handles: journal.handles,
        syncs: journal.syncs,
        syncs_without_io: journal.syncs_without_io,
        mean_syncs_per_commit: journal.syncs as f64 / journal.commits.max(1) as f64,
        journal_bytes: journal.journal_bytes,
        logged_blocks: journal.logged_blocks,
        revokes: journal.revokes,
        home_bytes: journal.home_bytes,
        in_place_bytes: journal.in_place_bytes,
        checkpoints: journal.checkpoints,
        cancelled_blocks: journal.cancelled_blocks,
        stalls: journal.stalls,
        stall_ns: journal.stall_ns,
        device_reads: device.read_count,
        device_bytes_read: device.read_bytes,
        device_writes: device.write_count,
        device_bytes_written: device.write_bytes,
        device_durable_writes: device.durable_write_count,
        device_flushes: device.flush_count,
        last_error: counters.last_error.lock().clone(),
    };
    let mut json = serde_json::to_vec(&stat).expect("numbers and strings always render");
    json.resize(json.len().next_multiple_of(512), b' ');
    json
}
