//! What the mount tells about itself through extended attributes. Every file and directory has:
//! - `user.onejournal.stat`: counters, as JSON;
//! - `user.onejournal.pid`: the serving process;
//! - `user.onejournal.mode`: the data mode that holds;
//! - `user.onejournal.atomic_write_bytes`: up to how many bytes aligned writes are atomic;
//! - `user.onejournal.files`: the files for which most was written, as JSON.
//!
//! A regular file also has `user.onejournal.file`: its own counters, as JSON. The attributes are
//! not listed and cannot be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use device::sync::Mutex;
use serde::Serialize;

use crate::session_options::Order;

/// The attribute that holds the counters.
pub const STAT_XATTR: &[u8] = b"user.onejournal.stat";
/// The attribute that says which data mode holds for a file.
pub const MODE_XATTR: &[u8] = b"user.onejournal.mode";
/// The attribute that says up to how many bytes aligned writes of a file are atomic. A directory
/// tells it for new files in it.
pub const ATOMIC_WRITE_BYTES_XATTR: &[u8] = b"user.onejournal.atomic_write_bytes";
/// The attribute of a regular file that holds its own counters.
pub const FILE_XATTR: &[u8] = b"user.onejournal.file";
/// The attribute that holds the counters of the files for which most was written.
pub const FILES_XATTR: &[u8] = b"user.onejournal.files";
/// The attribute that holds the process number.
pub const PID_XATTR: &[u8] = b"user.onejournal.pid";

/// The attribute that root, or the user of the daemon, reads to make a read-only volume writable.
/// Its value is [`WRITABLE`], or why that cannot be done.
pub const MAKE_WRITABLE_XATTR: &[u8] = b"user.onejournal.make_writable";
/// See [`MAKE_WRITABLE_XATTR`].
pub const WRITABLE: &str = "writable";

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
    /// The journal's device or file, if it is on a medium of its own.
    pub journal_target: Option<String>,
    /// Bytes of memory that the process takes at most; `None`: they are not bounded.
    pub memory_bytes_max: Option<u64>,
    /// What reached the journal so far, if it is on a medium of its own.
    pub journal_counters: Option<Arc<dyn Fn() -> JournalCounters + Send + Sync>>,
}

/// What reached a journal on a medium of its own.
#[derive(Debug, Clone, Copy)]
pub enum JournalCounters {
    /// A block device, or a file.
    Block(device::Counters),
    /// NVRAM.
    Nvram(device::NvramCounters),
}

/// Counted by the adapter itself.
#[derive(Default)]
pub(crate) struct AdapterCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) syncfs: AtomicU64,
    pub(crate) app_writes: AtomicU64,
    pub(crate) app_bytes: AtomicU64,
    pub(crate) atomic_commits: AtomicU64,
    pub(crate) atomic_aborts: AtomicU64,
    pub(crate) opening: Opening,
    pub(crate) last_error: Mutex<Option<String>>,
}

/// What had been done when the volume was ready: recovery, and the zeros of a new journal.
#[derive(Default)]
pub(crate) struct Opening {
    /// Written to the device.
    bytes: u64,
    /// Flushes of the device and of the journal's own medium.
    flushes: u64,
    /// Seconds since 1970.
    time_s: u64,
}

impl Opening {
    /// All that `source` has counted until now.
    pub(crate) fn so_far(source: &StatSource) -> Opening {
        let device = (source.device_counters)();
        let journal = source.journal_counters.as_ref().map(|counters| counters());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Opening {
            bytes: device.write_bytes,
            flushes: device.flush_count + journal.map_or(0, JournalCounters::flush_count),
            time_s: since_1970.map_or(0, |since| since.as_secs()),
        }
    }
}

impl JournalCounters {
    /// Flushes; of NVRAM fences, of which each makes a write durable.
    fn flush_count(self) -> u64 {
        match self {
            JournalCounters::Block(counters) => counters.flush_count,
            JournalCounters::Nvram(counters) => counters.fence_count,
        }
    }
}

