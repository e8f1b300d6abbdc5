//! The errors of the log service.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use device::{DeviceError, Operation};
use host::Forgeable;

use crate::Lsn;

/// Result of an operation on a log.
pub type Result<T> = std::result::Result<T, LogError>;

/// An error of the log service. It can be cloned, because the failure of one write is reported to
/// every caller that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The medium failed.
    #[error("log I/O: {0}{step}", step = next_step(.0))]
    Io(Arc<DeviceError>),
    /// Something else of the system failed: a directory, a socket, a lock.
    #[error("{what}: {source}")]
    System {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// An earlier write or sync of this stream or its service failed. Nothing is accepted any more.
    #[error("the log accepts no records after an earlier error: {0}")]
    Aborted(String),
    /// Another process writes this stream.
    #[error("stream {0} has another writer: close it there first")]
    Busy(String),
    /// No chunk of the pool became free in time. Nothing was appended.
    #[error(
        "the pool of {pool_bytes} bytes is full: nothing was drained for {waited_ms} ms. Nothing \
         was appended: try again, end a process that is stopped, or make the log with a larger pool"
    )]
    Full {
        /// Size of the pool in bytes.
        pool_bytes: u64,
        /// How long the append waited, in milliseconds.
        waited_ms: u64,
    },
    /// A record, or an append, that is too large for any pool of this size. Nothing was appended.
    #[error(
        "an append of {len_bytes} bytes: at most {limit_bytes} are possible (16 MiB in a record, \
         half the pool in all)"
    )]
    TooLarge {
        /// Size of the append in bytes.
        len_bytes: u64,
        /// The largest possible append in bytes.
        limit_bytes: u64,
    },
    /// The file system of the log is full. Nothing was written, and the stream can be used further.
    #[error("{0}. Nothing is lost: free some space and try again")]
    NoRoom(String),
    /// The directory for shared memory has no room, or is not on a tmpfs. Nothing was appended.
    #[error("{0}")]
    NoMemory(String),
    /// The stream holds something damaged, with valid records after it.
    #[error("stream {stream} is damaged at {at}: {what}")]
    Damaged {
        /// The stream's name.
        stream: String,
        /// Where the first record that cannot be read would begin.
        at: Lsn,
        /// What was found.
        what: String,
    },
    /// The position was truncated away. The first record that is left begins at `head`.
    #[error("stream {stream}: {at} is gone, it begins at {head}")]
    Truncated {
        /// The stream's name.
        stream: String,
        /// The position that was asked for.
        at: Lsn,
        /// Where the stream begins.
        head: Lsn,
    },
    /// The position is after the end of the stream. It may be one later.
    #[error("stream {stream}: {at} is after its end, {end}")]
    PastEnd {
        /// The stream's name.
        stream: String,
        /// The position that was asked for.
        at: Lsn,
        /// Where the stream ends.
        end: Lsn,
    },
    /// A process changed the shared memory of this stream in a way that no writer does. Other
    /// streams go on.
    #[error("the shared memory of stream {stream} is damaged: {what}")]
    DamagedMemory {
        /// The stream's name.
        stream: String,
        /// What was found.
        what: String,
    },
    /// The log's directory is in use: a daemon serves it, or processes that opened it do.
    #[error("{0}")]
    InUse(String),
    /// Files of another service, of an unknown version, or no log at all.
    #[error("incompatible log: {0}")]
    Incompatible(String),
    /// The caller passed an impossible name, size or position.
    #[error("{0}")]
    Usage(String),
    /// The process was forked from the one that opened the log.
    #[error("it was opened by the process that this one was forked from; open the log again here")]
    WrongProcess,
    /// The requested stream or record does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The user may not do that.
    #[error("permission denied: {0}")]
    Denied(String),
    /// The daemon is gone or does not speak the protocol.
    #[error("the log daemon: {0}")]
    Daemon(String),
}

