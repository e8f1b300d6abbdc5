//! A connection's WAL file: what its writes and syncs are to the log.

use std::ffi::c_int;
use std::sync::Arc;

use crate::database::{Database, Files};
use crate::ffi::*;
use crate::file::{File, real_file, real_of, report};
use crate::main_file::connection_of;
use crate::pending::Pending;
use crate::real::call;
use crate::wal::{FRAME_HEADER_BYTES, HEADER_BYTES};
use crate::{Failure, guard};

/// A database's WAL.
pub struct Wal {
    /// Whose.
    database: Arc<Database>,
    /// The same connection's database, which is closed after this.
    main: *mut File,
    /// What was written since the last sync.
    pending: Pending,
}

impl Wal {
    /// The WAL of the connection whose database is `main`, which is open as long as this.
    pub fn new(database: Arc<Database>, main: *mut File) -> Wal {
        Wal { database, main, pending: Pending::default() }
    }

    /// # Safety
    /// SQLite's call of a method of the WAL `file`, whose role this is.
    unsafe fn files(&self, file: *mut sqlite3_file) -> Files {
        // SAFETY: the database is open while its WAL is, and used by the same thread as that.
        unsafe { Files { main: real_file(self.main), wal: real_file(file.cast()) } }
    }

    /// Writes `bytes` at `at`.
    ///
    /// # Safety
    /// As [`Wal::files`].
    pub unsafe fn write(&mut self, file: *mut sqlite3_file, bytes: &[u8], at: u64) -> c_int {
        let (Ok(count), Ok(offset)) = (c_int::try_from(bytes.len()), i64::try_from(at)) else {
            return SQLITE_IOERR;
        };
        // SAFETY: the caller's promise.
        let files = unsafe { self.files(file) };
        // SAFETY: the database is open while its WAL is; nothing else refers to its role now.
        let connection = unsafe { connection_of(self.main) };
        let (transaction, index) = connection.map_or((0, None), |connection| {
            (connection.wal_transaction_count, connection.wal_index)
        });
        let Wal { database, pending, .. } = self;
        pending.belongs_to(transaction, || index?.counted());
        let begun = guard(SQLITE_IOERR, || {
            begin_write(database, files, pending, at, bytes)
                .map_or_else(|e| report(database, &e), |()| SQLITE_OK)
        });
        if begun != SQLITE_OK {
            return begun;
        }
        let from = bytes.as_ptr().cast();
        // SAFETY: as above.
        let rc = call!(unsafe { real_of(file.cast()) }, xWrite, from, count, offset);
        if at >= HEADER_BYTES as u64 {
            guard((), || match rc {
                SQLITE_OK => pending.wrote(at, bytes),
                _ => pending.failed(at..at + bytes.len() as u64),
            });
        }
        rc
    }

    /// Makes what was written durable.
    ///
    /// # Safety
    /// As [`Wal::files`].
    pub unsafe fn sync(&mut self, file: *mut sqlite3_file) -> c_int {
        // SAFETY: the caller's promise.
        let files = unsafe { self.files(file) };
        guard(SQLITE_IOERR_FSYNC, || {
            let synced = self.database.sync_wal(files, &self.pending);
            self.pending.clear();
            synced.map_or_else(|e| report(&self.database, &e), |()| SQLITE_OK)
        })
    }
}

/// Before `new` is written at `at` of a WAL.
pub fn begin_write(
    database: &Database,
    files: Files,
    pending: &mut Pending,
    at: u64,
    new: &[u8],
) -> Result<(), Failure> {
    if at == 0 && new.len() >= HEADER_BYTES {
        pending.clear();
        return database.begin_generation(files, &new[..HEADER_BYTES]);
    }
    if pending.is_empty() || new.len() == FRAME_HEADER_BYTES {
        return database.begin_frame(files, at);
    }
    Ok(())
}
