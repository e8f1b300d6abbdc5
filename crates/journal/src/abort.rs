//! The abort latch. Once it is set, the journal accepts no change and acknowledges no sync.
//!
//! Threads that wait for something check the latch when they wake. So the latch knows who may have
//! waiting threads ([`Wake`]), and wakes them after it is set. A waiting thread checks the latch
//! while it holds the lock with which it then waits; `wake_all` takes that lock, so no wake-up is
//! missed.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use crate::error::{JournalError, Result};

/// A part of the engine with waiting threads that must learn of an abort.
pub(crate) trait Wake: Send + Sync {
    /// Wakes all waiting threads. Takes the lock that they wait with.
    fn wake_all(&self);
}

/// Whether the journal is aborted, and why.
#[derive(Default)]
pub(crate) struct AbortLatch {
    is_latched: AtomicBool,
    reason: OnceLock<String>,
    sleepers: OnceLock<Vec<Weak<dyn Wake>>>,
}

impl AbortLatch {
    /// Names the parts whose waiting threads an abort wakes. Called once.
    pub(crate) fn set_sleepers(&self, sleepers: Vec<Weak<dyn Wake>>) {
        assert!(self.sleepers.set(sleepers).is_ok(), "the engine is put together once");
    }

    /// Aborts the journal. The first reason is kept. The caller holds none of the locks of
    /// [`Wake::wake_all`].
    pub(crate) fn latch(&self, why: &dyn Display) {
        let _ = self.reason.set(why.to_string());
        self.is_latched.store(true, Ordering::SeqCst);
        tracing::error!("journal aborted: {why}");
        let sleepers = self.sleepers.get().into_iter().flatten();
        sleepers.filter_map(Weak::upgrade).for_each(|sleeper| sleeper.wake_all());
    }

    /// An error, [`JournalError::Aborted`], if the journal is aborted.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_latched.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(JournalError::Aborted(self.reason().unwrap_or_default()))
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.get().cloned()
    }

    /// Returns `work`. If it is an error, aborts the journal first.
    pub(crate) fn on_failure<T>(&self, work: Result<T>) -> Result<T> {
        work.inspect_err(|error| self.latch(error))
    }

    /// Begins work that other threads wait for; `end` tells them that it has ended.
    pub(crate) fn awaited<E: Fn()>(&self, end: E) -> Awaited<'_, E> {
        Awaited { abort: self, end }
    }
}

/// Work that other threads wait for. It ends when this value is dropped, also by a panic, which
/// aborts the journal.
pub(crate) struct Awaited<'a, E: Fn()> {
    abort: &'a AbortLatch,
    end: E,
}

impl<E: Fn()> Drop for Awaited<'_, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort.latch(&"one of its threads panicked, which is a bug");
        }
        (self.end)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Sleeper(AtomicUsize);

    impl Wake for Sleeper {
        fn wake_all(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_first_reason_counts_and_every_abort_wakes() {
        let (abort, sleeper) = (AbortLatch::default(), Arc::new(Sleeper::default()));
        let weak: Weak<dyn Wake> = Arc::downgrade(&(sleeper.clone() as Arc<dyn Wake>));
        abort.set_sleepers(vec![weak]);
        assert!(abort.check().is_ok());
        abort.latch(&"first");
        abort.latch(&"second");
        assert_eq!(sleeper.0.load(Ordering::SeqCst), 2);
        assert_eq!(abort.reason().as_deref(), Some("first"));
        assert!(matches!(abort.check(), Err(JournalError::Aborted(why)) if why == "first"));
    }

    #[test]
    fn work_that_panics_aborts_and_still_ends() {
        let (abort, ended) = (AbortLatch::default(), AtomicUsize::new(0));
        let end = || _ = ended.fetch_add(1, Ordering::SeqCst);
        drop(abort.awaited(end));
        assert!(abort.check().is_ok());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _work = abort.awaited(end);
            panic!("a bug, on purpose");
        }));
        assert!(panicked.is_err() && abort.check().is_err());
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }
}
