//! Functions that SQL can call.

use std::ffi::{CStr, c_int};

use super::ffi::*;
use super::guard::guard;
use super::handles::Context;
use super::loaded::loaded;
use super::table::Destructor;

/// A function of SQL without arguments. Its result is a text or NULL.
pub trait SqlFunction {
    /// Its name in SQL.
    const NAME: &'static CStr;
    /// Whether a schema may not call it, only a program.
    const IS_DIRECT_ONLY: bool = false;

    /// The result.
    fn call() -> Option<String>;
}

/// The function as SQLite calls it.
pub(super) extern "C" fn call<F: SqlFunction>(
    context: Context,
    _count: c_int,
    _values: *mut *mut sqlite3_value,
) {
    guard((), || {
        // A function that gives nothing gives NULL.
        let Some(text) = F::call() else { return };
        let count = c_int::try_from(text.len()).unwrap_or(0);
        // SAFETY: the text has so many bytes. The destructor says that SQLite copies it: SQLite
        // compares the value -1 and never calls it (`SQLITE_TRANSIENT`).
        unsafe {
            let transient = std::mem::transmute::<isize, Destructor>(-1);
            let give = loaded().api.functions.result_text;
            give(context, text.as_ptr().cast(), count, Some(transient));
        }
    });
}
