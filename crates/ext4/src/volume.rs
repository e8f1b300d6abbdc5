//! A mounted volume: what its operations share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::sync::RwLock;
use journal::{BlockRef, DeltaCodec, HomeBlock, Journal, Medium, Tid};

use crate::alloc_hints::AllocHints;
use crate::cells::{Cells, InodeCell};
use crate::claim::Claimant;
use crate::facts::Facts;
use crate::file_stats::FileStats;
use crate::frees::Frees;
use crate::heartbeat::Heartbeat;
use crate::marks::Marks;
use crate::orphan::Orphans;
use crate::source::Source;
use crate::space::Spender;
use crate::totals::Totals;
use crate::{DataMode, Error, InodeNo, Result, Timestamp};

/// How a volume is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Nothing is changed, except that a journal of ours that is not empty is recovered first.
    pub read_only: bool,
    /// Reading sets no access times.
    pub noatime: bool,
    /// Where the data of files go that do not ask for something else.
    pub data_mode: DataMode,
    /// Writes of fewer bytes than this go through the journal with `DataMode::Selective`.
    pub threshold_bytes: usize,
    /// The journal's own medium; `None`: the volume's journal inode. An empty one becomes this
    /// volume's journal.
    pub journal: Option<Medium>,
    /// Who opens it; `None`: nobody who matters. Then no claim is written, and one that is there is
    /// not looked at.
    pub claimant: Option<Claimant>,
    /// Regions of the journal, 2 to 16.
    pub region_count: usize,
    /// How deltas are encoded.
    pub delta_codec: DeltaCodec,
    /// Commit on its own after this time; `None`: only when asked to.
    pub commit_interval: Option<Duration>,
    /// Threads for checkpoints and the commit timer; without them everything happens in the
    /// caller's thread, deterministically.
    pub background: bool,
    /// The clock that gives inodes their times.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Seed of inode generations and of the journal's life. Must differ between mounts.
    pub random_seed: u64,
    /// Go on although the journal is damaged before its end: what lies behind the damage is lost.
    pub discard_damaged: bool,
    /// A fault to build into the engine, so that a check can be seen to fail.
    #[cfg(feature = "canary")]
    pub broken: journal::Broken,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            noatime: false,
            data_mode: DataMode::Auto,
            threshold_bytes: journal::BLOCK_BYTES,
            journal: None,
            claimant: None,
            region_count: 4,
            delta_codec: DeltaCodec::Runs,
            commit_interval: Some(Duration::from_secs(5)),
            background: true,
            clock: Arc::new(system_time),
            random_seed: system_seed(),
            discard_damaged: false,
            #[cfg(feature = "canary")]
            broken: journal::Broken::Nothing,
        }
    }
}

fn system_time() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(_) => Timestamp::default(),
    }
}

/// A number that differs between processes and calls: std's hash keys are random.
pub(crate) fn system_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(SystemTime::now())
}

/// An ext4 file system on a block device, with our journal.
///
/// Every method may be called from any thread. Dropping a volume instead of closing it is a
/// crash: nothing that is not durable yet is brought home.
pub struct Volume {
    pub(crate) journal: Journal,
    pub(crate) options: OpenOptions,
    pub(crate) facts: Facts,
    pub(crate) cells: Cells,
    pub(crate) file_stats: Arc<FileStats>,
    pub(crate) alloc_hints: AllocHints,
    pub(crate) frees: Frees,
    pub(crate) totals: Totals,
    pub(crate) orphans: Orphans,
    /// `None` on a read-only volume.
    pub(crate) marks: Option<Marks>,
    /// Of its claim, if that has one.
    pub(crate) heartbeat: Option<Heartbeat>,
    pub(crate) random: AtomicU64,
    /// The last transaction that renamed a directory, by number: what lies below it is reached by
    /// another path since.
    pub(crate) renamed_dir_tid: AtomicU64,
    /// Held shared from when a write in `writeback` mode is answered until its data are home: no transaction
    /// waits for those, but a sync of the volume has to.
    pub(crate) answered: RwLock<()>,
}

impl Source for Volume {
    fn block(&self, block: HomeBlock) -> Result<BlockRef> {
        self.facts.geometry.check_pointer(block)?;
        Ok(self.journal.read(block)?)
    }

    fn super_bytes(&self) -> Result<BlockRef> {
        Ok(self.journal.read(HomeBlock(0))?)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Volume {
    /// What a user with this group is, as far as the superblock tells.
    pub fn spender(&self, uid: u32, gid: u32) -> Spender {
        self.facts.spender(uid, gid)
    }

    /// The group whose members may use the blocks that are reserved for root; `None`: there is none but root.
    pub fn reserved_group(&self) -> Option<u32> {
        self.facts.reserved_group()
    }

    /// Is the volume read-only: opened so, or because the medium failed?
    pub fn is_read_only(&self) -> bool {
        self.options.read_only || self.journal.abort_reason().is_some()
    }

    /// Where the data of files go that do not ask for something else.
    pub fn data_mode(&self) -> DataMode {
        self.options.data_mode
    }

    /// The engine, for its counters.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Size of the journal in bytes; 0 for a volume that was opened for reading.
    pub fn journal_size_bytes(&self) -> u64 {
        self.marks.as_ref().map_or(0, |_| self.journal.header().space_bytes)
    }

    /// The volume's clock.
    pub(crate) fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    /// Fails on a read-only volume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The in-memory companion of an inode.
    pub(crate) fn cell(&self, ino: InodeNo) -> Arc<InodeCell> {
        self.cells.get(ino, || self.committed())
    }

    /// Pins an inode: while it is pinned it is not freed, even without a name.
    pub fn pin(&self, ino: InodeNo) {
        self.cells.pin(ino);
    }

    pub(crate) fn committed(&self) -> Tid {
        self.journal.committed_tid()
    }

    /// A pseudo-random number (SplitMix64): for generations and for spreading directories.
    pub(crate) fn random(&self) -> u64 {
        let step = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.random.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}
