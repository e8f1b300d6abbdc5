//! The log as a program uses it.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use device::{Durability, ForkMark};
use serde::Serialize;

use crate::client::{Client, ConnectOptions};
use crate::host::StreamMeta;
use crate::options::Options;
use crate::owned::Owned;
use crate::place::Place;
use crate::reading::Found;
use crate::service::Service;
use crate::stream::{Record, Stream, StreamInner};
use crate::worker::Worker;
use crate::{LogError, Lsn, Result, StreamName};

/// A service that this process takes part in, or uses through its daemon.
///
/// It belongs to the process that opened it. In one that is forked from that, whatever is done with it or with its
/// streams fails, and dropping it does nothing: a forked process opens the log again.
pub struct Log {
    inner: Owned<Inner>,
}

enum Inner {
    /// This process serves the directory, with others perhaps.
    Embedded {
        service: Arc<Service>,
        place: Arc<Place>,
        /// Stopped before the service is left.
        worker: Worker,
    },
    /// A daemon does.
    Remote(Arc<Client>),
}

impl Log {
    /// Joins the service in the directory `path`. When there is none it is made with `options`; the
    /// first to join after a restart of the machine recovers it. When the path names a daemon's socket
    /// ([`names_socket`]), as [`Log::connect`].
    ///
    /// # Errors
    /// While a daemon serves the directory; the error names its socket. [`LogError::Daemon`] when no daemon answers
    /// at the socket, and no log is made instead.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Log> {
        let path = path.as_ref();
        options.check()?;
        if is_socket(path)? {
            return Log::connect(path);
        }
        let (place, service) = Service::join(path, options, None)?;
        let service = Arc::new(service);
        let worker = Worker::start(service.clone())?;
        Log::new(Inner::Embedded { service, place, worker })
    }

    /// Connects to the daemon that listens at `socket`.
    pub fn connect(socket: impl AsRef<Path>) -> Result<Log> {
        Log::connect_with(socket, &ConnectOptions::default())
    }

    /// Connects to the daemon that listens at `socket`; what happens when it is gone is said by `options`.
    pub fn connect_with(socket: impl AsRef<Path>, options: &ConnectOptions) -> Result<Log> {
        match Client::connect(socket.as_ref(), options) {
            Ok(client) => Log::new(Inner::Remote(client)),
            Err(e @ LogError::Daemon(_)) => match &options.fallback {
                Some((path, options)) => Log::open(path, options),
                None => Err(e),
            },
            Err(e) => Err(e),
        }
    }

    fn new(inner: Inner) -> Result<Log> {
        let mark = Arc::new(ForkMark::new()?);
        Ok(Log { inner: Owned::new(inner, mark) })
    }

    /// Ends this process's part: brings all that it appended to the log files and lets others write its streams.
    /// The last process to close the log, with no stream of it open any more, leaves nothing in shared memory. A log
    /// that is dropped instead leaves what it appended in shared memory for the next one.
    ///
    /// # Errors
    /// What could not be brought home stays where it was, as if the log had been dropped.
    pub fn close(self) -> Result<()> {
        let Some(inner) = self.inner.take() else { return Ok(()) };
        match inner {
            Inner::Embedded { service, place, worker } => {
                drop(worker);
                service.bring_own_home()?;
                match Arc::try_unwrap(service) {
                    Ok(service) if service.forget_all() => {
                        place.give_memory_back(|| service.retire())
                    }
                    // Streams or readers of it are open.
                    _ => Ok(()),
                }
            }
            Inner::Remote(client) => client.close(),
        }
    }

    #[cfg(test)]
    pub(crate) fn service(&self) -> &Service {
        match self.inner.look() {
            Inner::Embedded { service, .. } => service,
            Inner::Remote(_) => unreachable!("tests of what is inside open directories"),
        }
    }

    /// Names the service: 32 hexadecimal digits, random when it was made.
    pub fn uuid(&self) -> &str {
        match self.inner.look() {
            Inner::Embedded { service, .. } => &service.host.settings().uuid,
            Inner::Remote(client) => &client.service.uuid,
        }
    }

    /// What survives after an append that was synced.
    pub fn durability(&self) -> Durability {
        match self.inner.look() {
            Inner::Embedded { service, .. } => service.durability(),
            Inner::Remote(client) => client.service.durability,
        }
    }

    /// Opens the stream `name`, which is made when there is none.
    pub fn stream(&self, name: &str) -> Result<Stream> {
        let none = || LogError::NotFound(format!("there is no stream {name}"));
        self.open_stream(name, true)?.ok_or_else(none)
    }

    /// Opens the stream `name` if there is one.
    pub fn existing_stream(&self, name: &str) -> Result<Option<Stream>> {
        self.open_stream(name, false)
    }

    fn open_stream(&self, name: &str, is_new: bool) -> Result<Option<Stream>> {
        match self.inner.get()? {
            Inner::Embedded { service, .. } => {
                let name: StreamName = name.parse()?;
                let meta = match service.host.stream(&name)? {
                    Some(meta) => meta,
                    None if is_new => service.host.create_stream(&name, &new_stream())?,
                    None => return Ok(None),
                };
                let lane = service.lane(&name, &meta)?;
                let inner = StreamInner::Embedded { service: service.clone(), lane };
                Ok(Some(Stream::new(self.inner.with(inner))))
            }
            Inner::Remote(client) => {
                let mut local = None;
                let remote = client.either(
                    || client.stream(name, is_new),
                    |log| {
                        local = log.open_stream(name, is_new)?;
                        Ok(None)
                    },
                )?;
                let remote = remote.map(|remote| self.inner.with(StreamInner::Remote(remote)));
                Ok(remote.map(Stream::new).or(local))
            }
        }
    }

    /// The names of all streams, sorted; of a daemon's, those that the user may open.
    pub fn stream_names(&self) -> Result<Vec<StreamName>> {
        match self.inner.get()? {
            Inner::Embedded { service, .. } => {
                let streams = service.host.streams()?;
                let mut names: Vec<_> = streams.into_iter().map(|(name, _)| name).collect();
                names.sort();
                Ok(names)
            }
            Inner::Remote(client) => client.either(|| client.stream_names(), Log::stream_names),
        }
    }

    /// Removes a stream and all it holds, durably; what is in memory only is not written first. Fails
    /// while another process writes it.
    pub fn remove_stream(&self, name: &str) -> Result<()> {
        match self.inner.get()? {
            Inner::Embedded { service, .. } => {
                let name = name.parse()?;
                service.remove_named(&name, service.host.stream(&name)?)
            }
            Inner::Remote(client) => {
                client.either(|| client.remove_stream(name), |log| log.remove_stream(name))
            }
        }
    }

    /// Records in the log files of a stream that need not be sound, from the one at `from` on or from
    /// the first, about a megabyte of them; and where the next one begins, or would. No record: nothing
    /// more can be read.
    pub fn salvage(&self, name: &str, from: Lsn) -> Result<(Vec<Record>, Lsn)> {
        match self.inner.get()? {
            Inner::Embedded { service, .. } => {
                let (name, meta) = named(service, name)?;
                let Found { records, next } = service.salvage(&name, &meta, from)?;
                Ok((records, next))
            }
            Inner::Remote(client) => {
                client.either(|| client.salvage(name, from), |log| log.salvage(name, from))
            }
        }
    }

    /// Gives up what is damaged of a stream and all behind it, so that it can be used again; where it
    /// ends now. Somebody's decision, never made by itself. Fails while anybody writes it.
    pub fn discard_damaged(&self, name: &str) -> Result<Lsn> {
        match self.inner.get()? {
            Inner::Embedded { service, .. } => {
                let (name, meta) = named(service, name)?;
                service.discard_damaged(&name, &meta)
            }
            Inner::Remote(client) => {
                client.either(|| client.discard_damaged(name), |log| log.discard_damaged(name))
            }
        }
    }

    /// Counters of the service; zeros when its daemon does not answer.
    pub fn stat(&self) -> LogStat {
        match self.inner.look() {
            Inner::Embedded { service, .. } => service.stat(),
            Inner::Remote(client) => {
                let ask = |_: &Inner| client.either(|| client.stat(), |log| Ok(log.stat()));
                self.inner.get().and_then(ask).unwrap_or_else(|_| LogStat {
                    durability: client.service.durability.name(),
                    is_nvram: client.service.is_nvram,
                    pool_bytes: client.service.sizes.pool_bytes,
                    chunk_bytes: client.service.sizes.chunk_bytes,
                    ..LogStat::default()
                })
            }
        }
    }
}

