//! An open database of this process: its path, its settings, and what the process remembers of its
//! log.
//!
//! The operations on it are in `wal`, `batch` and `recovery`.
//!
//! Locks, in this order: `LogState`, the stream's lease. A commit holds both while it makes a
//! record, writes the stream header, and reads the versions that the record is based on.

pub mod background;
pub mod opening;

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use device::sync::{Mutex, MutexGuard};
use host::FileId;
use log::Log;

use crate::abi::ffi::SQLITE_IOERR_FSYNC;
use crate::abi::handles::Below;
use crate::database::background::Background;
use crate::failure::{Conflict, Damage, Failure};
use crate::format::base::Base;
use crate::format::wal::Header;
use crate::frames::versions::Versions;
use crate::messages::tell;
use crate::stream::live::{Contents, Live, read_live};
use crate::stream::logs;
use crate::stream::settings::Settings;
use crate::stream::stamped::Stream;

/// An open database of this process, used by any number of connections.
pub struct Database {
    /// The path that it was first opened by.
    pub path: PathBuf,
    /// Which file it is.
    pub file: FileId,
    /// The place of its log.
    pub settings: Settings,
    /// The VFS below.
    pub below: Below,
    /// Number of connections that have it open.
    pub connections: AtomicUsize,
    /// Whether any connection so far may write.
    pub has_writers: AtomicBool,
    /// Whether transactions of pages become records.
    pub has_batches: AtomicBool,
    /// Whether the log failed when a commit was last to be a record. The WAL does not begin again
    /// meanwhile, because the log has to know its generation.
    pub log_fails: AtomicBool,
    /// Why it has no log in this process, for good.
    pub plain: OnceLock<String>,
    /// Its background syncs.
    pub(crate) background: Background,
    state: Mutex<LogState>,
}

/// An open log, and the stream of a database in it.
pub type Service = (Arc<Log>, Stream);

/// What this process remembers. All of it can be computed again.
#[derive(Default)]
pub(crate) struct LogState {
    pub service: Option<Service>,
    /// The WAL's header at the last reading. It is valid for frames with its salts.
    pub header: Option<Header>,
    pub versions: Versions,
    /// The last *begin* of this process, and its LSN.
    pub begun: Option<(u64, Base)>,
}

impl Database {
    /// A database without a log yet.
    pub fn new(path: PathBuf, file: FileId, settings: Settings, below: Below) -> Database {
        Database {
            path,
            file,
            settings,
            below,
            connections: AtomicUsize::new(0),
            has_writers: AtomicBool::new(false),
            has_batches: AtomicBool::new(false),
            log_fails: AtomicBool::new(false),
            plain: OnceLock::new(),
            background: Background::default(),
            state: Mutex::default(),
        }
    }

    /// Its log, if it has one open.
    pub fn log(&self) -> Option<Arc<Log>> {
        self.state.lock().service.as_ref().map(|(log, _)| log.clone())
    }

    /// Closes the log when no connection of this process has the database open any more.
    pub fn close_log(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        // A connection that opens now counts itself before it looks for the log here.
        if self.connections.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let Some((log, stream)) = state.service.take() else { return Ok(()) };
        drop(state);
        drop(stream);
        logs::close_log(log, &self.settings)
    }

    /// Runs `f` with the stream of an open log.
    pub fn with_stream<T>(
        &self,
        f: impl FnOnce(&Stream) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let state = self.state.lock();
        state.service.as_ref().map(|(_, stream)| f(stream)).transpose()
    }

    /// Runs `f` with an open log, and its stream.
    pub fn with_log<T>(
        &self,
        f: impl FnOnce(&Log, &Stream) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let state = self.state.lock();
        state.service.as_ref().map(|(log, stream)| f(log, stream)).transpose()
    }

    /// Locks what this process remembers.
    pub(crate) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    /// The content of the stream. `None`: it holds nothing that matters, or damage that the user
    /// gives up.
    pub fn read(&self, stream: &Stream) -> Result<Option<Live>, Failure> {
        match read_live(stream)? {
            Contents::Live(live) => Ok(Some(live)),
            Contents::Nothing => Ok(None),
            Contents::Damaged(_) if self.settings.may_discard => Ok(None),
            Contents::Damaged(damage) => Err(self.unreadable(&damage)),
        }
    }

    /// The error of a connection that may not write, and so cannot bring the log's transactions
    /// into the database.
    pub fn not_home(&self) -> Failure {
        Failure::CannotOpen(format!(
            "{}: the log holds transactions that are not in the database yet: open it for \
             writing once, while no other program has it open",
            self.path.display()
        ))
    }

    /// The error for damage.
    pub fn unreadable(&self, damage: &Damage) -> Failure {
        Failure::CannotOpen(format!(
            "{}: {damage}; nothing was overwritten. Opening with recover=discard gives up what the \
             log holds",
            self.path.display()
        ))
    }

    /// The error if the database is not the one that the log's records were made for.
    pub fn conflict(&self, conflict: Conflict) -> Failure {
        Failure::Conflict { path: self.path.clone(), conflict }
    }

    /// Reports an error to SQLite's error log. Returns its code.
    pub fn report(&self, e: &Failure) -> c_int {
        let code = e.code(SQLITE_IOERR_FSYNC);
        tell(code, &format!("{}: {e}", self.path.display()));
        code
    }
}

/// Counts a new connection.
pub fn came(database: &Database) {
    database.connections.fetch_add(1, Ordering::AcqRel);
}

/// Counts a closed connection. Returns whether it was the last.
pub fn went(database: &Database) -> bool {
    database.connections.fetch_sub(1, Ordering::AcqRel) == 1
}
