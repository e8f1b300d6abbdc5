//! Background syncs of a database file, after which the log needs to keep less. No commit waits for
//! them.
//!
//! ```text
//! committer:  ... record, pages | begin(upto = after record) | record, pages | record, pages ...
//! a thread:                       fsync of the database ....... append home(upto)
//! ```
//!
//! When the sync begins, the pages of all records before `upto` are in the page cache. When it has
//! succeeded, they are durable. Pages that were written during the sync may be durable or not, so
//! the records from `upto` on still count. The record *home* is not synced by itself: the next
//! commit syncs the log, and then frees the log before `upto`.
//!
//! 1. *home* is appended after the sync. It covers no record that was appended after the sync
//!    began.
//! 2. A process has at most one sync of a database under way. The sync uses a file of its own,
//!    opened through the VFS below. No sync begins if that file cannot be opened, if the path leads
//!    to another file by now, or if no thread can be started. At `PERIOD_BYTES_MAX` a committer
//!    syncs the database itself.
//! 3. A failed sync is not tried again, because the kernel may have dropped what it could not
//!    write. The stream header says that replay is due: the next connection that locks the database
//!    writes all pages of the log again, and only the sync after that counts. The next statement of
//!    this process fails with the error. The same holds for a sync that a caller waits for; that
//!    caller gets the error. If the process cannot get the lease to mark the stream header, it
//!    marks it before it does anything else with the log, and its statements fail until then. At
//!    once it leaves word for other processes (`stream::doubt`), in case it ends before.
//! 4. A process that dies during a sync has recorded nothing, so the records still count. The last
//!    connection of a process waits for the sync.
//! 5. A forked process does not know its parent's thread.
//!
//! Locks: the state of the sync, then those of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log::Log;

use crate::abi::opened::Opened;
use crate::abi::real::Real;
use crate::counters::{COUNTERS, count};
use crate::database::Database;
use crate::database::background::Job;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::home;
use crate::messages::tell;
use crate::stream::doubt::{doubt, hear_doubt, leave_doubt};
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::{Lease, append, find_header, leave};
use crate::stream::stamped::Stream;

/// A background sync begins when the log holds this much.
const SYNC_BYTES: u64 = 4 << 20;
/// When the log holds this much, a committer syncs the database and waits. This bounds what
/// recovery reads.
const PERIOD_BYTES_MAX: u64 = 64 << 20;

/// Settings that only tests change.
static LIMITS: [AtomicU64; 2] = [AtomicU64::new(SYNC_BYTES), AtomicU64::new(PERIOD_BYTES_MAX)];
static IS_BY_HAND: AtomicBool = AtomicBool::new(false);

/// Whether a sync is due when the log holds this much.
pub(crate) fn is_due(live_bytes: u64) -> bool {
    live_bytes > LIMITS[0].load(Ordering::Relaxed)
}

/// Whether a committer has to wait for a sync.
pub(crate) fn is_overdue(live_bytes: u64) -> bool {
    live_bytes > LIMITS[1].load(Ordering::Relaxed)
}

/// For tests: other limits. The steps of jobs run when [`step`] is called, and not in threads.
#[doc(hidden)]
pub fn take_over(sync_bytes: u64, period_bytes_max: u64) {
    LIMITS[0].store(sync_bytes, Ordering::Relaxed);
    LIMITS[1].store(period_bytes_max, Ordering::Relaxed);
    IS_BY_HAND.store(true, Ordering::Relaxed);
}

/// For tests: runs the next step of each job.
#[doc(hidden)]
pub fn step() {
    for database in crate::databases::all() {
        database.step_sync();
    }
}

impl Database {
    /// Begins to make the records before `upto` durable in the database, unless another job is
    /// under way. The caller's file is `main`, and the pages are in the page cache.
    pub(crate) fn begin_sync(self: &Arc<Database>, main: &Real, upto: u64) {
        let mut state = self.background.state.lock();
        state.settle();
        if state.job.is_some() {
            return;
        }
        let file = state.file.take().filter(|_| state.process == std::process::id());
        let opened = match file {
            Some(opened) => Ok(opened),
            None => Opened::main(self.below, &self.path),
        };
        let Ok(opened) = opened else { return };
        if main.has_moved() || opened.real().has_moved() {
            return;
        }
        state.process = std::process::id();
        if IS_BY_HAND.load(Ordering::Relaxed) {
            state.job = Some(Job::Begun(opened, upto));
            return;
        }
        let database = self.clone();
        let thread = std::thread::Builder::new().name("onejournal-sync".into());
        let work = move || {
            let synced = sync(&opened);
            let is_good = synced.is_ok();
            database.synced(upto, synced);
            (opened, is_good)
        };
        state.job = thread.spawn(faults::carry(work)).ok().map(Job::Running);
    }

