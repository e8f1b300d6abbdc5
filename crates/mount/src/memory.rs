//! How much memory a mount takes, and how a limit is divided.
//!
//! 1. [`FIXED_BYTES`] are for the program itself.
//! 2. At most a third of the rest is for the threads that serve requests. If that is too little for
//!    all of them, requests come through `/dev/fuse` (with `io_uring=on`: fewer threads). If
//!    that does not help, buffers are in ordinary pages, and there are fewer threads.
//! 3. The journal has what is left ([`MemoryLimits`]).
//!
//! A file that the kernel knows takes about 5 bytes (`ext4::Volume::pin`), of which the program's
//! part has room for two million. The kernel has 1 KiB of its own for each, and both go when it
//! needs the memory.

use ext4::MemoryLimits;
use fuse::{IoUring, MAX_STAND_IN_COUNT, MountOptions};

use crate::session_options::SessionOptions;

/// The program, its libraries and stacks, what the allocator has not given back, and the files that
/// the kernel knows.
const FIXED_BYTES: u64 = 16 << 20;

/// The blocks that a write of 1 MiB has in memory before they are part of a transaction.
const WRITE_BYTES: u64 = 256 * 6144;

/// Two buffers of 1 MiB.
const THREAD_BYTES: u64 = (2 << 20) + WRITE_BYTES;

/// Two buffers of a huge page.
const HUGE_THREAD_BYTES: u64 = (4 << 20) + WRITE_BYTES;

/// A ring has a buffer of a huge page. Then there are what was sent, and a copy of a large write.
const RING_THREAD_BYTES: u64 = (6 << 20) + WRITE_BYTES;

/// The fewest threads for each CPU with io_uring.
const RING_THREADS_PER_CPU: usize = 2;

/// Transactions that open atomic writes keep in memory, all together.
const ATOMIC_SHARES: u64 = 4;

/// What a mount is given, and takes at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// All of it, in bytes.
    pub bytes: u64,
    /// Threads that serve requests.
    pub thread_count: usize,
    /// Threads beside them while others wait for the kernel.
    pub stand_in_count: usize,
    /// How requests come from the kernel.
    pub io_uring: IoUring,
    /// Whether large buffers are in huge pages. If not, the process must do without them.
    pub huge_pages: bool,
    /// The journal's part.
    pub journal: MemoryLimits,
}

impl Memory {
    /// The least that a mount can be given, in bytes.
    pub const MIN_BYTES: u64 = 48 << 20;

    /// Divides `limit` bytes, which are [`Memory::MIN_BYTES`] at least, for a mount with these
    /// options on a machine with so many CPUs. Without a limit, or with more than that takes,
    /// everything is as large as is useful.
    pub fn divide(limit: Option<u64>, options: &SessionOptions, cpu_count: usize) -> Memory {
        let extra_shares = if options.atomic_writes { ATOMIC_SHARES } else { 0 };
        let asked = options.of_connection();
        let most = Memory::unlimited(&asked, extra_shares, cpu_count);
        let Some(bytes) = limit.filter(|bytes| *bytes < most.bytes) else { return most };
        let rest = bytes.saturating_sub(FIXED_BYTES);
        let requests = Requests::within(rest / 3, &asked, cpu_count);
        let journal = MemoryLimits::within(rest.saturating_sub(requests.bytes()), extra_shares);
        requests.with(bytes, journal)
    }

    fn unlimited(asked: &MountOptions, extra_shares: u64, cpu_count: usize) -> Memory {
        let requests = Requests::most(asked, asked.io_uring, cpu_count);
        let journal = MemoryLimits::default();
        let bytes = FIXED_BYTES + requests.bytes() + journal.cost_bytes(extra_shares);
        requests.with(bytes, journal)
    }
}

/// The threads of a mount.
#[derive(Debug, Clone, Copy)]
struct Requests {
    thread_count: usize,
    stand_in_count: usize,
    io_uring: IoUring,
    thread_bytes: u64,
}

impl Requests {
    /// All that is asked for.
    fn most(asked: &MountOptions, io_uring: IoUring, cpu_count: usize) -> Requests {
        let (fewest, thread_bytes) = match io_uring {
            IoUring::Off => (asked.min_thread_count, HUGE_THREAD_BYTES),
            IoUring::Auto | IoUring::On => (fewest_of_rings(asked, cpu_count), RING_THREAD_BYTES),
        };
        let thread_count = asked.thread_count.max(fewest);
        Requests { thread_count, stand_in_count: MAX_STAND_IN_COUNT, io_uring, thread_bytes }
    }

