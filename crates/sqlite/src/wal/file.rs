//! A connection's WAL file: what its writes and syncs are to the log.
//!
//! SQLite writes each frame as a header and a page. The header of a frame that follows all bytes
//! written since the last sync is held until its page comes, so that both are one call of the file
//! system. If any other call comes first, the header is written before it (`Wal::settle`).

use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::ffi::*;
use crate::abi::guard::guard;
use crate::abi::real::Real;
use crate::database::Database;
use crate::failure::Failure;
use crate::format::wal::{FRAME_HEADER_BYTES, HEADER_BYTES};
use crate::frames::pending::Pending;
use crate::frames::read::Files;
use crate::frames::wal_index::counted_in;

/// A database's WAL.
pub struct Wal {
    /// The database that the WAL belongs to.
    database: Arc<Database>,
    /// The frames that were written since the last sync.
    pending: Pending,
}

impl Wal {
    /// The WAL of a connection of `database`.
    pub fn new(database: Arc<Database>) -> Wal {
        Wal { database, pending: Pending::default() }
    }

    /// Writes `bytes` at `at`, in the connection's transaction of this number. Returns SQLite's
    /// result code.
    pub fn write(&mut self, files: Files<'_>, transaction: u64, at: u64, bytes: &[u8]) -> c_int {
        let frame = guard(None, || self.pending.with_held(at, bytes));
        if let Some((frame_at, frame)) = frame {
            let rc = files.wal.x_write(frame_at, frame);
            if rc != SQLITE_OK {
                let end = at + bytes.len() as u64;
                self.pending.failed(frame_at..end);
            }
            return rc;
        }
        let settled = self.settle(files.wal);
        if settled != SQLITE_OK {
            return settled;
        }
        let Wal { database, pending } = self;
        pending.belongs_to(transaction, || counted_in(files.main));
        let begun = guard(SQLITE_IOERR, || {
            begin_write(database, files, pending, at, bytes)
                .map_or_else(|e| database.report(&e), |()| SQLITE_OK)
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
        let rc = files.wal.x_write(at, bytes);
        if at >= HEADER_BYTES as u64 {
            guard((), || match rc {
                SQLITE_OK => pending.wrote(at, bytes),
                _ => pending.failed(at..at + bytes.len() as u64),
            });
        }
        rc
    }

    /// Writes the frame header that is held, if there is one. Returns SQLite's result code.
    pub fn settle(&mut self, wal: &Real) -> c_int {
        let Some((at, header)) = self.pending.take_held() else { return SQLITE_OK };
        let rc = wal.x_write(at, &header);
        if rc != SQLITE_OK {
            self.pending.failed(at..at + header.len() as u64);
        }
        rc
    }

    /// Makes everything that was written durable. Returns SQLite's result code.
    pub fn sync(&mut self, files: Files<'_>) -> c_int {
        let settled = self.settle(files.wal);
        if settled != SQLITE_OK {
            return settled;
        }
        guard(SQLITE_IOERR_FSYNC, || {
            let synced = self.database.sync_wal(files, &mut self.pending);
            self.pending.clear();
            synced.map_or_else(|e| self.database.report(&e), |()| SQLITE_OK)
        })
    }
}

/// Called before `new` is written at `at` of a WAL.
pub fn begin_write(
    database: &Database,
    files: Files<'_>,
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
