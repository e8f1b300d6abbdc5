//! Universal sequence numbers (USN) from a clock that all processes of the machine share.
//!
//! `CLOCK_MONOTONIC` is one clock for all processors: a value that is read after an acknowledgement
//! is not smaller than one that was read before it. The clock starts again with the machine, so the
//! service adds a base. The base is the limit that the previous incarnation stored durably and
//! never reached.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock begins at 0");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("less than a second")
}

/// Nanoseconds of the same clock, more than any process of the machine has read before an append
/// that has returned.
///
/// An append takes longer than reading the clock twice. So it is enough to read it once, unless the
/// clock of this machine ticks so seldom that two readings one after the other can be equal (some
/// virtual machines: every 100 ns). Then this waits for the next tick.
pub(crate) fn later_ns() -> u64 {
    static TICKS_SELDOM: OnceLock<bool> = OnceLock::new();
    match TICKS_SELDOM.get_or_init(|| ticks_seldom(monotonic_ns)) {
        false => monotonic_ns(),
        true => after_a_tick(monotonic_ns),
    }
}

fn ticks_seldom(read: impl Fn() -> u64) -> bool {
    (0..1000).any(|_| read() == read())
}

fn after_a_tick(read: impl Fn() -> u64) -> u64 {
    let begun = read();
    loop {
        match read() {
            now if now > begun => return now,
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that is read every 20 ns, and ticks every `tick_ns`.
    fn clock(tick_ns: u64) -> impl Fn() -> u64 {
        let now = Cell::new(0);
        move || now.replace(now.get() + 20) / tick_ns * tick_ns
    }

    #[test]
    fn a_clock_that_ticks_seldom_is_waited_for() {
        assert!(!ticks_seldom(clock(1)) && !ticks_seldom(clock(15)));
        for tick_ns in [100, 280, 4_000_000] {
            assert!(ticks_seldom(clock(tick_ns)));
            let read = clock(tick_ns);
            let mut last = 0;
            for _ in 0..10 {
                let later = after_a_tick(&read);
                assert!(later > last && later > read() - tick_ns, "{tick_ns}");
                last = later;
            }
        }
    }
}
