//! Requests to a daemon: its connections, and what happens while the daemon is away.
//!
//! While the daemon is away, requests are sent again for a bounded time. A daemon keeps nothing
//! between two requests, so the next daemon can answer as well as the first.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Durability;
use device::sync::Mutex;
use host::{Trust, link_to};
use rustix::fs::{FileType, fstat};
use zerocopy::IntoBytes;

use crate::backend::LogBackend;
use crate::directory::options::{Options, are_sizes};
use crate::engine::writer::Sizes;
use crate::error::Refusal;
use crate::wire::protocol::{
    DATA_BYTES_MAX, Kind, REPLY_BYTES, Reply, Request, accepted, accepted_again,
};
use crate::wire::transport::{self, Peer};
use crate::{LogError, Result};

/// Upper bound for the time of an answer. It is longer than the daemon waits for a chunk.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Upper bound for all requests together to a daemon that the program did not choose.
const FOUND_WAIT: Duration = Duration::from_secs(60);
const TOO_LONG: &str = "its answers took too long for a daemon whose socket was found in a file. \
                        If you trust it, open it once by the name of its socket (log=SOCKET in \
                        the URI): then there is no limit";
/// Connections that are kept for later.
const IDLE_COUNT_MAX: usize = 8;

/// What a client does when its daemon is gone.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// How long to wait until it is back (10 s).
    pub retry: Duration,
    /// If it stays away: the directory that it served. This process then opens the directory
    /// itself.
    pub fallback: Option<(PathBuf, Options)>,
    /// For a socket that the caller did not choose, but found in a file: the users whose daemon may
    /// listen there. No process of another user is sent anything. Empty: the caller chose it.
    pub owners: Vec<u32>,
    /// How long all requests together may take. `None`: there is no limit.
    pub limit: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let retry = Duration::from_secs(10);
        ConnectOptions { retry, fallback: None, owners: Vec::new(), limit: None }
    }
}

impl ConnectOptions {
    /// For a socket that was found in a file, of a database of this user perhaps: see
    /// [`Options::is_found`].
    pub(crate) fn found(owner: Option<(u32, u32)>) -> ConnectOptions {
        let own = rustix::process::geteuid().as_raw();
        let owners = [Some(own), Some(0), owner.map(|(uid, _)| uid)];
        let owners = owners.into_iter().flatten().collect();
        ConnectOptions { owners, limit: Some(FOUND_WAIT), ..ConnectOptions::default() }
    }
}

/// What the daemon says of its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) uuid: String,
    pub(super) copied_from: Vec<String>,
    pub(super) sizes: Sizes,
    pub(super) is_nvram: bool,
    pub(super) durability: Durability,
}

/// Opens the log at a path: a directory, or a daemon's socket.
pub(crate) type OpenBackend = fn(&Path, &Options) -> Result<Box<dyn LogBackend>>;

/// A daemon as a client reaches it.
pub(super) struct Client {
    pub(super) socket: PathBuf,
    options: ConnectOptions,
    patience: Patience,
    pub(super) service: Service,
    idle: Mutex<Vec<OwnedFd>>,
    open: OpenBackend,
    /// The daemon's directory, opened by this process because the daemon stayed away.
    fallback: Mutex<Option<Arc<dyn LogBackend>>>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Another daemon may answer the request.
    Gone(io::Error),
    /// No daemon of this service and version will answer it.
    Wrong(String),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Unanswered::Gone(error)
    }
}

/// Until when a client waits for its daemon.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    fn new(limit: Option<Duration>) -> Patience {
        Patience(limit.map(|limit| Instant::now() + limit))
    }

    /// How long the next message may take. An error when the time is over.
    fn left(self) -> std::result::Result<Duration, Unanswered> {
        let Some(end) = self.0 else { return Ok(ANSWER_WAIT) };
        let left = end.saturating_duration_since(Instant::now()).min(ANSWER_WAIT);
        match left.is_zero() {
            false => Ok(left),
            true => Err(Unanswered::Wrong(TOO_LONG.into())),
        }
    }

    /// Bounds the wait for the next message on a connection.
    fn bound(self, connection: &OwnedFd) -> std::result::Result<(), Unanswered> {
        match self.0 {
            Some(_) => Ok(transport::wait_at_most(connection, self.left()?)?),
            None => Ok(()),
        }
    }
}

