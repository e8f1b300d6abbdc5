//! Syncs of a database file that nobody waits for, behind which the log keeps less.
//!
//! ```text
//! committer:  ... record, pages | begin(upto = behind the record) | record, pages | record, pages ...
//! a thread:                       fsync of the database ............ append home(upto)
//! ```
//!
//! When the sync begins, the pages of all records before `upto` are in the page cache; when it has succeeded they are
//! durable. What was written meanwhile may be or not, so the records from `upto` on go on counting. Nobody syncs the log for
//! *home*: the next commit does, and then gives back what lies before `upto`.
//!
//! 1. *home* is appended behind the sync, and says nothing of records that were appended behind its beginning.
//! 2. One job of a process and database is under way at a time. It has a file of its own, which the VFS below opened: when
//!    that fails, when the path leads to another file by now, or when there can be no thread, nothing happens, and at
//!    [`PERIOD_BYTES_MAX`] a committer syncs the database by itself.
//! 3. A failed sync is not tried again, as the kernel may have forgotten what it could not write. It marks the database as
//!    one that is to be replayed: whoever locks it next writes all pages of the log again, and only the sync behind that counts. The process's next
//!    statement fails with the error. The same holds for a sync that somebody waits for, who fails with it. When the
//!    lease cannot be had for the mark, the process makes it before it does anything else with the log, and its
//!    statements fail until then. It leaves word for others at once (`doubt`), in case it ends before.
//! 4. A process that dies or leaves with `exit` has said nothing, and the records count. The last connection of a process waits for the job.
//! 5. A process that was forked knows nothing of its parent's thread.
//!
//! Locks: `background`, then those of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use device::sync::Mutex;
use log::{Log, Stream};

use crate::Failure;
use crate::database::Database;
use crate::doubt::doubt;
use crate::faults::{self, Fault};
use crate::home;
use crate::note::{Found, Note};
use crate::real::{Opened, Real};
use crate::stat::COUNTERS;
use crate::stream::{Lease, append, find_note, leave};
use crate::vfs::tell;

/// So much log of a database has a sync begin.
const SYNC_BYTES: u64 = 4 << 20;
/// So much of it has a committer sync the database, and wait: it bounds what recovery reads.
const PERIOD_BYTES_MAX: u64 = 64 << 20;

/// What tests set.
static LIMITS: [AtomicU64; 2] = [AtomicU64::new(SYNC_BYTES), AtomicU64::new(PERIOD_BYTES_MAX)];
static IS_BY_HAND: AtomicBool = AtomicBool::new(false);

/// Whether a sync is due with so much log.
pub(crate) fn is_due(live_bytes: u64) -> bool {
    live_bytes > LIMITS[0].load(Ordering::Relaxed)
}

/// Whether a committer has to wait for one.
pub(crate) fn is_overdue(live_bytes: u64) -> bool {
    live_bytes > LIMITS[1].load(Ordering::Relaxed)
}

/// For tests: other limits, and steps of jobs happen when [`step`] says so, not in threads.
#[doc(hidden)]
pub fn take_over(sync_bytes: u64, period_bytes_max: u64) {
    LIMITS[0].store(sync_bytes, Ordering::Relaxed);
    LIMITS[1].store(period_bytes_max, Ordering::Relaxed);
    IS_BY_HAND.store(true, Ordering::Relaxed);
}

/// For tests: the next step of each job.
#[doc(hidden)]
pub fn step() {
    for database in crate::vfs::open_databases() {
        database.background.step(&database);
    }
}

/// A process's syncs of one database.
#[derive(Default)]
pub(crate) struct Background {
    state: Mutex<State>,
    has_failed: AtomicBool,
    /// A sync of the database failed, and the note does not say so yet.
    is_doubtful: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The process whose thread it is.
    process: u32,
    job: Option<Job>,
    /// The file of the job before.
    file: Option<Opened>,
    failure: Option<Failure>,
}

enum Job {
    /// Its file is closed by a thread that SQLite knows; whether the sync was good.
    Running(JoinHandle<(Opened, bool)>),
    /// In tests.
    Begun(Opened, u64),
    Synced(Opened, u64, Result<(), Failure>),
}

impl Background {
    /// Begins to make durable what the records before `upto` say, unless another job is under way. The caller's file is `main`, and
    /// its pages are in the page cache.
    pub fn begin(&self, database: &Arc<Database>, main: Real, upto: u64) {
        let mut state = self.state.lock();
        state.settle();
        if state.job.is_some() {
            return;
        }
        let file = state.file.take().filter(|_| state.process == std::process::id());
        let opened = match file {
            Some(opened) => Ok(opened),
            // SAFETY: the VFS below is registered for good.
            None => unsafe { Opened::main(database.below.0, &database.path) },
        };
        let Ok(mut opened) = opened else { return };
        if main.has_moved() || opened.real().has_moved() {
            return;
        }
        state.process = std::process::id();
        if IS_BY_HAND.load(Ordering::Relaxed) {
            state.job = Some(Job::Begun(opened, upto));
            return;
        }
        let database = database.clone();
        let thread = std::thread::Builder::new().name("onejournal-sync".into());
        let work = move || {
            let synced = sync(&mut opened);
            let is_good = synced.is_ok();
            database.synced(upto, synced);
            (opened, is_good)
        };
        state.job = thread.spawn(faults::carry(work)).ok().map(Job::Running);
    }

