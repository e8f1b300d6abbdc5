//! The rollback journal of a database that has a log.

use std::ffi::c_int;
use std::rc::Rc;

use crate::abi::ffi::*;
use crate::abi::file::File;
use crate::abi::guard::guard;
use crate::abi::real::Real;
use crate::batch::Then;
use crate::failure::Failure;
use crate::vfs::files::log::Main;

/// The file of a journal.
pub struct Journal {
    below: Rc<Real>,
    main: Rc<Main>,
}

impl Journal {
    /// The journal of the database `main`, open for writing as `below`.
    pub fn new(below: Rc<Real>, main: Rc<Main>) -> Result<Journal, Failure> {
        main.connection.borrow_mut().open_journal(below.clone())?;
        Ok(Journal { below, main })
    }
}

impl File for Journal {
    fn below(&self) -> &Real {
        &self.below
    }

    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        let then = guard(Then::Return(SQLITE_IOERR_WRITE), || {
            let written = self.main.connection.borrow_mut().write_journal(at, bytes);
            written.unwrap_or_else(|e| Then::Return(e.code(SQLITE_IOERR_WRITE)))
        });
        match then {
            Then::Return(code) => code,
            Then::Below => self.below.x_write(at, bytes),
        }
    }

    fn close(&self) -> c_int {
        guard((), || self.main.connection.borrow_mut().close_journal());
        SQLITE_OK
    }
}