    /// As much of it as `bytes` are enough for; two threads at least.
    fn within(bytes: u64, asked: &MountOptions, cpu_count: usize) -> Requests {
        for io_uring in [asked.io_uring, IoUring::Off] {
            let most = Requests::most(asked, io_uring, cpu_count);
            let fewest = match io_uring {
                IoUring::On => fewest_of_rings(asked, cpu_count),
                IoUring::Off | IoUring::Auto => most.thread_count,
            };
            let threads = count(bytes, most.thread_bytes);
            if threads > fewest {
                let thread_count = most.thread_count.min(threads - 1);
                let stand_in_count = (threads - thread_count).min(MAX_STAND_IN_COUNT);
                return Requests { thread_count, stand_in_count, ..most };
            }
        }
        let threads = count(bytes, THREAD_BYTES).max(2);
        let stand_in_count = (threads / 3).clamp(1, MAX_STAND_IN_COUNT);
        let thread_count = asked.thread_count.min(threads - stand_in_count);
        Requests {
            thread_count: thread_count.max(asked.min_thread_count),
            stand_in_count,
            io_uring: IoUring::Off,
            thread_bytes: THREAD_BYTES,
        }
    }

    fn bytes(&self) -> u64 {
        (self.thread_count + self.stand_in_count) as u64 * self.thread_bytes
    }

    fn with(self, bytes: u64, journal: MemoryLimits) -> Memory {
        Memory {
            bytes,
            thread_count: self.thread_count,
            stand_in_count: self.stand_in_count,
            io_uring: self.io_uring,
            huge_pages: self.thread_bytes > THREAD_BYTES,
            journal,
        }
    }
}

/// The fewest threads of all queues with io_uring.
fn fewest_of_rings(asked: &MountOptions, cpu_count: usize) -> usize {
    RING_THREADS_PER_CPU.max(asked.min_thread_count) * cpu_count
}

fn count(bytes: u64, of_bytes: u64) -> usize {
    usize::try_from(bytes / of_bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_options::Order;

    fn all_options() -> Vec<SessionOptions> {
        let mut all = Vec::new();
        for (order, atomic_writes) in
            [(Order::History, false), (Order::History, true), (Order::Sync, false)]
        {
            for (thread_count, io_uring) in
                [(1, IoUring::Off), (32, IoUring::Off), (32, IoUring::Auto), (256, IoUring::Auto)]
            {
                let mount = MountOptions { thread_count, io_uring, ..MountOptions::default() };
                let options = SessionOptions { mount, order, atomic_writes, ..Default::default() };
                all.push(options);
            }
        }
        all
    }

    fn cost_bytes(memory: &Memory, options: &SessionOptions) -> u64 {
        let thread_bytes = match (memory.huge_pages, memory.io_uring) {
            (false, _) => THREAD_BYTES,
            (true, IoUring::Off) => HUGE_THREAD_BYTES,
            (true, _) => RING_THREAD_BYTES,
        };
        let threads = (memory.thread_count + memory.stand_in_count) as u64;
        let extra_shares = if options.atomic_writes { ATOMIC_SHARES } else { 0 };
        FIXED_BYTES + threads * thread_bytes + memory.journal.cost_bytes(extra_shares)
    }

    #[test]
    fn every_part_fits_into_the_whole_from_the_least_on() {
        for options in all_options() {
            for bytes in (Memory::MIN_BYTES..4 << 30).step_by(7_777_777) {
                let memory = Memory::divide(Some(bytes), &options, 4);
                let cost_bytes = cost_bytes(&memory, &options);
                assert!(cost_bytes <= bytes, "{bytes}: {cost_bytes} for {memory:?}, {options:?}");
                assert!(memory.bytes <= bytes, "{bytes}: {memory:?}");
                assert!(memory.thread_count >= 1 && memory.stand_in_count >= 1, "{memory:?}");
                assert!(memory.thread_count <= options.mount.thread_count.max(4 * 4), "{memory:?}");
            }
            let memory = Memory::divide(None, &options, 4);
            assert_eq!(memory.bytes, cost_bytes(&memory, &options));
        }
    }

    #[test]
    fn little_memory_has_few_threads_and_much_has_all() {
        let options = SessionOptions::default();
        let divide = |mib: u64| Memory::divide(Some(mib << 20), &options, 2);
        let shape = |memory: Memory| {
            (memory.thread_count, memory.stand_in_count, memory.io_uring, memory.huge_pages)
        };
        assert_eq!(shape(divide(48)), (2, 1, IoUring::Off, false));
        assert_eq!(shape(divide(128)), (7, 3, IoUring::Off, false));
        assert_eq!(shape(divide(600)), (32, 3, IoUring::Off, true));
        assert_eq!(shape(divide(1024)).2, IoUring::Auto);
        let unlimited = Memory::divide(None, &options, 2);
        assert_eq!(shape(unlimited.clone()), (32, 64, IoUring::Auto, true));
        assert_eq!(unlimited.journal, MemoryLimits::default());
        assert_eq!(divide(8 << 10), unlimited);
        let mount = MountOptions { io_uring: IoUring::On, ..MountOptions::default() };
        let options = SessionOptions { mount, ..SessionOptions::default() };
        let divide_on = |mib: u64| Memory::divide(Some(mib << 20), &options, 2);
        assert_eq!(shape(divide_on(256)), (9, 1, IoUring::On, true));
        assert_eq!(shape(divide_on(64)).2, IoUring::Off);
    }
}
