//! The log as a program uses it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Durability;
use serde::Serialize;

use crate::host::StreamMeta;
use crate::lane::{Anywhere, Lane};
use crate::place::{Options, Place};
use crate::record::Identity;
use crate::recovery::recover_service;
use crate::scan::Records;
use crate::service::Service;
use crate::shared::NOTE_BYTES;
use crate::worker::Worker;
use crate::{LogError, Lsn, Result, StreamName, Usn};

/// A service that this process takes part in.
pub struct Log {
    service: Arc<Service>,
    /// Stopped before the service is left.
    _worker: Worker,
}

impl Log {
    /// Joins the service in the directory `path`. When there is none it is made with `options`; the
    /// first to join after a restart of the machine recovers it.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Log> {
        let place = Place::join(path.as_ref(), options, |place| {
            recover_service(&Service::new(place, options.full_wait))
        })?;
        let service = Arc::new(Service::new(place, options.full_wait));
        let _worker = Worker::start(service.clone())?;
        Ok(Log { service, _worker })
    }

    /// What survives after an append that was synced.
    pub fn durability(&self) -> Durability {
        let group = self.service.host.group().map(|device| device.durability());
        self.service.host.nvram().or(group).unwrap_or(Durability::Process)
    }

    /// Opens the stream `name`, which is made when there is none.
    pub fn stream(&self, name: &str) -> Result<Stream> {
        let name: StreamName = name.parse()?;
        let meta = match self.find(&name)? {
            Some(meta) => meta,
            None => self.service.host.create_stream(&name, &new_stream())?,
        };
        let lane = self.service.lane(&name, &meta)?;
        Ok(Stream { service: self.service.clone(), lane })
    }

    /// Opens the stream `name` if there is one.
    pub fn existing_stream(&self, name: &str) -> Result<Option<Stream>> {
        let name: StreamName = name.parse()?;
        let Some(meta) = self.find(&name)? else { return Ok(None) };
        let lane = self.service.lane(&name, &meta)?;
        Ok(Some(Stream { service: self.service.clone(), lane }))
    }

    fn find(&self, name: &StreamName) -> Result<Option<StreamMeta>> {
        let streams = self.service.host.streams()?;
        Ok(streams.into_iter().find(|(found, _)| found == name).map(|(_, meta)| meta))
    }

    /// The names of all streams, sorted.
    pub fn stream_names(&self) -> Result<Vec<StreamName>> {
        let mut names: Vec<_> =
            self.service.host.streams()?.into_iter().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a stream and all it holds. Fails while anybody writes it.
    pub fn remove_stream(&self, name: &str) -> Result<()> {
        let name: StreamName = name.parse()?;
        let Some(meta) = self.find(&name)? else {
            return Err(LogError::NotFound(format!("there is no stream {name}")));
        };
        let lane = self.service.lane(&name, &meta)?;
        self.service.with_writer(&lane, |_, _| Ok(()))?;
        self.service.drain(&lane)?;
        self.service.release(&lane);
        self.service.drain(&lane)?;
        self.service.forget(lane.identity().stream);
        self.service.host.remove_stream(&name, &meta)
    }

    /// Counters of the service.
    pub fn stat(&self) -> LogStat {
        let control = &self.service.control;
        let get = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let settings = self.service.host.settings();
        LogStat {
            durability: self.durability().name(),
            is_nvram: self.service.host.nvram().is_some(),
            pool_bytes: settings.pool_bytes(),
            chunk_bytes: settings.chunk_bytes,
            lent_bytes: self.service.lent_count() as u64 * settings.chunk_bytes,
            pool_wait_count: get(control.wait_count()),
            pool_wait_ns: get(control.wait_ns()),
            group_commit_count: get(control.group_count()),
            group_member_count: get(control.group_members()),
            group_bytes: get(control.group_bytes()),
            drain_count: get(control.drain_count()),
            drain_bytes: get(control.drain_bytes()),
            is_aborted: get(control.aborted()) != 0,
        }
    }
}

fn new_stream() -> StreamMeta {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    StreamMeta { id: 0, salt: fastrand::u64(..), uid, gid, mode: 0o600, quota_bytes: 0 }
}

/// Counters of a service since its memory was made.
#[derive(Debug, Clone, Serialize)]
pub struct LogStat {
    /// What a synced append survives: `power`, `reboot` or `process`.
    pub durability: &'static str,
    /// Whether lanes lie on NVRAM.
    pub is_nvram: bool,
    /// Size of the pool in bytes.
    pub pool_bytes: u64,
    /// Data bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the pool that are lent now.
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
    /// Whether the group log failed, so that nothing is accepted any more.
    pub is_aborted: bool,
}

/// A stream of records.
///
/// May be used by many threads; their appends follow each other. The first append takes the
/// stream's lease for this process, which keeps it until [`Stream::release`] or its end.
#[derive(Clone)]
pub struct Stream {
    service: Arc<Service>,
    lane: Arc<Lane>,
}

