//! The log as a program uses it.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use device::{Durability, ForkMark};

use crate::backend::LogBackend;
use crate::client::{self, ConnectOptions};
use crate::directory::options::Options;
use crate::embedded::EmbeddedLog;
use crate::owned::Owned;
use crate::stream::Stream;
use crate::types::RecordBatch;
use crate::{LogError, LogStat, Lsn, Record, Result, StreamName};

/// A service that this process takes part in, or uses through its daemon.
///
/// It belongs to the process that opened it. In one that is forked from that, whatever is done with it or with its
/// streams fails, and dropping it does nothing: a forked process opens the log again.
pub struct Log {
    backend: Owned<Box<dyn LogBackend>>,
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
        Log::new(open_backend(path.as_ref(), options)?)
    }

    /// Connects to the daemon that listens at `socket`.
    pub fn connect(socket: impl AsRef<Path>) -> Result<Log> {
        Log::connect_with(socket, &ConnectOptions::default())
    }

    /// Connects to the daemon that listens at `socket`; what happens when it is gone is said by `options`.
    pub fn connect_with(socket: impl AsRef<Path>, options: &ConnectOptions) -> Result<Log> {
        Log::new(client::connect(socket.as_ref(), options, open_backend)?)
    }

    pub(crate) fn new(backend: Box<dyn LogBackend>) -> Result<Log> {
        let mark = Arc::new(ForkMark::new()?);
        Ok(Log { backend: Owned::new(backend, mark) })
    }

    /// Ends this process's part: brings all that it appended to the log files and lets others write its streams.
    /// The last process to close the log, with no stream of it open any more, leaves nothing in shared memory. A log
    /// that is dropped instead leaves what it appended in shared memory for the next one.
    ///
    /// # Errors
    /// What could not be brought home stays where it was, as if the log had been dropped.
    pub fn close(self) -> Result<()> {
        self.backend.take().map_or(Ok(()), |backend| backend.close())
    }

    /// Names the service: 32 hexadecimal digits, random when it was made.
    pub fn uuid(&self) -> &str {
        self.backend.look().uuid()
    }

    /// What survives after an append that was synced.
    pub fn durability(&self) -> Durability {
        self.backend.look().durability()
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
        let stream = self.backend.get()?.open_stream(&name.parse()?, is_new)?;
        Ok(stream.map(|stream| Stream::new(self.backend.with(stream))))
    }

    /// The names of all streams, sorted; of a daemon's, those that the user may open.
    pub fn stream_names(&self) -> Result<Vec<StreamName>> {
        self.backend.get()?.stream_names()
    }

    /// Removes a stream and all it holds, durably; what is in memory only is not written first. Fails
    /// while another process writes it.
    pub fn remove_stream(&self, name: &str) -> Result<()> {
        self.backend.get()?.remove_stream(&name.parse()?)
    }

    /// Records in the log files of a stream that need not be sound, from the one at `from` on or from
    /// the first, about a megabyte of them; and where the next one begins, or would. No record: nothing
    /// more can be read.
    pub fn salvage(&self, name: &str, from: Lsn) -> Result<(Vec<Record>, Lsn)> {
        let RecordBatch { records, next } = self.backend.get()?.salvage(&name.parse()?, from)?;
        Ok((records, next))
    }

    /// Gives up what is damaged of a stream and all behind it, so that it can be used again; where it
    /// ends now. Somebody's decision, never made by itself. Fails while anybody writes it.
    pub fn discard_damaged(&self, name: &str) -> Result<Lsn> {
        self.backend.get()?.discard_damaged(&name.parse()?)
    }

    /// Counters of the service; zeros when its daemon does not answer.
    pub fn stat(&self) -> LogStat {
        let asked = self.backend.get().and_then(|backend| backend.stat());
        asked.unwrap_or_else(|_| self.backend.look().known_stat())
    }
}

/// The log at `path`: a directory that this process serves, or a daemon's socket.
fn open_backend(path: &Path, options: &Options) -> Result<Box<dyn LogBackend>> {
    options.check()?;
    if is_socket(path)? {
        return client::connect(path, &ConnectOptions::default(), open_backend);
    }
    Ok(Box::new(EmbeddedLog::open(path, options)?))
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