/// Sends a request on `connection` and receives its answer.
fn exchange(
    connection: &OwnedFd,
    request: &Request,
    patience: Patience,
) -> std::result::Result<(Reply, Vec<OwnedFd>), Unanswered> {
    patience.bound(connection)?;
    transport::send(connection, request.encode().as_bytes(), &[])?;
    receive_answer(connection, request.kind, patience)
}

/// The answer to a request that was sent.
pub(crate) fn receive_answer(
    connection: &OwnedFd,
    kind: Kind,
    patience: Patience,
) -> std::result::Result<(Reply, Vec<OwnedFd>), Unanswered> {
    let mut buf = vec![0; REPLY_BYTES + DATA_BYTES_MAX];
    let receive = |buf: &mut [u8]| {
        patience.bound(connection)?;
        match transport::receive(connection, buf)? {
            (0, _) => Err(Unanswered::Gone(ErrorKind::ConnectionReset.into())),
            received => Ok(received),
        }
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

/// A new connection to the process that listens at `socket`. If there are `owners`, the socket and
/// the process belong to one of these users, and the path is followed as one that a user chose.
fn reach(
    socket: &Path,
    owners: &[u32],
    patience: Patience,
) -> std::result::Result<OwnedFd, Unanswered> {
    if owners.is_empty() {
        return Ok(transport::connect(socket, patience.left()?)?);
    }
    let foreign = |what: String| {
        let users: Vec<String> = owners.iter().map(ToString::to_string).collect();
        Err(Unanswered::Wrong(format!(
            "{what}. The path was found in a file, so only a daemon of user {} is asked there. If \
             you trust another one, open it once by the name of its socket (log=SOCKET in the URI)",
            users.join(" or ")
        )))
    };
    let place = match Trust::own().find(socket) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Unanswered::Wrong(e.to_string())),
        found => found?,
    };
    let found = fstat(&place).map_err(io::Error::from)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return foreign("there is no socket".into());
    }
    if !owners.contains(&found.st_uid) {
        return foreign(format!("the socket belongs to user {}", found.st_uid));
    }
    let connection = transport::connect(&link_to(&place), patience.left()?)?;
    match Peer::of(&connection)?.uid {
        uid if owners.contains(&uid) => Ok(connection),
        uid => foreign(format!("user {uid} listens there")),
    }
}

/// A new connection to the daemon at `socket`, and what it says of its service.
fn greet(
    socket: &Path,
    owners: &[u32],
    patience: Patience,
) -> std::result::Result<(OwnedFd, Service), Unanswered> {
    let connection = reach(socket, owners, patience)?;
    let (reply, _) = exchange(&connection, &Request::new(Kind::Hello), patience)?;
    let [chunk_bytes, pool_bytes, is_nvram, class, ..] = reply.values;
    let classes = [Durability::Process, Durability::Reboot, Durability::Power];
    let durability = classes.into_iter().find(|known| *known as u64 == class);
    let durability = durability.ok_or(Unanswered::Wrong("an unknown durability".into()))?;
    let is_nvram = is_nvram != 0;
    if !are_sizes(chunk_bytes, pool_bytes) {
        return Err(Unanswered::Wrong("a pool of a size that no log has".into()));
    }
    let sizes = Sizes { chunk_bytes, pool_bytes };
    let names = String::from_utf8(reply.data).map_err(|_| Unanswered::Wrong("no UUID".into()))?;
    let mut names = names.lines().map(str::to_owned);
    let uuid = names.next().unwrap_or_default();
    let copied_from = names.collect();
    Ok((connection, Service { uuid, copied_from, sizes, is_nvram, durability }))
}

