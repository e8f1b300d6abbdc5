//! Bringing a worker to the CPU of the client that it serves.
//!
//! Client and server take turns, so two CPUs gain them nothing, and waking an idle CPU costs far
//! more than the request: a round trip takes 5 µs on one CPU and about 60 on two (virtual machine,
//! two CPUs). Once on the same CPU they mostly stay together; what parts them is other load. So now
//! and then a worker looks where its client runs and moves there. It is not tied to the place.
//!
//! Where the scheduler parts them again at once (many idle CPUs that share a cache), looking only
//! costs: each time that moving turns out to have been in vain, the next look comes later.

use std::io::Read;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::abi::Opcode;
use crate::request::Request;

/// Requests between two looks: at first, and at most.
const INTERVAL_MIN: u32 = 32;
const INTERVAL_MAX: u32 = 1 << 16;
/// A request of more bytes is worth another CPU.
const SMALL_BYTES: u32 = 128 << 10;

/// What one worker knows of its distance to its clients.
pub(crate) struct Proximity {
    interval: u32,
    countdown: u32,
    moved_last_time: bool,
}

impl Proximity {
    pub(crate) fn new() -> Proximity {
        Proximity { interval: INTERVAL_MIN, countdown: INTERVAL_MIN, moved_last_time: false }
    }

    /// Called with each request before it is answered.
    pub(crate) fn settle(&mut self, request: &Request<'_>) {
        if !is_waited_for(request) {
            return;
        }
        self.countdown -= 1;
        if self.countdown > 0 {
            return;
        }
        let client_cpu = cpu_of_thread(request.header.pid);
        let is_apart = client_cpu.is_some_and(|cpu| cpu != sched_getcpu());
        self.schedule_next_look(is_apart);
        if let Some(cpu) = client_cpu
            && is_apart
        {
            move_to(cpu);
        }
    }

    fn schedule_next_look(&mut self, is_apart: bool) {
        self.interval = match (is_apart, self.moved_last_time) {
            (true, true) => (self.interval * 2).min(INTERVAL_MAX),
            (false, _) => (self.interval / 2).max(INTERVAL_MIN),
            (true, false) => self.interval,
        };
        self.moved_last_time = is_apart;
        self.countdown = self.interval;
    }
}

/// Whether a client sleeps until this small request is answered.
fn is_waited_for(request: &Request<'_>) -> bool {
    let is_background = matches!(
        request.opcode,
        None | Some(
            Opcode::Read
                | Opcode::Forget
                | Opcode::BatchForget
                | Opcode::Interrupt
                | Opcode::Release
                | Opcode::Releasedir
        )
    );
    !is_background && request.header.pid != 0 && request.header.len <= SMALL_BYTES
}

/// The CPU on which a thread runs or ran last.
fn cpu_of_thread(thread: u32) -> Option<usize> {
    let mut text = [0; 1024];
    let mut file = std::fs::File::open(format!("/proc/{thread}/stat")).ok()?;
    let len = file.read(&mut text).ok()?;
    parse_cpu(&text[..len])
}

/// Field 39 of `/proc/PID/stat`; the second one, the name in parentheses, may hold anything.
fn parse_cpu(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let third_and_on = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    third_and_on.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Moves this thread, if it may run there; it stays free to go elsewhere. Failure is no harm.
fn move_to(cpu: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return;
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    if sched_setaffinity(None, &only).is_ok()
        && let Err(errno) = sched_setaffinity(None, &allowed)
    {
        tracing::warn!(%errno, cpu, "a worker thread is stuck on a CPU");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_whatever_the_name_of_the_program() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("12 (a) 1 2) S {}\n", numbers.join(" "));
        assert_eq!(parse_cpu(stat.as_bytes()), Some(39));
        assert_eq!(parse_cpu(b"12 (cut of"), None);
        assert_eq!(parse_cpu(b"12 (x) S 1 2 3"), None);
    }

    #[test]
    fn moving_in_vain_makes_the_looks_rarer_and_staying_together_often() {
        let mut proximity = Proximity::new();
        for _ in 0..3 {
            proximity.schedule_next_look(true);
        }
        assert_eq!(proximity.interval, 4 * INTERVAL_MIN);
        proximity.schedule_next_look(false);
        proximity.schedule_next_look(false);
        proximity.schedule_next_look(false);
        assert_eq!(proximity.interval, INTERVAL_MIN);
    }

    #[test]
    fn a_thread_that_moves_is_not_tied_to_its_new_place() {
        let before = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).rev().find(|&cpu| before.is_set(cpu)).unwrap();
        move_to(cpu);
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
