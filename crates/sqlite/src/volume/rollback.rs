//! A transaction of a rollback mode on a volume: its journal and its pages stay in memory, and one
//! request writes the pages.
//!
//! ```text
//! SQLite:  journal | journal | ... | page | page | ... | SYNC | xSync  | end of the journal
//! here:    memory  | memory  | ... | memory            | one atomic change | memory
//! ```
//!
//! The change is atomic (`volume_client::write_ranges`): after a crash the database has all pages
//! of the transaction or none. So nothing ever has to be undone in the file, and no journal is
//! needed there. If SQLite rolls back, it reads the journal from memory.
//!
//! Invariants:
//! 1. Pages are held only while a valid journal is in memory. SQLite then has the exclusive lock.
//! 2. Before a page of a transaction reaches the file in any other way than by an atomic change
//!    with all the other held pages, the journal is *written out*: a file is made of it. After that
//!    the journal is a file until it is closed.
//! 3. SQLite syncs through `SQLITE_FCNTL_SYNC` and `xSync`. With `synchronous=OFF` only the first
//!    comes. So the change is made at the first. It is made durable at once if the last transaction
//!    had an `xSync`; if not, `xSync` syncs the file.
//! 4. When the connection gives up its lock for writing, nothing is held. What is held then belongs
//!    to a transaction that failed.
//! 5. If it is unknown whether a change was made (*doubt*), the connection writes nothing before it
//!    has released its lock. The database is whole in both cases. SQLite then begins anew, without
//!    what it has cached.
//!
//! A journal is written out if its transaction is too large, belongs to several databases (SQLite
//! names a super-journal), makes the file shorter or writes something other than pages, or if the
//! volume refuses the change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device::sync::Mutex;
use volume_client::RangeError;

use crate::abi::ffi::*;
use crate::abi::real::Real;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::volume::journal::HeldJournal;
use crate::volume::memory::Memory;
use crate::volume::pages::Pages;
use crate::volume::target::Target;

/// Opens the file of a journal, which is empty then.
pub type Open = Box<dyn FnMut() -> Result<Rc<Real>, Failure>>;

/// Journals that were in memory and that SQLite has closed and not removed yet. `true`: pages of
/// the transaction are lost. The connection has the lock for writing, so there is one for each
/// name.
static CLOSED: Mutex<Option<HashMap<PathBuf, bool>>> = Mutex::new(None);

#[derive(Default)]
enum Journal {
    #[default]
    Closed,
    Memory {
        memory: Memory,
        open: Open,
    },
    File(HeldJournal),
}

/// What becomes of a call on the database.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It is done.
    Done,
    /// It goes to the file.
    Below,
}

/// The rollback journal of a connection, and the pages that are held.
pub struct Rollback {
    main: Rc<Real>,
    /// Where changes go. `None`: journals are files.
    target: Option<Target>,
    journal_path: PathBuf,
    journal: Journal,
    pages: Pages,
    /// Whether the last transaction was synced (invariant 3).
    is_syncing: bool,
    /// Whether the last change is durable, and nothing was written since.
    is_durable: bool,
    /// Invariant 5.
    is_in_doubt: bool,
}

fn io_error(what: &'static str) -> Failure {
    Failure::Sqlite { code: SQLITE_IOERR, what }
}

/// Whether this journal was in memory when SQLite closed it. It is forgotten. An error if pages of
/// its transaction did not reach the database.
pub fn was_in_memory(journal: &Path) -> Result<bool, Failure> {
    match CLOSED.lock().as_mut().and_then(|closed| closed.remove(journal)) {
        None => Ok(false),
        Some(false) => Ok(true),
        Some(true) => Err(io_error("committing to")),
    }
}

impl Rollback {
    /// For the open database `main`.
    pub fn new(main: Rc<Real>, target: Option<Target>, journal_path: PathBuf) -> Rollback {
        Rollback {
            main,
            target,
            journal_path,
            journal: Journal::default(),
            pages: Pages::default(),
            is_syncing: false,
            is_durable: false,
            is_in_doubt: false,
        }
    }

