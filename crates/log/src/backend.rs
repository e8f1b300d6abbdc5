//! The operations of a log and its streams, for both ways to serve the log's directory.
//!
//! [`Log`](crate::Log) and [`Stream`](crate::Stream) hold these traits and do not know which
//! implementation they have:
//!
//! - `embedded`: this process opened the directory and serves it itself.
//! - `client`: a daemon serves the directory, and this process is connected to its socket.

use std::sync::Arc;

use device::Durability;

use crate::types::RecordBatch;
use crate::words::STREAM_HEADER_BYTES;
use crate::{LogStat, Lsn, Result, StreamName, StreamStat};

/// One log.
pub(crate) trait LogBackend: Send + Sync {
    /// Names the log: 32 hexadecimal digits.
    fn uuid(&self) -> &str;

    /// See [`Log::copied_from`](crate::Log::copied_from).
    fn copied_from(&self) -> &[String];

    /// See [`Log::is_current`](crate::Log::is_current).
    fn is_current(&self) -> bool {
        true
    }

    /// What a synced append survives.
    fn durability(&self) -> Durability;

    /// The stream `name`. If there is none: a new one if `is_new`, otherwise `None`.
    fn open_stream(
        &self,
        name: &StreamName,
        is_new: bool,
    ) -> Result<Option<Arc<dyn StreamBackend>>>;

    /// See [`Log::stream_owner`](crate::Log::stream_owner).
    fn stream_owner(&self, name: &StreamName) -> Result<Option<u32>>;

    /// The names of the streams that this user may open, sorted.
    fn stream_names(&self) -> Result<Vec<StreamName>>;

    /// Removes a stream durably.
    fn remove_stream(&self, name: &StreamName) -> Result<()>;

    /// See [`Log::salvage`](crate::Log::salvage).
    fn salvage(&self, name: &StreamName, from: Lsn) -> Result<RecordBatch>;

    /// See [`Log::discard_damaged`](crate::Log::discard_damaged).
    fn discard_damaged(&self, name: &StreamName) -> Result<Lsn>;

    /// Counters of the log.
    fn stat(&self) -> Result<LogStat>;

    /// The counters that this process knows without asking another one and without waiting; zeros
    /// for the rest.
    fn known_stat(&self) -> LogStat;

    /// See [`Log::close`](crate::Log::close).
    fn close(self: Box<Self>) -> Result<()>;
}

/// Where a stream begins and ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) head: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) appended: Lsn,
}

/// One stream of a log. Appending takes the stream's lease for this process.
pub(crate) trait StreamBackend: Send + Sync {
    fn name(&self) -> &StreamName;

    /// Takes the lease without appending.
    fn acquire(&self) -> Result<()>;

    /// Releases the lease, if this process has it.
    fn release(&self);

    /// Appends records one after the other. Returns where the last one begins.
    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn>;

    /// Makes the record at `lsn` and all records before it durable.
    fn sync(&self, lsn: Lsn) -> Result<()>;

    /// Brings all appended records to the log files, durably.
    fn flush(&self) -> Result<()>;

    /// Begins to read at `lsn`. An error if no reader may begin there. The batch may be empty
    /// before the end.
    fn begin_reading(&self, lsn: Lsn) -> Result<RecordBatch>;

    /// Durable records from the one at `lsn` on, about a mebibyte of them. Empty at the end.
    fn read_records(&self, lsn: Lsn) -> Result<RecordBatch>;

    /// Where the first record begins that was not truncated away.
    fn head(&self) -> Lsn;

    /// The end of the last durable record.
    fn end(&self) -> Lsn;

    /// The end of the last appended record.
    fn appended(&self) -> Lsn;

    /// The three ends that this process knows without asking another one and without waiting.
    fn known_ends(&self) -> Ends;

    /// Drops the records before `lsn`.
    fn truncate_before(&self, lsn: Lsn) -> Result<()>;

    /// See [`Stream::header`](crate::Stream::header).
    fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]>;

    /// See [`Stream::set_header`](crate::Stream::set_header).
    fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]);

    /// Counters of the stream.
    fn stat(&self) -> Result<StreamStat>;
}
