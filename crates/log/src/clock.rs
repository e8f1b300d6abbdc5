//! Universal sequence numbers (USN) from a clock that all processes of the machine share.
//!
//! `CLOCK_MONOTONIC` is one clock for all processors: a value that is read after an acknowledgement
//! is not smaller than one that was read before it. The clock starts again with the machine, so the
//! service adds a base. The base is the limit that the previous incarnation stored durably and
//! never reached. The date of the machine is not used, and the clock stands still while the machine
//! is suspended.
//!
//! In a time namespace the kernel adds an offset to the clock. It is subtracted here. If it cannot
//! be read (a container without `/proc`), the clock shows another time than that of other
//! processes. The USNs of each stream ascend then, too, and do not reach the limit. Only the order
//! of records of two streams is lost.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::faults::{self, Fault};

const SECOND_NS: i64 = 1_000_000_000;

/// What the time namespace of this process adds to the clock.
static OFFSET_NS: AtomicI64 = AtomicI64::new(0);

/// The namespace that the offset was read in; 0: none. A forked process may be in another one.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// Reads the offset of the time namespace. Every process calls this before it uses a log.
pub(crate) fn read_offset() {
    let namespace = namespace("time").unwrap_or(0);
    if NAMESPACE.load(Ordering::Acquire) != namespace {
        OFFSET_NS.store(offset_ns(namespace).unwrap_or(0), Ordering::Relaxed);
        NAMESPACE.store(namespace, Ordering::Release);
    }
}

/// The inode of a namespace of this process. `None`: the kernel has no such namespaces.
fn namespace(name: &str) -> Option<u64> {
    rustix::fs::stat(format!("/proc/self/ns/{name}")).ok().map(|found| found.st_ino)
}

/// The offset of the namespace of this process. `None`: it is not known.
fn offset_ns(own: u64) -> Option<i64> {
    // The file has the offsets of the namespace that children will be in.
    let is_own = namespace("time_for_children")? == own;
    let text = fs::read_to_string("/proc/self/timens_offsets").ok()?;
    monotonic_offset_ns(&text).filter(|_| is_own)
}

fn monotonic_offset_ns(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic "))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(SECOND_NS)?.checked_add(ns)
}

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let own_ns = now.tv_sec * SECOND_NS + now.tv_nsec;
    let ns = own_ns.saturating_sub(OFFSET_NS.load(Ordering::Relaxed));
    let ns = u64::try_from(ns).unwrap_or(0);
    match () {
        () if faults::is(Fault::ClockAhead) => ns + 365 * 24 * 3600 * SECOND_NS.unsigned_abs(),
        () if faults::is(Fault::ClockBehind) => ns / 2,
        () => ns,
    }
}

/// The USN at the time `now_ns`, if `base` is the one at time 0 of the clock. The base may be
/// negative. A negative USN becomes 0: the process that made the base has a clock that shows more.
pub(crate) fn usn_at(base: u64, now_ns: u64) -> u64 {
    let usn = base.wrapping_add(now_ns);
    if i64::try_from(usn).is_ok() { usn } else { 0 }
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
    fn the_offset_of_a_time_namespace_is_read() {
        let text = |line| format!("{line}\nboottime          7         0\n");
        let offset_ns = |line| monotonic_offset_ns(&text(line));
        assert_eq!(offset_ns("monotonic           0         0"), Some(0));
        assert_eq!(offset_ns("monotonic     1000000 500000000"), Some(1_000_000_500_000_000));
        assert_eq!(offset_ns("monotonic          -2 500000000"), Some(-1_500_000_000));
        assert_eq!(offset_ns("monotonic  9223372036854775807 0"), None);
        assert_eq!(offset_ns("monotonic"), None);
        assert_eq!(monotonic_offset_ns(""), None);
    }

    #[test]
    fn a_usn_before_the_base_is_0() {
        assert_eq!(usn_at(100, 5), 105);
        // The service was made when the clock was at 100.
        let base = 0_u64.wrapping_sub(100);
        assert_eq!((usn_at(base, 99), usn_at(base, 100), usn_at(base, 103)), (0, 0, 3));
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
