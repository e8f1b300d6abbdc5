//! The entry points of the extension: SQLite calls one of them when it loads the library.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::failure::guard;
use crate::ffi::*;
use crate::functions;
use crate::real::loaded::{is_of_another_sqlite, loaded};
use crate::vfs::open as vfs;

/// The entry that SQLite calls when it loads the extension.
///
/// # Safety
/// SQLite's arguments of an extension's entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onejournal_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    guard(SQLITE_ERROR, || {
        // SAFETY: SQLite's table.
        let Ok(api) = (unsafe { Api::from_table(table) }) else { return SQLITE_ERROR };
        if is_of_another_sqlite(api) {
            if !message.is_null() {
                // SAFETY: the format takes no argument; the SQLite that calls frees what this returns.
                unsafe { *message = (api.mprintf)(ANOTHER_SQLITE.as_ptr()) };
            }
            return SQLITE_ERROR;
        }
        let rc = vfs::register(api);
        if rc != SQLITE_OK {
            return rc;
        }
        // SAFETY: the entry lives for good; SQLite's connection.
        let (later, now) = unsafe {
            ((api.auto_extension)(Some(add_functions)), functions::register(api, connection))
        };
        match (later, now) {
            (SQLITE_OK, SQLITE_OK) => SQLITE_OK_LOAD_PERMANENTLY,
            (SQLITE_OK, rc) | (rc, _) => rc,
        }
    })
}

/// The message for a second copy of SQLite in the process.
const ANOTHER_SQLITE: &CStr = c"onejournal: another copy of SQLite in this process has loaded the extension already, and \
    it serves one copy only: open all databases with vfs=onejournal through that copy (in Python: through sqlite3 or \
    through apsw, not both)";

/// SQLite calls this for every connection that is opened.
unsafe extern "C" fn add_functions(
    connection: *mut sqlite3,
    _message: *mut *mut c_char,
    _table: *const c_void,
) -> c_int {
    // SAFETY: SQLite's connection, which no other thread has yet.
    guard(SQLITE_ERROR, || unsafe { functions::register(loaded().api, connection) })
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

/// As [`sqlite3_onejournal_init`], and makes the VFS the default one of the process: databases that are opened
/// from then on without naming a VFS use it. `SELECT load_extension('./libonejournal_sqlite',
/// 'sqlite3_onejournal_default_init')` calls it.
///
/// # Safety
/// As [`sqlite3_onejournal_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onejournal_default_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let rc = unsafe { sqlite3_onejournal_init(connection, message, table) };
    if rc != SQLITE_OK_LOAD_PERMANENTLY {
        return rc;
    }
    // SAFETY: SQLite's table.
    guard(SQLITE_ERROR, || match unsafe { Api::from_table(table) }.map(vfs::make_default) {
        Ok(SQLITE_OK) => SQLITE_OK_LOAD_PERMANENTLY,
        Ok(rc) => rc,
        Err(_) => SQLITE_ERROR,
    })
}
