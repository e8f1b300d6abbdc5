//! The log when this process serves its directory: calls go straight to the [`Service`].

use std::path::Path;
use std::sync::Arc;

use device::Durability;

use crate::backend::{Ends, LogBackend, StreamBackend};
use crate::directory::service_directory::ServiceDirectory;
use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::worker::Worker;
use crate::engine::writer::{ChunkAllocator, Writer};
use crate::host::StreamMeta;
use crate::types::{READ_BYTES, RecordBatch};
use crate::words::STREAM_HEADER_BYTES;
use crate::{LogError, LogStat, Lsn, Options, Result, StreamName, StreamStat};

/// A log that this process serves, perhaps together with other processes.
pub(crate) struct EmbeddedLog {
    service: Arc<Service>,
    directory: Arc<ServiceDirectory>,
    /// Stopped before the service is left.
    worker: Worker,
}

/// A stream of such a log.
struct EmbeddedStream {
    service: Arc<Service>,
    lane: Arc<Lane>,
}

impl EmbeddedLog {
    /// Joins the service in the directory `path`; makes it with `options` if there is none.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<EmbeddedLog> {
        let (directory, service) = Service::join(path, options, None)?;
        let service = Arc::new(service);
        let worker = Worker::start(service.clone())?;
        Ok(EmbeddedLog { service, directory, worker })
    }

    #[cfg(test)]
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// What is known of the stream `name`. An error if there is no such stream.
    fn named(&self, name: &StreamName) -> Result<StreamMeta> {
        let none = || LogError::NotFound(format!("there is no stream {name}"));
        self.service.host.stream(name)?.ok_or_else(none)
    }
}

impl LogBackend for EmbeddedLog {
    fn uuid(&self) -> &str {
        &self.service.host.settings().uuid
    }

    fn copied_from(&self) -> &[String] {
        &self.service.host.settings().copied_from
    }

    fn is_current(&self) -> bool {
        self.directory.is_current()
    }

    fn durability(&self) -> Durability {
        self.service.durability()
    }

    fn open_stream(
        &self,
        name: &StreamName,
        is_new: bool,
    ) -> Result<Option<Arc<dyn StreamBackend>>> {
        let host = &self.service.host;
        let meta = match host.stream(name)? {
            Some(meta) => meta,
            None if is_new => host.create_stream(name, &new_stream())?,
            None => return Ok(None),
        };
        let lane = self.service.lane(name, &meta)?;
        Ok(Some(Arc::new(EmbeddedStream { service: self.service.clone(), lane })))
    }

    fn stream_names(&self) -> Result<Vec<StreamName>> {
        let streams = self.service.host.streams()?;
        let mut names: Vec<_> = streams.into_iter().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }

    fn remove_stream(&self, name: &StreamName) -> Result<()> {
        self.service.remove_named(name, self.service.host.stream(name)?)
    }

    fn salvage(&self, name: &StreamName, from: Lsn) -> Result<RecordBatch> {
        self.service.salvage(name, &self.named(name)?, from)
    }

    fn discard_damaged(&self, name: &StreamName) -> Result<Lsn> {
        self.service.discard_damaged(name, &self.named(name)?)
    }

    fn stat(&self) -> Result<LogStat> {
        Ok(self.service.stat())
    }

    fn known_stat(&self) -> LogStat {
        self.service.stat()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let EmbeddedLog { service, directory, worker } = *self;
        drop(worker);
        service.bring_own_home()?;
        match Arc::try_unwrap(service) {
            Ok(service) if service.forget_all() => directory.release_memory(|| service.retire()),
            // Streams or readers of the log are open.
            _ => Ok(()),
        }
    }
}

fn new_stream() -> StreamMeta {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    StreamMeta { id: 0, salt: fastrand::u64(..), uid, gid, mode: 0o600, quota_bytes: 0 }
}

impl StreamBackend for EmbeddedStream {
    fn name(&self) -> &StreamName {
        &self.lane.name
    }

    fn acquire(&self) -> Result<()> {
        self.service.with_writer(&self.lane, |_, _| Ok(()))
    }

    fn release(&self) {
        self.service.release(&self.lane);
    }

    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        let append = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
            writer.append_batch(allocator, payloads)
        };
        self.service.with_writer(&self.lane, append)
    }

    fn sync(&self, lsn: Lsn) -> Result<()> {
        self.service.sync(&self.lane, lsn)
    }

    fn flush(&self) -> Result<()> {
        self.service.drain(&self.lane)
    }

    fn begin_reading(&self, lsn: Lsn) -> Result<RecordBatch> {
        self.lane.check_position(lsn)?;
        Ok(RecordBatch::empty_at(lsn))
    }

    fn read_records(&self, lsn: Lsn) -> Result<RecordBatch> {
        self.lane.read_records(lsn, READ_BYTES)
    }

    fn head(&self) -> Lsn {
        Lsn(self.lane.words.head())
    }

    fn end(&self) -> Lsn {
        Lsn(self.lane.durable())
    }

    fn appended(&self) -> Lsn {
        // If a client's claim cannot be taken over, the next append or sync reports it.
        let _ = self.lane.pull();
        Lsn(self.lane.words.appended())
    }

    fn known_ends(&self) -> Ends {
        let appended = Lsn(self.lane.words.appended());
        Ends { head: self.head(), durable: self.end(), appended }
    }

    fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.service.truncate_before(&self.lane, lsn)
    }

    fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]> {
        let header = self.lane.words.header();
        self.lane.words.check()?;
        Ok(header)
    }

    fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]) {
        self.lane.words.set_header(header);
    }

    fn stat(&self) -> Result<StreamStat> {
        self.lane.stat()
    }
}
