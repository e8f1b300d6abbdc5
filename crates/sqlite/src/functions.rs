//! The SQL functions `onejournal_version()`, `onejournal_stat()`, `onejournal_last_error()` and
//! `onejournal_make_default()`.

use std::ffi::{CStr, c_int};

use crate::failure::guard;
use crate::ffi::*;
use crate::messages;
use crate::real::loaded::loaded;
use crate::stat;
use crate::vfs::file::NAME;
use crate::vfs::open as vfs;

/// SQLite copies the text (`SQLITE_TRANSIENT`).
fn transient() -> Option<Destructor> {
    // SAFETY: SQLite compares this value and never calls it (`sqlite3.h`).
    Some(unsafe { std::mem::transmute::<isize, Destructor>(-1) })
}

/// Adds the functions to a connection, which may have them.
///
/// # Safety
/// `connection` is open, and used by this thread now.
pub unsafe fn register(api: Api, connection: *mut sqlite3) -> c_int {
    let functions: [(&CStr, c_int, Function); 4] = [
        (c"onejournal_version", 0, version),
        (c"onejournal_stat", 0, stat),
        (c"onejournal_last_error", 0, last_error),
        // Not from a schema: a database file must not change the process.
        (c"onejournal_make_default", SQLITE_DIRECTONLY, make_default),
    ];
    for (name, flags, function) in functions {
        let (null, none) = (std::ptr::null_mut(), None);
        // SAFETY: the function lives for good: the library is never unloaded.
        let rc = unsafe {
            let name = name.as_ptr();
            (api.create_function_v2)(
                connection,
                name,
                0,
                SQLITE_UTF8 | flags,
                null,
                Some(function),
                none,
                None,
                None,
            )
        };
        // It has the function already, and a statement runs: `SELECT load_extension(...)` once
        // more.
        if rc != SQLITE_OK && rc != SQLITE_BUSY {
            return rc;
        }
    }
    SQLITE_OK
}

/// # Safety
/// The context of a call of a function.
unsafe fn give(context: *mut sqlite3_context, text: &str) {
    let count = c_int::try_from(text.len()).unwrap_or(0);
    // SAFETY: the text has so many bytes, and is copied.
    unsafe { (loaded().api.result_text)(context, text.as_ptr().cast(), count, transient()) }
}

unsafe extern "C" fn version(
    context: *mut sqlite3_context,
    _count: c_int,
    _values: *mut *mut sqlite3_value,
) {
    // SAFETY: SQLite's call.
    guard((), || unsafe { give(context, env!("CARGO_PKG_VERSION")) });
}

unsafe extern "C" fn stat(
    context: *mut sqlite3_context,
    _count: c_int,
    _values: *mut *mut sqlite3_value,
) {
    // SAFETY: SQLite's call.
    guard((), || unsafe { give(context, &stat::to_json()) });
}

unsafe extern "C" fn last_error(
    context: *mut sqlite3_context,
    _count: c_int,
    _values: *mut *mut sqlite3_value,
) {
    guard((), || {
        // A function that gives nothing gives NULL.
        if let Some(text) = messages::last_error() {
            // SAFETY: SQLite's call.
            unsafe { give(context, &text) }
        }
    });
}

/// For drivers that load an extension by its file's name only.
unsafe extern "C" fn make_default(
    context: *mut sqlite3_context,
    _count: c_int,
    _values: *mut *mut sqlite3_value,
) {
    guard((), || {
        let text = match vfs::make_default(loaded().api) {
            SQLITE_OK => NAME.to_str().unwrap_or_default(),
            _ => return,
        };
        // SAFETY: SQLite's call.
        unsafe { give(context, text) };
    });
}
