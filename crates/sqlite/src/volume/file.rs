//! A database on a OneJournal volume. It needs no log: after a crash the volume holds a prefix of
//! what was written.
//!
//! SQLite is told so (`SEQUENTIAL`, `SAFE_APPEND`, `POWERSAFE_OVERWRITE`) if three things are true.
//! The data mode of the file promises it (`docs/reference/modes.md`). So does the mode of the
//! directory, for the rollback journals that SQLite will make there. And the kernel has no
//! writeback cache for the mount, because that would send writes in its own order.
//!
//! A database and a WAL in another mode are set to `auto`, which costs the fewest flushes of these
//! modes, and writes a large transaction once. A journal is set to `auto` only if SQLite was told:
//! a change of mode makes the volume write home all that it holds, and with `journal_mode=DELETE`
//! each transaction makes a journal.

use std::cell::{RefCell, RefMut};
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::XattrFlags;

use crate::abi::ffi::*;
use crate::abi::real::Real;
use crate::failure::Failure;
use crate::format::wal::{HEADER_BYTES, Header};
use crate::frames::read::read_header;
use crate::messages::tell;
use crate::volume::frames::{Frames, Step};
use crate::volume::rollback::{Open, Rollback};
use crate::volume::target::Target;

/// Extended attribute with a file's mode. Every file of a volume has it.
const MODE: &str = "user.onejournal.mode";
/// Extended attribute that asks for a mode.
const DATA: &str = "user.onejournal.data";
/// Extended attribute with counters and settings of the mount.
const STAT: &str = "user.onejournal.stat";
/// The modes in which a crash leaves a prefix of history.
const PREFIX_MODES: [&str; 4] = ["auto", "delta", "wasteless", "journal"];

const PREFIX_CHARACTERISTICS: c_int =
    SQLITE_IOCAP_SEQUENTIAL | SQLITE_IOCAP_SAFE_APPEND | SQLITE_IOCAP_POWERSAFE_OVERWRITE;

/// Whether the file at `path` is on a volume. On another type of file system, anybody could have
/// made an attribute of this name.
pub fn is_on_volume(path: &Path) -> bool {
    let is_fuse = rustix::fs::statfs(path).is_ok_and(|found| host::is_fuse(&found));
    is_fuse && attribute(path, MODE).is_some()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    volume_client::virtual_attribute(path, name).ok()
}

fn has_prefix_mode(path: &Path) -> bool {
    attribute(path, MODE).is_some_and(|mode| PREFIX_MODES.iter().any(|it| it.as_bytes() == mode))
}

/// Makes sure that a crash leaves a prefix of the writes to this file and the others.
fn ensure_prefix_mode(path: &Path) -> Result<(), Failure> {
    if has_prefix_mode(path) {
        return Ok(());
    }
    rustix::fs::setxattr(path, DATA, b"auto", XattrFlags::empty()).map_err(|e| {
        Failure::CannotOpen(format!("{}: setting its data mode to auto: {e}", path.display()))
    })
}

/// Whether writes reach the volume in the order in which they are made. `false` also if the server
/// does not say.
fn keeps_order(path: &Path) -> bool {
    let stat = attribute(path, STAT);
    let stat = stat.and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    stat.is_some_and(|stat| stat["order"] == "history")
}

/// The frames of a connection's WAL that are held back, and the WAL file while it is open.
#[derive(Default)]
struct HeldWal {
    frames: Frames,
    wal: Option<Rc<Real>>,
    page_bytes: Option<usize>,
}

/// What the files of a connection on a volume share. The database shares with its WAL the frames
/// that are held, because SQLite publishes frames through methods of the database's file, and with
/// its rollback journal the pages and records that are held.
pub struct Volume {
    held: RefCell<HeldWal>,
    rollback: RefCell<Rollback>,
    /// What SQLite is told of the database.
    promise: Promise,
}

/// Whether SQLite is told that a crash leaves a prefix of the writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It is.
    Prefix,
    /// It is told what the VFS below reports.
    Nothing,
}

impl Promise {
    fn new(is_prefix: bool) -> Promise {
        if is_prefix { Promise::Prefix } else { Promise::Nothing }
    }

    /// The capabilities of the file (`xDeviceCharacteristics`). `below` has the capabilities that
    /// the VFS below reports.
    pub fn characteristics(self, below: c_int) -> c_int {
        match self {
            Promise::Prefix => below | PREFIX_CHARACTERISTICS,
            Promise::Nothing => below,
        }
    }
}

