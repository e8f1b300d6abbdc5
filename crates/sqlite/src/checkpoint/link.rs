//! A connection of the program, whose checkpoints are made in the background.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::hook::{self, Before};
use crate::abi::real::Real;
use crate::checkpoint::background::{self, Background};
use crate::messages::tell;

/// What the file of such a connection's database remembers.
pub struct Link {
    pub background: Arc<Background>,
    /// Whether SQLite may have its own hook.
    is_due: Cell<bool>,
    has_left: Cell<bool>,
}

impl Link {
    /// For a connection to the database at `path`.
    pub fn new(path: &Path) -> Link {
        let (is_due, has_left) = (Cell::new(true), Cell::new(false));
        Link { background: background::enter(path), is_due, has_left }
    }

    /// The connection closes its file. Only the first call counts.
    pub fn leave(&self) {
        if !self.has_left.replace(true) {
            self.background.leave();
        }
    }

    /// Runs before a control of the file. A PRAGMA `wal_autocheckpoint` puts SQLite's own hook
    /// back.
    pub fn control(&self, control: &Control<'_>) {
        let Some(pragma) = control.pragma() else { return };
        if pragma.value.is_some() && pragma.name.eq_ignore_ascii_case(b"wal_autocheckpoint") {
            self.is_due.set(true);
        }
    }

    /// Takes the place of SQLite's own hook, before a transaction of the connection that uses
    /// `main`.
    pub fn begin_transaction(&self, main: &Real) {
        let before = if self.is_due.get() { hook::take_over(main) } else { None };
        if before.is_some() {
            self.is_due.set(false);
        }
        if before == Some(Before::OfProgram) {
            tell(SQLITE_WARNING, HOOK_LOST);
        }
    }
}

const HOOK_LOST: &str = "checkpoint=background took the place of the program's own WAL hook, and \
    makes no checkpoints on this connection: set the hook after the first transaction, or leave \
    the parameter out";

impl Drop for Link {
    fn drop(&mut self) {
        self.leave();
    }
}
