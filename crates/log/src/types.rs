//! Numbers that must not be confused, and a record as its reader gets it.

use std::fmt;

/// Log sequence number: where a record begins in its stream, in bytes from the stream's beginning,
/// headers included. Every record of a stream has a larger one than the records before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {}", self.0)
    }
}

/// Universal sequence number (xLog §3): orders the records of all streams of a service. If one
/// append has returned before another one began, in any process, it has the smaller number. Appends
/// to different streams that overlapped in time can have the same number; then neither came first.
/// In nanoseconds of the time that the service was running since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Usn(pub u64);

/// Number of a stream in its service. While the service's memory exists, it is not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// One record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it begins.
    pub lsn: Lsn,
    /// Orders it among the records of all streams.
    pub usn: Usn,
    /// The bytes that were appended.
    pub payload: Vec<u8>,
}

/// Bytes of records that are read at a time. A larger single record is read as a whole.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Consecutive records.
pub(crate) struct RecordBatch {
    pub(crate) records: Vec<Record>,
    /// Where the next record begins. If there is none yet: where it will begin.
    pub(crate) next: Lsn,
}

impl RecordBatch {
    pub(crate) fn empty_at(next: Lsn) -> RecordBatch {
        RecordBatch { records: Vec::new(), next }
    }
}
