//! A connection's database file in a rollback mode: what SQLite is told, and what becomes of its
//! calls.
//!
//! Each method here runs before the call of the file below. It returns whether that call is still
//! to be made ([`Then`]). The connection's states decide what a call does (`states`).

use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::commit::{CommitError, Committed};
use super::held::HeldPages;
use super::states::{Begin, Promise, States};
use crate::abi::control::Control;
use crate::abi::ffi::*;
use crate::abi::loaded::loaded;
use crate::abi::real::Real;
use crate::database::{self, Database};
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::messages::tell;

/// What remains to be done for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing. Contains the result code for SQLite.
    Return(c_int),
    /// Call the file below.
    Below,
}

/// The first bytes of a rollback journal's header: its magic and its record count. With zeros here,
/// it is not a journal.
type JournalHeader = [u8; JOURNAL_HEADER_BYTES];
const JOURNAL_HEADER_BYTES: usize = 12;

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is the extension's own, which the database does not count. It writes in WAL mode only.
    Own,
    /// It reads.
    Read,
    /// It writes. Its journals are not recognized when they are opened.
    Write,
    /// It writes, also batches: its journals are recognized when they are opened (rule 7).
    Batch,
}

impl Access {
    /// The access of a connection of the program.
    pub fn new(is_writable: bool, has_journals: bool) -> Access {
        match (is_writable, has_journals) {
            (false, _) => Access::Read,
            (true, false) => Access::Write,
            (true, true) => Access::Batch,
        }
    }
}

/// A rollback journal that is open.
struct OpenJournal {
    file: Rc<Real>,
    /// The header that it will get when the rest of it is durable.
    header: Option<JournalHeader>,
}

/// A connection's database.
pub struct Connection {
    /// The database.
    pub database: Arc<Database>,
    access: Access,
    /// How often it took the lock for writing the WAL.
    pub wal_transaction_count: u64,
    /// The level of SQLite's lock.
    level: c_int,
    states: States,
    journal: Option<OpenJournal>,
    /// Whether it was reported why SQLite is not told of batches.
    is_told: bool,
}

impl Connection {
    /// A connection without a lock.
    pub fn new(database: Arc<Database>, access: Access) -> Connection {
        Connection {
            database,
            access,
            wal_transaction_count: 0,
            level: SQLITE_LOCK_NONE,
            states: States::new(loaded().begins_syncing),
            journal: None,
            is_told: false,
        }
    }

    /// Its file is closed. Returns whether it was the program's last connection in this process.
    pub fn went(&self) -> bool {
        self.access != Access::Own && database::went(&self.database)
    }

    /// The device characteristics of the file. `below` has the characteristics that the VFS below
    /// reports.
    pub fn characteristics(&self, below: c_int) -> c_int {
        match self.states.promise() {
            Promise::Batches => below | SQLITE_IOCAP_BATCH_ATOMIC,
            Promise::NotSyncing | Promise::Nothing => below,
        }
    }

    /// Handles that a lock was taken. With any [`Then::Return`] except success, the lock was
    /// released again.
    pub fn locked(&mut self, main: &Real, level: c_int) -> Result<Then, Failure> {
        let before = self.level;
        self.level = before.max(level);
        if before == SQLITE_LOCK_NONE {
            let entered = self.enter(main);
            if !matches!(entered, Ok(true)) {
                self.level = SQLITE_LOCK_NONE;
                main.unlock()?;
                return entered.map(|_| Then::Return(SQLITE_BUSY));
            }
        }
        if level >= SQLITE_LOCK_RESERVED && before < SQLITE_LOCK_RESERVED {
            self.states.begin_transaction();
            self.offer(main);
        }
        Ok(Then::Return(SQLITE_OK))
    }

    /// Runs with the shared lock, before anything is read (rule 5). `false`: other connections hold
    /// a lock that they must release first.
    fn enter(&mut self, main: &Real) -> Result<bool, Failure> {
        // A connection of the program is told.
        if self.access != Access::Own
            && let Some(e) = self.database.background.take_failure()
        {
            return Err(e);
        }
        if !self.database.open_log(main, false)? || !self.database.is_hot()? {
            // Another connection may have completed what this one did not.
            self.states.entered();
            return Ok(true);
        }
        if self.access == Access::Read {
            return Err(Failure::Sqlite { code: SQLITE_READONLY_ROLLBACK, what: "replaying into" });
        }
        if !main.lock_exclusive_too()? {
            return Ok(false);
        }
        self.database.finish_hot(main)?;
        self.states.entered();
        main.unlock_to_shared().map(|()| true)
    }

