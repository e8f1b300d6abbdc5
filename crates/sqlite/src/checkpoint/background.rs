//! The checkpoints of one database in this process: one pass at a time, in a thread of its own.
//!
//! Locks: `state`, after SQLite's mutexes of the program's connection and of its shared cache,
//! before those of the own one. It is not held while a thread is joined.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use device::sync::Mutex;

use crate::abi::ffi::SQLITE_IOERR;
use crate::abi::file::Hook;
use crate::abi::loaded::NAME;
use crate::checkpoint::own::{Copied, Own};
use crate::checkpoint::policy::{self, Case, Decision, Pass};
use crate::counters::{COUNTERS, count};
use crate::failure::Failure;
use crate::known::Known;
use crate::messages::tell;

/// The databases of this process that have checkpoints in the background.
static ALL: Known<PathBuf, Background> = Known::new();
/// A setting that only tests change.
static IS_BY_HAND: AtomicBool = AtomicBool::new(false);

/// The checkpoints of a database.
pub struct Background {
    path: PathBuf,
    /// Connections of the program.
    links: AtomicUsize,
    /// A pass failed with an I/O error (rule 7).
    is_broken: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The process whose thread and connection it is.
    process: u32,
    job: Option<Job>,
    /// The connection, between two passes.
    own: Option<Own>,
    /// Frames in the WAL after the last commit that asked.
    frames: u32,
    /// Frames that the last pass copied, of the same generation of the WAL.
    copied: u32,
}

type Ended = (Own, Result<Copied, Failure>);

enum Job {
    Running(JoinHandle<Ended>),
    /// Only in tests: the pass runs in [`step`].
    Begun(Own),
}

/// Who makes the checkpoint that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// A thread, or a later commit.
    Background,
    /// The commit that asks.
    Caller,
}

/// The checkpoints of the database at `path`. Counts one more connection of the program.
pub fn enter(path: &Path) -> Arc<Background> {
    ALL.with(|all| {
        let found = all.get(path).and_then(std::sync::Weak::upgrade);
        let background = found.unwrap_or_else(|| {
            let background = Arc::new(Background {
                path: path.to_owned(),
                links: AtomicUsize::new(0),
                is_broken: AtomicBool::new(false),
                state: Mutex::default(),
            });
            all.insert(path.to_owned(), Arc::downgrade(&background));
            background
        });
        background.links.fetch_add(1, Ordering::AcqRel);
        background
    })
}

/// For tests: passes run when [`step`] is called, and not in threads.
#[doc(hidden)]
pub fn take_over() {
    IS_BY_HAND.store(true, Ordering::Relaxed);
}

/// For tests: runs the passes that have begun.
#[doc(hidden)]
pub fn step() {
    for background in ALL.all() {
        let job = background.state.lock().job.take();
        match job {
            Some(Job::Begun(own)) => {
                let ended = pass(own);
                background.settle(&mut background.state.lock(), ended);
            }
            job => background.state.lock().job = job,
        }
    }
}

/// Runs a pass.
fn pass(own: Own) -> Ended {
    count(&COUNTERS.background_checkpoints);
    let copied = own.pass();
    (own, copied)
}

impl Background {
    /// A commit left `frames` frames in the WAL, and SQLite would make a checkpoint at `threshold`.
    /// `is_there` says whether the path still leads to the open database.
    fn committed(&self, frames: u32, threshold: u32, is_there: &dyn Fn() -> bool) -> Maker {
        let mut state = self.state.lock();
        self.collect(&mut state);
        if frames <= state.frames {
            // The WAL began again: within a generation each commit adds frames.
            state.copied = 0;
        }
        state.frames = frames;
        let pass = if state.job.is_some() { Pass::Running } else { Pass::Ended };
        let is_begun = match policy::decide(Case { frames, copied: state.copied, threshold, pass })
        {
            Decision::Leave => true,
            Decision::Begin => {
                // It waits for the mutex of a shared cache, whose holder may wait for the state.
                drop(state);
                let is_there = is_there();
                state = self.state.lock();
                is_there && self.begin(&mut state)
            }
            Decision::Help => false,
            Decision::WaitAndHelp => {
                drop(state);
                self.wait();
                state = self.state.lock();
                false
            }
        };
        if is_begun {
            return Maker::Background;
        }
        state.copied = 0;
        drop(state);
        count(&COUNTERS.commit_checkpoints);
        Maker::Caller
    }

