//! What is fixed when the extension is loaded: SQLite's functions, and the VFS below.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use super::handles::Below;
use super::table::Api;

/// Name of the extension's VFS.
pub const NAME: &CStr = c"onejournal";

/// The numbers of a VFS.
pub(super) struct Numbers {
    pub version: c_int,
    /// Bytes of the object of a file.
    pub object_bytes: c_int,
    pub path_bytes: c_int,
}

impl Below {
    pub(super) fn numbers(self) -> Numbers {
        let vfs = self.as_ptr();
        // SAFETY: a registered VFS, which does not change its numbers.
        unsafe {
            let (version, object_bytes) = ((*vfs).iVersion, (*vfs).szOsFile);
            Numbers { version, object_bytes, path_bytes: (*vfs).mxPathname }
        }
    }

    /// SQLite's own VFS for Unix, in a process that has loaded the extension.
    #[cfg(test)]
    pub fn unix() -> Below {
        loaded().api.find_vfs(Some(c"unix")).expect("it is always there")
    }
}

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
pub fn is_of_another_sqlite(api: &Api) -> bool {
    LOADED.get().is_some_and(|loaded| !loaded.api.is_same(api))
}

/// Whether the extension is loaded.
pub fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// Fixes the values, once in a process. `false`: another thread has done so already.
#[must_use]
pub(super) fn load(loaded: Loaded) -> bool {
    LOADED.set(loaded).is_ok()
}