impl AdapterCounters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// The content of [`STAT_XATTR`]. Bytes and counts since the mount; `_ns` are nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Stat<'a> {
    pub(crate) version: &'a str,
    pub(crate) target: &'a str,
    pub(crate) durability: &'a str,
    pub(crate) data_mode: &'a str,
    /// How requests come from the kernel: `io_uring` or `dev_fuse`.
    pub(crate) transport: &'a str,
    /// The order of writes: `history` or `sync`.
    pub(crate) order: &'a str,
    /// Aligned writes of up to so many bytes are atomic, in files that do not ask for another mode.
    pub(crate) atomic_write_bytes: u64,
    /// The largest size that files on the volume were declared to need.
    pub(crate) atomic_declared_bytes: u64,
    pub(crate) read_only: bool,
    /// When the volume was ready, in seconds since 1970.
    pub(crate) mount_time_s: u64,
    pub(crate) requests: u64,
    pub(crate) fsyncs: u64,
    pub(crate) syncfs: u64,
    pub(crate) app_writes: u64,
    pub(crate) app_bytes: u64,
    pub(crate) atomic_commits: u64,
    pub(crate) atomic_aborts: u64,
    pub(crate) commits: u64,
    pub(crate) handles: u64,
    pub(crate) syncs: u64,
    pub(crate) syncs_without_io: u64,
    /// Calls of fsync, the commit timer and the like that each commit served: the group size.
    pub(crate) syncs_per_commit: Spread,
    /// From the closing of the transaction until it was durable.
    pub(crate) commit_latency_ns: Spread,
    pub(crate) journal_bytes: u64,
    pub(crate) journal_bytes_by_form: Forms,
    pub(crate) logged_blocks: u64,
    pub(crate) logged_blocks_by_form: Forms,
    pub(crate) revokes: u64,
    pub(crate) home_bytes: u64,
    pub(crate) in_place_bytes: u64,
    pub(crate) checkpoints: u64,
    pub(crate) cancelled_blocks: u64,
    pub(crate) stalls: u64,
    pub(crate) stall_ns: u64,
    pub(crate) device_reads: u64,
    pub(crate) device_bytes_read: u64,
    pub(crate) device_writes: u64,
    pub(crate) device_bytes_written: u64,
    pub(crate) device_durable_writes: u64,
    pub(crate) device_flushes: u64,
    /// The part of `device_bytes_written` that was written before the volume was ready.
    pub(crate) opening_bytes: u64,
    /// Flushes of the device and of the journal's medium before the volume was ready.
    pub(crate) opening_flushes: u64,
    /// The journal's device or file; nothing when the journal is on the device.
    pub(crate) journal_target: Option<&'a str>,
    /// The journal's own medium; nothing when the journal is on the device.
    pub(crate) journal_medium: Option<JournalMedium>,
    /// Bytes that reached the device since the volume was opened for each that an application
    /// wrote; nothing before the first.
    pub(crate) write_amplification: Option<f64>,
    /// Size of the journal; 0 if the mount is read-only from the start.
    pub(crate) journal_size_bytes: u64,
    /// Memory that the process has now, with its program text.
    pub(crate) memory_bytes: u64,
    /// What it takes at most.
    pub(crate) memory_bytes_max: Option<u64>,
    /// Space for files.
    pub(crate) space_bytes: u64,
    pub(crate) free_bytes: u64,
    /// The part of `free_bytes` that is not reserved for root.
    pub(crate) available_bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) last_error: Option<String>,
}

/// What reached the journal's own medium.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum JournalMedium {
    /// As of the device.
    Block {
        reads: u64,
        bytes_read: u64,
        writes: u64,
        bytes_written: u64,
        durable_writes: u64,
        flushes: u64,
    },
    /// A durable write is a store and a fence.
    Nvram { reads: u64, bytes_read: u64, stores: u64, bytes_stored: u64, lines: u64, fences: u64 },
}

