//! The daemon: one process serves a directory to many that do not trust each other.
//!
//! A thread for each connection, so that those who sync at once share a group commit; a thread that
//! accepts; one that ends the leases of clients that are gone; and the flush worker.
//!
//! # What is believed
//!
//! Nothing that a client says. Its user and groups come from the kernel; its lane's words are taken over only
//! where they can be true (`lane`), its chunks are read as a file that may be cut (`chunk_file`), every record is
//! checked when it is drained. A lane that holds something else is aborted, and no other. The
//! daemon keeps nothing of a connection but its user, so a client costs a thread and a descriptor, of which
//! there are so many and no more ([`Limits`]).
//!
//! # When it ends
//!
//! Clients keep their mappings; on NVRAM they go on appending. Words, tables and leases lie in memory that
//! outlives the daemon, and the next one goes on with them.

mod access;
mod connection;
pub(crate) mod desk;
#[cfg(test)]
mod hostile;
mod requests;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::options::Options;
use crate::service::Service;
use crate::worker::Worker;
use crate::{LogError, LogStat, Result, transport};

use connection::{Connections, Turns};
use desk::Desk;

/// How often the threads look whether the daemon ends, and for clients that are gone.
const TICK: Duration = Duration::from_millis(200);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// What users may take. Root and the daemon's own user are not held to what is for each user.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time (1024).
    pub connection_count: usize,
    /// Connections of each user at a time (256).
    pub user_connection_count: usize,
    /// Chunks lent to each user at a time; `None`: three quarters of the pool.
    pub user_chunk_count: Option<usize>,
    /// Streams that each user makes while the daemon runs (4096): their numbers are not given twice.
    pub user_stream_count: usize,
    /// Bytes of records that a new stream may keep; 0: any number. Its log files take more, because
    /// whole ones are given back: one file and 4 MiB at most.
    pub stream_bytes: u64,
    /// Streams that are kept open while nobody uses them (256).
    pub idle_stream_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connection_count: 1024,
            user_connection_count: 256,
            user_chunk_count: None,
            user_stream_count: 4096,
            stream_bytes: 0,
            idle_stream_count: 256,
        }
    }
}

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

/// What all threads of the daemon have.
struct Shared {
    desk: Desk,
    connections: Connections,
    turns: Turns,
    is_ending: AtomicBool,
}

/// A daemon that serves, until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    socket: PathBuf,
    threads: Vec<JoinHandle<()>>,
    worker: Option<Worker>,
}

impl Server {
    /// Serves the directory `path`, which is made with `options` when there is none. When this returns
    /// clients can connect. Fails while another daemon serves it or a process has it open.
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
        let desk = Desk::new(service.clone(), server.limits.clone())?;
        let listener = listen(&socket, server.mode)
            .map_err(|e| LogError::system(socket.display().to_string(), e))?;
        let worker = Some(Worker::start(service)?);
        let (connections, is_ending) = (Connections::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { desk, connections, turns: Turns::default(), is_ending });
        let mut server = Server { shared, socket, threads: Vec::new(), worker };
        let shared = server.shared.clone();
        server.spawn("log-accept", move || accept(&shared, &listener))?;
        let shared = server.shared.clone();
        server.spawn("log-leases", move || watch_leases(&shared))?;
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
        self.shared.desk.service.stat()
    }

    /// Connections of clients.
    pub fn connection_count(&self) -> usize {
        self.shared.connections.count()
    }

    /// Streams that the daemon has open.
    pub fn open_stream_count(&self) -> usize {
        self.shared.desk.service.open_lanes().len()
    }

    /// Ends: no request is carried out any more when this returns, and all that was appended is in
    /// the log files. Clients keep their leases for the next daemon.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        self.shared.desk.bring_home()
    }

    fn end(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.connections.shut_all();
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
        self.shared.connections.join_all();
        if self.worker.take().is_some() {
            // A new daemon makes its own.
            let _ = fs::remove_file(&self.socket);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The socket at `path`, in the place of one that nobody listens at any more.
fn listen(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            if transport::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there"));
            }
            fs::remove_file(path)?;
        }
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is no socket")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let socket = transport::socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Before anybody can connect.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn accept(shared: &Arc<Shared>, listener: &OwnedFd) {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    while !shared.is_ending.load(Ordering::Acquire) {
        let mut wanted = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut wanted, Some(&limit)), Ok(1..)) {
            continue;
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => Connections::begin(shared, socket),
            Err(e) => {
                tracing::warn!("accepting a connection: {e}");
                // Out of descriptors, for example: somebody has to leave first.
                std::thread::sleep(TICK);
            }
        }
    }
}

/// Looks after leases and streams now and then.
fn watch_leases(shared: &Shared) {
    while !shared.is_ending.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
        shared.desk.tend();
        shared.connections.join_ended();
    }
}
