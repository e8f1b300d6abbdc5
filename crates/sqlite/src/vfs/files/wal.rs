//! The WAL of a database that has a log.

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::file::File;
use crate::abi::real::Real;
use crate::frames::read::Files;
use crate::vfs::files::log::Main;
use crate::vfs::steps::then;
use crate::wal::file;

/// The file of a WAL.
pub struct Wal {
    below: Rc<Real>,
    main: Rc<Main>,
    wal: RefCell<file::Wal>,
}

impl Wal {
    /// The WAL of the database `main`, open as `below`.
    pub fn new(below: Rc<Real>, main: Rc<Main>) -> Wal {
        let database = main.connection.borrow().database.clone();
        Wal { below, main, wal: RefCell::new(file::Wal::new(database)) }
    }

    fn files(&self) -> Files<'_> {
        Files { main: &self.main.below, wal: &self.below }
    }

    /// Writes a frame header that is held. Returns SQLite's result code.
    fn settle(&self) -> c_int {
        self.wal.borrow_mut().settle(&self.below)
    }
}

impl File for Wal {
    fn below(&self) -> &Real {
        &self.below
    }

    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        then(self.settle(), || self.below.x_read(at, to))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        let transaction = self.main.connection.borrow().wal_transaction_count;
        self.wal.borrow_mut().write(self.files(), transaction, at, bytes)
    }

    fn truncate(&self, size: i64) -> c_int {
        then(self.settle(), || self.below.x_truncate(size))
    }

    fn sync(&self, _flags: c_int) -> c_int {
        self.wal.borrow_mut().sync(self.files())
    }

    fn size(&self) -> Result<i64, c_int> {
        match self.settle() {
            SQLITE_OK => self.below.x_file_size(),
            code => Err(code),
        }
    }

    fn control(&self, control: &Control<'_>) -> c_int {
        // It may change the size of the file.
        let is_size = control.operation() == SQLITE_FCNTL_SIZE_HINT;
        let code = if is_size { self.settle() } else { SQLITE_OK };
        then(code, || self.below.x_control(control))
    }

    fn order_index(&self) {
        // An error is reported by the next call, because the header stays missing.
        let _ = self.settle();
        self.below.x_shm_barrier();
    }
}
