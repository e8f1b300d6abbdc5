//! The log as a program uses it.

use std::path::Path;
use std::sync::Arc;

use device::{Durability, ForkMark};
use rustix::fs::FileType;

use crate::backend::LogBackend;
use crate::client::{self, ConnectOptions};
use crate::directory::options::Options;
use crate::embedded::log::EmbeddedLog;
use crate::owned::Owned;
use crate::stream::Stream;
use crate::types::RecordBatch;
use crate::{LogError, LogStat, Lsn, Record, Result, StreamName};

/// An open log: a directory that this process serves, or that a daemon serves for it.
///
/// It belongs to the process that opened it. In a forked process every call on it or on its streams
/// fails with [`LogError::WrongProcess`], and a drop does nothing. A forked process opens the log
/// again.
pub struct Log {
    backend: Owned<Box<dyn LogBackend>>,
}

impl Log {
    /// Opens the log in the directory `path`. If there is none, makes it with `options`. The first
    /// process that opens it after a restart of the machine recovers it. If the path names a
    /// daemon's socket ([`names_socket`]), this is [`Log::connect`].
    ///
    /// # Errors
    /// [`LogError::InUse`] while a daemon serves the directory; the error names its socket.
    /// [`LogError::Daemon`] if no daemon answers at the socket; no log is made instead.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Log> {
        Log::new(open_backend(path.as_ref(), options)?)
    }

    /// Connects to the daemon that listens at `socket`.
    pub fn connect(socket: impl AsRef<Path>) -> Result<Log> {
        Log::connect_with(socket, &ConnectOptions::default())
    }

    /// Connects to the daemon that listens at `socket`. The options say what to do when it is gone.
    pub fn connect_with(socket: impl AsRef<Path>, options: &ConnectOptions) -> Result<Log> {
        Log::new(client::connect(socket.as_ref(), options, open_backend)?)
    }

    pub(crate) fn new(backend: Box<dyn LogBackend>) -> Result<Log> {
        let mark = Arc::new(ForkMark::new()?);
        Ok(Log { backend: Owned::new(backend, mark) })
    }

    /// Brings all records that this process appended to the log files, and lets other processes
    /// write its streams. The last process that closes the log, with none of its streams open,
    /// removes the shared memory. A log that is dropped instead leaves its records there for the
    /// next process.
    ///
    /// # Errors
    /// Records that could not be written stay in shared memory, as if the log had been dropped.
    pub fn close(self) -> Result<()> {
        self.backend.take().map_or(Ok(()), |backend| backend.close())
    }

    /// Names the log: 32 hexadecimal digits, random when it was made. A copy of a log's directory
    /// gets another name when it is opened.
    pub fn uuid(&self) -> &str {
        self.backend.look().uuid()
    }

    /// The names of the logs that it is a copy of, the last one last; 64 of them at most.
    pub fn copied_from(&self) -> &[String] {
        self.backend.look().copied_from()
    }

    /// Whether the log's directory and its shared memory are still at their paths. They may have
    /// been removed, or replaced. The log of a daemon is always the same.
    pub fn is_current(&self) -> bool {
        self.backend.get().is_ok_and(|backend| backend.is_current())
    }

    /// What a synced append survives.
    pub fn durability(&self) -> Durability {
        self.backend.look().durability()
    }

    /// Opens the stream `name`, which is made when there is none.
    pub fn stream(&self, name: &str) -> Result<Stream> {
        let none = || LogError::NotFound(format!("there is no stream {name}"));
        self.open_stream(name, true)?.ok_or_else(none)
    }

    /// The user to whom the stream `name` belongs, if there is one: the user who made it. All that
    /// is in the directory of a user other than root belongs to that user, who can write it.
    pub fn stream_owner(&self, name: &str) -> Result<Option<u32>> {
        self.backend.get()?.stream_owner(&name.parse()?)
    }

    /// Opens the stream `name` if there is one.
    pub fn existing_stream(&self, name: &str) -> Result<Option<Stream>> {
        self.open_stream(name, false)
    }

    fn open_stream(&self, name: &str, is_new: bool) -> Result<Option<Stream>> {
        let stream = self.backend.get()?.open_stream(&name.parse()?, is_new)?;
        Ok(stream.map(|stream| Stream::new(self.backend.with(stream))))
    }

    /// The names of all streams, sorted. A daemon lists only the streams that the user may open.
    pub fn stream_names(&self) -> Result<Vec<StreamName>> {
        self.backend.get()?.stream_names()
    }

    /// Removes a stream with all its records, durably. Fails while another process writes it.
    pub fn remove_stream(&self, name: &str) -> Result<()> {
        self.backend.get()?.remove_stream(&name.parse()?)
    }

    /// Reads the log files of a stream that may be damaged: about a mebibyte of records from the
    /// one at `from` on, or from the first, and where the next one begins. Without records nothing
    /// more can be read.
    pub fn salvage(&self, name: &str, from: Lsn) -> Result<(Vec<Record>, Lsn)> {
        let RecordBatch { records, next } = self.backend.get()?.salvage(&name.parse()?, from)?;
        Ok((records, next))
    }

    /// Discards the damaged part of a stream and all records after it, so that the stream can be
    /// used again. Returns where it ends now. The log never does this by itself.
    ///
    /// # Errors
    /// [`LogError::Busy`] while a process writes the stream.
    pub fn discard_damaged(&self, name: &str) -> Result<Lsn> {
        self.backend.get()?.discard_damaged(&name.parse()?)
    }

    /// Counters of the log. Zeros when its daemon does not answer.
    pub fn stat(&self) -> LogStat {
        let asked = self.backend.get().and_then(|backend| backend.stat());
        asked.unwrap_or_else(|_| self.backend.look().known_stat())
    }
}

/// The log at `path`: a directory that this process serves, or a daemon's socket.
fn open_backend(path: &Path, options: &Options) -> Result<Box<dyn LogBackend>> {
    options.check()?;
    if options.is_found && names_socket(path) {
        return client::connect(path, &ConnectOptions::found(options.owner), open_backend);
    }
    if !options.is_found && is_socket(path)? {
        return client::connect(path, &ConnectOptions::default(), open_backend);
    }
    Ok(Box::new(EmbeddedLog::open(path, options)?))
}

/// Whether a path names a daemon's socket: it ends in `socket`, `NAME.sock` or `NAME.socket`. The
/// name decides, because no socket is there while no daemon runs.
pub fn names_socket(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let is_end = |end: &std::ffi::OsStr| end == "sock" || end == "socket";
    path.file_name().is_some_and(|name| name == "socket") || path.extension().is_some_and(is_end)
}

/// The same. An error if what is there contradicts its name.
fn is_socket(path: &Path) -> Result<bool> {
    // Without a request to what may be another user's server, which is refused later.
    let is_named = names_socket(path);
    let why = match host::cached_kind(path) {
        Ok(FileType::Directory) if is_named => "a directory that is named like a socket",
        Ok(FileType::Socket) if !is_named => "a socket that is not named like one",
        _ => return Ok(is_named),
    };
    let rule = "a log is a directory, or a socket named socket, NAME.sock or NAME.socket";
    Err(LogError::Usage(format!("{} is {why}: {rule}", path.display())))
}
