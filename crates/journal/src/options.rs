//! Options of an open journal.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::format::WINDOW_BLOCKS_MAX;
use crate::memory::MemoryLimits;
use crate::observer::Observer;
use crate::record::codec::DeltaCodec;

/// Options of `Journal::open`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of regions, 2 to 16. A small journal gets fewer.
    pub region_count: u32,
    /// Commit the running transaction when it is this old. `None`: only on request.
    pub commit_interval: Option<Duration>,
    /// Run threads for the commit timer and for checkpoints. Without them everything happens in the
    /// caller's thread, in an order that depends only on the calls.
    pub background: bool,
    /// A random number that no earlier incarnation of this journal had.
    pub incarnation: u64,
    /// How much is kept in memory.
    pub memory: MemoryLimits,
    /// The least number of adjacent fresh blocks that a commit writes home and not into its record
    /// (`Handle::put_fresh`). One more write then costs less than writing the data twice. Only
    /// where journal and home are one device.
    pub in_place_run_blocks: u64,
    /// How deltas are encoded.
    pub delta_codec: DeltaCodec,
    /// When a filled region is brought home.
    pub checkpoint: CheckpointPolicy,
    /// Compress a record's payload (LZ4) if that makes it smaller. Never on NVRAM, where storing
    /// the bytes takes less time than compressing them.
    pub pack: bool,
    /// Time of day in nanoseconds since 1970, for the records' time stamps.
    pub now_ns: fn() -> u64,
    /// Is told which bytes were written for which owner.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// How many blocks of their region records may copy from.
    pub(crate) fn window_blocks(&self) -> u32 {
        match self.delta_codec {
            DeltaCodec::Copies => u32::try_from(self.memory.transaction_blocks)
                .map_or(WINDOW_BLOCKS_MAX, |blocks| blocks.min(WINDOW_BLOCKS_MAX)),
            DeltaCodec::Runs | DeltaCodec::XorLzo | DeltaCodec::Whole => 0,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            region_count: 4,
            commit_interval: Some(Duration::from_secs(5)),
            background: true,
            incarnation: random_incarnation(),
            memory: MemoryLimits::default(),
            in_place_run_blocks: 16,
            delta_codec: DeltaCodec::Runs,
            checkpoint: CheckpointPolicy::Late,
            pack: true,
            now_ns: wall_clock_ns,
            observer: None,
        }
    }
}

/// When a filled region is brought home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// When its room will soon be needed. Blocks that are logged again meanwhile need not go home.
    Late,
    /// As soon as the journal continues in the next region, as in DJFS.
    Early,
}

fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn random_incarnation() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => wall_clock_ns(),
    }
}
