//! A connection of the extension's own, for checkpoints of one database.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use crate::failure::Failure;
use crate::ffi::*;
use crate::real::file::Real;
use crate::real::loaded::loaded;

thread_local! {
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread opens such a connection now. Its file is not one of the program's.
pub fn is_opening() -> bool {
    IS_OPENING.get()
}

/// The connection. It has read the database. The program's connection keeps that in WAL mode.
pub struct Own {
    connection: *mut sqlite3,
    api: CheckpointApi,
}

// SAFETY: `open` returns only connections with a mutex of their own, which SQLite takes in every
// call, so any thread may use and close them.
unsafe impl Send for Own {}

/// What a pass has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Frames that are in the database now, counted from the start of the WAL.
    pub frames: u32,
}

impl Own {
    /// Opens the database at `path` through the VFS `vfs`.
    pub fn open(path: &Path, vfs: &std::ffi::CStr) -> Result<Own, Failure> {
        let failed = |code| Failure::Sqlite { code, what: "opening, for checkpoints," };
        let api = loaded().api.checkpoints.ok_or(failed(SQLITE_ERROR))?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed(SQLITE_ERROR))?;
        let mut connection = null_mut();
        IS_OPENING.set(true);
        // SAFETY: two strings that end with a zero, and a place for the connection.
        let rc = unsafe {
            // With a shared cache it would wait for the mutex of the program's connections, which
            // wait for it.
            let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_PRIVATECACHE;
            (api.open_v2)(name.as_ptr(), &mut connection, flags, vfs.as_ptr())
        };
        IS_OPENING.set(false);
        // It has to be closed also after a failure; null is allowed.
        let own = Own { connection, api };
        if rc != SQLITE_OK {
            return Err(failed(rc));
        }
        // SAFETY: an open connection.
        if unsafe { (api.db_mutex)(connection) }.is_null() {
            return Err(Failure::CannotOpen("this SQLite is built or set for one thread".into()));
        }
        own.prepare().map(|()| own)
    }

    /// It leaves the checkpoint of the last connection to the program. It syncs, also where SQLite
    /// was built not to. And it reads the database: before that, SQLite does not know of the WAL.
    fn prepare(&self) -> Result<(), Failure> {
        // SAFETY: an open connection; this setting takes a number and a pointer to a number, or
        // null.
        let set = unsafe {
            let is_set = null_mut::<c_int>();
            (self.api.db_config)(self.connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, is_set)
        };
        let sql = c"PRAGMA main.synchronous=FULL; PRAGMA schema_version";
        // SAFETY: as above; a statement that ends with a zero. Its row and its message are not
        // wanted.
        let read = || unsafe {
            (self.api.exec)(self.connection, sql.as_ptr(), None, null_mut(), null_mut())
        };
        match if set == SQLITE_OK { read() } else { set } {
            SQLITE_OK => Ok(()),
            code => Err(Failure::Sqlite { code, what: "reading, for checkpoints," }),
        }
    }

    /// Copies what the WAL holds and no reader prevents, and syncs the database. SQLite itself
    /// syncs it only if no frame was committed meanwhile.
    pub fn pass(&self) -> Result<Copied, Failure> {
        let (mut in_wal, mut copied) = (-1, -1);
        // SAFETY: an open connection; null means all of its databases, and it has one.
        let rc = unsafe {
            let how = SQLITE_CHECKPOINT_PASSIVE;
            (self.api.wal_checkpoint_v2)(self.connection, null(), how, &mut in_wal, &mut copied)
        };
        match rc {
            SQLITE_OK => {
                self.file()?.sync()?;
                Ok(Copied { frames: u32::try_from(copied).unwrap_or(0) })
            }
            // Another connection makes a checkpoint, or has the database to itself.
            code if code & 0xff == SQLITE_BUSY => Ok(Copied { frames: 0 }),
            code => Err(Failure::Sqlite { code, what: "a checkpoint of" }),
        }
    }
}

impl Own {
    /// Whether the path leads to another file now.
    pub fn has_moved(&self) -> bool {
        self.file().is_ok_and(|file| file.has_moved())
    }

    /// The open database file.
    fn file(&self) -> Result<Real, Failure> {
        let mut file: *mut sqlite3_file = null_mut();
        let place: *mut *mut sqlite3_file = &mut file;
        // SAFETY: an open connection, the name of its database; the control takes a place for a
        // pointer.
        let rc = unsafe {
            let (name, what) = (c"main".as_ptr(), SQLITE_FCNTL_FILE_POINTER);
            (self.api.file_control)(self.connection, name, what, place.cast())
        };
        if rc != SQLITE_OK || file.is_null() {
            return Err(Failure::Sqlite { code: rc, what: "finding, for checkpoints," });
        }
        // SAFETY: it is open as long as the connection, which only the holder of `self` uses.
        Ok(unsafe { Real::new(file) })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: opened here, closed once. It has no statements, so this succeeds. Nothing durable
        // depends on it.
        let _ = unsafe { (self.api.close)(self.connection) };
    }
}
