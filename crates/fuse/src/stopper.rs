//! Ends the threads that take requests, while the file system stays mounted.
//!
//! A thread that waits for a request is interrupted by a signal. It may come just before the thread
//! begins to wait, so signals are sent again until all threads have ended.
//!
//! No thread ends while another one waits for the answer to a request: a thread that blocks
//! ([`crate::Reply::block_in_place`]), or the notifier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device::sync::{Condvar, Mutex};
use host::Interruptible;

/// The interval at which threads are interrupted until they have ended.
const INTERRUPT_EVERY: Duration = Duration::from_millis(1);

/// Ends [`crate::Connection::run`] from any thread, while the file system stays mounted. Programs
/// wait from then on until the connection is served again ([`crate::Connection::resume`]).
#[derive(Clone, Default)]
pub struct Stopper(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_asked: AtomicBool,
    /// Jobs of the notifier.
    job_count: AtomicUsize,
    threads: Mutex<Threads>,
    changed: Condvar,
}

/// The threads that take requests.
#[derive(Default)]
struct Threads {
    /// The threads that have begun, and whether each waits for a request.
    begun: Vec<(Interruptible, Arc<AtomicBool>)>,
    /// These, and the threads that are about to begin.
    count: usize,
}

/// A thread that takes requests, for as long as it does.
pub(crate) struct Taking<'a> {
    stopper: &'a Stopper,
    thread: Interruptible,
    is_waiting: Arc<AtomicBool>,
}

impl Stopper {
    /// Requests under way are finished. All others stay in the kernel.
    pub fn stop(&self) {
        let _threads = self.0.threads.lock();
        self.0.is_asked.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }

    /// Whether threads end that do not wait for others.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::SeqCst)
    }

    /// Whether the notifier waits for the answer to no request.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.job_count.load(Ordering::SeqCst) == 0
    }

    /// The notifier has a job more.
    pub(crate) fn begin_job(&self) {
        self.0.job_count.fetch_add(1, Ordering::SeqCst);
    }

    /// It has done a job.
    pub(crate) fn end_job(&self) {
        self.0.job_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a thread that is about to begin, if there are fewer than `most`.
    pub(crate) fn expect_thread(&self, most: usize) -> bool {
        let mut threads = self.0.threads.lock();
        let is_expected = threads.count < most;
        threads.count += usize::from(is_expected);
        is_expected
    }

    /// A thread that was expected did not begin.
    pub(crate) fn forget_thread(&self) {
        self.0.threads.lock().count -= 1;
        self.0.changed.notify_all();
    }

    /// The calling thread, which was expected, begins.
    pub(crate) fn begin(&self) -> Taking<'_> {
        let (thread, is_waiting) = (Interruptible::current(), Arc::default());
        self.0.threads.lock().begun.push((thread, Arc::clone(&is_waiting)));
        Taking { stopper: self, thread, is_waiting }
    }

    /// Returns when all threads have ended. From when they are to end, it interrupts them.
    pub(crate) fn wait_for_end(&self) {
        let mut threads = self.0.threads.lock();
        while threads.count > 0 {
            if self.is_asked() {
                let waits = |is_waiting: &AtomicBool| is_waiting.load(Ordering::SeqCst);
                let waiting = threads.begun.iter().filter(|(_, is_waiting)| waits(is_waiting));
                waiting.for_each(|(thread, _)| thread.interrupt());
                let next = Instant::now() + INTERRUPT_EVERY;
                threads = self.0.changed.wait_until(threads, next).0;
            } else {
                threads = self.0.changed.wait(threads);
            }
        }
    }
}

impl Taking<'_> {
    /// Runs `wait`, which an interruption ends.
    pub(crate) fn wait<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.is_waiting.store(true, Ordering::SeqCst);
        let found = wait();
        self.is_waiting.store(false, Ordering::SeqCst);
        found
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let mut threads = self.stopper.0.threads.lock();
        threads.begun.retain(|(thread, _)| *thread != self.thread);
        threads.count -= 1;
        self.stopper.0.changed.notify_all();
    }
}
