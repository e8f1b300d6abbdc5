//! How many clients, streams and chunks a service has at most.

use crate::StreamId;
use crate::format::record::ALIGN_BYTES;

/// Most clients of one service at a time.
pub const CLIENT_COUNT_MAX: usize = 256;
/// Most streams of one service at a time.
pub const STREAM_COUNT_MAX: usize = 1 << 16;
/// Most chunks of one pool.
pub const CHUNK_COUNT_MAX: usize = 992;

/// Ordinals of spans are smaller than this, because a table entry has only so many bits for them.
pub(crate) const ORDINAL_MAX: u64 = 1 << 48;

/// Records end at multiples of this.
pub(super) const RECORD_ALIGN_BYTES: u64 = ALIGN_BYTES as u64;

/// Bytes of the stream header, which a lessee leaves for the next lessee.
pub const STREAM_HEADER_BYTES: usize = 64;

impl StreamId {
    /// The number for this stream in the owner's word of a chunk.
    pub(super) fn owner(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Its index among the existing streams. No other existing stream has the same one.
    pub(crate) fn index(self) -> usize {
        self.0 as usize % STREAM_COUNT_MAX
    }
}
