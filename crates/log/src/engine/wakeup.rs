//! Wakes the flush worker before its time.

use std::time::Duration;

use device::sync::{Condvar, Mutex};

/// Wakes the flush worker before its time.
#[derive(Default)]
pub(crate) struct Kick {
    is_kicked: Mutex<bool>,
    changed: Condvar,
}

impl Kick {
    pub(crate) fn kick(&self) {
        *self.is_kicked.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a kick, `limit` at most.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut is_kicked = self.is_kicked.lock();
        if !*is_kicked {
            is_kicked = self.changed.wait_for(is_kicked, limit).0;
        }
        *is_kicked = false;
    }
}
