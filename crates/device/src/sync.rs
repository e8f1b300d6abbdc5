//! The locks of the whole workspace: those of the standard library, without poisoning.
//!
//! Each lock is a word in its own memory and a futex on it. The locks share no table of waiting
//! threads. That matters after a `fork`: a program that has loaded the SQLite extension or the log
//! library may fork while threads of the library wait. These threads do not exist in the child. A
//! shared table would still have their entries, and glibc gives the memory of these entries to new
//! threads of the child. (`parking_lot` has such a table, and a child of the test
//! `forked_processes` crashed in it.) A lock that the child makes itself depends on nothing that it
//! inherited.
//!
//! If a thread panics while it holds a lock, the lock is not poisoned. What the lock protects has
//! its own latch (an aborted journal, a failed log).

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex that is not poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An open mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if a thread holds the lock.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value; the exclusive borrow shows that no thread holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable. What threads wait for is changed under the mutex that they wait with.
///
/// The standard library makes a system call for each notification. This one counts the waiting
/// threads, and makes none if there are none: a commit notifies twice, and most have no waiter. A
/// thread counts itself while it holds the mutex. So a notifier that does not see it changed the
/// state before the thread took the mutex, and the thread sees the change.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
    waiting_count: AtomicU32,
}

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Self {
        Self { inner: std::sync::Condvar::new(), waiting_count: AtomicU32::new(0) }
    }

    /// Releases the lock, waits for a notification, and takes the lock again. It may return without
    /// a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting_count.fetch_add(1, SeqCst);
        let guard = self.inner.wait(guard).unwrap_or_else(PoisonError::into_inner);
        self.waiting_count.fetch_sub(1, SeqCst);
        guard
    }

    /// As [`wait`](Self::wait), for at most `limit`; the second value says that the time was over.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.waiting_count.fetch_add(1, SeqCst);
        let waited = self.inner.wait_timeout(guard, limit);
        self.waiting_count.fetch_sub(1, SeqCst);
        let (guard, ended) = waited.unwrap_or_else(PoisonError::into_inner);
        (guard, ended.timed_out())
    }

    /// As [`wait_for`](Self::wait_for), until `deadline`.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if self.waiting_count.load(SeqCst) > 0 {
            self.inner.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if self.waiting_count.load(SeqCst) > 0 {
            self.inner.notify_all();
        }
    }
}

/// A readers-writer lock that is not poisoned. A waiting writer keeps new readers out, so a thread
/// must not take it for reading twice.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock or waits for it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if a writer holds the lock.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until no thread holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if a thread holds the lock.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
