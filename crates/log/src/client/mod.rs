//! A client of the daemon: the lanes that it writes are mapped here, everything else is asked for.
//!
//! An append needs the daemon only for the next chunk, which a thread asks for before it is needed. When the
//! daemon is gone, requests are sent again until it is back, for a bounded time; it keeps nothing
//! between requests, so that the next daemon can answer as well.

mod chunks;
mod reader;
mod stream;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use device::Durability;
use device::sync::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use zerocopy::IntoBytes;

use crate::options::Options;
use crate::protocol::{DATA_BYTES_MAX, Kind, REPLY_BYTES, Reply, Request, accepted};
use crate::writer::Sizes;
use crate::{Log, LogError, LogStat, Lsn, Record, Result, StreamName, transport};

pub(crate) use reader::RemoteReader;
#[cfg(test)]
pub(crate) use reader::parse as parse_records;
pub(crate) use stream::RemoteStream;

/// How long an answer may take: longer than the daemon waits for a chunk.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Connections that are kept for later.
const IDLE_COUNT_MAX: usize = 8;

/// What a client does when its daemon is gone.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// How long to wait until it is back (10 s).
    pub retry: Duration,
    /// If it stays away: the directory that it served, to be opened by this process.
    pub fallback: Option<(PathBuf, Options)>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { retry: Duration::from_secs(10), fallback: None }
    }
}

/// What the daemon says of its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) uuid: String,
    pub(crate) sizes: Sizes,
    pub(crate) is_nvram: bool,
    pub(crate) durability: Durability,
}

/// A service as a client sees it.
pub(crate) struct Client {
    socket: PathBuf,
    options: ConnectOptions,
    pub(crate) service: Service,
    idle: Mutex<Vec<OwnedFd>>,
    /// Streams that are open here.
    streams: Mutex<HashMap<u32, Weak<RemoteStream>>>,
    /// To the thread that fetches chunks.
    fetcher: Sender<Arc<chunks::Ahead>>,
    fallback: Mutex<Option<Arc<Log>>>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Another daemon may answer it.
    Gone(io::Error),
    /// No daemon of this service and version will.
    Wrong(String),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Unanswered::Gone(error)
    }
}

/// A request to the daemon behind `connection`, and its answer.
fn exchange(
    connection: &OwnedFd,
    request: &Request,
) -> std::result::Result<(Reply, Vec<OwnedFd>), Unanswered> {
    transport::send(connection, request.encode().as_bytes(), &[])?;
    receive_answer(connection, request.kind)
}

/// The answer to a request that was sent.
pub(crate) fn receive_answer(
    connection: &OwnedFd,
    kind: Kind,
) -> std::result::Result<(Reply, Vec<OwnedFd>), Unanswered> {
    let mut buf = vec![0; REPLY_BYTES + DATA_BYTES_MAX];
    let receive = |buf: &mut [u8]| match transport::receive(connection, buf)? {
        (0, _) => Err(Unanswered::Gone(ErrorKind::ConnectionReset.into())),
        received => Ok(received),
    };
    let (count, files) = receive(&mut buf)?;
    let (mut reply, file_count, mut rest_bytes) =
        Reply::decode(&buf[..count], kind).map_err(Unanswered::Wrong)?;
    while rest_bytes > 0 {
        let (count, _) = receive(&mut buf)?;
        let more = || Unanswered::Wrong("an answer that is longer than it says".into());
        rest_bytes = rest_bytes.checked_sub(count).ok_or_else(more)?;
        reply.data.extend_from_slice(&buf[..count]);
    }
    match file_count == files.len() {
        true => Ok((reply, files)),
        false => Err(Unanswered::Wrong("descriptors were lost on the way".into())),
    }
}

/// A new connection to the daemon at `socket`, and what it says of its service.
fn greet(socket: &Path) -> std::result::Result<(OwnedFd, Service), Unanswered> {
    let connection = transport::connect(socket)?;
    set_socket_timeout(&connection, Timeout::Recv, Some(ANSWER_WAIT))
        .map_err(|e| Unanswered::Gone(e.into()))?;
    let (reply, _) = exchange(&connection, &Request::new(Kind::Hello))?;
    let [chunk_bytes, pool_bytes, is_nvram, class, ..] = reply.values;
    let classes = [Durability::Process, Durability::Reboot, Durability::Power];
    let durability = classes.into_iter().find(|known| *known as u64 == class);
    let durability = durability.ok_or(Unanswered::Wrong("an unknown durability".into()))?;
    let is_nvram = is_nvram != 0;
    let sizes = Sizes { chunk_bytes, pool_bytes };
    let uuid = String::from_utf8(reply.data).map_err(|_| Unanswered::Wrong("no UUID".into()))?;
    Ok((connection, Service { uuid, sizes, is_nvram, durability }))
}

