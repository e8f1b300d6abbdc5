//! A wakeup of the flush worker between two of its ticks.

use std::time::Duration;

use device::sync::{Condvar, Mutex};

/// At most one pending wakeup for one waiter.
#[derive(Default)]
pub(crate) struct Wakeup {
    is_pending: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn wake(&self) {
        *self.is_pending.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a wakeup, or for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut is_pending = self.is_pending.lock();
        if !*is_pending {
            is_pending = self.changed.wait_for(is_pending, limit).0;
        }
        *is_pending = false;
    }
}
