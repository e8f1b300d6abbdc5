//! What the mount tells about itself through extended attributes. Every file and directory has:
//! - `user.onejournal.stat`: counters, as JSON;
//! - `user.onejournal.pid`: the serving process;
//! - `user.onejournal.mode`: the data mode that holds;
//! - `user.onejournal.atomic_write_bytes`: up to how many bytes aligned writes are atomic;
//! - `user.onejournal.files`: the files for which most was written, as JSON.
//!
//! A regular file also has `user.onejournal.file`: its own counters, as JSON. The attributes are
//! not listed and cannot be set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use device::sync::Mutex;
use fuse::abi::{InHeader, Opcode};
use journal::Distribution;
use rustix::io::Errno;

use crate::errno::{errno, is_grave};
use crate::session_options::{InWords, Order};

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
/// The attribute that root, or the user of the daemon, reads to have another program go on with the
/// mount. Its value is [`RESTARTED`], and comes when that is done; or why it cannot be done. To ask
/// for its size restarts nothing.
pub const RESTART_XATTR: &[u8] = b"user.onejournal.restart";
/// See [`RESTART_XATTR`].
pub const RESTARTED: &str = "restarted";
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
    /// As [`crate::Session::speak`] says.
    pub(crate) in_words: OnceLock<InWords>,
}

impl AdapterCounters {
    /// A request failed in the volume.
    pub(crate) fn failed(&self, opcode: Opcode, header: &InHeader, error: &ext4::Error) -> Errno {
        if is_grave(error) {
            tracing::error!(?opcode, node = header.nodeid, %error, "a failed operation");
            self.note_error(error);
        }
        errno(error)
    }

    /// A grave error.
    pub(crate) fn note_error(&self, error: &ext4::Error) {
        *self.last_error.lock() = Some(self.in_words(error));
    }

    pub(crate) fn in_words(&self, error: &ext4::Error) -> String {
        self.in_words.get().map_or_else(|| error.to_string(), |in_words| in_words(error))
    }
}

/// What had been done when the volume was ready: recovery, and the zeros of a new journal.
#[derive(Default)]
pub(crate) struct Opening {
    /// Written to the device.
    pub(crate) bytes: u64,
    /// Flushes of the device and of the journal's own medium.
    pub(crate) flushes: u64,
    /// Seconds since 1970.
    pub(crate) time_s: u64,
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

/// A mounted volume when it was asked for its numbers.
pub struct Seen<'a> {
    pub(crate) source: &'a StatSource,
    pub(crate) adapter: &'a AdapterCounters,
    pub(crate) volume: &'a ext4::Volume,
    pub(crate) transport: &'static str,
    pub(crate) order: Order,
    pub(crate) journal: journal::Stats,
    pub(crate) commit_latency_ns: Distribution,
    pub(crate) syncs_per_commit: Distribution,
    pub(crate) device: device::Counters,
    /// The journal's own medium, if it is a block device or a file.
    pub(crate) block: Option<device::Counters>,
    /// The same if it is NVRAM.
    pub(crate) nvram: Option<device::NvramCounters>,
    pub(crate) space: ext4::StatFs,
}

impl<'a> Seen<'a> {
    /// `transport`: how requests come from the kernel.
    pub(crate) fn new(
        source: &'a StatSource,
        adapter: &'a AdapterCounters,
        volume: &'a ext4::Volume,
        transport: &'static str,
        order: Order,
    ) -> Seen<'a> {
        let (commit_latency_ns, syncs_per_commit) = volume.journal().distributions();
        let (block, nvram) = match source.journal_counters.as_ref().map(|counters| counters()) {
            None => (None, None),
            Some(JournalCounters::Block(counters)) => (Some(counters), None),
            Some(JournalCounters::Nvram(counters)) => (None, Some(counters)),
        };
        Seen {
            source,
            adapter,
            volume,
            transport,
            order,
            journal: volume.journal().stats(),
            commit_latency_ns,
            syncs_per_commit,
            device: (source.device_counters)(),
            block,
            nvram,
            space: volume.stat_fs().unwrap_or_default(),
        }
    }

    /// The same with the percentiles of distributions, and without their buckets.
    pub(crate) fn without_buckets(mut self) -> Seen<'a> {
        self.syncs_per_commit.buckets.clear();
        self.commit_latency_ns.buckets.clear();
        self
    }
}

/// Memory of this process that is in pages now.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A file when it was asked for its numbers.
pub struct SeenFile {
    pub(crate) ino: ext4::InodeNo,
    pub(crate) stat: ext4::FileStat,
    /// Up to how many bytes aligned writes are atomic, and what the file is declared to need. Not
    /// in a list of files.
    pub(crate) atomic: Option<[u64; 2]>,
}

/// A rendered report has a multiple of so many bytes.
pub(crate) const RENDER_BYTES: usize = 512;

/// As JSON, padded with spaces so that the size hardly changes between the call that asks for it
/// and the one that fetches the value.
pub(crate) fn render(stat: &serde_json::Value) -> Vec<u8> {
    let mut json = stat.to_string().into_bytes();
    json.resize(json.len().next_multiple_of(RENDER_BYTES), b' ');
    json
}
