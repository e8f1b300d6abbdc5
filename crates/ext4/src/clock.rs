//! The clock that gives inodes their times.
//!
//! Programs such as `make` compare the times of files, also of different file systems. With a
//! write-back cache the kernel gives times to the same files as the volume. So the volume has the
//! kernel's clock for files. A simulation has its own.

use std::time::Duration;

use device::FileClock;

use crate::types::Timestamp;

/// Where the times of inodes come from.
pub trait Clock: Send + Sync {
    /// The time of a change that happens now.
    fn now(&self) -> Timestamp;

    /// About the same, and cheaper.
    fn about_now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }

    fn about_now(&self) -> Timestamp {
        self()
    }
}

/// The clock of this machine.
#[derive(Default)]
pub(crate) struct SystemClock(FileClock);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        timestamp(self.0.now())
    }

    fn about_now(&self) -> Timestamp {
        timestamp(self.0.about_now())
    }
}

fn timestamp(since_1970: Duration) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since_1970.subsec_nanos(),
    }
}