impl From<JournalCounters> for JournalMedium {
    fn from(found: JournalCounters) -> JournalMedium {
        match found {
            JournalCounters::Block(counters) => JournalMedium::Block {
                reads: counters.read_count,
                bytes_read: counters.read_bytes,
                writes: counters.write_count,
                bytes_written: counters.write_bytes,
                durable_writes: counters.durable_write_count,
                flushes: counters.flush_count,
            },
            JournalCounters::Nvram(counters) => JournalMedium::Nvram {
                reads: counters.read_count,
                bytes_read: counters.read_bytes,
                stores: counters.store_count,
                bytes_stored: counters.store_bytes,
                lines: counters.line_count,
                fences: counters.fence_count,
            },
        }
    }
}

/// A distribution; the percentiles are exact to 1 %.
#[derive(Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// Inclusive upper bound and count, as in [`journal::Distribution::buckets`].
    pub(crate) buckets: Vec<(u64, u64)>,
}

impl From<journal::Distribution> for Spread {
    fn from(found: journal::Distribution) -> Spread {
        Spread {
            count: found.count,
            sum: found.sum,
            mean: tenths(found.sum as f64 / found.count.max(1) as f64),
            p50: found.p50,
            p90: found.p90,
            p99: found.p99,
            p999: found.p999,
            max: found.max,
            buckets: found.buckets,
        }
    }
}

/// Bytes of tags and changes in each record form, before payloads are packed and padded.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Forms {
    pub(crate) block: u64,
    pub(crate) sparse: u64,
    pub(crate) extent: u64,
    pub(crate) delta: u64,
    pub(crate) xor_lzo: u64,
    pub(crate) copy: u64,
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// `written` over `wanted` bytes, to the hundredth; `None` when nothing was wanted.
fn amplification(written_bytes: u64, wanted_bytes: u64) -> Option<f64> {
    let ratio = written_bytes as f64 / wanted_bytes as f64;
    (wanted_bytes > 0).then(|| (ratio * 100.0).round() / 100.0)
}

impl<'a> Stat<'a> {
    /// The same with the percentiles of distributions, and without their buckets.
    pub(crate) fn without_buckets(mut self) -> Stat<'a> {
        self.syncs_per_commit.buckets.clear();
        self.commit_latency_ns.buckets.clear();
        self
    }

    pub(crate) fn new(
        source: &'a StatSource,
        counters: &AdapterCounters,
        volume: &ext4::Volume,
        transport: &'static str,
        order: Order,
    ) -> Stat<'a> {
        let journal = volume.journal().stats();
        let (latency, group) = volume.journal().distributions();
        let device = (source.device_counters)();
        let space = volume.stat_fs().unwrap_or_default();
        let bytes = |block_count: u64| block_count * u64::from(space.block_bytes);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stat {
            version: &source.version,
            target: &source.target,
            durability: source.durability,
            data_mode: volume.data_mode().name(),
            transport,
            order: order.name(),
            atomic_write_bytes: volume.atomic_write_bytes(),
            atomic_declared_bytes: volume.declared_bytes(),
            read_only: volume.is_read_only(),
            mount_time_s: counters.opening.time_s,
            requests: load(&counters.requests),
            fsyncs: load(&counters.fsyncs),
            syncfs: load(&counters.syncfs),
            app_writes: load(&counters.app_writes),
            app_bytes: load(&counters.app_bytes),
            atomic_commits: load(&counters.atomic_commits),
            atomic_aborts: load(&counters.atomic_aborts),
            commits: journal.commits,
            handles: journal.handles,
            syncs: journal.syncs,
            syncs_without_io: journal.syncs_without_io,
            syncs_per_commit: group.into(),
            commit_latency_ns: latency.into(),
            journal_bytes: journal.journal_bytes,
            journal_bytes_by_form: Forms {
                block: journal.block_bytes,
                sparse: journal.sparse_bytes,
                extent: journal.extent_bytes,
                delta: journal.delta_bytes,
                xor_lzo: journal.xor_lzo_bytes,
                copy: journal.copy_bytes,
            },
            logged_blocks: journal.logged_blocks,
            logged_blocks_by_form: Forms {
                block: journal.whole_blocks,
                sparse: journal.sparse_blocks,
                extent: journal.extent_blocks,
                delta: journal.delta_blocks,
                xor_lzo: journal.xor_lzo_blocks,
                copy: journal.copy_blocks,
            },
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
            opening_bytes: counters.opening.bytes,
            opening_flushes: counters.opening.flushes,
            journal_target: source.journal_target.as_deref(),
            journal_medium: source.journal_counters.as_ref().map(|counters| counters().into()),
            write_amplification: amplification(
                device.write_bytes.saturating_sub(counters.opening.bytes),
                load(&counters.app_bytes),
            ),
            journal_size_bytes: volume.journal_size_bytes(),
            memory_bytes: resident_bytes().unwrap_or(0),
            memory_bytes_max: source.memory_bytes_max,
            space_bytes: bytes(space.block_count),
            free_bytes: bytes(space.free_block_count),
            available_bytes: bytes(space.available_block_count),
            inodes: space.inode_count,
            free_inodes: space.free_inode_count,
            last_error: counters.last_error.lock().clone(),
        }
    }
}

