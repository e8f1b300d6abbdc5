//! Universal sequence numbers (USN) from a clock that all processes of the machine share.
//!
//! `CLOCK_MONOTONIC` is one clock for all processors: a value that is read after an acknowledgement
//! is not smaller than one that was read before it. The clock starts again with the machine, so the
//! service adds a base. The base is the limit that the previous incarnation stored durably and
//! never reached.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock begins at 0");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("less than a second")
}
