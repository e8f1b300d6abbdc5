//! A stream of the daemon. Appending takes its lease, and maps its lane.

use std::sync::Arc;

use device::sync::Mutex;
use device::{ForkClosed, SharedWords};

use super::Client;
use super::chunks::{Ahead, RemoteLender};
use crate::protocol::{Kind, Reply, Request};
use crate::record::Identity;
use crate::words::{LaneWords, NOTE_BYTES};
use crate::writer::Writer;
use crate::{LogError, Lsn, Result, Stream, StreamId, StreamName, StreamStat};

/// A stream that is open in this process.
pub(crate) struct RemoteStream {
    client: Arc<Client>,
    name: StreamName,
    id: u32,
    state: Mutex<State>,
    /// Head, durable and appended, as they were heard of last.
    heard: Mutex<[Lsn; 3]>,
}

/// How the stream is written.
enum State {
    /// Not, so far.
    Idle,
    Leased(Box<Lease>),
    /// The daemon stays away.
    Local(Stream),
}

struct Lease {
    writer: Writer,
    words: LaneWords,
    ahead: Arc<Ahead>,
    /// Its lock says that this process lives and has the lease.
    _lock: ForkClosed,
}

impl RemoteStream {
    pub(super) fn new(client: Arc<Client>, name: StreamName, id: u32) -> RemoteStream {
        let (state, heard) = (Mutex::new(State::Idle), Mutex::new([Lsn(0); 3]));
        RemoteStream { client, name, id, state, heard }
    }