/// Memory of this process that is in pages now.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The content of [`FILE_XATTR`]. Bytes and counts since the mount.
#[derive(Debug, Serialize)]
pub(crate) struct FileReport {
    ino: u32,
    app_writes: u64,
    app_bytes: u64,
    fsyncs: u64,
    /// The sum of the forms.
    journal_bytes: u64,
    journal_bytes_by_form: Forms,
    in_place_bytes: u64,
    home_bytes: u64,
    /// Journal, in-place and home bytes over application bytes. Metadata count for no file.
    write_amplification: Option<f64>,
    /// Counters of files that were long unused have been dropped, perhaps of this one.
    may_be_partial: bool,
    /// Not in a list of files.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    atomic: Option<AtomicReport>,
}

/// Which writes of a file are atomic.
#[derive(Debug, Serialize)]
pub(crate) struct AtomicReport {
    /// Aligned writes of up to so many bytes.
    #[serde(rename = "atomic_write_bytes")]
    pub(crate) write_bytes: u64,
    /// What the file is declared to need; 0: nothing.
    #[serde(rename = "atomic_declared_bytes")]
    pub(crate) declared_bytes: u64,
}

impl FileReport {
    pub(crate) fn new(ino: ext4::InodeNo, stat: &ext4::FileStat) -> FileReport {
        let [block, sparse, extent, delta, xor_lzo, copy, patch] = stat.journal_bytes;
        let copy = copy + patch;
        let journal_bytes = stat.journal_bytes.iter().sum();
        FileReport {
            ino: ino.0,
            app_writes: stat.app_writes,
            app_bytes: stat.app_bytes,
            fsyncs: stat.fsyncs,
            journal_bytes,
            journal_bytes_by_form: Forms { block, sparse, extent, delta, xor_lzo, copy },
            in_place_bytes: stat.in_place_bytes,
            home_bytes: stat.home_bytes,
            write_amplification: amplification(stat.written_bytes(), stat.app_bytes),
            may_be_partial: stat.may_be_partial,
            atomic: None,
        }
    }

    /// The same with what is known of atomic writes.
    pub(crate) fn with_atomic(self, atomic: AtomicReport) -> FileReport {
        FileReport { atomic: Some(atomic), ..self }
    }
}

/// A rendered report has a multiple of so many bytes.
pub(crate) const RENDER_BYTES: usize = 512;

/// As JSON, padded with spaces so that the size hardly changes between the call that asks for it
/// and the one that fetches the value.
pub(crate) fn render(stat: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(stat).expect("numbers and strings always render");
    json.resize(json.len().next_multiple_of(RENDER_BYTES), b' ');
    json
}
