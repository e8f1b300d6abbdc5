//! Checkpoints: what SQLite's functions do for them, and a connection of the extension's own.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use super::ffi::*;
use super::handles::Db;
use super::loaded::loaded;
use super::real::Real;
use super::table::{Checkpoints, WalHook};
use super::text::Text;

impl Checkpoints {
    /// The file of a database of the connection. An error is SQLite's result code.
    pub(super) fn file_of(
        &self,
        connection: Db,
        name: Text<'_>,
    ) -> Result<*mut sqlite3_file, c_int> {
        let mut file: *mut sqlite3_file = null_mut();
        let place: *mut *mut sqlite3_file = &mut file;
        // SAFETY: this control takes a place for a pointer.
        let rc = unsafe {
            (self.file_control)(connection, name, SQLITE_FCNTL_FILE_POINTER, place.cast())
        };
        if rc == SQLITE_OK && !file.is_null() { Ok(file) } else { Err(rc) }
    }

    /// Whether the path of a database leads to another file now. Also true if that cannot be found
    /// out. Takes the mutex of a shared cache.
    pub(super) fn has_moved(&self, connection: Db, name: Text<'_>) -> bool {
        let mut has_moved: c_int = 1;
        let (control, place) = (SQLITE_FCNTL_HAS_MOVED, &raw mut has_moved);
        // SAFETY: this control takes a place for a number.
        let rc = unsafe { (self.file_control)(connection, name, control, place.cast()) };
        rc != SQLITE_OK || has_moved != 0
    }

    /// Makes a passive checkpoint of a database, or of all. Returns SQLite's result code. `copied`
    /// becomes the number of frames of the WAL that are in the database.
    pub(super) fn make_checkpoint(
        &self,
        connection: Db,
        name: Option<Text<'_>>,
        copied: Option<&mut c_int>,
    ) -> c_int {
        (self.wal_checkpoint_v2)(connection, name, SQLITE_CHECKPOINT_PASSIVE, None, copied)
    }

    /// Sets the WAL hook. Returns the argument of the hook before.
    pub(super) fn set_wal_hook(
        &self,
        connection: Db,
        hook: Option<WalHook>,
        argument: *mut c_void,
    ) -> *mut c_void {
        // SAFETY: the only hook here reads its argument as a number, and stays: the library is
        // never unloaded. A file's method may call this, because SQLite's mutex is recursive.
        unsafe { (self.wal_hook)(connection, hook, argument) }
    }
}

/// An open connection with one database, closed when this is dropped. Any thread may use it, one at
/// a time.
pub struct Connection {
    connection: Db,
    api: Checkpoints,
}

// SAFETY: `open` returns only connections with a mutex of their own, which SQLite takes in every
// call, so any thread may use and close them.
unsafe impl Send for Connection {}

/// Why there is no connection.
pub enum NoConnection {
    /// SQLite's result code.
    Code(c_int),
    /// This SQLite lets no threads share a connection.
    OneThread,
}

impl Connection {
    /// Opens the database with this name through the VFS `vfs`.
    pub fn open(name: &CStr, vfs: &CStr) -> Result<Connection, NoConnection> {
        let api = loaded().api.checkpoints.ok_or(NoConnection::Code(SQLITE_ERROR))?;
        // With a shared cache it would wait for the mutex of the program's connections, which wait
        // for it.
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_PRIVATECACHE;
        let mut connection = None;
        let rc = (api.open_v2)(name.into(), &mut connection, flags, Some(vfs.into()));
        // It has to be closed also after a failure.
        let opened = connection.map(|connection| Connection { connection, api });
        match opened {
            Some(opened) if rc == SQLITE_OK => match (api.db_mutex)(opened.connection).is_null() {
                true => Err(NoConnection::OneThread),
                false => Ok(opened),
            },
            _ => Err(NoConnection::Code(rc)),
        }
    }

    /// Leaves the checkpoint of the last connection to the program. Returns SQLite's result code.
    pub fn leave_last_checkpoint(&self) -> c_int {
        let (setting, is_set) = (SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, null_mut::<c_int>());
        // SAFETY: this setting takes a number and a pointer to a number, or null.
        unsafe { (self.api.db_config)(self.connection, setting, 1 as c_int, is_set) }
    }

    /// Runs statements whose rows are not wanted. Returns SQLite's result code.
    pub fn run(&self, sql: &CStr) -> c_int {
        // SAFETY: there is no function for the rows that could use the missing argument.
        unsafe { (self.api.exec)(self.connection, sql.into(), None, null_mut(), None) }
    }

    /// Makes a passive checkpoint. Returns SQLite's result code, and how many frames of the WAL are
    /// in the database.
    pub fn checkpoint(&self) -> (c_int, c_int) {
        let mut copied = -1;
        let rc = self.api.make_checkpoint(self.connection, None, Some(&mut copied));
        (rc, copied)
    }

    /// Runs `f` with the file of the database. An error is SQLite's result code.
    pub fn with_file<T>(&self, f: impl FnOnce(&Real) -> T) -> Result<T, c_int> {
        let file = self.api.file_of(self.connection, c"main".into())?;
        // SAFETY: the file is open as long as the connection, which stays during this call. The
        // connection is used by one thread at a time, because it cannot be shared.
        Ok(f(&unsafe { Real::new(file, None) }))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, and closed only here. It has no statements, so this succeeds.
        // Nothing durable depends on it.
        let _ = unsafe { (self.api.close)(Some(self.connection)) };
    }
}
