//! The daemon: one process serves a directory to many processes that do not trust each other.
//!
//! Its threads: one for each connection, so that clients that sync at the same time share a group
//! commit; one that accepts; one that ends the leases of clients that are gone; and the flush
//! worker.
//!
//! # What is believed
//!
//! Nothing that a client says. The kernel names its user and groups. Its words are taken over only
//! where they can be true (`words`). Its chunks are read as files that may be cut (`chunk_file`).
//! Each record is checked when it is drained. A lane that fails a check is aborted, and no other
//! lane.
//!
//! The daemon keeps only the user of a connection. So a client costs a thread and a descriptor, and
//! [`Limits`] bounds their number.
//!
//! # When it ends
//!
//! Clients keep their mappings; on NVRAM they go on appending. Words, tables and leases are in
//! memory that outlives the daemon. The next daemon goes on with them. If that memory was removed,
//! there are none for the next daemon, so the clients are told that their leases have ended.

mod access;
#[cfg(test)]
mod broken_off;
mod connection;
#[cfg(test)]
mod hostile;
mod limits;
mod place;
pub(crate) mod request_handler;
mod requests;
mod turns;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use host::above_standard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketFlags;

use crate::directory::options::Options;
use crate::engine::service::Service;
use crate::engine::worker::{Rounds, Worker};
use crate::warnings::OF_STREAMS;
use crate::wire::transport;
use crate::{LogError, LogStat, Result};

use connection::Connections;
pub use limits::Limits;
use place::{Found, Place};
use request_handler::RequestHandler;

/// How often the threads check whether the daemon ends, and whether clients have ended.
const TICK: Duration = Duration::from_millis(200);
/// How long a listener may take to accept a connection before it counts as one that is stopped.
const LISTENER_PATIENCE: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// How a daemon is reached, and its limits.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Permissions of the socket (`0o666`): who may connect.
    pub mode: u32,
    /// What users may take.
    pub limits: Limits,
}

impl ServerOptions {
    /// A daemon at `socket`, for everybody.
    pub fn at(socket: impl Into<PathBuf>) -> ServerOptions {
        ServerOptions { socket: socket.into(), mode: 0o666, limits: Limits::default() }
    }
}

/// A daemon that serves, until it is stopped or dropped.
pub struct Server {
    connections: Arc<Connections>,
    is_ending: Arc<AtomicBool>,
    socket: PathBuf,
    place: Place,
    threads: Vec<JoinHandle<()>>,
    worker: Option<Worker>,
}

impl Server {
    /// Serves the directory `path`, which is made with `options` when there is none. When this
    /// returns clients can connect. Fails while another daemon serves it or a process has it open.
    pub fn start(
        path: impl AsRef<Path>,
        options: &Options,
        server: &ServerOptions,
    ) -> Result<Server> {
        options.check()?;
        let socket = std::path::absolute(&server.socket)
            .map_err(|e| LogError::system(server.socket.display().to_string(), e))?;
        let (_, service) = Service::join(path.as_ref(), options, Some(&socket))?;
        let service = Arc::new(service);
        let handler = RequestHandler::new(service.clone(), server.limits.clone())?;
        let (listener, place) = listen(&socket, server.mode)
            .map_err(|e| LogError::system(socket.display().to_string(), e))?;
        let mut rounds = Rounds::new();
        let worker = Worker::start(service.wakeup().clone(), move || rounds.round(&service))?;
        let worker = Some(worker);
        let connections = Arc::new(Connections::new(handler));
        let is_ending = Arc::new(AtomicBool::new(false));
        let mut server =
            Server { connections, is_ending, socket, place, threads: Vec::new(), worker };
        let (connections, is_ending) = (server.connections.clone(), server.is_ending.clone());
        server.spawn("log-accept", move || accept(&connections, &is_ending, &listener))?;
        let (connections, is_ending) = (server.connections.clone(), server.is_ending.clone());
        server.spawn("log-leases", move || watch_leases(&connections, &is_ending))?;
        Ok(server)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(crate::faults::carry(body));
        self.threads.push(thread.map_err(|e| LogError::system("starting a thread", e))?);
        Ok(())
    }

    /// Where clients connect to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Counters of the service.
    pub fn stat(&self) -> LogStat {
        self.connections.handler.service.stat()
    }

    /// Whether another program removed the shared memory. The daemon cannot go on then: stop it and
    /// start another one, which makes new memory. Nothing that was synced is lost.
    pub fn is_memory_gone(&self) -> bool {
        self.connections.handler.service.host.is_memory_gone()
    }

    /// Connections of clients.
    pub fn connection_count(&self) -> usize {
        self.connections.count()
    }

    /// Streams that the daemon has open.
    pub fn open_stream_count(&self) -> usize {
        self.connections.handler.service.open_lanes().len()
    }

    /// Ends the daemon. When this returns, no request is carried out any more, and everything that
    /// was appended is in the log files. Clients keep their leases for the next daemon.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        self.connections.handler.bring_home()
    }

    fn end(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        self.connections.shut_all();
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
        self.connections.join_all();
        self.connections.warnings.end();
        OF_STREAMS.end();
        if self.worker.take().is_some() {
            // A new daemon makes its own.
            let _ = self.place.remove();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The socket at `path`. Replaces a socket that no process listens at any more.
fn listen(path: &Path, mode: u32) -> io::Result<(OwnedFd, Place)> {
    let place = Place::of(path)?;
    match place.found()? {
        Found::Socket => match transport::connect(path, LISTENER_PATIENCE) {
            // It does not accept connections now, and may do so later.
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => place.remove()?,
            _ => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "a process listens there"));
            }
        },
        Found::Other => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is no socket")),
        Found::Nothing => {}
    }
    let socket = transport::socket()?;
    place.bind(&socket)?;
    // Before a client can connect.
    place.permit(mode)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, place))
}

fn accept(connections: &Arc<Connections>, is_ending: &AtomicBool, listener: &OwnedFd) {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    while !is_ending.load(Ordering::Acquire) {
        let mut wanted = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut wanted, Some(&limit)), Ok(1..)) {
            continue;
        }
        match above_standard(|| rustix::net::accept_with(listener, SocketFlags::CLOEXEC)) {
            Ok(socket) => connections.begin(socket),
            Err(e) => {
                connections.warnings.about_itself(format_args!("accepting a connection: {e}"));
                // Out of descriptors, for example: a client has to leave first.
                std::thread::sleep(TICK);
            }
        }
    }
}

/// Checks leases and streams once in a while.
fn watch_leases(connections: &Connections, is_ending: &AtomicBool) {
    while !is_ending.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
        connections.handler.tend();
        connections.join_ended();
        connections.warnings.tend();
        OF_STREAMS.tend();
    }
}
