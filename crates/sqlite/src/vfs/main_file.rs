//! The methods of a database's file that `batch` has a say in; they are those of all files, and other files' calls are
//! passed on.

use std::ffi::{c_char, c_int, c_void};

use crate::batch::{self, Connection, Then};
use crate::failure::Failure;
use crate::failure::guard;
use crate::ffi::*;
use crate::messages::tell;
use crate::real::file::{Real, call};
use crate::real::loaded::loaded;
use crate::vfs::file::NAME;
use crate::vfs::file::{File, Role, real_file, real_of, role, role_if_ours, settle};

/// The connection that the open database `file` is of; nothing when the file is none of ours.
///
/// # Safety
/// `file` is an open file of any VFS, used by this thread only, and no other reference to it is used meanwhile.
pub unsafe fn connection_of<'a>(file: *mut File) -> Option<&'a mut Connection> {
    // SAFETY: the caller's promise.
    match unsafe { role_if_ours(file) } {
        Some(Role::Main(connection)) => Some(connection),
        _ => None,
    }
}

/// Lets a connection's database file say what becomes of a call; other files are passed on.
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

/// Lets the connection whose rollback journal `file` is say what becomes of a write; other files are passed on.
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

pub unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's call of a method.
    let then = unsafe { before(file, SQLITE_IOERR, |it, real| it.truncate(real, size)) };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let settled = unsafe { settle(file) };
    if settled != SQLITE_OK {
        return settled;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xTruncate, size)
}

pub unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    let rc = call!(unsafe { real_of(file.cast()) }, xLock, level);
    if rc != SQLITE_OK {
        return rc;
    }
    // SAFETY: as above.
    match unsafe { before(file, SQLITE_IOERR_LOCK, |it, real| it.locked(real, level)) } {
        Then::Return(code) => code,
        Then::Below => SQLITE_OK,
    }
}

pub unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    let rc = call!(unsafe { real_of(file.cast()) }, xUnlock, level);
    // SAFETY: as above.
    if let Role::Main(connection) = unsafe { role(file) } {
        connection.unlocked(level);
    }
    rc
}

pub unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite's call of a method, with the operation's argument.
    let then = unsafe {
        before(file, SQLITE_IOERR, |it, real| batch::control(it, real, operation, argument))
    };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let rc = call!(unsafe { real_of(file.cast()) }, xFileControl, operation, argument);
    if operation == SQLITE_FCNTL_VFSNAME && rc == SQLITE_OK {
        // SAFETY: the argument of this control: a pointer to a text of SQLite's allocator, which `%z` frees.
        unsafe {
            let name: *mut *mut c_char = argument.cast();
            *name = (loaded().api.mprintf)(c"%s/%z".as_ptr(), NAME.as_ptr(), *name);
        }
    }
    rc
}
