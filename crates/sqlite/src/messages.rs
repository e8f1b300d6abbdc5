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

/// Forgets the last error, because a database is being opened.
pub fn forget() {
    LAST.set(None);
}

/// Reports an error to SQLite's error log and to `onejournal_last_error()`.
pub fn tell(code: c_int, text: &str) {
    if code & 0xff != SQLITE_WARNING {
        LAST.set(Some(text.to_owned()));
    }
    let text = CString::new(text.replace('\0', " ")).expect("no zeros");
    // SAFETY: the format takes one string, which ends with a zero.
    unsafe { (loaded().api.log)(code, c"onejournal: %s".as_ptr(), text.as_ptr()) };
}

/// The last error of this thread since it last opened a database.
pub fn last_error() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}
