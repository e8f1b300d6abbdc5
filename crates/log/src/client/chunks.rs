//! Where a client's writer gets its chunks: asked for by a thread before they are needed.
//!
//! The writer says when it has filled a quarter of its last chunk. When it was faster than the thread
//! nevertheless, the thread asks for more at once from then on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

use device::sync::{Condvar, Mutex};
use device::{Access, MappedNvram};

use super::Client;
use crate::chunk::Lent;
use crate::protocol::{FILES_MAX, Kind, Request};
use crate::words::LaneWords;
use crate::writer::Lender;
use crate::{LogError, Result};

/// Chunks of one lease that were asked for.
pub(super) struct Ahead {
    pub(super) stream: u32,
    pub(super) token: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ready: BTreeMap<u64, Lent>,
    /// What the thread is to ask for, or is asking for just now.
    wanted: Option<u64>,
    /// How many it asks for.
    count: u32,
}

impl Ahead {
    pub(super) fn new(stream: u32, token: u64) -> Arc<Ahead> {
        let state = State { ready: BTreeMap::new(), wanted: None, count: 1 };
        Arc::new(Ahead { stream, token, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Asks for what is wanted.
    fn fetch(&self, client: &Client) {
        let (first, count) = {
            let state = self.state.lock();
            let Some(first) = state.wanted else { return };
            (first, state.count)
        };
        // If it fails the writer asks again, and hears why.
        let lent = borrow(client, self, first, count).unwrap_or_default();
        let mut state = self.state.lock();
        state.ready.extend(lent.into_iter().map(|lent| (lent.ordinal, lent)));
        state.wanted = None;
        self.changed.notify_all();
    }
}

/// Chunks from span `first` on; `count` 0: one, waiting for it.
fn borrow(client: &Client, ahead: &Ahead, first: u64, count: u32) -> Result<Vec<Lent>> {
    let Ahead { stream, token, .. } = *ahead;
    let request = Request { stream, token, at: first, count, ..Request::new(Kind::Lend) };
    let (_, files) = client.call(&request)?;
    let map = |(file, ordinal): (OwnedFd, u64)| {
        // The socket as a name: the file has none that a client knows.
        let class = Some(client.service.durability.min(device::Durability::Power));
        let class = match client.service.is_nvram {
            true => class,
            false => Some(device::Durability::Process),
        };
        let memory = MappedNvram::share(&client.socket, file, Access::ReadWrite, class)?;
        Ok(Lent { ordinal, memory: Arc::new(memory) })
    };
    files.into_iter().zip(first..).map(map).collect()
}

/// Starts the thread that asks for chunks. It ends when nobody can send to it any more.
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

/// What a client's writer borrows from.
pub(super) struct RemoteLender<'a> {
    pub(super) client: &'a Client,
    pub(super) ahead: &'a Arc<Ahead>,
    pub(super) words: &'a LaneWords,
}

impl Lender for RemoteLender<'_> {
    fn lend(&self, ordinal: u64) -> Result<Lent> {
        let mut state = self.ahead.state.lock();
        state.ready = state.ready.split_off(&ordinal);
        if !state.ready.contains_key(&ordinal) {
            state.count = (state.count * 2).min(FILES_MAX as u32);
        }
        while state.wanted.is_some() && !state.ready.contains_key(&ordinal) {
            state = self.ahead.changed.wait(state);
        }
        if let Some(lent) = state.ready.remove(&ordinal) {
            return Ok(lent);
        }
        drop(state);
        let lent = borrow(self.client, self.ahead, ordinal, 0);
        // The daemon has taken back all that is not needed yet.
        let lent = lent.inspect_err(|_| self.ahead.state.lock().ready.clear())?;
        lent.into_iter().next().ok_or_else(|| LogError::Daemon("it lent nothing".into()))
    }

    fn extend_usn(&self) -> Result<()> {
        let stream = self.ahead.stream;
        let (reply, _) = self.client.call(&Request { stream, ..Request::new(Kind::ExtendUsn) })?;
        self.words.set_usn_range(reply.values[0], reply.values[1]);
        Ok(())
    }

    fn announce(&self, ordinal: u64) {
        let mut state = self.ahead.state.lock();
        if state.wanted.is_some() || state.ready.len() as u32 * 2 > state.count {
            return;
        }
        let first = state.ready.keys().next_back().map_or(ordinal, |last| last + 1);
        state.wanted = Some(first);
        drop(state);
        if self.client.fetcher.send(self.ahead.clone()).is_err() {
            self.ahead.state.lock().wanted = None;
        }
    }
}
