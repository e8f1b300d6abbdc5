//! A client of the simulated daemon. Its writer is the real one; it dies between two steps of its
//! own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use device::SharedWords;

use super::daemon::{Answer, Daemon};
use crate::engine::writer::{ChunkAllocator, Sizes, Writer};
use crate::format::chunk::LaneChunk;
use crate::format::record::Identity;
use crate::host::Settings;
use crate::wire::protocol::{FILES_MAX, Kind, Request, parse_records};
use crate::wire::transport::Peer;
use crate::words::LaneWords;
use crate::{Lsn, Record, Result, StreamId};
use fault::crash::{self, Crash, ProcessId};

/// A client and the leases it holds.
pub(super) struct Client {
    pub(super) name: ProcessId,
    daemon: Rc<Daemon>,
    settings: Settings,
    leases: BTreeMap<String, Lease>,
}

struct Lease {
    id: u32,
    token: u64,
    writer: Writer,
    words: LaneWords,
    /// Chunks that it got before it needed them.
    ready: RefCell<BTreeMap<u64, LaneChunk>>,
    _lock: OwnedFd,
}

/// The user of all clients. It is neither root nor the daemon's user.
fn peer() -> Peer {
    Peer { uid: 60_000, gid: 60_000, groups: Vec::new() }
}

impl Client {
    pub(super) fn new(name: ProcessId, daemon: Rc<Daemon>, settings: Settings) -> Client {
        Client { name, daemon, settings, leases: BTreeMap::new() }
    }

    /// Runs `f` as this client; `None`: it died, and its leases with it.
    pub(super) fn live<T>(&mut self, f: impl FnOnce(&mut Client) -> T) -> Option<T> {
        match crash::run_process(self.name, || f(self)) {
            Ok(done) => Some(done),
            Err(Crash) => {
                self.leases.clear();
                None
            }
        }
    }

    /// Ends the client. The kernel closes its files.
    pub(super) fn die(&mut self) {
        self.leases.clear();
    }

    pub(super) fn ask(&self, request: &Request) -> Result<Answer> {
        crash::crash_point();
        let answer = self.daemon.ask(&peer(), request);
        crash::crash_point();
        answer
    }

    /// The number of stream `name`. Makes the stream if there is none.
    pub(super) fn open(&self, name: &str) -> Result<u32> {
        let request = Request { name: name.into(), count: 1, ..Request::new(Kind::Open) };
        Ok(u32::try_from(self.ask(&request)?.reply.values[0]).expect("a number"))
    }

    /// Takes the lease of the stream. Returns where its first record will begin.
    pub(super) fn acquire(&mut self, name: &str) -> Result<Lsn> {
        let stream = self.open(name)?;
        let Answer { reply, mut files, .. } =
            self.ask(&Request { stream, ..Request::new(Kind::Lease) })?;
        let [token, position, salt, ..] = reply.values;
        let lock = files.remove(0);
        let words = LaneWords::new(Arc::new(SharedWords::of_file(&lock, LaneWords::COUNT)?));
        let identity = Identity { stream: StreamId(stream), salt };
        let (chunk_bytes, pool_bytes) = (self.settings.chunk_bytes, self.settings.pool_bytes());
        let (sizes, is_nvram) = (Sizes { chunk_bytes, pool_bytes }, self.settings.nvram.is_some());
        let writer = Writer::new(identity, words.clone(), sizes, is_nvram, position, Vec::new());
        let ready = RefCell::default();
        let lease = Lease { id: stream, token, writer, words, ready, _lock: lock };
        self.leases.insert(name.into(), lease);
        Ok(Lsn(position))
    }

    pub(super) fn append(&mut self, name: &str, payloads: &[&[u8]]) -> Result<Lsn> {
        let mut lease = self.leases.remove(name).expect("it has the lease");
        let (id, token) = (lease.id, lease.token);
        let allocator = Ahead { client: self, id, token, words: &lease.words, ready: &lease.ready };
        let appended = lease.writer.append_batch(&allocator, payloads);
        self.leases.insert(name.into(), lease);
        appended
    }

    /// Makes the stream durable, up to the record at `at` or to its end.
    pub(super) fn sync(&self, name: &str, stream: u32, at: Option<u64>) -> Result<()> {
        let kind = at.map_or(Kind::Flush, |_| Kind::Sync);
        let request = Request { stream, at: at.unwrap_or(0), ..Request::new(kind) };
        let durable = self.ask(&request)?.reply.values[0];
        if let Some(lease) = self.leases.get(name) {
            lease.words.mark_synced(durable);
        }
        Ok(())
    }

    /// The LSN below which the stream is durable, as far as its writer knows.
    pub(super) fn synced(&self, name: &str) -> u64 {
        self.leases.get(name).map_or(0, |lease| lease.words.synced())
    }

    /// Releases the lease as the library does. It unlocks the words first.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        let Some(Lease { id: stream, token, .. }) = self.leases.remove(name) else { return Ok(()) };
        self.ask(&Request { stream, token, ..Request::new(Kind::Release) }).map(drop)
    }

    /// All records from `at` on.
    pub(super) fn read(&self, stream: u32, mut at: Lsn) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        loop {
            let request = Request { stream, at: at.0, count: 20_000, ..Request::new(Kind::Read) };
            let Answer { reply, .. } = self.ask(&request)?;
            let more = parse_records(&reply)?;
            if more.is_empty() {
                return Ok(records);
            }
            records.extend(more);
            at = Lsn(reply.values[0]);
        }
    }

    /// Requests chunks from `ordinal` on. With `count` 0: one chunk, and the daemon waits until one
    /// is free.
    fn fetch_chunks(
        &self,
        id: u32,
        token: u64,
        ordinal: u64,
        count: u32,
    ) -> Result<Vec<LaneChunk>> {
        let request =
            Request { stream: id, token, at: ordinal, count, ..Request::new(Kind::Allocate) };
        let Answer { reply, chunks, .. } = self.ask(&request)?;
        assert_eq!(reply.values[0], chunks.len() as u64);
        let allocated = chunks.into_iter().zip(ordinal..);
        Ok(allocated.map(|(memory, ordinal)| LaneChunk { ordinal, memory }).collect())
    }
}

/// Gives the writer chunks that were requested before, or requests them.
struct Ahead<'a> {
    client: &'a Client,
    id: u32,
    token: u64,
    words: &'a LaneWords,
    ready: &'a RefCell<BTreeMap<u64, LaneChunk>>,
}

impl ChunkAllocator for Ahead<'_> {
    fn allocate(&self, ordinal: u64) -> Result<LaneChunk> {
        if let Some(allocated) = self.ready.borrow_mut().remove(&ordinal) {
            return Ok(allocated);
        }
        let allocated = self.client.fetch_chunks(self.id, self.token, ordinal, 0);
        // It was told that they were freed.
        let allocated = allocated.inspect_err(|_| self.ready.borrow_mut().clear())?;
        Ok(allocated.into_iter().next().expect("one"))
    }

    fn extend_usn(&self) -> Result<()> {
        let request = Request { stream: self.id, ..Request::new(Kind::ExtendUsn) };
        let reply = self.client.ask(&request)?.reply;
        self.words.set_usn_range(reply.values[0], reply.values[1]);
        Ok(())
    }

    fn announce(&self, ordinal: u64) {
        let count = 1 + ordinal as u32 % FILES_MAX as u32;
        let allocated =
            self.client.fetch_chunks(self.id, self.token, ordinal, count).unwrap_or_default();
        self.ready
            .borrow_mut()
            .extend(allocated.into_iter().map(|allocated| (allocated.ordinal, allocated)));
    }
}
