//! What the extension says in words: to SQLite's error log, and as the last error of a thread.
//!
//! SQLite keeps only a result code, and "unable to open database file" says little. When a database cannot be opened,
//! there is no connection to ask for the reason. So the last error is kept for each thread, and any other connection
//! can ask for it (`onejournal_last_error()`).

use std::cell::RefCell;
use std::ffi::{CString, c_int};

use crate::ffi::SQLITE_WARNING;
use crate::real::loaded::loaded;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A database is opened: what failed before is of no interest any more.
pub fn forget() {
    LAST.set(None);
}

/// Tells SQLite's error log and `onejournal_last_error()`.
pub fn tell(code: c_int, text: &str) {
    if code & 0xff != SQLITE_WARNING {
        LAST.set(Some(text.to_owned()));
    }
    let text = CString::new(text.replace('\0', " ")).expect("no zeros");
    // SAFETY: the format takes one string, which ends with a zero.
    unsafe { (loaded().api.log)(code, c"onejournal: %s".as_ptr(), text.as_ptr()) };
}

/// What failed last in this thread, since it last opened a database.
pub fn last_error() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}
