//! Runs before a method of a file does its work: a connection's database may answer the call
//! itself, and what is held back for a WAL is written.

use std::ffi::c_int;

use crate::batch::{Connection, Then};
use crate::failure::{Failure, guard};
use crate::ffi::*;
use crate::messages::tell;
use crate::real::file::Real;
use crate::vfs::file::{Role, connection_of, real_file, role};
use crate::volume::file::Kind;
use crate::volume::memory::Memory;
use crate::volume::rollback::{Rollback, Step};

/// Gives a call to the connection of a database file, which decides how to carry it out. Calls on
/// other files are passed on.
///
/// # Safety
/// SQLite's call of a method of an open file.
pub unsafe fn before(
    file: *mut sqlite3_file,
    default: c_int,
    f: impl FnOnce(&mut Connection, Real) -> Result<Then, Failure>,
) -> Then {
    // SAFETY: the caller's promise.
    let (role, real) = unsafe { (role(file), real_file(file.cast())) };
    let Role::Main(connection) = role else { return Then::Below };
    guard(Then::Return(default), || match f(connection, real) {
        Ok(then) => then,
        Err(e) => {
            let code = e.code(default);
            tell(code, &format!("{}: {e}", connection.database.path.display()));
            Then::Return(code)
        }
    })
}

/// Gives a write to the connection whose rollback journal `file` is, which decides how to carry it
/// out. Writes to other files are passed on.
///
/// # Safety
/// SQLite's call of a method of an open file.
pub unsafe fn before_journal(
    file: *mut sqlite3_file,
    f: impl FnOnce(&mut Connection) -> Result<Then, Failure>,
) -> Then {
    // SAFETY: the caller's promise.
    let Role::Journal(main) = *(unsafe { role(file) }) else { return Then::Below };
    // SAFETY: the same connection's database is open, and used by the same thread as its journal.
    let Some(connection) = (unsafe { connection_of(main) }) else { return Then::Below };
    guard(Then::Return(SQLITE_IOERR_WRITE), || match f(connection) {
        Ok(then) => then,
        Err(e) => Then::Return(e.code(SQLITE_IOERR_WRITE)),
    })
}

/// Gives a call on a database, or on a rollback journal in memory, to the transaction on a volume
/// that it belongs to. Calls on other files are passed on.
///
/// # Safety
/// SQLite's call of a method of an open file.
pub unsafe fn on_volume(
    file: *mut sqlite3_file,
    default: c_int,
    in_memory: impl FnOnce(&mut Memory) -> Result<(), Failure>,
    in_database: impl FnOnce(&mut Rollback) -> Result<Step, Failure>,
) -> Then {
    // SAFETY: the caller's promise.
    let Role::Volume(volume) = (unsafe { role(file) }) else { return Then::Below };
    match volume.kind() {
        Kind::Main => rolled(default, || in_database(&mut volume.rollback())),
        Kind::Journal => rolled(default, || match volume.rollback().memory() {
            Some(memory) => in_memory(memory).map(|()| Step::Done),
            None => Ok(Step::Below),
        }),
        Kind::Wal => Then::Below,
    }
}

/// Runs a step of a transaction on a volume.
pub fn rolled(default: c_int, f: impl FnOnce() -> Result<Step, Failure>) -> Then {
    guard(Then::Return(default), || match f() {
        Ok(Step::Done) => Then::Return(SQLITE_OK),
        Ok(Step::Below) => Then::Below,
        Err(e) => {
            let code = e.code(default);
            if code != SQLITE_IOERR_SHORT_READ && code != SQLITE_NOTFOUND {
                tell(code, &format!("a transaction on a volume: {e}"));
            }
            Then::Return(code)
        }
    })
}

/// Runs a function on what is held back for a WAL or a journal on a volume. Returns SQLite's result
/// code.
pub fn settled(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guard(SQLITE_IOERR, || match f() {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            let code = e.code(SQLITE_IOERR);
            tell(code, &format!("a WAL or journal on a volume: {e}"));
            code
        }
    })
}

/// Writes frames that are held back, before a method of the file does its work.
///
/// # Safety
/// As [`role`].
pub unsafe fn settle(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { role(file) } {
        Role::Volume(volume) => settled(|| volume.settle()),
        // SAFETY: as above.
        Role::Wal(wal, _) => wal.settle(unsafe { real_file(file.cast()) }),
        _ => SQLITE_OK,
    }
}
