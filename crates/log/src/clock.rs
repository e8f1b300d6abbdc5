//! Universal sequence numbers from a clock that all processes of the machine share.
//!
//! `CLOCK_MONOTONIC` is one clock for all processors: what is read after something was acknowledged
//! is not smaller than what was read before. It starts anew with the machine, so the service adds a
//! base; the base is the limit that the service before has kept durably and never reached.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock begins at 0");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("less than a second")
}