/// The refusals that a command helps with. Each one is one of [`LogError`], with its sentence for
/// people, who read it through SQLite, a program in C, the command, or a daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "there are {limit} streams, and no log has more: remove one (onejournal log rm), or use \
         another log"
    )]
    TooManyStreams { limit: usize },
    #[error(
        "{limit} processes use {} already: end one, or let a daemon serve the log (onejournal \
         logd)",
        directory.display()
    )]
    TooManyProcesses { limit: usize, directory: PathBuf },
    #[error(
        "the group log could not be written. Nothing that was synced is lost: repair the disk, end \
         all programs that use the log, then run onejournal log gc"
    )]
    GroupLogFailed,
    #[error(
        "stream {stream}: its log files could not be written. Nothing that was appended is lost: \
         repair the disk, then run onejournal log discard-damaged, which brings it to them"
    )]
    FilesFailed { stream: String },
    #[error(
        "stream {stream}: its writer's memory is damaged. The records in its log files can be \
         read; to write it again, run onejournal log discard-damaged, which gives up the rest"
    )]
    MemoryDamaged { stream: String },
    #[error(
        "stream {stream}: {doing}, as user {uid}; user {owner} made it. To let a group in, stop \
         the daemon and run: onejournal log permit --dir DIR --group GROUP {stream}, where DIR is \
         the directory of the log"
    )]
    NotPermitted { stream: String, doing: &'static str, uid: u32, owner: u32 },
    #[error(
        "{}: gone for {waited_s} s: {source}: start it (onejournal logd), or open its directory",
        socket.display()
    )]
    DaemonGone { socket: PathBuf, waited_s: f32, source: io::Error },
}

impl From<Refusal> for LogError {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        use Refusal::*;
        let kind = match refusal {
            TooManyStreams { .. } | TooManyProcesses { .. } => LogError::Usage,
            GroupLogFailed | FilesFailed { .. } | MemoryDamaged { .. } => LogError::Aborted,
            NotPermitted { .. } => LogError::Denied,
            DaemonGone { .. } => LogError::Daemon,
        };
        kind(text)
    }
}

/// The error, and what to do if another user could have prepared the log.
pub(crate) fn advised(error: io::Error) -> io::Error {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<Forgeable>());
    let Some(Forgeable { user, .. }) = why else { return error };
    let advice = match user {
        Some(uid) => format!(
            "If you want that user's log, act as that user: sudo -u '#{uid}'. If that log is not \
             needed, remove it, or name another log"
        ),
        None => "If you are sure that it is not: chmod go-w".into(),
    };
    let text = format!(
        "{error}. {advice}. Several users share a log through a daemon only: onejournal logd --dir \
         DIR, and log=DIR/socket"
    );
    io::Error::new(error.kind(), text)
}

/// What a caller may conclude from an error. See [`LogError::effect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing happened. The same call may succeed later: try again.
    NothingYet,
    /// Nothing happened, and the same call will fail again until something else is changed.
    Refused,
    /// The call had no effect, and the stream or its service accepts nothing until it is repaired
    /// or opened again.
    Stopped,
    /// The call may have taken effect or not. Read the stream to find out, or make the call again
    /// if that does no harm.
    Unknown,
}

/// What to do after a failed write or flush.
fn next_step(error: &DeviceError) -> &'static str {
    match error.operation {
        Operation::Write | Operation::Flush => {
            ". What was synced before is not lost. Repair the disk; the error of the next append \
             says how to continue"
        }
        Operation::Open | Operation::Read => "",
    }
}

impl LogError {
    /// What the failed call has done.
    pub fn effect(&self) -> Effect {
        match self {
            LogError::Busy(_) | LogError::Full { .. } | LogError::NoRoom(_) => Effect::NothingYet,
            LogError::TooLarge { .. }
            | LogError::Truncated { .. }
            | LogError::PastEnd { .. }
            | LogError::InUse(_)
            | LogError::NoMemory(_)
            | LogError::Incompatible(_)
            | LogError::Usage(_)
            | LogError::WrongProcess
            | LogError::NotFound(_)
            | LogError::Denied(_) => Effect::Refused,
            LogError::Aborted(_) | LogError::Damaged { .. } | LogError::DamagedMemory { .. } => {
                Effect::Stopped
            }
            LogError::Io(_) | LogError::System { .. } | LogError::Daemon(_) => Effect::Unknown,
        }
    }

    /// The files or the memory of one stream are wrong, so that stream is refused and the others go
    /// on.
    pub(crate) fn is_of_one_stream(&self) -> bool {
        matches!(
            self,
            LogError::Damaged { .. } | LogError::DamagedMemory { .. } | LogError::Incompatible(_)
        )
    }

    /// An error of the system, `what` being what was tried.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> LogError {
        LogError::System { what: what.into(), source: Arc::new(advised(source.into())) }
    }
}

impl From<DeviceError> for LogError {
    fn from(error: DeviceError) -> Self {
        let source = advised(error.source);
        LogError::Io(Arc::new(DeviceError { source, ..error }))
    }
}
