//! A thread that asks the daemon for chunks before a client's writer needs them.
//!
//! The writer announces the next chunk when it has filled a quarter of its last one. If the writer
//! needs a chunk that has not arrived, the thread asks for twice as many from then on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

use device::MappedNvram;
use device::sync::{Condvar, Mutex};
use host::Access;

use super::connection::Client;
use crate::engine::writer::ChunkAllocator;
use crate::format::chunk::LaneChunk;
use crate::wire::protocol::{FILES_MAX, Kind, Request};
use crate::words::LaneWords;
use crate::{LogError, Result};

/// Chunks that were asked for under one lease.
pub(super) struct Ahead {
    pub(super) stream: u32,
    pub(super) token: u64,
    queue: Mutex<ChunkQueue>,
    changed: Condvar,
}

struct ChunkQueue {
    ready: BTreeMap<u64, LaneChunk>,
    /// The span whose chunks the thread has to ask for, or is asking for now.
    wanted: Option<u64>,
    /// How many chunks it asks for.
    count: u32,
}

impl Ahead {
    pub(super) fn new(stream: u32, token: u64) -> Arc<Ahead> {
        let queue = ChunkQueue { ready: BTreeMap::new(), wanted: None, count: 1 };
        Arc::new(Ahead { stream, token, queue: Mutex::new(queue), changed: Condvar::new() })
    }

    /// Asks the daemon for the wanted chunks.
    fn fetch(&self, client: &Client) {
        let (first, count) = {
            let queue = self.queue.lock();
            let Some(first) = queue.wanted else { return };
            (first, queue.count)
        };
        // If it fails the writer asks again, and hears why.
        let allocated = fetch_chunks(client, self, first, count).unwrap_or_default();
        let mut queue = self.queue.lock();
        queue.ready.extend(allocated.into_iter().map(|allocated| (allocated.ordinal, allocated)));
        queue.wanted = None;
        self.changed.notify_all();
    }
}

/// Chunks from span `first` on. With `count` 0: one chunk, and the daemon waits until one is free.
fn fetch_chunks(client: &Client, ahead: &Ahead, first: u64, count: u32) -> Result<Vec<LaneChunk>> {
    let Ahead { stream, token, .. } = *ahead;
    let request = Request { stream, token, at: first, count, ..Request::new(Kind::Allocate) };
    let (_, files) = client.call(&request)?;
    let map = |(file, ordinal): (OwnedFd, u64)| {
        // The socket as a name: the file has none that a client knows.
        let class = Some(client.service.durability.min(device::Durability::Power));
        let class = match client.service.is_nvram {
            true => class,
            false => Some(device::Durability::Process),
        };
        let memory = MappedNvram::share(&client.socket, file, Access::ReadWrite, class)?;
        Ok(LaneChunk { ordinal, memory: Arc::new(memory) })
    };
    files.into_iter().zip(first..).map(map).collect()
}

/// Starts the thread that asks for chunks. It ends when its last sender is dropped.
pub(super) fn start_fetcher(client: Weak<Client>) -> Sender<Arc<Ahead>> {
    let (sender, wanted) = channel::<Arc<Ahead>>();
    let body = move || {
        for ahead in wanted {
            let Some(client) = client.upgrade() else { return };
            ahead.fetch(&client);
        }
    };
    // Without it every chunk is asked for when it is needed.
    let _ = std::thread::Builder::new().name("log-chunks".into()).spawn(crate::faults::carry(body));
    sender
}

/// Where a client's writer gets its chunks.
pub(super) struct RemoteAllocator<'a> {
    pub(super) client: &'a Client,
    pub(super) fetcher: &'a Sender<Arc<Ahead>>,
    pub(super) ahead: &'a Arc<Ahead>,
    pub(super) words: &'a LaneWords,
}

impl ChunkAllocator for RemoteAllocator<'_> {
    fn allocate(&self, ordinal: u64) -> Result<LaneChunk> {
        let mut queue = self.ahead.queue.lock();
        queue.ready = queue.ready.split_off(&ordinal);
        if !queue.ready.contains_key(&ordinal) {
            queue.count = (queue.count * 2).min(FILES_MAX as u32);
        }
        while queue.wanted.is_some() && !queue.ready.contains_key(&ordinal) {
            queue = self.ahead.changed.wait(queue);
        }
        if let Some(allocated) = queue.ready.remove(&ordinal) {
            return Ok(allocated);
        }
        drop(queue);
        let allocated = fetch_chunks(self.client, self.ahead, ordinal, 0);
        // The daemon has freed all that is not needed yet.
        let allocated = allocated.inspect_err(|_| self.ahead.queue.lock().ready.clear())?;
        allocated.into_iter().next().ok_or_else(|| LogError::Daemon("it allocated nothing".into()))
    }

    fn extend_usn(&self) -> Result<()> {
        let stream = self.ahead.stream;
        let (reply, _) = self.client.call(&Request { stream, ..Request::new(Kind::ExtendUsn) })?;
        self.words.set_usn_range(reply.values[0], reply.values[1]);
        Ok(())
    }

    fn announce(&self, ordinal: u64) {
        let mut queue = self.ahead.queue.lock();
        if queue.wanted.is_some() || queue.ready.len() as u32 * 2 > queue.count {
            return;
        }
        let first = queue.ready.keys().next_back().map_or(ordinal, |last| last + 1);
        queue.wanted = Some(first);
        drop(queue);
        if self.fetcher.send(self.ahead.clone()).is_err() {
            self.ahead.queue.lock().wanted = None;
        }
    }
}