impl Client {
    /// Connects to the daemon at `socket`, waiting for it as long as the options say.
    pub(super) fn connect(
        socket: &Path,
        options: &ConnectOptions,
        open: OpenBackend,
    ) -> Result<Client> {
        let (begin, patience) = (Instant::now(), Patience::new(options.limit));
        let (connection, service) = loop {
            match greet(socket, &options.owners, patience) {
                Ok(greeted) => break greeted,
                Err(e) => Self::wait_or_fail(socket, options, begin, e)?,
            }
        };
        let (socket, options) = (socket.to_owned(), options.clone());
        let (idle, fallback) = (Mutex::new(vec![connection]), Mutex::new(None));
        Ok(Client { socket, options, patience, service, idle, open, fallback })
    }

    fn wait_or_fail(
        socket: &Path,
        options: &ConnectOptions,
        begin: Instant,
        why: Unanswered,
    ) -> Result<()> {
        let shown = socket.display();
        match why {
            Unanswered::Wrong(text) => Err(LogError::Daemon(format!("{shown}: {text}"))),
            // The last message could take only as long as was left.
            Unanswered::Gone(e) if e.kind() == ErrorKind::WouldBlock && options.limit.is_some() => {
                Err(LogError::Daemon(format!("{shown}: {TOO_LONG}")))
            }
            Unanswered::Gone(e) if matches!(e.kind(), ErrorKind::WouldBlock) => {
                let waited = ANSWER_WAIT.as_secs();
                let text = format!(
                    "{shown}: no answer for {waited} s: if the daemon is stopped, let it go on \
                     (kill -CONT)"
                );
                Err(LogError::Daemon(text))
            }
            Unanswered::Gone(e) if begin.elapsed() >= options.retry => {
                let (socket, waited_s) = (socket.to_owned(), options.retry.as_secs_f32());
                Err(Refusal::DaemonGone { socket, waited_s, source: e }.into())
            }
            Unanswered::Gone(_) => {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            }
        }
    }

