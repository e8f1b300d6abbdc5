//! Keeps checkpoints and restarts of a WAL apart. SQLite before 3.51.3 does not ("the WAL-reset
//! bug", <https://sqlite.org/wal.html#walresetbug>).
//!
//! # The bug
//!
//! SQLite 3.7.0 to 3.51.2 has it. It was also corrected in 3.44.6 and 3.50.7. When all frames of a
//! WAL have been copied to the database, the next writer *restarts* the WAL: its first frame
//! overwrites the first frame of the file. A passive checkpoint may see one half of a restart:
//!
//! ```text
//! a passive checkpoint                      a writer
//! takes the checkpoint lock
//! reads in the index: M frames
//!                                           restarts: 0 frames, other salts, 0 frames copied
//! reads in the index: 0 frames copied
//! copies frames 1 to M, stores "M copied"
//!                                           commits, until the WAL has more than M frames
//! a later checkpoint begins at frame M + 1
//! ```
//!
//! The new frames up to M are not copied, and the next restart loses their pages. The first
//! checkpoint may also have copied frames that were not committed. SQLite 3.51.3 compares the salts
//! when the checkpoint has the lock for copying.
//!
//! # The locks
//!
//! The index has eight locks. These calls are the same in the sources of SQLite 3.33, 3.41, 3.46,
//! 3.50.2, 3.51.3 and 3.54.1:
//!
//! | connection | exclusive locks, in this order |
//! |---|---|
//! | a writer that restarts the WAL | write (0); readers 1 to 4 (4 to 7) in one call |
//! | a passive checkpoint | checkpoint (1); some of readers 1 to 4, one by one; reader 0 (3) |
//! | another checkpoint | checkpoint; write; as above; then readers 1 to 4 in one call |
//! | a recovery of the index | write; checkpoint, recovery (1, 2) in one call; readers one by one |
//! | a snapshot | checkpoint, shared or exclusive |
//!
//! A writer that restarts the WAL also shares reader 0. It changes the index while it has readers 1
//! to 4, and releases reader 0 after that. A connection that has the database to itself asks for no
//! locks: in exclusive mode, and at the last close. So an answer "busy" never makes SQLite remove a
//! WAL that was not copied.
//!
//! # The rules
//!
//! 1. *A restart has the checkpoint lock, too.* It is taken when readers 1 to 4 are locked, and
//!    released after them. If it is busy, the restart is answered "busy". SQLite then appends to
//!    the WAL, as it does when another connection reads the WAL. A later transaction restarts it.
//! 2. *A passive checkpoint compares the salts.* They are read when SQLite gets the checkpoint
//!    lock, and again when it gets reader 0. If they differ, reader 0 is released and answered
//!    "busy". SQLite then copies nothing, as it does when another connection has reader 0. A later
//!    checkpoint copies.
//!
//! # Why they are enough
//!
//! Rule 1 separates a restart by this connection from checkpoints of all programs. A checkpoint
//! reads the index after it got the checkpoint lock, and stores its result before it releases it.
//!
//! Rule 2 separates a checkpoint by this connection from restarts of all programs:
//!
//! - When reader 0 is locked, no restart is under way, because a restart shares reader 0. None
//!   begins before SQLite has stored the result and released reader 0.
//! - A restart that ended before has changed the salts, because it adds one to the first of them.
//!   SQLite reads the salts between the two moments of rule 2, and one thread sees the values of a
//!   word in their order. So if the salts of both moments are equal, SQLite has read the same, and
//!   no restart came after that.
//! - A recovery changes the salts, too. It needs the checkpoint lock.
//!
//! A checkpoint with the write lock needs no comparison, because it reads the index after it got
//! that lock and a restart needs it. The comparison would do harm there: SQLite asks the busy
//! handler when reader 0 is busy, and an old salt stays old. A passive checkpoint has no busy
//! handler.
//!
//! Two programs without the extension are not kept apart.
//!
//! **No deadlock.** Only a lock that waits can be part of one. In most builds no lock of the index
//! waits. With `SQLITE_ENABLE_SETLK_TIMEOUT` locks wait for a time that SQLite sets before and
//! takes back after (`SQLITE_FCNTL_LOCK_TIMEOUT`), in the order recovery, checkpoint, write,
//! readers. Rule 1 takes the checkpoint lock out of this order, so it sets that time to zero. A
//! connection that waits for the checkpoint lock has no other lock of the index, and a restart
//! waits for nothing.
//!
//! **What others notice.** A checkpoint or a snapshot that begins during a restart finds the
//! checkpoint lock busy, as it does during a checkpoint.

use std::ffi::c_int;

use crate::abi::ffi::*;
use crate::abi::real::Real;
use crate::faults::{self, Fault};
use crate::format::wal::Salts;
use crate::frames::wal_index::salts_in;

#[cfg(test)]
mod tests;

/// A call of `xShmLock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The first lock.
    pub offset: c_int,
    /// The number of locks.
    pub count: c_int,
    /// What to do with them.
    pub flags: c_int,
}

