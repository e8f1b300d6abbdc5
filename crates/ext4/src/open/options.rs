//! The options of opening a volume.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use journal::{CheckpointPolicy, DeltaCodec, Medium, MemoryLimits};

use super::claim::Claimant;
use crate::DataMode;
use crate::clock::{Clock, SystemClock};
use crate::memory::{Pin, Settings, Times};

/// The journal with which a volume is opened.
#[derive(Debug, Clone, Default)]
pub enum JournalChoice {
    /// The one in the volume's journal inode. A volume that needs a journal elsewhere is refused
    /// ([`crate::Error::JournalMissing`]).
    #[default]
    Own,
    /// On this medium. It must be the volume's own journal, if the volume has one elsewhere.
    /// Otherwise an empty medium becomes a journal of this volume, for this opening only.
    On(Medium),
    /// The one in the volume's journal inode, for this opening, also if the volume has a journal
    /// of its own elsewhere. Refused if the newest changes are in that journal.
    Inside,
}

impl JournalChoice {
    /// The medium, if one is given.
    pub(super) fn medium(&self) -> Option<&Medium> {
        match self {
            JournalChoice::On(medium) => Some(medium),
            JournalChoice::Own | JournalChoice::Inside => None,
        }
    }
}

impl From<Option<Medium>> for JournalChoice {
    fn from(medium: Option<Medium>) -> JournalChoice {
        medium.map_or(JournalChoice::Own, JournalChoice::On)
    }
}

/// The options of opening a volume.
#[derive(Clone)]
pub struct OpenOptions {
    /// Changes nothing, except that a journal that is not empty is recovered first.
    pub read_only: bool,
    /// Reading sets no access times.
    pub noatime: bool,
    /// The data mode of files that do not ask for another one.
    pub data_mode: DataMode,
    /// Writes of fewer bytes than this go through the journal with `DataMode::Selective`.
    pub threshold_bytes: usize,
    /// Where the journal is.
    pub journal: JournalChoice,
    /// The user that opens it. `None`: no claim is written, and an existing claim is ignored.
    pub claimant: Option<Claimant>,
    /// Regions of the journal, 2 to 16.
    pub region_count: usize,
    /// How deltas are encoded. `None`: as is usual for the journal's medium.
    pub delta_codec: Option<DeltaCodec>,
    /// When a filled region is brought home.
    pub checkpoint: CheckpointPolicy,
    /// How much the journal keeps in memory.
    pub memory: MemoryLimits,
    /// Commits after this time without a request. `None`: only on request.
    pub commit_interval: Option<Duration>,
    /// Runs threads for checkpoints and the commit timer. Without them, everything happens in the
    /// caller's thread, deterministically.
    pub background: bool,
    /// The clock that gives inodes their times.
    pub clock: Arc<dyn Clock>,
    /// The inodes that are pinned from the beginning: those of [`crate::Volume::hand_over`]. They
    /// are not freed, even without a name.
    pub pins: Arc<[Pin]>,
    /// Seed of inode generations and of the journal's incarnation. Must differ between mounts.
    pub random_seed: u64,
    /// Continues although the journal is damaged before its end. Everything after the damage is
    /// lost.
    pub discard_damaged: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            noatime: false,
            data_mode: DataMode::Auto,
            threshold_bytes: journal::BLOCK_BYTES,
            journal: JournalChoice::Own,
            claimant: None,
            region_count: 4,
            delta_codec: None,
            checkpoint: CheckpointPolicy::Late,
            memory: MemoryLimits::default(),
            commit_interval: Some(Duration::from_secs(5)),
            background: true,
            clock: Arc::new(SystemClock::default()),
            pins: Arc::default(),
            random_seed: system_seed(),
            discard_damaged: false,
        }
    }
}

/// A number that differs between processes and calls, from the random hash keys of the standard
/// library.
pub(super) fn system_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(SystemTime::now())
}

impl OpenOptions {
    /// The options that operations use.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            read_only: self.read_only,
            noatime: self.noatime,
            data_mode: self.data_mode,
            threshold_bytes: self.threshold_bytes,
            times: Times::new(self.clock.clone()),
        }
    }
}
