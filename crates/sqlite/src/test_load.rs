//! Loads the extension into the bundled SQLite of this crate's unit tests.

use std::ffi::{c_char, c_int};
use std::sync::Once;

use rusqlite::{Connection, ffi};

unsafe extern "C" fn entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    let rc = unsafe { crate::sqlite3_onejournal_init(connection.cast(), message, table.cast()) };
    // An automatic extension may not say that it is permanent, which it is.
    if rc == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { rc }
}

/// Loads it once, so that SQLite's functions can be called.
pub fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an entry of an extension, which lives as long as the program.
        let rc = unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
        assert_eq!(rc, ffi::SQLITE_OK);
        // Opening any connection runs it.
        Connection::open_in_memory().expect("memory");
    });
}
