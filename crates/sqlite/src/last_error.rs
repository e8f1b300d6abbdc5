//! Why the extension last failed in this thread: SQLite keeps a result code only, and "unable to open database file" says
//! little. When the opening of a database fails there is no connection that could be asked; another one can.

use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A database is opened: what failed before is of no interest any more.
pub fn forget() {
    LAST.set(None);
}

/// Something failed.
pub fn note(text: &str) {
    LAST.set(Some(text.to_owned()));
}

/// What failed last in this thread, since it last opened a database.
pub fn get() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}
