//! A stream of the daemon. Appending takes its lease and maps its lane.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use device::SharedWords;
use device::sync::Mutex;
use host::ForkClosed;

use super::chunks::{Ahead, RemoteAllocator};
use super::connection::Client;
use crate::backend::{Ends, StreamBackend};
use crate::engine::writer::Writer;
use crate::format::record::Identity;
use crate::types::{READ_BYTES, RecordBatch};
use crate::wire::protocol::{Kind, Reply, Request, parse_records};
use crate::words::{LaneWords, STREAM_HEADER_BYTES};
use crate::{LogError, Lsn, Result, StreamId, StreamName, StreamStat};

/// Last position that a stream can have: sums with it do not overflow.
const POSITION_MAX: u64 = i64::MAX.cast_unsigned();

/// A stream that is open in this process.
pub(super) struct RemoteStream {
    client: Arc<Client>,
    fetcher: Sender<Arc<Ahead>>,
    name: StreamName,
    id: u32,
    access: Mutex<Access>,
    /// The ends that the daemon reported last.
    heard: Mutex<Ends>,
}

/// How this process writes the stream. At most one of the two fields is set.
#[derive(Default)]
struct Access {
    /// The lease, if this process has it from the daemon.
    lease: Option<Lease>,
    /// The stream of the directory that this process opened after the daemon stayed away. It is
    /// used for good from then on.
    fallback: Option<Arc<dyn StreamBackend>>,
}

struct Lease {
    writer: Writer,
    words: LaneWords,
    ahead: Arc<Ahead>,
    /// The lock on this file says that this process lives and has the lease.
    _lock: ForkClosed,
}

impl RemoteStream {
    pub(super) fn new(
        client: Arc<Client>,
        fetcher: Sender<Arc<Ahead>>,
        name: StreamName,
        id: u32,
    ) -> RemoteStream {
        let (access, heard) = (Mutex::default(), Mutex::default());
        RemoteStream { client, fetcher, name, id, access, heard }
    }

    fn request(&self, kind: Kind) -> Request {
        Request { stream: self.id, ..Request::new(kind) }
    }

    /// Sends a request. Returns the first number of the answer.
    fn ask(&self, request: &Request) -> Result<u64> {
        let (reply, _) = self.client.call(request)?;
        Ok(reply.values[0])
    }

    /// Asks the daemon with `remote`. If the daemon stays away, calls `local` with the stream of
    /// the directory.
    fn either<T>(
        &self,
        remote: impl FnOnce() -> Result<T>,
        local: impl FnOnce(&dyn StreamBackend) -> Result<T>,
    ) -> Result<T> {
        let opened = self.access.lock().fallback.clone();
        if let Some(stream) = opened {
            return local(&*stream);
        }
        match remote() {
            Err(e @ LogError::Daemon(_)) => local(&*self.fall_back(e)?),
            answered => answered,
        }
    }

    /// Takes the lease if this process does not have it, then runs `remote`. If the daemon stays
    /// away, runs `local` with the stream of the directory.
    fn with_lease<T>(
        &self,
        remote: impl FnOnce(&mut Lease) -> Result<T>,
        local: impl FnOnce(&dyn StreamBackend) -> Result<T>,
    ) -> Result<T> {
        let done = {
            let mut access = self.access.lock();
            if let Some(stream) = &access.fallback {
                return local(&**stream);
            }
            let leased = match &mut access.lease {
                Some(lease) => Ok(lease),
                none => self.lease().map(|lease| none.insert(lease)),
            };
            leased.and_then(remote)
        };
        match done {
            Err(e @ LogError::Daemon(_)) => local(&*self.fall_back(e)?),
            done => done,
        }
    }

    /// The stream of the directory, after the daemon stayed away with `error`.
    fn fall_back(&self, error: LogError) -> Result<Arc<dyn StreamBackend>> {
        let mut access = self.access.lock();
        if let Some(stream) = &access.fallback {
            return Ok(stream.clone());
        }
        if !self.client.has_fallback() {
            return Err(error);
        }
        // The lease ends with its lock. The next lessee finds what was appended.
        access.lease = None;
        let none = || LogError::NotFound(format!("there is no stream {}", self.name));
        let log = self.client.fallback(error)?;
        let stream = log.open_stream(&self.name, true)?.ok_or_else(none)?;
        Ok(access.fallback.insert(stream).clone())
    }

