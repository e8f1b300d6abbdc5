//! What is fixed when the extension is loaded: SQLite's functions, and the VFS below.

use std::sync::OnceLock;

use crate::ffi::*;

/// The VFS below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Below(pub *mut sqlite3_vfs);

// SAFETY: a VFS is used by many threads (SQLite demands it of every VFS), and it is registered for good.
unsafe impl Send for Below {}
// SAFETY: as above.
unsafe impl Sync for Below {}

/// What is fixed when the extension is loaded first.
#[derive(Clone, Copy)]
pub struct Loaded {
    /// SQLite's functions.
    pub api: Api,
    /// The VFS below.
    pub below: Below,
    /// Whether this SQLite was built to write without a journal.
    pub knows_batches: bool,
    /// Whether its connections sync before anybody sets `synchronous`.
    pub begins_syncing: bool,
}

static LOADED: OnceLock<Loaded> = OnceLock::new();

/// What was fixed. The extension's VFS is registered after it.
pub fn loaded() -> &'static Loaded {
    LOADED.get().expect("the VFS is registered after it")
}

/// Whether another copy of SQLite in this process loaded the extension before: what was fixed is that one's.
pub fn is_of_another_sqlite(api: Api) -> bool {
    LOADED.get().is_some_and(|loaded| {
        let places = [loaded.api, api].map(|api| (api.vfs_register as *const ()).addr());
        places[0] != places[1]
    })
}

/// Whether the extension is loaded.
pub fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// Fixes it, once in a process; `false`: another thread was faster.
#[must_use]
pub fn load(loaded: Loaded) -> bool {
    LOADED.set(loaded).is_ok()
}
