//! A stream as its users see it: appended to, synced, read, truncated.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::client::{RemoteReader, RemoteStream};
use crate::lane::Lane;
use crate::owned::Owned;
use crate::reading::{Found, READ_BYTES};
use crate::service::Service;
use crate::words::NOTE_BYTES;
use crate::{Lsn, Result, StreamName, Usn};

/// A stream of records.
///
/// May be used by many threads; their appends follow each other. The first append takes the
/// stream's lease for this process, which keeps it until [`Stream::release`] or its end.
#[derive(Clone)]
pub struct Stream {
    inner: Owned<StreamInner>,
}

#[derive(Clone)]
pub(crate) enum StreamInner {
    Embedded { service: Arc<Service>, lane: Arc<Lane> },
    Remote(Arc<RemoteStream>),
}

impl Stream {
    pub(crate) fn new(inner: Owned<StreamInner>) -> Stream {
        Stream { inner }
    }

    /// Its name.
    pub fn name(&self) -> &StreamName {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => &lane.name,
            StreamInner::Remote(stream) => stream.name(),
        }
    }

    #[cfg(test)]
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => lane,
            StreamInner::Remote(_) => unreachable!("tests of what is inside open directories"),
        }
    }

    /// Appends one record of 1 byte to 16 MiB. On NVRAM it is durable when this returns, elsewhere after
    /// [`Stream::sync`].
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => {
                service.with_writer(lane, |writer, lender| writer.append(lender, payload))
            }
            StreamInner::Remote(stream) => stream.append_batch(&[payload]),
        }
    }

    /// Appends records one behind the other, persisted together, half a pool of bytes at most; where
    /// the last one begins. A crash in the middle leaves any number of the first ones.
    pub fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => {
                service.with_writer(lane, |writer, lender| writer.append_batch(lender, payloads))
            }
            StreamInner::Remote(stream) => stream.append_batch(payloads),
        }
    }

    /// Returns when the record at `lsn` and all before it are durable. One device write for everybody
    /// in the service who waits; nothing on NVRAM.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => service.sync(lane, lsn),
            StreamInner::Remote(stream) => stream.sync(lsn),
        }
    }

    /// Brings all that was appended to the log files, durably.
    pub fn flush(&self) -> Result<()> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => service.drain(lane),
            StreamInner::Remote(stream) => stream.flush(),
        }
    }

    /// Takes the lease for this process now, without appending: what the stream's note says then holds
    /// until [`Stream::release`].
    ///
    /// # Errors
    /// [`LogError::Busy`] while another process has it.
    pub fn acquire(&self) -> Result<()> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => service.with_writer(lane, |_, _| Ok(())),
            StreamInner::Remote(stream) => stream.acquire(),
        }
    }

    /// Lets another process write the stream.
    pub fn release(&self) {
        let Ok(inner) = self.inner.get() else { return };
        match inner {
            StreamInner::Embedded { service, lane } => service.release(lane),
            StreamInner::Remote(stream) => stream.release(),
        }
    }

    /// The records that are durable now and later, from the one at `lsn` on. `lsn` has to be where a
    /// record begins, or the end; what lies before [`Stream::head`] may be gone.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader> {
        let lane = match self.inner.get()? {
            StreamInner::Embedded { lane, .. } => lane,
            StreamInner::Remote(stream) => {
                let reader = RemoteReader::new(stream.clone(), lsn)?;
                return Ok(Reader { inner: self.inner.with(ReaderInner::Remote(reader)) });
            }
        };
        lane.check_position(lsn)?;
        let (lane, read) = (lane.clone(), VecDeque::new());
        let inner = ReaderInner::Embedded { lane, read, behind: lsn };
        Ok(Reader { inner: self.inner.with(inner) })
    }

    /// Where the first record is that was not truncated away.
    pub fn head(&self) -> Lsn {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => Lsn(lane.words.head()),
            StreamInner::Remote(stream) => stream.head(),
        }
    }

    /// Behind the last record that is durable.
    pub fn end(&self) -> Lsn {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => Lsn(lane.durable()),
            StreamInner::Remote(stream) => stream.end(),
        }
    }

    /// Behind the last record that was appended.
    pub fn appended(&self) -> Lsn {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => {
                // What cannot be taken over is told by the next append or sync.
                let _ = self.inner.get().map(|_| lane.pull());
                Lsn(lane.words.appended())
            }
            StreamInner::Remote(stream) => stream.appended(),
        }
    }

    /// The records before `lsn` are not wanted any more: their space is given back, by whole log
    /// files. After a power cut they may be there again.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        match self.inner.get()? {
            StreamInner::Embedded { service, lane } => service.truncate_before(lane, lsn),
            StreamInner::Remote(stream) => stream.truncate_before(lsn),
        }
    }

    /// A few bytes that whoever writes the stream leaves for the next, in memory: zeros after a restart
    /// of the machine.
    ///
    /// # Errors
    /// When no daemon answers.
    pub fn note(&self) -> Result<[u8; NOTE_BYTES]> {
        match self.inner.look() {
            StreamInner::Embedded { lane, .. } => {
                let note = lane.words.note();
                lane.words.check()?;
                Ok(note)
            }
            StreamInner::Remote(stream) => stream.note(),
        }
    }

    /// Leaves a note. Only who has the lease may.
    pub fn set_note(&self, note: &[u8; NOTE_BYTES]) {
        let Ok(inner) = self.inner.get() else { return };
        match inner {
            StreamInner::Embedded { lane, .. } => lane.words.set_note(note),
            StreamInner::Remote(stream) => stream.set_note(note),
        }
    }

    /// Counters of the stream.
    pub fn stat(&self) -> Result<StreamStat> {
        match self.inner.get()? {
            StreamInner::Embedded { lane, .. } => lane.stat(),
            StreamInner::Remote(stream) => stream.stat(),
        }
    }
}