    fn lease(&self) -> Result<Lease> {
        let (reply, files) = self.client.call(&self.request(Kind::Lease))?;
        let [token, position, salt, ..] = reply.values;
        if position > POSITION_MAX {
            return Err(LogError::Daemon("it gave a lease at the end of all positions".into()));
        }
        let none = || LogError::Daemon("it gave a lease without words".into());
        let lock = files.into_iter().next().ok_or_else(none)?;
        let words = LaneWords::new(Arc::new(SharedWords::of_file(&lock, LaneWords::COUNT)?));
        let identity = Identity { stream: StreamId(self.id), salt };
        let service = &self.client.service;
        let (sizes, is_nvram) = (service.sizes, service.is_nvram);
        let writer = Writer::new(identity, words.clone(), sizes, is_nvram, position, Vec::new());
        let _lock = ForkClosed::new(lock.into());
        Ok(Lease { writer, words, ahead: Ahead::new(self.id, token), _lock })
    }

    /// The words of the lane, while this process has the lease.
    fn words(&self) -> Option<LaneWords> {
        self.access.lock().lease.as_ref().map(|lease| lease.words.clone())
    }

    /// Sends a request that makes records durable, whose answer is the new durable end.
    fn make_durable(
        &self,
        words: Option<&LaneWords>,
        request: &Request,
        local: impl FnOnce(&dyn StreamBackend) -> Result<()>,
    ) -> Result<()> {
        let remote = || {
            let end = self.ask(request)?;
            if let Some(words) = words {
                words.mark_synced(end);
            }
            Ok(())
        };
        self.either(remote, local)
    }

    /// Makes the daemon bring everything that this process appended to the log files.
    pub(super) fn flush_own(&self) -> Result<()> {
        let fallback = {
            let access = self.access.lock();
            if access.lease.is_none() && access.fallback.is_none() {
                return Ok(());
            }
            access.fallback.clone()
        };
        fallback.map_or_else(|| self.flush(), |stream| stream.flush())
    }

    fn remote_records(&self, lsn: Lsn) -> Result<RecordBatch> {
        let count = u32::try_from(READ_BYTES).expect("a mebibyte");
        let request = Request { at: lsn.0, count, ..self.request(Kind::Read) };
        let (reply, _) = self.client.call(&request)?;
        Ok(RecordBatch { records: parse_records(&reply)?, next: Lsn(reply.values[0]) })
    }

    fn remote_stat(&self) -> Result<StreamStat> {
        let (reply, _) = self.client.call(&self.request(Kind::Stat))?;
        let stat = StreamStat { name: self.name.to_string(), ..StreamStat::default() };
        Ok(stat.with_numbers(&reply.values))
    }

    /// The ends as the daemon reports them. If it does not answer, as it reported them last.
    fn ends(&self) -> Ends {
        let asked = self.either(
            || {
                let StreamStat { head, durable, appended, .. } = self.remote_stat()?;
                Ok(Ends { head: Lsn(head), durable: Lsn(durable), appended: Lsn(appended) })
            },
            |local| {
                let (head, durable) = (local.head(), local.end());
                Ok(Ends { head, durable, appended: local.appended() })
            },
        );
        let mut heard = self.heard.lock();
        if let Ok(ends) = asked {
            *heard = ends;
        }
        *heard
    }
}

impl StreamBackend for RemoteStream {
    fn name(&self) -> &StreamName {
        &self.name
    }

    fn acquire(&self) -> Result<()> {
        self.with_lease(|_| Ok(()), |local| local.acquire())
    }

