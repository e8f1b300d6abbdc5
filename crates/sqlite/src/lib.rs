//! SQLite extension.

#[cfg(feature = "canary")]
pub mod canary;
mod database;
pub mod ffi;
mod failure;
mod file;
mod functions;
mod note;
mod page;
mod place;
mod real;
mod record;
mod recovery;
mod stat;
mod vfs;
mod wal;

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use failure::Failure;
use ffi::*;

/// Runs `f`; a panic, which is a bug, becomes `otherwise` and does not reach SQLite.
fn guard<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// The entry that SQLite calls when it loads the extension.
///
/// # Safety
/// SQLite's arguments of an extension's entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onejournal_init(
    connection: *mut sqlite3,
    _message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    guard(SQLITE_ERROR, || {
        // SAFETY: SQLite's table.
        let Ok(api) = (unsafe { Api::from_table(table) }) else { return SQLITE_ERROR };
        let rc = vfs::register(api);
        if rc != SQLITE_OK {
            return rc;
        }
        // SAFETY: SQLite's connection.
        match unsafe { functions::register(api, connection) } {
            SQLITE_OK => SQLITE_OK_LOAD_PERMANENTLY,
            rc => rc,
        }
    })
}

/// The same, under the name that SQLite looks for first.
///
/// # Safety
/// As [`sqlite3_onejournal_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sqlite3_onejournal_init(connection, message, table) }
}