    /// Waits for the job that is under way, when the process's last connection goes.
    pub fn finish(&self, database: &Database) {
        let mut state = self.state.lock();
        if state.process != std::process::id() {
            // The parent's: there is no such thread here, and its file has the parent's locks.
            std::mem::forget(std::mem::take(&mut *state));
            return;
        }
        let job = state.job.take();
        drop(state);
        match job {
            Some(Job::Running(thread)) => drop(thread.join()),
            Some(Job::Begun(mut opened, upto)) => database.synced(upto, sync(&mut opened)),
            Some(Job::Synced(_, upto, synced)) => database.synced(upto, synced),
            None => {}
        }
        self.state.lock().file = None;
    }

    /// The error of a sync, once.
    pub fn take_failure(&self) -> Option<Failure> {
        if !self.has_failed.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.state.lock().failure.take()
    }

    /// In tests: the next step of the job.
    pub fn step(&self, database: &Database) {
        let job = self.state.lock().job.take();
        let next = match job {
            Some(Job::Begun(mut opened, upto)) => {
                let synced = sync(&mut opened);
                Some(Job::Synced(opened, upto, synced))
            }
            Some(Job::Synced(opened, upto, synced)) => {
                let is_good = synced.is_ok();
                database.synced(upto, synced);
                self.state.lock().file = is_good.then_some(opened);
                None
            }
            job => job,
        };
        self.state.lock().job = next;
    }
}

impl State {
    /// Takes the file of a job that is done.
    fn settle(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(std::mem::take(self));
        } else if matches!(&self.job, Some(Job::Running(thread)) if thread.is_finished())
            && let Some(Job::Running(thread)) = self.job.take()
        {
            // A file that knows of an error is not used again.
            self.file = thread.join().ok().and_then(|(file, is_good)| is_good.then_some(file));
        }
    }
}

fn sync(opened: &mut Opened) -> Result<(), Failure> {
    if faults::is(Fault::SkipsHomeSync) {
        return Ok(());
    }
    COUNTERS.background_sync();
    opened.real().sync()
}

impl Database {
    /// A sync that began when the pages of the records before `upto` were in the page cache has ended.
    pub(crate) fn synced(&self, upto: u64, synced: Result<(), Failure>) {
        let synced = if faults::is(Fault::IgnoresSyncError) { Ok(()) } else { synced };
        let told = match &synced {
            Ok(()) => self.with_log(|log, stream| self.came_home(log, stream, upto)),
            Err(_) => {
                self.background.is_doubtful.store(true, Ordering::Release);
                self.with_log(|log, stream| {
                    self.lease(stream).map(drop).or_else(|_| self.leave_doubt(log))
                })
            }
        };
        // Without having been told of a good sync the log keeps more than it needs.
        let (is_good, failure) = (synced.is_ok(), synced.err().or(told.err()));
        let Some(e) = failure else { return };
        let code = e.code(crate::ffi::SQLITE_IOERR_FSYNC);
        tell(code, &format!("{}: its background sync did not complete: {e}", self.path.display()));
        if !is_good {
            self.background.state.lock().failure = Some(e);
            self.background.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Says that the records before `upto` are not needed any more.
    fn came_home(&self, log: &Log, stream: &Stream, upto: u64) -> Result<(), Failure> {
        let _lease = self.lease(stream)?;
        if self.hear_doubt(log, stream)? {
            return Ok(());
        }
        // When it is not this period any more, there is nothing to say.
        let Found::Note(note) = find_note(stream)? else { return Ok(()) };
        if !note.has_pages || note.is_applying || note.base_lsn >= upto {
            return Ok(());
        }
        let upto = if faults::is(Fault::HomeCoversLater) { note.end_lsn } else { upto };
        let last_lsn = append(stream, &home::encode(upto))?;
        leave(stream, Note { base_lsn: upto, last_lsn, ..note });
        Ok(())
    }

    /// The lease of the database's stream, when its note tells of all failed syncs of this process.
    pub(crate) fn lease<'a>(&self, stream: &'a Stream) -> Result<Lease<'a>, Failure> {
        let lease = Lease::take(stream)?;
        if self.background.is_doubtful.swap(false, Ordering::AcqRel) {
            // With the lease it is in memory that this process shares.
            let _ = doubt(stream);
        }
        Ok(lease)
    }

    /// Has the note tell of a failed sync that it does not tell of yet.
    pub(crate) fn settle_doubt(&self, stream: &Stream) -> Result<(), Failure> {
        match self.background.is_doubtful.load(Ordering::Acquire) {
            true => self.lease(stream).map(drop),
            false => Ok(()),
        }
    }

    /// Syncs the database for somebody who waits and has the lease.
    pub(crate) fn sync_home(&self, stream: &Stream, main: Real) -> Result<(), Failure> {
        COUNTERS.database_sync();
        main.sync().inspect_err(|_| {
            if !faults::is(Fault::IgnoresSyncError) {
                let _ = doubt(stream);
            }
        })
    }
}
