//! A process that forks while its threads wait at the locks of [`onejournal_device::sync`].

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use onejournal_device::sync::{Condvar, Mutex};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: c_int) -> !;
}

/// Enough threads that they would share entries in a table of all waiting threads.
const WAITING: usize = 64;

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            is_open = self.changed.wait(is_open);
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

/// Threads that wait, and end when all gates are open.
fn waiting_threads() -> (Vec<Arc<Gate>>, Vec<std::thread::JoinHandle<()>>) {
    let gates: Vec<_> = (0..WAITING).map(|_| Arc::<Gate>::default()).collect();
    let pass = |gate: &Arc<Gate>| {
        let gate = gate.clone();
        std::thread::spawn(move || gate.pass())
    };
    let threads = gates.iter().map(pass).collect();
    std::thread::sleep(Duration::from_millis(50));
    (gates, threads)
}

fn open_all(gates: &[Arc<Gate>], threads: Vec<std::thread::JoinHandle<()>>) {
    gates.iter().for_each(|gate| gate.open());
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Forks a process that waits at its own locks, while the threads of this process wait. Returns the
/// status of the child.
fn fork_a_waiting_child() -> c_int {
    // SAFETY: the child never returns from here, and uses nothing of the threads that it does not
    // have.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: a call without pointers. The signal ends a child that hangs.
        unsafe { alarm(20) };
        for _ in 0..3 {
            let (gates, threads) = waiting_threads();
            open_all(&gates, threads);
        }
        // SAFETY: it ends the process.
        unsafe { _exit(0) }
    }
    assert!(child > 0, "fork");
    let mut status = -1;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    status
}

/// With a table of waiting threads that all locks share (`parking_lot`), one child in three failed.
#[test]
fn regression_a_forked_process_waits_at_its_own_locks() {
    for _ in 0..8 {
        let (gates, threads) = waiting_threads();
        let status = fork_a_waiting_child();
        open_all(&gates, threads);
        assert_eq!(status, 0, "the child failed");
    }
}