    fn release(&self) {
        // Locked until the daemon has answered. A thread that appends meanwhile would ask for the
        // lease too early, and find the stream busy.
        let mut access = self.access.lock();
        if let Some(stream) = &access.fallback {
            stream.release();
        }
        if let Some(lease) = access.lease.take() {
            let token = lease.ahead.token;
            // The lock of the file goes first: the daemon looks for it.
            drop(lease);
            self.client.tell(&Request { token, ..self.request(Kind::Release) });
        }
    }

    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        self.with_lease(
            |lease| lease.append(&self.client, &self.fetcher, payloads),
            |local| local.append_batch(payloads),
        )
    }

    fn sync(&self, lsn: Lsn) -> Result<()> {
        let words = self.words();
        if let Some(words) = &words {
            let durable = match self.client.service.is_nvram {
                true => words.appended(),
                false => words.synced(),
            };
            check(&self.name, words)?;
            if lsn.0 < durable {
                return Ok(());
            }
        }
        let request = Request { at: lsn.0, ..self.request(Kind::Sync) };
        self.make_durable(words.as_ref(), &request, |local| local.sync(lsn))
    }

    fn flush(&self) -> Result<()> {
        let words = self.words();
        self.make_durable(words.as_ref(), &self.request(Kind::Flush), |local| local.flush())
    }

    fn begin_reading(&self, lsn: Lsn) -> Result<RecordBatch> {
        let begun = self.either(|| self.remote_records(lsn), |local| local.begin_reading(lsn));
        match begun {
            // The next read reports it.
            Err(LogError::Damaged { .. }) => Ok(RecordBatch::empty_at(lsn)),
            begun => begun,
        }
    }

    fn read_records(&self, lsn: Lsn) -> Result<RecordBatch> {
        self.either(|| self.remote_records(lsn), |local| local.read_records(lsn))
    }

    fn head(&self) -> Lsn {
        self.ends().head
    }

    fn end(&self) -> Lsn {
        match self.words() {
            Some(words) if self.client.service.is_nvram => Lsn(words.appended()),
            _ => self.ends().durable,
        }
    }

    fn appended(&self) -> Lsn {
        match self.words() {
            Some(words) => Lsn(words.appended()),
            None => self.ends().appended,
        }
    }

    fn known_ends(&self) -> Ends {
        *self.heard.lock()
    }

    fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        let request = Request { at: lsn.0, ..self.request(Kind::Truncate) };
        self.either(|| self.ask(&request).map(drop), |local| local.truncate_before(lsn))
    }

    fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]> {
        if let Some(words) = self.words() {
            let header = words.header();
            return words.check().map(|()| header);
        }
        self.either(
            || {
                let (Reply { data, .. }, _) =
                    self.client.call(&self.request(Kind::StreamHeader))?;
                data.try_into()
                    .map_err(|_| LogError::Daemon("a stream header of another length".into()))
            },
            |local| local.header(),
        )
    }

    fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]) {
        // Without the lease this process may not.
        let access = self.access.lock();
        if let Some(lease) = &access.lease {
            lease.words.set_header(header);
        } else if let Some(stream) = &access.fallback {
            stream.set_header(header);
        }
    }

    fn stat(&self) -> Result<StreamStat> {
        self.either(|| self.remote_stat(), |local| local.stat())
    }
}

impl Lease {
    fn append(
        &mut self,
        client: &Client,
        fetcher: &Sender<Arc<Ahead>>,
        payloads: &[&[u8]],
    ) -> Result<Lsn> {
        if self.words.aborted().is_some() {
            return Err(LogError::Aborted(
                "the daemon refuses this stream: its messages say why".into(),
            ));
        }
        let allocator = RemoteAllocator { client, fetcher, ahead: &self.ahead, words: &self.words };
        let lsn = self.writer.append_batch(&allocator, payloads)?;
        // The daemon does not see what was appended to words that are lost.
        self.words.check().map(|()| lsn)
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.release();
    }
}

fn check(name: &StreamName, words: &LaneWords) -> Result<()> {
    match words.aborted() {
        None => words.check(),
        _ => Err(LogError::Aborted(format!(
            "stream {name}: its daemon refuses it, and says why in its messages"
        ))),
    }
}
