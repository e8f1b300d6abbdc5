//! Lets the other threads of a test run until none of them can go on.
//!
//! A test that counts turns or milliseconds instead depends on how busy the machine is: it gives up
//! too early on a slow one, and there each turn may take as long as the scheduler likes.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long other threads run between two looks.
const TURN: Duration = Duration::from_micros(200);

/// Threads that are in [`run_until`]. Another test of the process may be, with the same short name.
static CALLERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// This thread among the callers, for as long as it lives.
struct Caller(String);

impl Caller {
    fn new() -> Caller {
        let own = rustix::thread::gettid().as_raw_nonzero().to_string();
        CALLERS.lock().unwrap_or_else(PoisonError::into_inner).insert(own.clone());
        Caller(own)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        CALLERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Returns when `condition` holds, or when all other threads of this test wait: for the caller, or
/// for each other. The threads of a test have its name: it started them, and gave them no other.
pub fn run_until(condition: impl Fn() -> bool) {
    let _caller = Caller::new();
    while !condition() {
        let before = waiting();
        std::thread::sleep(TURN);
        if before.is_some() && before == waiting() {
            return;
        }
    }
}

/// Returns when all other threads of this test wait.
pub fn wait() {
    run_until(|| false);
}

/// The other threads of this test, and how often each one has begun to run, if all of them wait.
fn waiting() -> Option<Vec<(String, u64)>> {
    let callers = CALLERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let name = fs::read("/proc/thread-self/comm").expect("a name");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task").expect("threads") {
        let thread = entry.expect("a thread").file_name().into_string().expect("a number");
        let read = |file: &str| fs::read(format!("/proc/self/task/{thread}/{file}"));
        // The thread may have ended meanwhile.
        let (Ok(comm), Ok(status)) = (read("comm"), read("status")) else { continue };
        if comm != name || callers.contains(&thread) {
            continue;
        }
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_waiting = field("State:").is_some_and(|state| state.trim().starts_with('S'));
        if !is_waiting {
            return None;
        }
        let count = |name| field(name).and_then(|count| count.trim().parse::<u64>().ok());
        let voluntary = count("voluntary_ctxt_switches:").unwrap_or(0);
        found.push((thread, voluntary + count("nonvoluntary_ctxt_switches:").unwrap_or(0)));
    }
    found.sort();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    #[test]
    fn it_ends_when_the_others_wait_and_not_before() {
        let (sender, receiver) = mpsc::channel::<()>();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                for _ in 0..200 {
                    std::thread::yield_now();
                    let _ = fs::read("/proc/self/status");
                    done.fetch_add(1, Ordering::SeqCst);
                }
                receiver.recv().expect("a word");
            });
            wait();
            assert_eq!(done.load(Ordering::SeqCst), 200);
            sender.send(()).expect("it waits");
        });
        wait();
    }

    #[test]
    fn it_ends_when_the_condition_holds() {
        let (barrier, is_over) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                while !is_over.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            barrier.wait();
            let turns = AtomicUsize::new(0);
            run_until(|| turns.fetch_add(1, Ordering::SeqCst) == 3);
            is_over.store(true, Ordering::SeqCst);
        });
    }
}
