//! The WAL's index of a database: its locks, and the checkpoints in the background that they begin.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Arc;

use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::file::Hook;
use crate::abi::guard::guard;
use crate::abi::real::Real;
use crate::checkpoint::link::Link;
use crate::vfs::wal_reset::{Call, IndexLocks};

/// What the file of a database keeps for its WAL's index.
pub struct Index {
    /// For a database whose checkpoints are made in the background.
    link: Option<Link>,
    locks: RefCell<IndexLocks>,
}

impl Index {
    /// With this link, if checkpoints are made in the background.
    pub fn new(link: Option<Link>) -> Index {
        Index { link, locks: RefCell::default() }
    }

    fn with_link<T>(&self, otherwise: T, f: impl FnOnce(&Link) -> T) -> T {
        self.link.as_ref().map_or(otherwise, f)
    }

    /// Runs before a lock is taken. Returns SQLite's result code.
    pub fn before_lock(&self, below: &Real, lock: c_int) -> c_int {
        guard(SQLITE_IOERR, || {
            self.with_link(SQLITE_OK, |link| match lock {
                WAL_WRITE_LOCK | WAL_CHECKPOINT_LOCK if link.background.is_broken() => {
                    SQLITE_IOERR_FSYNC
                }
                WAL_WRITE_LOCK => {
                    link.begin_transaction(below);
                    SQLITE_OK
                }
                WAL_CHECKPOINT_LOCK => {
                    // A checkpoint that the program asks for is not busy because of a pass.
                    link.background.wait();
                    SQLITE_OK
                }
                _ => SQLITE_OK,
            })
        })
    }

    /// Takes or releases locks. Returns SQLite's result code.
    pub fn change(&self, below: &Real, call: Call) -> c_int {
        guard(SQLITE_IOERR, || self.locks.borrow_mut().change(below, call))
    }

    /// Unmaps the index. Returns SQLite's result code.
    pub fn unmap(&self, below: &Real, delete: c_int) -> c_int {
        self.locks.borrow_mut().unmapped();
        below.x_shm_unmap(delete)
    }

    /// Runs before a control of the database's file.
    pub fn control(&self, control: &Control<'_>) {
        guard((), || self.with_link((), |link| link.control(control)));
    }

    /// Runs before a lock of the database's file is taken. `false`: it is busy.
    pub fn before_file_lock(&self, level: c_int) -> bool {
        self.with_link(true, |link| {
            if level == SQLITE_LOCK_EXCLUSIVE {
                guard((), || link.background.rest());
            }
            // The WAL stays.
            level != SQLITE_LOCK_EXCLUSIVE || !link.background.is_broken()
        })
    }

    /// What a WAL hook asks.
    pub fn hook(&self) -> Option<Arc<dyn Hook>> {
        let link = self.link.as_ref()?;
        Some(link.background.clone())
    }

    /// The file is closed. The own connection for checkpoints is closed before the last one of the
    /// program. A panic does not keep the caller from what follows.
    pub fn close(&self) {
        guard((), || self.with_link((), Link::leave));
    }
}