    /// Whether the journal that is opened next may be in memory.
    pub fn offers_memory(&self) -> bool {
        self.target.is_some()
    }

    /// From now on journals are files.
    pub fn stop_offering(&mut self) -> Result<(), Failure> {
        self.target = None;
        if self.has_valid_memory() { self.write_out() } else { Ok(()) }
    }

    /// The journal is opened, in memory.
    pub fn opened_in_memory(&mut self, open: Open) {
        self.journal = Journal::Memory { memory: Memory::default(), open };
    }

    /// The journal was opened.
    pub fn opened(&mut self, journal: Rc<Real>) {
        self.journal = Journal::File(HeldJournal::new(journal));
    }

    /// The journal is closed.
    pub fn closed(&mut self) {
        if let Journal::Memory { .. } = self.journal {
            let is_lost = !self.pages.is_empty();
            let mut closed = CLOSED.lock();
            closed.get_or_insert_default().insert(self.journal_path.clone(), is_lost);
        }
        self.journal = Journal::Closed;
    }

    /// The journal, if it is in memory.
    pub fn memory(&mut self) -> Option<&mut Memory> {
        match &mut self.journal {
            Journal::Memory { memory, .. } => Some(memory),
            Journal::Closed | Journal::File(_) => None,
        }
    }

    fn has_valid_memory(&mut self) -> bool {
        self.memory().is_some_and(|memory| memory.is_valid())
    }

    /// A write to the journal.
    pub fn write_journal(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(memory) = self.memory() {
            if memory.write(at, bytes) {
                return Ok(());
            }
            self.write_out()?;
        }
        match &mut self.journal {
            Journal::File(held) => held.write(at, bytes),
            Journal::Closed | Journal::Memory { .. } => Err(io_error("using")),
        }
    }

    /// Makes a file of a journal that is in memory, and then writes the pages that are held.
    fn write_out(&mut self) -> Result<(), Failure> {
        if let Journal::Memory { memory, open } = &mut self.journal {
            let mut held = HeldJournal::new(open()?);
            if !memory.bytes().is_empty() {
                held.write(0, memory.bytes())?;
            }
            self.journal = Journal::File(held);
        }
        self.settle()
    }

    /// Writes the records that are held, and then the pages.
    fn settle(&mut self) -> Result<(), Failure> {
        if let Journal::File(held) = &mut self.journal {
            held.settle()?;
        }
        // After an error SQLite undoes the transaction.
        let runs = self.pages.runs();
        self.pages.clear();
        runs.iter().try_for_each(|(at, run)| self.main.write(*at, run))
    }

    /// Before the file of the journal is used in another way than by a write.
    pub fn settle_journal(&mut self) -> Result<(), Failure> {
        match &mut self.journal {
            Journal::File(held) => held.settle(),
            Journal::Closed | Journal::Memory { .. } => Ok(()),
        }
    }

    /// Before the database is changed: its part of the file is no longer what was made durable.
    fn check(&mut self) -> Result<(), Failure> {
        self.is_durable = false;
        if self.is_in_doubt {
            Err(io_error("writing, after an unknown outcome, to"))
        } else {
            Ok(())
        }
    }

    /// Before the file of the database is changed.
    fn release(&mut self) -> Result<(), Failure> {
        if self.has_valid_memory() { self.write_out() } else { self.settle() }
    }

