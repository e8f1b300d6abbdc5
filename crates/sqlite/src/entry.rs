//! The entry points of the extension: SQLite calls one of them when it loads the library.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::guard;
use crate::ffi::*;
use crate::functions;
use crate::real::loaded::{is_of_another_sqlite, loaded};
use crate::vfs::open as vfs;
use crate::vfs::unread_uri;

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
                // SAFETY: the format takes no argument; the SQLite that calls frees what this
                // returns.
                unsafe { *message = (api.mprintf)(ANOTHER_SQLITE.as_ptr()) };
            }
            return SQLITE_ERROR;
        }
        // SAFETY: SQLite's arguments.
        let rc = unsafe { refuse_unread_uri(api, connection, message) };
        if rc != SQLITE_OK {
            return rc;
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
const ANOTHER_SQLITE: &CStr = c"onejournal: another copy of SQLite in this process has loaded the \
    extension already, and it serves one copy only: open all databases with vfs=onejournal through \
    that copy (in Python: through sqlite3 or through apsw, not both)";

/// SQLite calls this for every connection that is opened.
unsafe extern "C" fn add_functions(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    _table: *const c_void,
) -> c_int {
    let api = loaded().api;
    // SAFETY: SQLite's arguments; no other thread has the connection yet.
    guard(SQLITE_ERROR, || match unsafe { refuse_unread_uri(api, connection, message) } {
        // SAFETY: as above.
        SQLITE_OK => unsafe { functions::register(api, connection) },
        rc => rc,
    })
}

/// Refuses a connection to a file whose name is a URI that asks for the extension. Returns SQLite's
/// result code.
///
/// # Safety
/// SQLite's arguments of an extension's entry.
unsafe fn refuse_unread_uri(
    api: Api,
    connection: *mut sqlite3,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: SQLite's connection, and the name of its first database. Null and an empty name mean
    // that it is in memory, or not there.
    let name = unsafe { (api.db_filename)(connection, c"main".as_ptr()) };
    // SAFETY: SQLite's strings end with a zero.
    let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    if !unread_uri::asks_for_us(name.to_bytes()) {
        return SQLITE_OK;
    }
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let refusal = unread_uri::refusal(path);
    let code = refusal.code(SQLITE_CANTOPEN);
    let text = CString::new(format!("onejournal: {refusal}")).expect("a name without zeros");
    // SAFETY: the format takes one string, which ends with a zero.
    unsafe { (api.log)(code, c"%s".as_ptr(), text.as_ptr()) };
    if !message.is_null() {
        // SAFETY: as above; SQLite frees what this returns.
        unsafe { *message = (api.mprintf)(c"%s".as_ptr(), text.as_ptr()).cast() };
    }
    code
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

/// As [`sqlite3_onejournal_init`], and makes the VFS the default one of the process: databases that
/// are opened from then on without naming a VFS use it. `SELECT
/// load_extension('./libonejournal_sqlite', 'sqlite3_onejournal_default_init')` calls it.
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