    /// Waits for the job that is under way when the process's last connection closes.
    pub(crate) fn finish_sync(&self) {
        let mut state = self.background.state.lock();
        if state.process != std::process::id() {
            // The parent's: there is no such thread here, and its file has the parent's locks.
            std::mem::forget(std::mem::take(&mut *state));
            return;
        }
        let job = state.job.take();
        drop(state);
        match job {
            Some(Job::Running(thread)) => drop(thread.join()),
            Some(Job::Begun(opened, upto)) => self.synced(upto, sync(&opened)),
            Some(Job::Synced(_, upto, synced)) => self.synced(upto, synced),
            None => {}
        }
        self.background.state.lock().file = None;
    }

    /// In tests: runs the next step of the job.
    pub(crate) fn step_sync(&self) {
        let job = self.background.state.lock().job.take();
        let next = match job {
            Some(Job::Begun(opened, upto)) => {
                let synced = sync(&opened);
                Some(Job::Synced(opened, upto, synced))
            }
            Some(Job::Synced(opened, upto, synced)) => {
                let is_good = synced.is_ok();
                self.synced(upto, synced);
                self.background.state.lock().file = is_good.then_some(opened);
                None
            }
            job => job,
        };
        self.background.state.lock().job = next;
    }
}

fn sync(opened: &Opened) -> Result<(), Failure> {
    if faults::is(Fault::SkipsHomeSync) {
        return Ok(());
    }
    count(&COUNTERS.background_syncs);
    opened.real().sync()
}

impl Database {
    /// Handles the end of a sync that began when the pages of the records before `upto` were in the
    /// page cache.
    pub(crate) fn synced(&self, upto: u64, synced: Result<(), Failure>) {
        let synced = if faults::is(Fault::IgnoresSyncError) { Ok(()) } else { synced };
        let told = match &synced {
            Ok(()) => self.with_log(|log, stream| self.came_home(log, stream, upto)),
            Err(_) => {
                self.background.is_doubtful.store(true, Ordering::Release);
                self.with_log(|log, stream| {
                    self.lease(stream).map(drop).or_else(|_| leave_doubt(log, stream))
                })
            }
        };
        // If a good sync cannot be recorded, the log only keeps more than it needs.
        let (is_good, failure) = (synced.is_ok(), synced.err().or(told.err()));
        let Some(e) = failure else { return };
        let code = e.code(crate::abi::ffi::SQLITE_IOERR_FSYNC);
        tell(code, &format!("{}: its background sync did not complete: {e}", self.path.display()));
        if !is_good {
            self.background.state.lock().failure = Some(e);
            self.background.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Appends the record *home*: the records before `upto` are not needed any more.
    fn came_home(&self, log: &Log, stream: &Stream, upto: u64) -> Result<(), Failure> {
        let _lease = self.lease(stream)?;
        if hear_doubt(log, stream)? {
            return Ok(());
        }
        // If the period has ended, there is nothing to record.
        let SharedHeader::Whole(shared) = find_header(stream)? else { return Ok(()) };
        if shared.holds != Holds::Pages || shared.base_lsn >= upto {
            return Ok(());
        }
        let upto = if faults::is(Fault::HomeCoversLater) { shared.end_lsn } else { upto };
        let last_lsn = append(stream, &home::encode(upto))?;
        leave(stream, StreamHeader { base_lsn: upto, last_lsn, ..shared });
        Ok(())
    }

    /// Takes the lease of the database's stream, after the stream header records all failed syncs
    /// of this process.
    pub(crate) fn lease<'a>(&self, stream: &'a Stream) -> Result<Lease<'a>, Failure> {
        let lease = Lease::take(stream)?;
        if self.background.is_doubtful.swap(false, Ordering::AcqRel) {
            // With the lease it is in memory that this process shares.
            let _ = doubt(stream);
        }
        Ok(lease)
    }

    /// Records a failed sync in the stream header, if it is not recorded yet.
    pub(crate) fn settle_doubt(&self, stream: &Stream) -> Result<(), Failure> {
        match self.background.is_doubtful.load(Ordering::Acquire) {
            true => self.lease(stream).map(drop),
            false => Ok(()),
        }
    }

    /// Syncs the database for a caller that waits and holds the lease.
    pub(crate) fn sync_home(&self, stream: &Stream, main: &Real) -> Result<(), Failure> {
        count(&COUNTERS.database_syncs);
        main.sync().inspect_err(|_| {
            if !faults::is(Fault::IgnoresSyncError) {
                let _ = doubt(stream);
            }
        })
    }
}