impl Client {
    /// Connects to the daemon at `socket`, waiting for it as long as the options say.
    pub(crate) fn connect(socket: &Path, options: &ConnectOptions) -> Result<Arc<Client>> {
        let begin = Instant::now();
        let (connection, service) = loop {
            match greet(socket) {
                Ok(greeted) => break greeted,
                Err(e) => Self::wait_or_fail(socket, options, begin, e)?,
            }
        };
        Ok(Arc::new_cyclic(|client| Client {
            socket: socket.to_owned(),
            options: options.clone(),
            service,
            idle: Mutex::new(vec![connection]),
            streams: Mutex::new(HashMap::new()),
            fetcher: chunks::start_fetcher(client.clone()),
            fallback: Mutex::new(None),
        }))
    }

    fn wait_or_fail(
        socket: &Path,
        options: &ConnectOptions,
        begin: Instant,
        why: Unanswered,
    ) -> Result<()> {
        let socket = socket.display();
        match why {
            Unanswered::Wrong(text) => Err(LogError::Daemon(format!("{socket}: {text}"))),
            Unanswered::Gone(e) if matches!(e.kind(), ErrorKind::WouldBlock) => {
                let waited = ANSWER_WAIT.as_secs();
                let text = format!(
                    "{socket}: no answer for {waited} s: if the daemon is stopped, let it go on (kill -CONT)"
                );
                Err(LogError::Daemon(text))
            }
            Unanswered::Gone(e) if begin.elapsed() >= options.retry => {
                let waited = options.retry.as_secs_f32();
                let todo = "start it (onejournal logd), or open its directory";
                Err(LogError::Daemon(format!("{socket}: gone for {waited} s: {e}: {todo}")))
            }
            Unanswered::Gone(_) => {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            }
        }
    }

    /// What is answered to a request, by this daemon or the next.
    pub(crate) fn call(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        let begin = Instant::now();
        let mut is_again = false;
        loop {
            match self.try_call(request) {
                Ok((reply, files)) => {
                    let accepted = accepted(reply);
                    if is_again
                        && request.kind == Kind::Remove
                        && matches!(accepted, Err(LogError::NotFound(_)))
                    {
                        // The daemon did it before it was gone.
                        return Ok((Reply::default(), Vec::new()));
                    }
                    return Ok((accepted?, files));
                }
                Err(e) => Self::wait_or_fail(&self.socket, &self.options, begin, e)?,
            }
            is_again = true;
        }
    }