    /// Decides what SQLite is told in the transaction that begins.
    fn offer(&mut self, main: &Real) {
        let may_batch = self.access == Access::Batch
            && self.states.promise() != Promise::NotSyncing
            && loaded().knows_batches
            && self.has_log(main);
        self.states.offer(may_batch);
        if may_batch {
            self.database.has_batches.store(true, Ordering::Relaxed);
        }
    }

    fn has_log(&mut self, main: &Real) -> bool {
        match self.database.open_log(main, true) {
            Ok(has_log) => has_log,
            Err(e) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    let path = self.database.path.display();
                    tell(SQLITE_WARNING, &format!("{path}: with rollback journals: {e}"));
                }
                false
            }
        }
    }

    /// Handles that a lock was released.
    pub fn unlocked(&mut self, level: c_int) {
        self.level = self.level.min(level);
        if self.level < SQLITE_LOCK_RESERVED {
            self.states.unlocked();
            if let Some(journal) = &mut self.journal {
                journal.header = None;
            }
        }
    }

    /// Handles that its rollback journal was opened for writing. After a failed batch, SQLite
    /// writes all of the journal at once. It does not check whether bytes of an earlier transaction
    /// after the journal's end (PERSIST) could be taken for a part of it (rule 7).
    pub fn open_journal(&mut self, file: Rc<Real>) -> Result<(), Failure> {
        if self.states.is_journal_unsynced() {
            file.truncate(0)?;
        }
        self.journal = Some(OpenJournal { file, header: None });
        self.states.open_journal();
        Ok(())
    }

    /// Its rollback journal was closed.
    pub fn close_journal(&mut self) {
        self.journal = None;
    }

    /// Runs before a write to its rollback journal. After a failed batch, SQLite writes the records
    /// with a header that already counts them, and their checksum covers only every 200th byte. So
    /// a power cut could leave records that would be rolled back wrongly. Therefore the header
    /// stays zeros until the records are durable (rule 7).
    pub fn write_journal(&mut self, at: u64, bytes: &[u8]) -> Result<Then, Failure> {
        if faults::is(Fault::CountsJournalEarly) {
            return Ok(Then::Below);
        }
        let (true, Some(journal)) = (self.states.is_journal_unsynced(), &mut self.journal) else {
            return Ok(Then::Below);
        };
        if at >= JOURNAL_HEADER_BYTES as u64 {
            return Ok(Then::Below);
        }
        let room = &mut journal.header.get_or_insert_default()[at as usize..];
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        let mut blank = bytes.to_vec();
        blank[..count].fill(0);
        journal.file.write(at, &blank)?;
        Ok(Then::Return(SQLITE_OK))
    }

    /// Makes the journal durable. A journal with a delayed header becomes valid only then.
    fn sync_journal(&mut self) -> Result<(), Failure> {
        if let Some(OpenJournal { file, header }) = &mut self.journal {
            file.sync()?;
            if let Some(header) = &*header {
                file.write(0, header)?;
                file.sync()?;
            }
            *header = None;
        }
        self.states.journal_synced();
        Ok(())
    }

    /// Before a read.
    pub fn read(&self) -> Then {
        if self.states.is_in_part() { Then::Return(SQLITE_IOERR) } else { Then::Below }
    }

    /// Before a write.
    pub fn write(&mut self, main: &Real, at: u64, bytes: &[u8]) -> Result<Then, Failure> {
        if let Some(held) = self.states.held() {
            let is_held = held.push(at, bytes);
            return Ok(Then::Return(if is_held { SQLITE_OK } else { SQLITE_IOERR_WRITE }));
        }
        self.direct(main).map(|()| Then::Below)
    }

    /// Runs before the size of the file changes.
    pub fn truncate(&mut self, main: &Real, size: i64) -> Result<Then, Failure> {
        if self.states.held().is_some() {
            return Ok(Then::Return(SQLITE_IOERR));
        }
        // The last record says the same.
        let is_logged = u64::try_from(size).is_ok_and(|size| self.states.has_committed(size));
        if !is_logged {
            self.direct(main)?;
        }
        Ok(Then::Below)
    }

    /// Before a sync.
    pub fn sync(&mut self) -> Then {
        if self.states.sync() { Then::Return(SQLITE_OK) } else { Then::Below }
    }

    /// Runs before anything is written that is not part of a batch (rules 3 and 7).
    fn direct(&mut self, main: &Real) -> Result<(), Failure> {
        let in_part = Failure::Sqlite { code: SQLITE_IOERR, what: "writing before replaying" };
        let must_release = self.states.begin_direct().map_err(|()| in_part)?;
        if self.states.is_journal_unsynced() {
            self.sync_journal()?;
        }
        if must_release {
            self.database.release(main)?;
            self.states.released();
        }
        Ok(())
    }

    /// SQLite's *commit*.
    fn commit(&mut self, main: &Real, held: &HeldPages) -> c_int {
        let path = self.database.path.display();
        match self.database.commit_batch(main, held) {
            Ok(Committed { bytes, sync_upto }) => {
                self.states.committed(bytes);
                if let Some(upto) = sync_upto {
                    self.database.begin_sync(main, upto);
                }
                SQLITE_OK
            }
            Err(CommitError::Refused(e)) => {
                tell(SQLITE_WARNING, &format!("{path}: with a rollback journal: {e}"));
                SQLITE_IOERR
            }
            // Not an I/O error: SQLite must not write a journal of what is committed.
            Err(CommitError::Applying(e)) => {
                self.states.failed_in_part();
                let code = match e.code(SQLITE_ERROR) {
                    SQLITE_FULL => SQLITE_FULL,
                    _ => SQLITE_ERROR,
                };
                tell(code, &format!("{path}: a transaction that is in the log: {e}"));
                code
            }
        }
    }

    /// Runs before a PRAGMA; `false` refuses it. SQLite refuses `synchronous` only in transactions
    /// that BEGIN began. In other transactions it would continue with a journal in memory, which
    /// other processes cannot see if this process is killed (rule 8).
    fn pragma(&mut self, name: &[u8], value: &[u8]) -> bool {
        name != b"synchronous" || !may_be_off(value) || self.states.stop_syncing()
    }

    /// Runs before the other controls.
    fn control(&mut self, main: &Real, operation: c_int) -> Result<Then, Failure> {
        Ok(match operation {
            SQLITE_FCNTL_BEGIN_ATOMIC_WRITE => match self.states.begin_batch() {
                Begin::Begun => Then::Return(SQLITE_OK),
                Begin::Refused => Then::Return(SQLITE_IOERR),
                Begin::Fails => Then::Return(SQLITE_ERROR),
                Begin::Unknown => Then::Below,
            },
            SQLITE_FCNTL_COMMIT_ATOMIC_WRITE => match self.states.take_held() {
                Some(held) => Then::Return(self.commit(main, &held)),
                None => Then::Below,
            },
            SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE if self.states.roll_back_batch() => {
                Then::Return(SQLITE_OK)
            }
            SQLITE_FCNTL_SIZE_HINT => {
                self.direct(main)?;
                Then::Below
            }
            // SQLite asks this when it opens a journal, after it asked for the characteristics.
            SQLITE_FCNTL_HAS_MOVED if self.level >= SQLITE_LOCK_RESERVED => {
                self.states.place_journal();
                Then::Below
            }
            SQLITE_FCNTL_COMMIT_PHASETWO => {
                self.states.end_transaction();
                self.offer(main);
                Then::Below
            }
            _ => Then::Below,
        })
    }
}