impl Volume {
    /// For the database at `path`, open as `main`.
    pub fn new(path: &Path, main: Rc<Real>, is_writable: bool) -> Volume {
        let beside = path.parent().unwrap_or(Path::new("/"));
        let is_prefix = is_writable
            && keeps_order(path)
            && asked(ensure_prefix_mode(path))
            && has_prefix_mode(beside);
        let target = if is_prefix { Target::new(path, &main) } else { None };
        let mut journal = path.as_os_str().to_owned();
        journal.push("-journal");
        let rollback = RefCell::new(Rollback::new(main, target, journal.into()));
        Volume { held: RefCell::default(), rollback, promise: Promise::new(is_prefix) }
    }

    /// What SQLite is told of the database.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The WAL at `path` is opened. Returns what SQLite is told of it.
    pub fn open_wal(&self, path: &Path, wal: Rc<Real>, is_writable: bool) -> Promise {
        let is_prefix = is_writable && keeps_order(path) && asked(ensure_prefix_mode(path));
        *self.held.borrow_mut() = HeldWal { wal: Some(wal), ..HeldWal::default() };
        Promise::new(is_prefix)
    }

    /// The rollback journal at `path` is opened for writing. `false`: nothing of it is held back,
    /// because the database keeps no order.
    ///
    /// # Errors
    /// If the journal keeps no order and cannot be made to, because SQLite relies on the order.
    pub fn open_journal(&self, path: &Path, journal: Rc<Real>) -> Result<bool, Failure> {
        if self.promise == Promise::Nothing {
            return Ok(false);
        }
        ensure_prefix_mode(path)?;
        self.rollback.borrow_mut().opened(journal);
        Ok(true)
    }

    /// The rollback journal is opened in memory. `open` makes a file at `path`. `false`: it has to
    /// be a file.
    pub fn open_journal_in_memory(&self, path: PathBuf, mut open: Open) -> bool {
        if !self.rollback.borrow().offers_memory() {
            return false;
        }
        let open = move || {
            let journal = open()?;
            ensure_prefix_mode(&path)?;
            // SQLite wrote its journal as if the file had been empty.
            if journal.size()? > 0 {
                journal.truncate(0)?;
            }
            Ok(journal)
        };
        self.rollback.borrow_mut().opened_in_memory(Box::new(open));
        true
    }

    /// The transaction of the connection in a rollback mode.
    pub fn rollback(&self) -> RefMut<'_, Rollback> {
        self.rollback.borrow_mut()
    }

    /// Takes a write to the WAL. If it fails, the transaction fails, and none of its frames is held
    /// any more.
    pub fn write_wal(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut held = self.held.borrow_mut();
        let written = held.write(at, bytes);
        if written.is_err() {
            held.frames.forget();
        }
        written
    }

    /// Writes the frames and records that are held. If that fails they stay held, so that the next
    /// call fails, too.
    pub fn settle(&self) -> Result<(), Failure> {
        self.rollback().settle_journal()?;
        self.held.borrow_mut().settle()
    }

    /// Called when a lock of the shared memory is taken or released. Writes the frames that are
    /// held. When the write lock changes hands, frames that could not be written are dropped: their
    /// transaction was not committed.
    pub fn lock(&self, is_write_lock: bool) -> Result<(), Failure> {
        let mut held = self.held.borrow_mut();
        let settled = held.settle();
        if is_write_lock {
            held.frames.forget();
            held.frames.begin();
        }
        settled
    }

    /// The WAL is closed.
    pub fn close_wal(&self) -> Result<(), Failure> {
        let mut held = self.held.borrow_mut();
        let settled = held.settle();
        *held = HeldWal::default();
        settled
    }
}

/// Whether a result is a success. Writes a failure to SQLite's error log.
fn asked(result: Result<(), Failure>) -> bool {
    if let Err(e) = &result {
        tell(SQLITE_WARNING, &e.to_string());
    }
    result.is_ok()
}

impl HeldWal {
    fn settle(&mut self) -> Result<(), Failure> {
        match &self.wal {
            Some(wal) => self.frames.settle(|at, bytes| wal.write(at, bytes)),
            None => Ok(()),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Some(wal) = self.wal.clone() else {
            return Err(Failure::Sqlite { code: SQLITE_IOERR, what: "using" });
        };
        if at == 0 && bytes.len() >= HEADER_BYTES {
            self.settle()?;
            self.page_bytes = Header::parse(bytes).map(|header| header.page_bytes);
            self.frames.begin();
        } else if self.page_bytes.is_none() {
            self.page_bytes = read_header(&wal)?.map(|header| header.page_bytes);
        }
        let step = match self.page_bytes {
            Some(page_bytes) => self.frames.push(at, bytes, page_bytes),
            None => Step::Foreign,
        };
        if step != Step::Held {
            self.settle()?;
        }
        if step == Step::Foreign {
            wal.write(at, bytes)?;
            self.frames.wrote(at + bytes.len() as u64);
        }
        Ok(())
    }
}
