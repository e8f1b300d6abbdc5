//! Crash points: moments at which a simulated process may crash, such as each access to a shared
//! word or to a medium.
//!
//! Several simulated processes take turns in one thread ([`run_process`]). The test names one of
//! them and the crash point at which it crashes ([`crash_after`]). A crash is a panic, and no code
//! in between may catch it. Shared memory and media stay as they are. Destructors that run during
//! the panic must not touch either, because they would not run in a killed process.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A simulated process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(pub usize);

/// The payload of a crash's panic: the process has crashed.
#[derive(Debug)]
pub struct Crash;

thread_local! {
    /// The process whose code this thread runs.
    static RUNNING: Cell<Option<ProcessId>> = const { Cell::new(None) };
    /// The process that will crash, and the number of crash points that it passes before that.
    static CRASHING: Cell<Option<(ProcessId, u64)>> = const { Cell::new(None) };
}

/// A moment at which the running process may crash.
pub fn crash_point() {
    if crashes_here() {
        crash();
    }
}

/// Like [`crash_point`], but returns whether the process crashes now, so that the caller can leave
/// something half done. The caller then calls [`crash`].
pub fn crashes_here() -> bool {
    let Some((process, left)) = CRASHING.get() else { return false };
    if RUNNING.get() != Some(process) || std::thread::panicking() {
        return false;
    }
    CRASHING.set((left > 0).then(|| (process, left - 1)));
    left == 0
}

/// Ends the running process.
pub fn crash() -> ! {
    resume_unwind(Box::new(Crash))
}

/// Makes a process crash after it has passed this many crash points. `None`: no process crashes.
pub fn crash_after(crashing: Option<(ProcessId, u64)>) {
    CRASHING.set(crashing);
}

/// Runs `f` as code of `process`. An error means that the process has crashed.
pub fn run_process<T>(process: ProcessId, f: impl FnOnce() -> T) -> Result<T, Crash> {
    let before = RUNNING.replace(Some(process));
    let done = catch_unwind(AssertUnwindSafe(f));
    RUNNING.set(before);
    done.map_err(|payload| match payload.downcast::<Crash>() {
        Ok(_) => Crash,
        Err(other) => resume_unwind(other),
    })
}
