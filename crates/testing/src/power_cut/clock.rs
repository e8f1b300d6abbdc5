//! The time of simulated media: the number of events so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that simulated media share, so that their traces can be cut at the same moment. A clone
/// is the same clock.
#[derive(Debug, Clone, Default)]
pub struct SimClock(Arc<AtomicU64>);

impl SimClock {
    /// The time of the last event; 0 if there was none.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The time of the next event: later than all that were taken before, and never 0.
    pub(crate) fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