    /// One attempt on each connection that is at hand, then on a new one.
    fn try_call(
        &self,
        request: &Request,
    ) -> std::result::Result<(Reply, Vec<OwnedFd>), Unanswered> {
        loop {
            let Some(connection) = self.idle.lock().pop() else { break };
            match exchange(&connection, request) {
                Ok(answer) => {
                    self.keep(connection);
                    return Ok(answer);
                }
                // Of a daemon that is gone.
                Err(Unanswered::Gone(e)) if e.kind() != ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        let (connection, service) = greet(&self.socket)?;
        if service != self.service {
            return Err(Unanswered::Wrong("it serves another directory now".into()));
        }
        let answer = exchange(&connection, request)?;
        self.keep(connection);
        Ok(answer)
    }

    /// Brings home what was appended here, and gives the leases back.
    pub(crate) fn close(&self) -> Result<()> {
        let open: Vec<_> = self.streams.lock().values().filter_map(Weak::upgrade).collect();
        let mut home = Ok(());
        for stream in open {
            home = home.and(stream.flush_own());
            stream.release();
        }
        home
    }

    fn keep(&self, connection: OwnedFd) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }

    /// Tells the daemon something that it finds out by itself otherwise.
    pub(crate) fn tell(&self, request: &Request) {
        let _ = self.try_call(request);
    }

    /// The directory, opened by this process because the daemon stays away; `None`: nobody asked for it.
    pub(crate) fn fallback(&self) -> Option<Result<Arc<Log>>> {
        let (path, options) = self.options.fallback.as_ref()?;
        let mut fallback = self.fallback.lock();
        if let Some(log) = &*fallback {
            return Some(Ok(log.clone()));
        }
        Some(Log::open(path, options).map(|log| {
            tracing::warn!("{}: gone, using {} directly", self.socket.display(), path.display());
            fallback.insert(Arc::new(log)).clone()
        }))
    }

    pub(crate) fn has_fallback(&self) -> bool {
        self.options.fallback.is_some()
    }

    /// Asks the daemon, or the directory itself if the daemon stays away and that is wanted.
    pub(crate) fn either<T>(
        &self,
        remote: impl FnOnce() -> Result<T>,
        local: impl FnOnce(&Log) -> Result<T>,
    ) -> Result<T> {
        let opened = self.fallback.lock().clone();
        if let Some(log) = opened {
            return local(&log);
        }
        match remote() {
            Err(e @ LogError::Daemon(_)) => match self.fallback() {
                Some(log) => local(&*log?),
                None => Err(e),
            },
            answered => answered,
        }
    }

    /// The stream `name`; `None`: there is none and none is to be made.
    pub(crate) fn stream(
        self: &Arc<Self>,
        name: &str,
        is_new: bool,
    ) -> Result<Option<Arc<RemoteStream>>> {
        let name: StreamName = name.parse()?;
        let count = u32::from(is_new);
        let request = Request { name: name.to_string(), count, ..Request::new(Kind::Open) };
        let reply = match self.call(&request) {
            Ok((reply, _)) => reply,
            Err(LogError::NotFound(_)) if !is_new => return Ok(None),
            Err(e) => return Err(e),
        };
        let id = u32::try_from(reply.values[0])
            .map_err(|_| LogError::Daemon("a stream without a number".into()))?;
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.strong_count() > 0);
        if let Some(stream) = streams.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(stream));
        }
        let stream = Arc::new(RemoteStream::new(self.clone(), name, id));
        streams.insert(id, Arc::downgrade(&stream));
        Ok(Some(stream))
    }

    pub(crate) fn stream_names(&self) -> Result<Vec<StreamName>> {
        let mut names: Vec<StreamName> = Vec::new();
        loop {
            let name = names.last().map(ToString::to_string).unwrap_or_default();
            let (reply, _) = self.call(&Request { name, ..Request::new(Kind::Streams) })?;
            let before = names.len();
            for name in String::from_utf8_lossy(&reply.data).lines() {
                names.push(name.parse()?);
            }
            if reply.values[0] == 0 || names.len() == before {
                return Ok(names);
            }
        }
    }

    pub(crate) fn remove_stream(&self, name: &str) -> Result<()> {
        let name = name.parse::<StreamName>()?.to_string();
        self.call(&Request { name, ..Request::new(Kind::Remove) }).map(|_| ())
    }

    pub(crate) fn salvage(&self, name: &str, from: Lsn) -> Result<(Vec<Record>, Lsn)> {
        let name = name.parse::<StreamName>()?.to_string();
        let request = Request { name, at: from.0, ..Request::new(Kind::Salvage) };
        let (reply, _) = self.call(&request)?;
        Ok((reader::parse(&reply)?, Lsn(reply.values[0])))
    }

    pub(crate) fn discard_damaged(&self, name: &str) -> Result<Lsn> {
        let name = name.parse::<StreamName>()?.to_string();
        let (reply, _) = self.call(&Request { name, ..Request::new(Kind::Discard) })?;
        Ok(Lsn(reply.values[0]))
    }

    pub(crate) fn stat(&self) -> Result<LogStat> {
        let (reply, _) = self.call(&Request::new(Kind::ServiceStat))?;
        let [
            pool_bytes,
            chunk_bytes,
            lent_bytes,
            pool_wait_count,
            pool_wait_ns,
            group_commit_count,
            group_member_count,
            group_bytes,
            drain_count,
            drain_bytes,
            is_aborted,
            ..,
        ] = reply.values;
        Ok(LogStat {
            durability: self.service.durability.name(),
            is_nvram: self.service.is_nvram,
            pool_bytes,
            chunk_bytes,
            lent_bytes,
            pool_wait_count,
            pool_wait_ns,
            group_commit_count,
            group_member_count,
            group_bytes,
            drain_count,
            drain_bytes,
            is_aborted: is_aborted != 0,
        })
    }
}
