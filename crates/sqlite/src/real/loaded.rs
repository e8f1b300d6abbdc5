//! What is fixed when the extension is loaded: SQLite's functions, and the VFS below.

use std::sync::OnceLock;

use crate::ffi::*;

/// The VFS below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Below(pub *mut sqlite3_vfs);

// SAFETY: a VFS is used by many threads (SQLite demands it of every VFS), and it is registered for
// good.
unsafe impl Send for Below {}
// SAFETY: as above.
unsafe impl Sync for Below {}

/// What is fixed when the extension is loaded for the first time.
#[derive(Clone, Copy)]
pub struct Loaded {
    /// SQLite's functions.
    pub api: Api,
    /// The VFS below.
    pub below: Below,
    /// Whether this SQLite was built to write without a journal.
    pub knows_batches: bool,
    /// Whether its connections sync before a program sets `synchronous`.
    pub begins_syncing: bool,
}

static LOADED: OnceLock<Loaded> = OnceLock::new();

/// The values that were fixed. The extension's VFS is registered after that.
pub fn loaded() -> &'static Loaded {
    LOADED.get().expect("the VFS is registered after it")
}

/// Whether another copy of SQLite in this process loaded the extension before. The fixed values
/// belong to that copy.
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

/// Fixes the values, once in a process. `false`: another thread has done so already.
#[must_use]
pub fn load(loaded: Loaded) -> bool {
    LOADED.set(loaded).is_ok()
}