impl Stream {
    /// Its name.
    pub fn name(&self) -> &StreamName {
        &self.lane.name
    }

    /// Appends one record of 1 byte to 16 MiB. On NVRAM it is durable when this returns, elsewhere after
    /// [`Stream::sync`].
    pub fn append(&self, payload: &[u8]) -> Result<Lsn> {
        self.service.with_writer(&self.lane, |writer, lender| writer.append(lender, payload))
    }

    /// Appends records one behind the other, persisted together, half a pool of bytes at most; where
    /// the last one begins. A crash in the middle leaves any number of the first ones.
    pub fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        self.service.with_writer(&self.lane, |writer, lender| writer.append_batch(lender, payloads))
    }

    /// Returns when the record at `lsn` and all before it are durable. One device write for everybody
    /// in the service who waits; nothing on NVRAM.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        self.service.sync(&self.lane, lsn)
    }

    /// Brings all that was appended to the log files, durably.
    pub fn flush(&self) -> Result<()> {
        self.service.drain(&self.lane)
    }

    /// Takes the lease for this process now, without appending: what the stream's note says then holds
    /// until [`Stream::release`].
    ///
    /// # Errors
    /// [`LogError::Busy`] while another process has it.
    pub fn acquire(&self) -> Result<()> {
        self.service.with_writer(&self.lane, |_, _| Ok(()))
    }

    /// Lets another process write the stream.
    pub fn release(&self) {
        self.service.release(&self.lane);
    }

    /// The records that are durable now and later, from the one at `lsn` on. `lsn` has to be where a
    /// record begins, or the end; what lies before [`Stream::head`] may be gone.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader> {
        let (head, end) = (self.head(), self.end());
        if lsn < head {
            let text = format!("stream {}: {lsn} is gone, it begins at {head}", self.lane.name);
            return Err(LogError::NotFound(text));
        }
        if lsn > end {
            let text = format!("stream {}: {lsn} lies behind its end, {end}", self.lane.name);
            return Err(LogError::Usage(text));
        }
        Ok(Reader { lane: self.lane.clone(), position: lsn })
    }

    /// Where the first record is that was not truncated away.
    pub fn head(&self) -> Lsn {
        Lsn(self.lane.words.head().load(Ordering::Acquire))
    }

    /// Behind the last record that is durable.
    pub fn end(&self) -> Lsn {
        Lsn(self.lane.durable())
    }

    /// Behind the last record that was appended.
    pub fn appended(&self) -> Lsn {
        Lsn(self.lane.words.appended().load(Ordering::Acquire))
    }

    /// The records before `lsn` are not wanted any more: their space is given back, by whole log
    /// files. After a power cut they may be there again.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        let end = self.appended();
        if lsn > end {
            let text = format!("stream {}: {lsn} lies behind its end, {end}", self.lane.name);
            return Err(LogError::Usage(text));
        }
        let before = self.lane.words.head().fetch_max(lsn.0, Ordering::AcqRel);
        if before >= lsn.0 {
            return Ok(());
        }
        self.lane.with_files(|segments| {
            segments.keep_head(lsn.0)?;
            segments.truncate_before(lsn.0)
        })
    }

    /// A few bytes that whoever writes the stream leaves for the next, in memory: zeros after a restart
    /// of the machine.
    pub fn note(&self) -> [u8; NOTE_BYTES] {
        self.lane.words.note()
    }

    /// Leaves a note. Only who has the lease may.
    pub fn set_note(&self, note: &[u8; NOTE_BYTES]) {
        self.lane.words.set_note(note);
    }

    /// Counters of the stream.
    pub fn stat(&self) -> Result<StreamStat> {
        let words = &self.lane.words;
        let get = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        Ok(StreamStat {
            name: self.lane.name.to_string(),
            head: get(words.head()),
            drained: get(words.drained()),
            durable: self.lane.durable(),
            appended: get(words.appended()),
            record_count: get(words.record_count()),
            payload_bytes: get(words.payload_bytes()),
            file_bytes: self.lane.with_files(|segments| Ok(segments.file_bytes()))?,
            is_aborted: self.lane.check().is_err(),
        })
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
    lane: Arc<Lane>,
    position: Lsn,
}

impl Reader {
    /// Where the next record begins.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The next record; `None` at the end of what is durable.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let end = self.lane.durable();
        if self.position.0 >= end {
            return Ok(None);
        }
        let identity: Identity = self.lane.identity();
        let mut source = Anywhere(&self.lane);
        let mut records = Records::new(identity, &mut source, self.position, end);
        match records.next()? {
            Some((lsn, header, payload)) => {
                let record = Record { lsn, usn: header.usn, payload: payload.to_vec() };
                self.position = records.position();
                Ok(Some(record))
            }
            None => Err(LogError::Damaged {
                stream: self.lane.name.to_string(),
                at: self.position,
                what: "no record begins there".into(),
            }),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.next_record().transpose()
    }
}
