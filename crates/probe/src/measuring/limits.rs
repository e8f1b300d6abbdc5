//! When a measurement ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The end of one part of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'a> {
    deadline: Instant,
    interrupted: &'a AtomicBool,
}

impl<'a> Limits<'a> {
    /// Ends in `time`, or as soon as `interrupted` is set.
    pub(crate) fn new(time: Duration, interrupted: &'a AtomicBool) -> Self {
        Limits { deadline: Instant::now() + time, interrupted }
    }

    /// Whether the time is over, or the user wants the measurement to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_interrupted() || Instant::now() >= self.deadline
    }

    /// Whether the user wants the measurement to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