/// Counters of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamStat {
    /// Its name.
    pub name: String,
    /// LSN of the first record that is kept.
    pub head: u64,
    /// LSN below which the log files hold it.
    pub drained: u64,
    /// LSN below which it is durable.
    pub durable: u64,
    /// LSN below which it was appended.
    pub appended: u64,
    /// Records appended since its memory was made.
    pub record_count: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes its log files take.
    pub file_bytes: u64,
    /// Whether it takes nothing any more after an error.
    pub is_aborted: bool,
}

/// One record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it begins.
    pub lsn: Lsn,
    /// Orders it among the records of all streams.
    pub usn: Usn,
    /// What was appended.
    pub payload: Vec<u8>,
}

/// Reads a stream while it is written. As an iterator it ends at what is durable now, and goes on when
/// there is more.
pub struct Reader {
    inner: Owned<ReaderInner>,
}

enum ReaderInner {
    /// Records that were read already, and where the next ones begin.
    Embedded {
        lane: Arc<Lane>,
        read: VecDeque<Record>,
        behind: Lsn,
    },
    Remote(RemoteReader),
}

impl Reader {
    /// Where the next record begins.
    pub fn position(&self) -> Lsn {
        match self.inner.look() {
            ReaderInner::Embedded { read, behind, .. } => read.front().map_or(*behind, |r| r.lsn),
            ReaderInner::Remote(reader) => reader.position(),
        }
    }

    /// The next record; `None` at the end of what is durable.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        match self.inner.get_mut()? {
            ReaderInner::Embedded { lane, read, behind } => {
                if read.is_empty() {
                    let Found { records, next } = lane.read_records(*behind, READ_BYTES)?;
                    read.extend(records);
                    *behind = next;
                }
                Ok(read.pop_front())
            }
            ReaderInner::Remote(reader) => reader.next_record(),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.next_record().transpose()
    }
}
