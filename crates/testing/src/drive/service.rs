//! Takes requests from the kernel, and sends answers when they are due: one thread, one clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use fuse::abi::WriteOut;
use fuse::{Answer, MountError, Polled, Taken};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::drive::emulator::Emulator;
use crate::drive::files::{Files, Outcome, Payload};

/// Priority among the real-time threads.
const FIFO_PRIORITY: &str = "10";

/// An answer that waits for its time. The first one compares as the greatest.
struct Due {
    done_ns: u64,
    /// Answers for the same time go in the order of their numbers, the older one first.
    number: u64,
    unique: u64,
    payload: Payload,
    recorded: Option<u64>,
}

impl Due {
    fn key(&self) -> Reverse<(u64, u64)> {
        Reverse((self.done_ns, self.number))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

struct Service {
    polled: Polled,
    emulator: Emulator,
    files: Files,
    due: BinaryHeap<Due>,
    due_count: u64,
    origin: Instant,
}

/// Lets this thread run before others, if that is allowed. Otherwise answers are late when the
/// machine is busy, and the counters show that.
pub fn prefer_this_thread() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let chrt = Command::new("chrt")
        .args(["--fifo", "--pid", FIFO_PRIORITY, &thread])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !chrt.is_ok_and(|status| status.success()) {
        eprintln!("emulated disk: no SCHED_FIFO here (chrt): answers may be late");
    }
}

/// Serves until the file system is unmounted. Returns the emulator.
pub fn run(polled: Polled, emulator: Emulator) -> Result<Emulator, MountError> {
    let mut service = Service {
        polled,
        emulator,
        files: Files::default(),
        due: BinaryHeap::new(),
        due_count: 0,
        origin: Instant::now(),
    };
    while service.step()? {}
    Ok(service.emulator)
}

impl Service {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Sends what is due, and takes one request or waits; `false` at the end.
    fn step(&mut self) -> Result<bool, MountError> {
        while self.is_due() {
            let first = self.due.pop().expect("it was there");
            self.emulator.counters.count_late(self.now_ns() - first.done_ns);
            self.send(&first)?;
        }
        let (unique, outcome) = match self.polled.take()? {
            Taken::Unmounted => return Ok(false),
            Taken::Nothing => return self.wait().map(|()| true),
            Taken::Request(request) => {
                let now_ns = self.origin.elapsed().as_nanos() as u64;
                let outcome = self.files.serve(&mut self.emulator, now_ns, &request);
                (request.header.unique, outcome)
            }
        };
        match outcome {
            Outcome::Now(answer, payload) => self.polled.answer(unique, answer, &payload)?,
            Outcome::At { done_ns, payload, recorded } => {
                self.due_count += 1;
                let number = self.due_count;
                self.delay(Due { done_ns, number, unique, payload, recorded })?;
            }
        }
        Ok(true)
    }

    /// Whether an answer is to be sent.
    fn is_due(&self) -> bool {
        let is_late = |first: &Due| first.done_ns <= self.now_ns();
        !self.emulator.is_held() && self.due.peek().is_some_and(is_late)
    }

    fn delay(&mut self, due: Due) -> Result<(), MountError> {
        if due.done_ns <= self.now_ns() && !self.emulator.is_held() {
            return self.send(&due);
        }
        self.due.push(due);
        let counters = &mut self.emulator.counters;
        counters.requests_max = counters.requests_max.max(self.due.len());
        Ok(())
    }

    fn send(&self, due: &Due) -> Result<(), MountError> {
        if let Some(recorded) = due.recorded {
            self.emulator.ended(recorded);
        }
        let written;
        let bytes = match &due.payload {
            Payload::Read(span) => self.emulator.bytes(span.clone()),
            Payload::Written(size) => {
                written = WriteOut { size: *size, padding: 0 };
                written.as_bytes()
            }
            Payload::Flushed => &[],
        };
        self.polled.answer(due.unique, Answer::Done, bytes)
    }

    /// Sleeps until there is a request, or the clock has to be polled.
    fn wait(&self) -> Result<(), MountError> {
        let first = self.due.peek().filter(|_| !self.emulator.is_held());
        let timeout = match first {
            None => None,
            Some(first) => {
                let left_ns = first.done_ns.saturating_sub(self.now_ns());
                let sleep_ns = left_ns.saturating_sub(self.emulator.spin_ns());
                if sleep_ns == 0 {
                    std::hint::spin_loop();
                    return Ok(());
                }
                Some(Timespec {
                    tv_sec: (sleep_ns / 1_000_000_000) as i64,
                    tv_nsec: (sleep_ns % 1_000_000_000) as i64,
                })
            }
        };
        let mut fds = [PollFd::from_borrowed_fd(self.polled.as_fd(), PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(MountError::System { what: "poll", errno }),
        }
    }
}