    /// A write to the database.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<Step, Failure> {
        self.check()?;
        let page_bytes = match self.memory() {
            Some(memory) if memory.is_valid() => memory.page_bytes(),
            _ => None,
        };
        if page_bytes.is_some_and(|page_bytes| self.pages.push(at, bytes, page_bytes)) {
            return Ok(Step::Done);
        }
        self.release().map(|()| Step::Below)
    }

    /// A read of the database. [`Step::Done`]: the bytes are in `to`, and all of them are within
    /// the database.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result<Step, Failure> {
        if self.pages.is_empty() {
            return Ok(Step::Below);
        }
        if self.pages.read(at, to) {
            return Ok(Step::Done);
        }
        let there = self.main.read(at, to)? as u64;
        self.pages.read(at, to);
        let end = self.pages.end().max(at + there);
        match at + to.len() as u64 <= end {
            true => Ok(Step::Done),
            false => Err(Failure::Sqlite { code: SQLITE_IOERR_SHORT_READ, what: "reading" }),
        }
    }

    /// Whether pages are held, so that the file is not the database.
    pub fn holds_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Where the last held page ends.
    pub fn end(&self) -> u64 {
        self.pages.end()
    }

    /// Before the database is made `size` bytes long.
    pub fn truncate(&mut self, size: u64) -> Result<Step, Failure> {
        self.check()?;
        if self.has_valid_memory() {
            let file_bytes = self.main.size()?;
            let is_within = size >= file_bytes && self.pages.truncate(size);
            if is_within && self.pages.end().max(file_bytes) == size {
                return Ok(Step::Done);
            }
        }
        self.release().map(|()| Step::Below)
    }

    /// Before the file grows as SQLite announces. A transaction that is in memory grows it later.
    pub fn grow(&mut self) -> Result<Step, Failure> {
        if self.has_valid_memory() {
            return Ok(Step::Done);
        }
        self.settle().map(|()| Step::Below)
    }

    /// `SQLITE_FCNTL_SYNC`: the transaction is complete, or undone.
    pub fn complete(&mut self, has_super_journal: bool) -> Result<(), Failure> {
        let is_durable = std::mem::take(&mut self.is_syncing);
        if has_super_journal && self.has_valid_memory() {
            return self.write_out();
        }
        self.change(is_durable)
    }

    /// `xSync` of the database.
    pub fn sync(&mut self) -> Result<Step, Failure> {
        self.is_syncing = true;
        if self.is_in_doubt {
            return Err(io_error("syncing"));
        }
        self.change(true)?;
        if std::mem::take(&mut self.is_durable) {
            return Ok(Step::Done);
        }
        self.settle().map(|()| Step::Below)
    }

    /// Writes the pages that are held, as one atomic change.
    fn change(&mut self, is_durable: bool) -> Result<(), Failure> {
        let Some(target) = self.target.as_ref().filter(|_| !self.pages.is_empty()) else {
            return Ok(());
        };
        let runs = self.pages.runs();
        let ranges: Vec<_> = runs.iter().map(|(at, run)| (*at, &run[..])).collect();
        if faults::is(Fault::SplitsTransaction) {
            let (first, rest) = ranges.split_at(1);
            let _ = (target.write(rest, is_durable), target.write(first, is_durable));
        }
        match target.write(&ranges, is_durable && !faults::is(Fault::SkipsChangeSync)) {
            Ok(()) => {
                self.pages.clear();
                self.is_durable = is_durable;
                Ok(())
            }
            Err(RangeError::Refused(_)) => self.write_out(),
            Err(RangeError::Unknown(_)) => {
                self.pages.clear();
                self.is_in_doubt = true;
                Err(io_error("committing to"))
            }
        }
    }

    /// The connection keeps the shared lock at most.
    pub fn unlocked(&mut self, level: i32) {
        self.pages.clear();
        self.is_durable = false;
        self.is_in_doubt &= level != SQLITE_LOCK_NONE;
        match &mut self.journal {
            Journal::Memory { memory, .. } => memory.truncate(0),
            Journal::File(held) => held.forget(),
            Journal::Closed => {
                if let Some(closed) = CLOSED.lock().as_mut() {
                    closed.remove(&self.journal_path);
                }
            }
        }
    }
}