const LOCK: c_int = SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE;
const UNLOCK: c_int = SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE;

/// The checkpoint lock, as a restart takes it.
const CHECKPOINT: Call = Call { offset: WAL_CHECKPOINT_LOCK, count: 1, flags: LOCK };

impl Call {
    fn covers(self, lock: c_int) -> bool {
        (self.offset..self.offset + self.count).contains(&lock)
    }

    /// Whether it is about the locks of all readers of the WAL: a restart, or the end of a
    /// checkpoint that lets the next writer restart.
    fn is_of_all_readers(self) -> bool {
        self.offset == WAL_READER_LOCK + 1 && self.count == WAL_READERS - 1
    }

    /// Whether the WAL may begin again once the call succeeds.
    pub fn begins_wal(self) -> bool {
        self.flags == LOCK && self.is_of_all_readers()
    }

    /// Whether it is about the lock that a checkpoint has while it copies.
    fn is_for_copying(self) -> bool {
        self.offset == WAL_READER_LOCK && self.count == 1
    }

    fn unlock(self) -> Call {
        Call { flags: UNLOCK, ..self }
    }
}

/// Who has the checkpoint lock through this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Holder {
    #[default]
    None,
    /// SQLite, for a checkpoint. These were the WAL's salts when it got the lock. `None`: the index
    /// was not mapped.
    Checkpoint(Option<Salts>),
    /// This module, for a restart.
    Restart,
}

/// The WAL's index of the file below.
pub trait Index {
    /// Takes or releases locks. Returns SQLite's result code.
    fn change(&self, call: Call) -> c_int;

    /// The salts of the WAL. `None`: the index is not mapped.
    fn salts(&self) -> Option<Salts>;

    /// Sets how long locks wait. Returns how long it was. `None`: no lock waits.
    fn exchange_timeout(&self, timeout_ms: c_int) -> Option<c_int>;
}

impl Index for Real {
    fn change(&self, call: Call) -> c_int {
        self.x_shm_lock(call.offset, call.count, call.flags)
    }

    fn salts(&self) -> Option<Salts> {
        salts_in(self)
    }

    fn exchange_timeout(&self, timeout_ms: c_int) -> Option<c_int> {
        self.exchange_lock_timeout(timeout_ms)
    }
}

/// What is known of the exclusive locks of a connection's index.
#[derive(Default)]
pub struct IndexLocks {
    holder: Holder,
    /// Whether SQLite has the write lock.
    is_writer: bool,
}

impl IndexLocks {
    /// The index is no longer mapped. SQLite has no lock of it.
    pub fn unmapped(&mut self) {
        *self = IndexLocks::default();
    }

    /// Carries out SQLite's call on the file below. Returns SQLite's result code.
    pub fn change(&mut self, below: &impl Index, call: Call) -> c_int {
        match call.flags {
            LOCK => self.lock(below, call),
            UNLOCK => self.unlock(below, call),
            _ => below.change(call),
        }
    }

    fn lock(&mut self, below: &impl Index, call: Call) -> c_int {
        let rc = below.change(call);
        if rc != SQLITE_OK {
            return rc;
        }
        if call.is_of_all_readers() && !self.may_restart(below)
            || call.is_for_copying() && !self.may_copy(below)
        {
            let _ = below.change(call.unlock());
            return SQLITE_BUSY;
        }
        if call.covers(WAL_CHECKPOINT_LOCK) {
            self.holder = Holder::Checkpoint(below.salts());
        }
        self.is_writer |= call.covers(WAL_WRITE_LOCK);
        SQLITE_OK
    }

    fn unlock(&mut self, below: &impl Index, call: Call) -> c_int {
        let rc = below.change(call);
        if call.is_of_all_readers() && self.holder == Holder::Restart {
            let _ = below.change(CHECKPOINT.unlock());
            self.holder = Holder::None;
        }
        if call.covers(WAL_CHECKPOINT_LOCK) {
            self.holder = Holder::None;
        }
        self.is_writer &= !call.covers(WAL_WRITE_LOCK);
        rc
    }

    /// Whether no checkpoint runs. If so, none begins before the readers' locks are released.
    fn may_restart(&mut self, below: &impl Index) -> bool {
        if self.holder != Holder::None || faults::is(Fault::RestartsDuringCheckpoint) {
            return true;
        }
        let timeout_ms = below.exchange_timeout(0);
        let is_locked = below.change(CHECKPOINT) == SQLITE_OK;
        if let Some(timeout_ms) = timeout_ms {
            let _ = below.exchange_timeout(timeout_ms);
        }
        if is_locked {
            self.holder = Holder::Restart;
        }
        is_locked
    }

    /// Whether the WAL was not restarted since the checkpoint began. The lock for copying is held.
    fn may_copy(&self, below: &impl Index) -> bool {
        match self.holder {
            Holder::Checkpoint(salts) if !self.is_writer => {
                salts == below.salts() || faults::is(Fault::CopiesAfterRestart)
            }
            Holder::Checkpoint(_) | Holder::Restart | Holder::None => true,
        }
    }
}
