//! The times that a volume gives to its inodes.
//!
//! To ask the clock costs two system calls, a tenth of a small write. So a write takes the time of
//! the change before it if no program can tell the two apart: the coarse clock made no step, and no
//! attributes were given out in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;

use crate::clock::Clock;
use crate::types::Timestamp;

/// What the clock said last.
#[derive(Default)]
struct Last {
    time: Timestamp,
    /// The coarse clock at that moment.
    step: Timestamp,
}

/// The clock of a mounted volume.
pub(crate) struct Times {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
    /// Whether attributes were given out since the clock was asked.
    is_seen: AtomicBool,
}

impl Times {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Times {
        Times { clock, last: Mutex::default(), is_seen: AtomicBool::new(true) }
    }

    /// The time of a change that happens now.
    pub(crate) fn now(&self) -> Timestamp {
        self.is_seen.store(false, Ordering::Release);
        let step = self.clock.about_now();
        let time = self.clock.now();
        *self.last.lock() = Last { time, step };
        time
    }

    /// [`Times::now`] for a change that gives out no attributes itself.
    pub(crate) fn now_of_write(&self) -> Timestamp {
        let last = self.last.lock();
        let is_same = !self.is_seen.load(Ordering::Acquire) && last.step == self.clock.about_now();
        let time = last.time;
        drop(last);
        if is_same { time } else { self.now() }
    }

    /// A few milliseconds before now, or less.
    pub(crate) fn about_now(&self) -> Timestamp {
        self.clock.about_now()
    }

    /// Attributes are given out.
    pub(crate) fn note_seen(&self) {
        if !self.is_seen.load(Ordering::Relaxed) {
            self.is_seen.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Each time is later than the one before; the coarse clock makes a step when it is told to.
    #[derive(Default)]
    struct TestClock {
        fine: AtomicU32,
        step: AtomicU32,
    }

    impl Clock for TestClock {
        fn now(&self) -> Timestamp {
            let nanoseconds = self.fine.fetch_add(1, Ordering::Relaxed);
            Timestamp { seconds: 0, nanoseconds }
        }

        fn about_now(&self) -> Timestamp {
            Timestamp { seconds: 0, nanoseconds: self.step.load(Ordering::Relaxed) }
        }
    }

    #[test]
    fn a_write_has_a_time_of_its_own_if_it_can_be_told_apart() {
        let clock = Arc::new(TestClock::default());
        let times = Times::new(clock.clone());
        let write = || times.now_of_write().nanoseconds;
        assert_eq!([write(), write(), write()], [0, 0, 0]);
        times.note_seen();
        assert_eq!([write(), write()], [1, 1], "a program has seen the time before");
        clock.step.store(1, Ordering::Relaxed);
        assert_eq!([write(), write()], [2, 2], "the coarse clock made a step");
        assert_eq!(times.now().nanoseconds, 3);
        assert_eq!(write(), 3, "not before the change before it");
    }
}
