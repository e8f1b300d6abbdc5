//! A stream as its users see it: append, sync, read, truncate.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::{Ends, StreamBackend};
use crate::owned::Owned;
use crate::types::RecordBatch;
use crate::words::STREAM_HEADER_BYTES;
use crate::{Lsn, Record, Result, StreamName, StreamStat};

/// A stream of records.
///
/// May be used by many threads; their appends follow each other. The first append takes the
/// stream's lease for this process, which keeps it until [`Stream::release`] or its end.
#[derive(Clone)]
pub struct Stream {
    backend: Owned<Arc<dyn StreamBackend>>,
}

impl Stream {
    pub(crate) fn new(backend: Owned<Arc<dyn StreamBackend>>) -> Stream {
        Stream { backend }
    }

    /// Its name.
    pub fn name(&self) -> &StreamName {
        self.backend.look().name()
    }

    /// Appends one record of 1 byte to 16 MiB. On NVRAM it is durable when this returns, elsewhere
    /// after [`Stream::sync`].
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        self.append_batch(&[payload])
    }

    /// Appends records one after the other and persists them together. They take at most half of
    /// the pool. Returns where the last one begins. After a crash in the middle, any number of the
    /// first ones may be there.
    pub fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        self.backend.get()?.append_batch(payloads)
    }

    /// Returns when the record at `lsn` and all records before it are durable. All callers in the
    /// service that wait share one device write. On NVRAM nothing is written.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        self.backend.get()?.sync(lsn)
    }

    /// Brings all appended records to the log files, durably.
    pub fn flush(&self) -> Result<()> {
        self.backend.get()?.flush()
    }

    /// Takes the lease for this process without appending. From now until [`Stream::release`] no
    /// other process changes the stream or its header.
    ///
    /// # Errors
    /// [`LogError::Busy`](crate::LogError::Busy) while another process has the lease.
    pub fn acquire(&self) -> Result<()> {
        self.backend.get()?.acquire()
    }

    /// Lets another process write the stream.
    pub fn release(&self) {
        if let Ok(backend) = self.backend.get() {
            backend.release();
        }
    }

    /// A reader of the records that are durable now and later, from the one at `lsn` on. `lsn` has
    /// to be where a record begins, or the end. Records before [`Stream::head`] may be gone.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader> {
        let stream = self.backend.get()?.clone();
        let RecordBatch { records, next } = stream.begin_reading(lsn)?;
        let reading = Reading { stream, ready: records.into(), next };
        Ok(Reader { reading: self.backend.with(reading) })
    }

    /// Where the first record begins that was not truncated.
    pub fn head(&self) -> Lsn {
        self.end_of(|stream| stream.head(), |ends| ends.head)
    }

    /// The end of the last durable record.
    pub fn end(&self) -> Lsn {
        self.end_of(|stream| stream.end(), |ends| ends.durable)
    }

    /// The end of the last appended record.
    pub fn appended(&self) -> Lsn {
        self.end_of(|stream| stream.appended(), |ends| ends.appended)
    }

    /// Asks the stream for an end. A forked process must not use the connection, and gets the end
    /// that is known here.
    fn end_of(&self, ask: impl Fn(&dyn StreamBackend) -> Lsn, known: impl Fn(Ends) -> Lsn) -> Lsn {
        match self.backend.get() {
            Ok(stream) => ask(&**stream),
            Err(_) => known(self.backend.look().known_ends()),
        }
    }

    /// Drops the records before `lsn`. Their space is freed by whole log files. After a power cut
    /// they may be there again.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.backend.get()?.truncate_before(lsn)
    }

    /// The stream header: bytes in shared memory that a writer of the stream leaves for the next
    /// one. The log does not read them. They are zeros after a restart of the machine.
    ///
    /// # Errors
    /// When no daemon answers.
    pub fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]> {
        self.backend.get()?.header()
    }

    /// Changes the stream header. Only the process that has the lease may call this.
    pub fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]) {
        if let Ok(backend) = self.backend.get() {
            backend.set_header(header);
        }
    }

    /// Counters of the stream.
    pub fn stat(&self) -> Result<StreamStat> {
        self.backend.get()?.stat()
    }
}

/// Reads a stream while it is written. As an iterator it ends at the last durable record. Calling
/// it again returns the records that have become durable since.
pub struct Reader {
    reading: Owned<Reading>,
}

struct Reading {
    stream: Arc<dyn StreamBackend>,
    /// Records that were read and not returned yet.
    ready: VecDeque<Record>,
    /// Where the record after those in `ready` begins.
    next: Lsn,
}

impl Reader {
    /// Where the next record begins.
    pub fn position(&self) -> Lsn {
        let Reading { ready, next, .. } = self.reading.look();
        ready.front().map_or(*next, |record| record.lsn)
    }

    /// The next record. `None` at the end of the durable records.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let reading = self.reading.get_mut()?;
        if reading.ready.is_empty() {
            let RecordBatch { records, next } = reading.stream.read_records(reading.next)?;
            reading.ready.extend(records);
            reading.next = next;
        }
        Ok(reading.ready.pop_front())
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.next_record().transpose()
    }
}