    /// Begins a pass, unless another commit has begun one meanwhile. `false`: the connection cannot
    /// be opened, or no thread can be started.
    fn begin(&self, state: &mut State) -> bool {
        if state.job.is_some() {
            return true;
        }
        let own = match state.own.take().filter(|own| !own.has_moved()) {
            Some(own) => own,
            None => match Own::open(&self.path, NAME) {
                Ok(own) => own,
                Err(_) => return false,
            },
        };
        state.process = std::process::id();
        if IS_BY_HAND.load(Ordering::Relaxed) {
            state.job = Some(Job::Begun(own));
            return true;
        }
        let thread = std::thread::Builder::new().name("onejournal-ckpt".into());
        let begun = thread.spawn(crate::faults::carry(move || pass(own)));
        state.job = begun.ok().map(Job::Running);
        state.job.is_some()
    }

    /// Whether a pass failed with an I/O error. The program then writes no more until all its
    /// connections have closed.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Waits for the pass under way.
    pub fn wait(&self) {
        let job = self.state.lock().take_job();
        let ended = match job {
            Some(Job::Running(thread)) => thread.join().ok(),
            Some(Job::Begun(own)) => Some(pass(own)),
            None => None,
        };
        if let Some(ended) = ended {
            self.settle(&mut self.state.lock(), ended);
        }
    }

    /// Waits for the pass under way, and closes the connection. The next pass opens it again.
    pub fn rest(&self) {
        let (job, own) = {
            let mut state = self.state.lock();
            (state.take_job(), state.own.take())
        };
        drop(own);
        match job {
            Some(Job::Running(thread)) => {
                if let Ok(ended) = thread.join() {
                    let mut state = self.state.lock();
                    self.settle(&mut state, ended);
                    let own = state.own.take();
                    drop(state);
                    drop(own);
                }
            }
            Some(Job::Begun(own)) => drop(own),
            None => {}
        }
    }

    /// A connection of the program closes its file. The own connection is closed before.
    pub fn leave(&self) {
        self.rest();
        if self.links.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.is_broken.store(false, Ordering::Release);
        }
    }

    /// Takes the result of a pass that has ended.
    fn collect(&self, state: &mut State) {
        state.forget_parents();
        if matches!(&state.job, Some(Job::Running(thread)) if thread.is_finished())
            && let Some(Job::Running(thread)) = state.job.take()
            && let Ok(ended) = thread.join()
        {
            self.settle(state, ended);
        }
    }

    /// Remembers how a pass ended.
    fn settle(&self, state: &mut State, (own, copied): Ended) {
        state.own = Some(own);
        match copied {
            Ok(copied) => state.copied = copied.frames,
            // Nothing counts as copied. A later commit makes the checkpoint.
            Err(e) if e.code(SQLITE_IOERR) & 0xff != SQLITE_IOERR => state.copied = 0,
            Err(e) => {
                self.is_broken.store(true, Ordering::Release);
                state.copied = 0;
                let path = self.path.display();
                let why = "nothing is lost, and nothing can be written until the program has \
                           closed the database";
                tell(
                    e.code(SQLITE_IOERR),
                    &format!("{path}: its checkpoint in the background: {e}; {why}"),
                );
            }
        }
    }
}

impl Hook for Background {
    fn is_checkpoint_due(&self, frames: u32, threshold: u32, is_there: &dyn Fn() -> bool) -> bool {
        self.committed(frames, threshold, is_there) == Maker::Caller
    }
}

impl State {
    /// Forgets what belongs to the parent of a forked process: there is no such thread here, and
    /// the connection has the parent's locks.
    fn forget_parents(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(std::mem::take(self));
        }
    }

    fn take_job(&mut self) -> Option<Job> {
        self.forget_parents();
        self.job.take()
    }
}
