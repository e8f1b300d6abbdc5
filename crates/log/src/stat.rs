//! Counters that users see.

use serde::{Deserialize, Serialize};

/// Counters of a service since its memory was made.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogStat {
    /// What a synced append survives: `power`, `reboot` or `process`.
    pub durability: &'static str,
    /// Whether lanes are on NVRAM.
    pub is_nvram: bool,
    /// Size of the pool in bytes.
    pub pool_bytes: u64,
    /// Data bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the pool that are allocated now.
    pub lent_bytes: u64,
    /// Appends that waited for a chunk.
    pub pool_wait_count: u64,
    /// How long they waited, in ns.
    pub pool_wait_ns: u64,
    /// Writes of the group log.
    pub group_commit_count: u64,
    /// Streams that took part in them, in all.
    pub group_member_count: u64,
    /// Bytes written to the group log.
    pub group_bytes: u64,
    /// Drains of a lane that wrote something.
    pub drain_count: u64,
    /// Bytes they wrote to log files.
    pub drain_bytes: u64,
    /// Whether the group log failed. It then accepts nothing any more.
    pub is_aborted: bool,
}

/// Counters of a stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamStat {
    /// Its name.
    pub name: String,
    /// LSN of the first record that is kept.
    pub head: u64,
    /// The log files hold the stream up to this LSN.
    pub drained: u64,
    /// The stream is durable up to this LSN.
    pub durable: u64,
    /// Records were appended up to this LSN.
    pub appended: u64,
    /// Records appended since its memory was made.
    pub record_count: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes its log files take.
    pub file_bytes: u64,
    /// Whether it accepts nothing any more after an error.
    pub is_aborted: bool,
}