    pub(crate) fn name(&self) -> &StreamName {
        &self.name
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    fn request(&self, kind: Kind) -> Request {
        Request { stream: self.id, ..Request::new(kind) }
    }

    /// Asks the daemon with `remote`, or the stream of the directory itself with `local`.
    pub(super) fn either<T>(
        &self,
        remote: impl FnOnce() -> Result<T>,
        local: impl FnOnce(&Stream) -> Result<T>,
    ) -> Result<T> {
        let opened = match &*self.state.lock() {
            State::Local(stream) => Some(stream.clone()),
            _ => None,
        };
        if let Some(stream) = opened {
            return local(&stream);
        }
        match remote() {
            Err(e @ LogError::Daemon(_)) => local(&self.fall_back(e)?),
            answered => answered,
        }
    }

    /// The stream of the directory, after the daemon stayed away with `error`.
    fn fall_back(&self, error: LogError) -> Result<Stream> {
        let mut state = self.state.lock();
        if let State::Local(stream) = &*state {
            return Ok(stream.clone());
        }
        if !self.client.has_fallback() {
            return Err(error);
        }
        // The lease ends with its lock, and what was appended is found by who takes it next.
        *state = State::Idle;
        let log = self.client.fallback().ok_or(error)??;
        let stream = log.stream(self.name.as_str())?;
        *state = State::Local(stream.clone());
        Ok(stream)
    }

    /// Takes the lease.
    pub(crate) fn acquire(&self) -> Result<()> {
        let leased = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Local(stream) => return stream.acquire(),
                State::Leased(_) => Ok(()),
                State::Idle => self.lease().map(|lease| *state = State::Leased(Box::new(lease))),
            }
        };
        match leased {
            Err(e @ LogError::Daemon(_)) => self.fall_back(e)?.acquire(),
            leased => leased,
        }
    }

    pub(crate) fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        let appended = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Local(stream) => return stream.append_batch(payloads),
                State::Leased(lease) => lease.append(&self.client, payloads),
                State::Idle => self.lease().and_then(|lease| {
                    *state = State::Leased(Box::new(lease));
                    let State::Leased(lease) = &mut *state else { unreachable!("just leased") };
                    lease.append(&self.client, payloads)
                }),
            }
        };
        match appended {
            Err(e @ LogError::Daemon(_)) => self.fall_back(e)?.append_batch(payloads),
            appended => appended,
        }
    }

    fn lease(&self) -> Result<Lease> {
        let (reply, files) = self.client.call(&self.request(Kind::Lease))?;
        let [token, position, salt, ..] = reply.values;
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
        match &*self.state.lock() {
            State::Leased(lease) => Some(lease.words.clone()),
            _ => None,
        }
    }

    pub(crate) fn sync(&self, lsn: Lsn) -> Result<()> {
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
        self.either(
            || {
                let (reply, _) = self.client.call(&request)?;
                if let Some(words) = &words {
                    words.mark_synced(reply.values[0]);
                }
                Ok(())
            },
            |local| local.sync(lsn),
        )
    }

    pub(crate) fn flush(&self) -> Result<()> {
        let words = self.words();
        self.either(
            || {
                let (reply, _) = self.client.call(&self.request(Kind::Flush))?;
                if let Some(words) = &words {
                    words.mark_synced(reply.values[0]);
                }
                Ok(())
            },
            Stream::flush,
        )
    }

    /// The same, if it was written here.
    pub(crate) fn flush_own(&self) -> Result<()> {
        match &*self.state.lock() {
            State::Idle => return Ok(()),
            State::Local(stream) => return stream.flush(),
            State::Leased(_) => {}
        }
        self.flush()
    }

    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Idle) {
            State::Idle => {}
            State::Leased(lease) => {
                let token = lease.ahead.token;
                // The lock goes first: the daemon looks for it.
                drop(lease);
                self.client.tell(&Request { token, ..self.request(Kind::Release) });
            }
            State::Local(stream) => {
                stream.release();
                *state = State::Local(stream);
            }
        }
    }

    /// Head, durable and appended; as they were heard of last when the daemon does not answer.
    pub(crate) fn ends(&self) -> [Lsn; 3] {
        let asked = self.either(
            || {
                let (reply, _) = self.client.call(&self.request(Kind::Stat))?;
                let [head, _, durable, appended, ..] = reply.values;
                Ok([head, durable, appended].map(Lsn))
            },
            |local| Ok([local.head(), local.end(), local.appended()]),
        );
        let mut heard = self.heard.lock();
        if let Ok(ends) = asked {
            *heard = ends;
        }
        *heard
    }

    pub(crate) fn head(&self) -> Lsn {
        self.ends()[0]
    }

    pub(crate) fn end(&self) -> Lsn {
        match self.words() {
            Some(words) if self.client.service.is_nvram => appended(&words),
            _ => self.ends()[1],
        }
    }

    pub(crate) fn appended(&self) -> Lsn {
        match self.words() {
            Some(words) => appended(&words),
            None => self.ends()[2],
        }
    }

    pub(crate) fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        let request = Request { at: lsn.0, ..self.request(Kind::Truncate) };
        self.either(|| self.client.call(&request).map(|_| ()), |local| local.truncate_before(lsn))
    }

    pub(crate) fn note(&self) -> Result<[u8; NOTE_BYTES]> {
        if let Some(words) = self.words() {
            let note = words.note();
            return words.check().map(|()| note);
        }
        self.either(
            || {
                let (Reply { data, .. }, _) = self.client.call(&self.request(Kind::Note))?;
                data.try_into().map_err(|_| LogError::Daemon("a note of another length".into()))
            },
            |local| local.note(),
        )
    }

    pub(crate) fn set_note(&self, note: &[u8; NOTE_BYTES]) {
        match &*self.state.lock() {
            State::Leased(lease) => lease.words.set_note(note),
            State::Local(stream) => stream.set_note(note),
            // Not the one who may.
            State::Idle => {}
        }
    }

    pub(crate) fn stat(&self) -> Result<StreamStat> {
        self.either(
            || {
                let (reply, _) = self.client.call(&self.request(Kind::Stat))?;
                let values = reply.values;
                let [head, drained, durable, appended, records, payload, files, aborted, ..] =
                    values;
                Ok(StreamStat {
                    name: self.name.to_string(),
                    head,
                    drained,
                    durable,
                    appended,
                    record_count: records,
                    payload_bytes: payload,
                    file_bytes: files,
                    is_aborted: aborted != 0,
                })
            },
            Stream::stat,
        )
    }
}

impl Lease {
    fn append(&mut self, client: &Client, payloads: &[&[u8]]) -> Result<Lsn> {
        if self.words.aborted().is_some() {
            return Err(LogError::Aborted(
                "the daemon refuses this stream: its messages say why".into(),
            ));
        }
        let lender = RemoteLender { client, ahead: &self.ahead, words: &self.words };
        let lsn = self.writer.append_batch(&lender, payloads)?;
        // The daemon does not see what was appended to words that are lost.
        self.words.check().map(|()| lsn)
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.release();
    }
}

fn appended(words: &LaneWords) -> Lsn {
    Lsn(words.appended())
}

fn check(name: &StreamName, words: &LaneWords) -> Result<()> {
    match words.aborted() {
        None => words.check(),
        _ => Err(LogError::Aborted(format!(
            "stream {name}: its daemon refuses it, and says why in its messages"
        ))),
    }
}