/// Whether SQLite may take a level of `synchronous` for OFF. SQLite reads a number by its first
/// digits, and uses the lowest bits of it.
fn may_be_off(level: &[u8]) -> bool {
    let is_number = level.first().is_some_and(u8::is_ascii_digit);
    let is_known = [&b"1"[..], b"2", b"3"].contains(&level);
    is_number && !is_known || [&b"off"[..], b"no", b"false"].contains(&level)
}

/// Before a control of the database's file.
pub fn control(
    connection: &mut Connection,
    main: &Real,
    control: &Control<'_>,
) -> Result<Then, Failure> {
    if let Some(pragma) = control.pragma() {
        let value = pragma.value.unwrap_or_default().to_ascii_lowercase();
        if !connection.pragma(&pragma.name.to_ascii_lowercase(), &value) {
            control.refuse_pragma(c"Safety level may not be changed inside a transaction");
            return Ok(Then::Return(SQLITE_ERROR));
        }
    }
    if let (Some(bytes), Some(held)) = (control.size_hint(), connection.states.held()) {
        // The file below hears it when the transaction commits.
        held.size_hint = Some(bytes);
        return Ok(Then::Return(SQLITE_OK));
    }
    connection.control(main, control.operation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_may_be_off() {
        let off = ["off", "no", "false", "0", "00", "0x0", "7", "8", "16", "256", "4294967296"];
        assert!(off.iter().all(|level| may_be_off(level.as_bytes())));
        let others = ["", "1", "2", "3", "normal", "full", "extra", "yes", "on", "-1", "nope"];
        assert!(!others.iter().any(|level| may_be_off(level.as_bytes())));
    }
}
