//! A connection's WAL file: what its writes and syncs are to the log.
//!
//! SQLite writes a frame in two, the header and right behind it the page. The header of a frame behind all that was written
//! since the last sync is held until the page comes, so that both are one call of the file system. If anything else
//! comes instead, the header is written first (`Wal::settle`).

use std::ffi::c_int;
use std::sync::Arc;

use crate::database::{Database, Files};
use crate::failure::{Failure, guard};
use crate::ffi::*;
use crate::format::wal::{FRAME_HEADER_BYTES, HEADER_BYTES};
use crate::frames::pending::Pending;
use crate::real::file::call;
use crate::vfs::file::{File, real_file, real_of, report};
use crate::vfs::main_file::connection_of;

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
        let frame = guard(None, || self.pending.with_held(at, bytes));
        if let Some((frame_at, frame)) = frame {
            // SAFETY: the caller's promise.
            let rc = unsafe { write_below(file, frame, frame_at) };
            if rc != SQLITE_OK {
                let end = at + bytes.len() as u64;
                self.pending.failed(frame_at..end);
            }
            return rc;
        }
        // SAFETY: as above.
        let settled = unsafe { self.settle(file) };
        if settled != SQLITE_OK {
            return settled;
        }
        // SAFETY: as above.
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
        if bytes.len() == FRAME_HEADER_BYTES
            && at >= HEADER_BYTES as u64
            && guard(false, || pending.hold(at, bytes))
        {
            return SQLITE_OK;
        }
        // SAFETY: as above.
        let rc = unsafe { write_below(file, bytes, at) };
        if at >= HEADER_BYTES as u64 {
            guard((), || match rc {
                SQLITE_OK => pending.wrote(at, bytes),
                _ => pending.failed(at..at + bytes.len() as u64),
            });
        }
        rc
    }

    /// Writes what is held; SQLite's code.
    ///
    /// # Safety
    /// As [`Wal::files`].
    pub unsafe fn settle(&mut self, file: *mut sqlite3_file) -> c_int {
        let Some((at, header)) = self.pending.take_held() else { return SQLITE_OK };
        // SAFETY: the caller's promise.
        let rc = unsafe { write_below(file, &header, at) };
        if rc != SQLITE_OK {
            self.pending.failed(at..at + header.len() as u64);
        }
        rc
    }

    /// Makes what was written durable.
    ///
    /// # Safety
    /// As [`Wal::files`].
    pub unsafe fn sync(&mut self, file: *mut sqlite3_file) -> c_int {
        // SAFETY: the caller's promise.
        let settled = unsafe { self.settle(file) };
        if settled != SQLITE_OK {
            return settled;
        }
        // SAFETY: as above.
        let files = unsafe { self.files(file) };
        guard(SQLITE_IOERR_FSYNC, || {
            let synced = self.database.sync_wal(files, &mut self.pending);
            self.pending.clear();
            synced.map_or_else(|e| report(&self.database, &e), |()| SQLITE_OK)
        })
    }
}

/// Writes to the file below.
///
/// # Safety
/// SQLite's call of a method of the open file `file`.
unsafe fn write_below(file: *mut sqlite3_file, bytes: &[u8], at: u64) -> c_int {
    let (Ok(count), Ok(offset)) = (c_int::try_from(bytes.len()), i64::try_from(at)) else {
        return SQLITE_IOERR;
    };
    // SAFETY: the caller's promise.
    call!(unsafe { real_of(file.cast()) }, xWrite, bytes.as_ptr().cast(), count, offset)
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
        let is_first = pending.is_empty() && new.len() == FRAME_HEADER_BYTES;
        return database.begin_frame(files, at, is_first);
    }
    Ok(())
}
