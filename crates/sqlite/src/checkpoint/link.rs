//! A connection of the program, whose checkpoints are made in the background.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::background::{self, Background};
use crate::ffi::*;
use crate::messages::tell;
use crate::real::loaded::loaded;

/// What the file of such a connection's database remembers.
pub struct Link {
    pub background: Arc<Background>,
    /// Where SQLite has the connection that uses the file now. Unknown before SQLite has told it.
    connection: Option<*const *mut sqlite3>,
    /// Whether SQLite may have its own hook.
    is_due: bool,
}

impl Link {
    /// For a connection to the database at `path`.
    pub fn new(path: &Path) -> Link {
        Link { background: background::enter(path), connection: None, is_due: true }
    }

    /// SQLite tells where it has the connection.
    pub fn told(&mut self, place: *mut c_void) {
        self.connection = Some(place.cast_const().cast());
    }

    /// A pragma `wal_autocheckpoint` puts SQLite's own hook back.
    pub fn pragma_came(&mut self) {
        self.is_due = true;
    }

    /// Puts `hook` in the place of SQLite's own one, before a transaction. The number of frames at
    /// which SQLite makes a checkpoint becomes its argument.
    ///
    /// # Safety
    /// SQLite's call of a method of this link's open file.
    pub unsafe fn begin_transaction(&mut self, hook: WalHook) {
        let (true, Some(place)) = (self.is_due, self.connection) else { return };
        let Some(api) = loaded().api.checkpoints else { return };
        self.is_due = false;
        // SAFETY: SQLite tells the address of a field of the object that owns the file
        // (`SQLITE_FCNTL_PDB`), so it is there as long as the file is open. The field has the
        // connection that calls, whose mutex this thread holds.
        let connection = unsafe { *place };
        let set = |hook: Option<WalHook>, argument| {
            // SAFETY: the connection is open; SQLite's own mutex is recursive.
            unsafe { (api.wal_hook)(connection, hook, argument) }
        };
        let before = set(Some(hook), std::ptr::null_mut());
        match c_int::try_from(before.addr()) {
            // Checkpoints are turned off.
            Ok(0) => drop(set(None, before)),
            // SQLite's own hook, with its number of frames.
            Ok(_) => drop(set(Some(hook), before)),
            Err(_) => {
                set(None, std::ptr::null_mut());
                tell(SQLITE_WARNING, HOOK_LOST);
            }
        }
    }
}

const HOOK_LOST: &str = "checkpoint=background took the place of the program's own WAL hook, and \
    makes no checkpoints on this connection: set the hook after the first transaction, or leave \
    the parameter out";

impl Drop for Link {
    fn drop(&mut self) {
        self.background.leave();
    }
}