/// Whether a daemon is meant: a path that ends in `socket`, `NAME.sock` or `NAME.socket`. Its name tells, as
/// there is no socket while no daemon runs, and a log that is made in its place would be another one.
pub fn names_socket(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let is_end = |end: &std::ffi::OsStr| end == "sock" || end == "socket";
    path.file_name().is_some_and(|name| name == "socket") || path.extension().is_some_and(is_end)
}

/// The same, refusing what its name and its kind say differently.
fn is_socket(path: &Path) -> Result<bool> {
    let found = std::fs::metadata(path).map(|found| found.file_type());
    let is_named = names_socket(path);
    let why = match found {
        Ok(kind) if is_named && kind.is_dir() => "a directory that is named like a socket",
        Ok(kind) if !is_named && kind.is_socket() => "a socket that is not named like one",
        _ => return Ok(is_named),
    };
    let rule = "a log is a directory, or a socket named socket, NAME.sock or NAME.socket";
    Err(LogError::Usage(format!("{} is {why}: {rule}", path.display())))
}

/// The stream that is to be there.
fn named(service: &Service, name: &str) -> Result<(StreamName, StreamMeta)> {
    let name: StreamName = name.parse()?;
    match service.host.stream(&name)? {
        Some(meta) => Ok((name, meta)),
        None => Err(LogError::NotFound(format!("there is no stream {name}"))),
    }
}

fn new_stream() -> StreamMeta {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    StreamMeta { id: 0, salt: fastrand::u64(..), uid, gid, mode: 0o600, quota_bytes: 0 }
}

/// Counters of a service since its memory was made.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogStat {
    /// What a synced append survives: `power`, `reboot` or `process`.
    pub durability: &'static str,
    /// Whether lanes lie on NVRAM.
    pub is_nvram: bool,
    /// Size of the pool in bytes.
    pub pool_bytes: u64,
    /// Data bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of the pool that are lent now.
    pub lent_bytes: u64,
    /// Appends that waited for a chunk.
    pub pool_wait_count: u64,
    /// How long they waited, in ns.
    pub pool_wait_ns: u64,
    /// Writes of the group log.
    pub group_commit_count: u64,
    /// Streams that took part in them, in all.
    pub group_member_count: u64,
    /// Bytes written to the group log.
    pub group_bytes: u64,
    /// Drains of a lane that wrote something.
    pub drain_count: u64,
    /// Bytes they wrote to log files.
    pub drain_bytes: u64,
    /// Whether the group log failed, so that nothing is accepted any more.
    pub is_aborted: bool,
}
