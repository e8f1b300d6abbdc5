//! How a volume is opened.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use journal::{DeltaCodec, Medium};

use super::claim::Claimant;
use crate::memory::Settings;
use crate::{DataMode, Timestamp};

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
    /// Seed of inode generations and of the journal's incarnation. Must differ between mounts.
    pub random_seed: u64,
    /// Go on although the journal is damaged before its end: what lies behind the damage is lost.
    pub discard_damaged: bool,
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
pub(super) fn system_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(SystemTime::now())
}

impl OpenOptions {
    /// What operations look at.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            read_only: self.read_only,
            noatime: self.noatime,
            data_mode: self.data_mode,
            threshold_bytes: self.threshold_bytes,
            clock: self.clock.clone(),
        }
    }
}
