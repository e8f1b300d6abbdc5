//! Writes a database's stream: the lease of its writer, its header, its records and its end.
//!
//! A writer takes the lease, appends, and leaves the header for the next writer. Every function
//! that changes the header is called with the lease.

use std::time::{Duration, Instant};

use log::{LogError, Lsn};

use crate::failure::Failure;
use crate::format::base::{Base, encode_base};
use crate::stream::header::{SharedHeader, StreamHeader};
use crate::stream::stamped::Stream;

/// How long to wait for the lease. A process normally holds it for microseconds.
const LEASE_WAIT: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

/// The stream's lease, for as long as this lives.
pub struct Lease<'a>(&'a Stream);

impl Lease<'_> {
    /// Takes the lease; waits until no other process holds it.
    pub fn take(stream: &Stream) -> Result<Lease<'_>, Failure> {
        let mut busy_since = None;
        loop {
            match stream.acquire() {
                Ok(()) => return Ok(Lease(stream)),
                Err(LogError::Busy(_))
                    if busy_since.get_or_insert_with(Instant::now).elapsed() < LEASE_WAIT =>
                {
                    std::thread::sleep(Duration::from_micros(20));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Appends a record. Returns its LSN, or `None` if the log's pool is too small for the record.
pub fn append_if_it_fits(stream: &Stream, record: &[u8]) -> Result<Option<u64>, Failure> {
    match stream.append(record) {
        Ok(lsn) => Ok(Some(lsn.0)),
        Err(LogError::TooLarge { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Appends a record. Returns its LSN.
pub fn append(stream: &Stream, record: &[u8]) -> Result<u64, Failure> {
    Ok(stream.append(record)?.0)
}

/// The content of the stream's header.
pub fn find_header(stream: &Stream) -> Result<SharedHeader, Failure> {
    Ok(match StreamHeader::read(&stream.header()?) {
        SharedHeader::Whole(shared) if shared.end_lsn != stream.appended().0 => SharedHeader::Torn,
        found => found,
    })
}

/// Writes the header, with the state after the last record. The caller has the lease.
pub fn leave(stream: &Stream, shared: StreamHeader) -> StreamHeader {
    let shared = StreamHeader { end_lsn: stream.appended().0, ..shared };
    stream.leave(shared);
    shared
}

/// The stream's header. If it is not valid, a header without a generation.
pub fn header_or_default(stream: &Stream) -> Result<StreamHeader, Failure> {
    Ok(match find_header(stream)? {
        SharedHeader::Whole(shared) => shared,
        SharedHeader::Unset | SharedHeader::Torn => StreamHeader::default(),
    })
}

/// Records durably that no earlier record counts any more. The caller has the lease.
pub fn close(stream: &Stream) -> Result<(), Failure> {
    let lsn = append_closed(stream)?;
    let shared =
        leave(stream, StreamHeader { base_lsn: lsn, last_lsn: lsn, ..StreamHeader::default() });
    stream.sync(Lsn(lsn))?;
    // A later truncation frees what this one did not.
    let _ = truncate(stream, &shared);
    Ok(())
}

/// Appends *closed*, without a sync. The caller has the lease. If the record needs more shared
/// memory than there is, the earlier ones go to the log's files first, which frees theirs.
pub fn append_closed(stream: &Stream) -> Result<u64, Failure> {
    let closed = encode_base(&Base::closed());
    match append(stream, &closed) {
        Err(Failure::Log(LogError::NoMemory(_))) => {
            stream.flush()?;
            append(stream, &closed)
        }
        appended => appended,
    }
}

/// Truncates the log before the first record that counts. Does nothing until the last record that
/// the header names is durable. The record that voids the earlier ones was appended before it, and
/// then is durable, too.
pub fn truncate(stream: &Stream, shared: &StreamHeader) -> Result<(), Failure> {
    let base = Lsn(shared.base_lsn);
    if stream.head() < base && stream.end() > Lsn(shared.last_lsn) {
        stream.truncate_before(base)?;
    }
    Ok(())
}
