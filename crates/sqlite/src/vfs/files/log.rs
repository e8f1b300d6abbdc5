//! A database that has a log, or may get one.

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::file::{File, Hook};
use crate::abi::guard::guard;
use crate::abi::real::Real;
use crate::batch::{self, Connection, Then};
use crate::checkpoint::link::Link;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::messages::tell;
use crate::vfs::index::Index;
use crate::vfs::wal_reset::Call;

/// The file of such a database.
pub struct Log(pub Rc<Main>);

/// What the database shares with its WAL and its rollback journal.
pub struct Main {
    pub below: Rc<Real>,
    pub connection: RefCell<Connection>,
    index: Index,
}

impl Log {
    /// The file of the database that is open as `below`.
    pub fn new(below: Rc<Real>, connection: Connection, link: Option<Link>) -> Log {
        let connection = RefCell::new(connection);
        Log(Rc::new(Main { below, connection, index: Index::new(link) }))
    }

    /// Gives a call to the connection, which decides how to carry it out. Returns SQLite's result
    /// code; `None`: the call of the file below is still to be made.
    fn before(
        &self,
        default: c_int,
        f: impl FnOnce(&mut Connection, &Real) -> Result<Then, Failure>,
    ) -> Option<c_int> {
        let then = guard(Then::Return(default), || {
            let connection = &mut *self.0.connection.borrow_mut();
            f(connection, &self.0.below).unwrap_or_else(|e| {
                let code = e.code(default);
                tell(code, &format!("{}: {e}", connection.database.path.display()));
                Then::Return(code)
            })
        });
        match then {
            Then::Return(code) => Some(code),
            Then::Below => None,
        }
    }

    /// Whether the log of the database failed when it was last needed.
    fn log_fails(&self) -> bool {
        let connection = self.0.connection.borrow();
        connection.database.log_fails.load(Ordering::Relaxed)
            && !faults::is(Fault::RestartsWithoutLog)
    }

    /// The connection is gone. The last one of the process leaves the log.
    fn leave(&self) {
        let connection = self.0.connection.borrow();
        if !connection.went() {
            return;
        }
        let (database, below) = (&connection.database, &self.0.below);
        database.finish_sync();
        // A reader may be the last connection, after writers whose frames are logged.
        let has_writers = database.has_writers.load(Ordering::Relaxed);
        let left = if has_writers { database.left(below) } else { Ok(()) };
        let left = left.and_then(|()| database.release(below));
        if let Err(e) = left.and_then(|()| database.close_log()) {
            database.report(&e);
        }
    }
}

impl File for Log {
    fn below(&self) -> &Real {
        &self.0.below
    }

    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        let done = self.before(SQLITE_IOERR, |it, _| Ok(it.read()));
        done.unwrap_or_else(|| self.below().x_read(at, to))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        let done = self.before(SQLITE_IOERR_WRITE, |it, below| it.write(below, at, bytes));
        done.unwrap_or_else(|| self.below().x_write(at, bytes))
    }

    fn truncate(&self, size: i64) -> c_int {
        let done = self.before(SQLITE_IOERR, |it, below| it.truncate(below, size));
        done.unwrap_or_else(|| self.below().x_truncate(size))
    }

    fn sync(&self, flags: c_int) -> c_int {
        let done = self.before(SQLITE_IOERR_FSYNC, |it, _| Ok(it.sync()));
        done.unwrap_or_else(|| self.below().x_sync(flags))
    }

    fn lock(&self, level: c_int) -> c_int {
        if !self.0.index.before_file_lock(level) {
            return SQLITE_BUSY;
        }
        let rc = self.below().x_lock(level);
        if rc != SQLITE_OK {
            return rc;
        }
        let done = self.before(SQLITE_IOERR_LOCK, |it, below| it.locked(below, level));
        done.unwrap_or(SQLITE_OK)
    }

    fn unlock(&self, level: c_int) -> c_int {
        let rc = self.below().x_unlock(level);
        guard((), || self.0.connection.borrow_mut().unlocked(level));
        rc
    }

    fn control(&self, control: &Control<'_>) -> c_int {
        self.0.index.control(control);
        let done = self.before(SQLITE_IOERR, |it, below| batch::control(it, below, control));
        done.unwrap_or_else(|| self.below().x_control(control))
    }

    fn characteristics(&self) -> c_int {
        let below = self.below().x_device_characteristics();
        self.0.connection.borrow().characteristics(below)
    }

    fn lock_index(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        let call = Call { offset, count, flags };
        if flags & SQLITE_SHM_UNLOCK == 0 {
            let rc = self.0.index.before_lock(self.below(), offset);
            if rc != SQLITE_OK {
                return rc;
            }
            if offset == WAL_WRITE_LOCK {
                self.0.connection.borrow_mut().wal_transaction_count += 1;
            }
        }
        if call.begins_wal() && self.log_fails() {
            // SQLite then appends to the WAL, as it does while another connection reads it.
            return SQLITE_BUSY;
        }
        self.0.index.change(self.below(), call)
    }

    fn unmap_index(&self, delete: c_int) -> c_int {
        self.0.index.unmap(self.below(), delete)
    }

    fn hook(&self) -> Option<Arc<dyn Hook>> {
        self.0.index.hook()
    }

    fn close(&self) -> c_int {
        self.0.index.close();
        guard((), || self.leave());
        SQLITE_OK
    }
}