    /// The answer to a request, from this daemon or the next one.
    pub(super) fn call(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        let begin = Instant::now();
        let mut is_again = false;
        loop {
            match self.try_call(request) {
                Ok((reply, files)) => {
                    let answer = match is_again {
                        true => accepted_again(request.kind, reply),
                        false => accepted(reply),
                    };
                    return Ok((answer?, files));
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
            match exchange(&connection, request, self.patience) {
                Ok(answer) => {
                    self.keep(connection);
                    return Ok(answer);
                }
                // The connection of a daemon that is gone.
                Err(Unanswered::Gone(e)) if e.kind() != ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        let (connection, service) = greet(&self.socket, &self.options.owners, self.patience)?;
        if service != self.service {
            return Err(Unanswered::Wrong("it serves another directory now".into()));
        }
        let answer = exchange(&connection, request, self.patience)?;
        self.keep(connection);
        Ok(answer)
    }

    fn keep(&self, connection: OwnedFd) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }

    /// Sends a hint. Without it the daemon finds out by itself, later.
    pub(super) fn tell(&self, request: &Request) {
        let _ = self.try_call(request);
    }

    /// Opens the daemon's directory in this process, after the daemon stayed away with `error`.
    /// Returns `error` if the options name no directory.
    pub(super) fn fallback(&self, error: LogError) -> Result<Arc<dyn LogBackend>> {
        let Some((path, options)) = &self.options.fallback else { return Err(error) };
        let mut fallback = self.fallback.lock();
        if let Some(log) = &*fallback {
            return Ok(log.clone());
        }
        // The daemon may have carried the call out. So this stays an error of the daemon.
        let log = (self.open)(path, options).map_err(|refused| {
            let LogError::Daemon(gone) = &error else { return refused };
            LogError::Daemon(format!("{gone}; its directory cannot be opened instead: {refused}"))
        })?;
        tracing::warn!("{}: gone, using {} directly", self.socket.display(), path.display());
        Ok(fallback.insert(Arc::from(log)).clone())
    }

    pub(super) fn has_fallback(&self) -> bool {
        self.options.fallback.is_some()
    }

    /// Asks the daemon with `remote`. If the daemon stays away and the options name a directory,
    /// opens that and calls `local`, for this call and all later ones.
    pub(super) fn either<T>(
        &self,
        remote: impl FnOnce() -> Result<T>,
        local: impl FnOnce(&dyn LogBackend) -> Result<T>,
    ) -> Result<T> {
        let opened = self.fallback.lock().clone();
        if let Some(log) = opened {
            return local(&*log);
        }
        match remote() {
            Err(e @ LogError::Daemon(_)) => local(&*self.fallback(e)?),
            answered => answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::SocketAddrUnix;

    use super::*;

    #[test]
    fn regression_a_socket_of_another_user_is_not_spoken_to() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let listener = transport::socket().expect("socket");
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).expect("address")).expect("bind");
        rustix::net::listen(&listener, 4).expect("listen");
        let own = rustix::process::geteuid().as_raw();
        let reach = |path: &Path, owners: &[u32]| reach(path, owners, Patience::default());
        reach(&path, &[]).expect("chosen by the caller");
        reach(&path, &[own + 1, own]).expect("ours");
        let refusal = |path: &Path, owner| match reach(path, &[owner]) {
            Err(Unanswered::Wrong(text)) => text,
            reached => panic!("{reached:?}"),
        };
        assert!(refusal(&path, own + 1).contains("the socket belongs to user"));
        assert!(refusal(directory.path(), own).contains("there is no socket"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("link");
        reach(&link, &[own]).expect("our link");
        if own == 0 {
            std::os::unix::fs::lchown(&link, Some(65_534), None).expect("given away");
            assert!(refusal(&link, own).contains("is a symbolic link of user 65534"));
            // The name belongs to that user, and the process does not.
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("given away");
            assert!(refusal(&path, 65_534).contains("user 0 listens there"));
        }
    }

    /// A daemon that answers the first request, and takes four seconds for the next one, though
    /// each of its messages comes soon.
    fn slow_daemon(path: &Path) -> OwnedFd {
        let listener = transport::socket().expect("socket");
        rustix::net::bind(&listener, &SocketAddrUnix::new(path).expect("address")).expect("bind");
        rustix::net::listen(&listener, 4).expect("listen");
        let accepting = listener.try_clone().expect("a copy");
        std::thread::spawn(move || {
            let connection = rustix::net::accept(&accepting).expect("a client");
            let mut buf = [0; 1024];
            let uuid = "0".repeat(32).into_bytes();
            let hello = Reply { data: uuid, ..Reply::of(&[4096, 1 << 20, 0, 2]) };
            transport::receive(&connection, &mut buf).expect("a request");
            transport::send(&connection, &hello.encode(Kind::Hello, 0), &[]).expect("an answer");
            transport::receive(&connection, &mut buf).expect("a request");
            let long = Reply { data: vec![0; DATA_BYTES_MAX + 200], ..Reply::default() };
            let mut sent = transport::send(&connection, &long.encode(Kind::Read, 0), &[]);
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                sent = transport::send(&connection, &[0], &[]);
            }
        });
        listener
    }

    #[test]
    fn regression_all_answers_of_a_daemon_that_was_found_end_in_time() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let _listener = slow_daemon(&path);
        let limit = Some(Duration::from_secs(2));
        let options = ConnectOptions { limit, ..ConnectOptions::default() };
        let open: OpenBackend = |_, _| Err(LogError::Usage("no fallback".into()));
        let client = Client::connect(&path, &options, open).expect("greeted");
        let refused = client.call(&Request::new(Kind::Read)).expect_err("too long").to_string();
        assert!(refused.contains("took too long") && refused.contains("log=SOCKET"), "{refused}");
    }

    #[test]
    fn regression_sizes_that_no_log_has_are_refused() {
        for (chunk_bytes, pool_bytes) in [(0, 0), (0, 1 << 20), (4097, 1 << 20), (1 << 40, 1 << 41)]
        {
            assert!(!are_sizes(chunk_bytes, pool_bytes), "{chunk_bytes} {pool_bytes}");
        }
        assert!(are_sizes(128 << 10, 64 << 20));
    }

    #[test]
    fn regression_the_wait_for_a_listener_that_accepts_no_client_is_bounded() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("socket");
        let listener = transport::socket().expect("socket");
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).expect("address")).expect("bind");
        rustix::net::listen(&listener, 0).expect("listen");
        let mut connections = Vec::new();
        let refused = loop {
            match transport::connect(&path, Duration::from_millis(10)) {
                Ok(connection) => connections.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(!connections.is_empty());
    }
}
