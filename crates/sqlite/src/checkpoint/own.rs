//! A connection of the extension's own, for checkpoints of one database.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::connection::{Connection, NoConnection};
use crate::abi::ffi::*;
use crate::failure::Failure;

thread_local! {
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread opens such a connection now. Its file is not one of the program's.
pub fn is_opening() -> bool {
    IS_OPENING.get()
}

/// The connection. It has read the database. The program's connection keeps that in WAL mode.
pub struct Own(Connection);

/// What a pass has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Frames that are in the database now, counted from the start of the WAL.
    pub frames: u32,
}

impl Own {
    /// Opens the database at `path` through the VFS `vfs`.
    pub fn open(path: &Path, vfs: &CStr) -> Result<Own, Failure> {
        let failed = |code| Failure::Sqlite { code, what: "opening, for checkpoints," };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed(SQLITE_ERROR))?;
        IS_OPENING.set(true);
        let opened = Connection::open(&name, vfs);
        IS_OPENING.set(false);
        let own = Own(opened.map_err(|e| match e {
            NoConnection::Code(code) => failed(code),
            NoConnection::OneThread => {
                Failure::CannotOpen("this SQLite is built or set for one thread".into())
            }
        })?);
        own.prepare().map(|()| own)
    }

    /// It leaves the checkpoint of the last connection to the program. It syncs, also where SQLite
    /// was built not to. And it reads the database: before that, SQLite does not know of the WAL.
    fn prepare(&self) -> Result<(), Failure> {
        let sql = c"PRAGMA main.synchronous=FULL; PRAGMA schema_version";
        let rc = match self.0.leave_last_checkpoint() {
            SQLITE_OK => self.0.run(sql),
            code => code,
        };
        match rc {
            SQLITE_OK => Ok(()),
            code => Err(Failure::Sqlite { code, what: "reading, for checkpoints," }),
        }
    }

    /// Copies what the WAL holds and no reader prevents, and syncs the database. SQLite itself
    /// syncs it only if no frame was committed meanwhile.
    pub fn pass(&self) -> Result<Copied, Failure> {
        match self.0.checkpoint() {
            (SQLITE_OK, copied) => {
                let missing = |code| Failure::Sqlite { code, what: "finding, for checkpoints," };
                self.0.with_file(|file| file.sync()).map_err(missing)??;
                Ok(Copied { frames: u32::try_from(copied).unwrap_or(0) })
            }
            // Another connection makes a checkpoint, or has the database to itself.
            (code, _) if code & 0xff == SQLITE_BUSY => Ok(Copied { frames: 0 }),
            (code, _) => Err(Failure::Sqlite { code, what: "a checkpoint of" }),
        }
    }

    /// Whether the path leads to another file now.
    pub fn has_moved(&self) -> bool {
        self.0.with_file(|file| file.has_moved()).unwrap_or(false)
    }
}
