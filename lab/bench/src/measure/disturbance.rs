//! Other work of the machine during a round: CPU time that the hypervisor took or that other
//! processes used, how long any process waited for a CPU or for I/O, and what other processes wrote
//! to the disk.
//!
//! Our processes are this one, and all that carry the mark of its scratch folder in their
//! environment. Threads of the kernel count neither as ours nor as others.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use crate::error::Result;
use crate::lab::processes::CpuTicks;
use crate::lab::{DeviceCounts, Lab, MARK, processes};
use crate::results::{Disturbance, Section};
use crate::systems::Running;

/// Limits, as parts of one CPU or of the time.
const OTHERS_CPU_MAX: f64 = 0.10;
const STEAL_MAX: f64 = 0.02;
const OTHERS_WRITE_MB_S_MAX: f64 = 5.0;

/// Compares the state before and after each round.
pub struct Watch {
    mark: Vec<u8>,
    disk: Option<String>,
    /// Whether a process is ours, which does not change.
    known: HashMap<i32, bool>,
    before: Look,
    own_write_bytes: u64,
    rounds: usize,
}

struct Look {
    at: Instant,
    ticks: CpuTicks,
    others_ticks: u64,
    cpu_stall_us: u64,
    io_stall_us: u64,
    disk_write_bytes: u64,
}

impl Watch {
    /// Begins a round of these systems.
    pub fn begin(lab: &Lab, systems: &[Running]) -> Result<Watch> {
        let mark = format!("{MARK}={}", lab.scratch().display()).into_bytes();
        let disk = crate::results::disk_of(lab.scratch());
        let mut known = HashMap::new();
        let before = Look::now(&mark, disk.as_deref(), &mut known)?;
        let own_write_bytes = own_write_bytes(systems)?;
        Ok(Watch { mark, disk, known, before, own_write_bytes, rounds: 0 })
    }

    /// Ends a round and begins the next.
    pub fn end_round(&mut self, systems: &[Running], section: &mut Section) -> Result<()> {
        let own = own_write_bytes(systems)?;
        let own_write_bytes = own.saturating_sub(std::mem::replace(&mut self.own_write_bytes, own));
        let after = Look::now(&self.mark, self.disk.as_deref(), &mut self.known)?;
        let before = std::mem::replace(&mut self.before, after);
        let after = &self.before;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let all_ticks = (after.ticks.all - before.ticks.all).max(1) as f64;
        let part_of_a_cpu = |ticks: u64| ticks as f64 / all_ticks * cpus;
        let part_of_time = |us: u64| us as f64 / 1e6 / seconds;
        let written = after.disk_write_bytes.saturating_sub(before.disk_write_bytes);
        let disturbance = Disturbance {
            round: self.rounds,
            seconds,
            others_cpu: part_of_a_cpu(after.others_ticks.saturating_sub(before.others_ticks)),
            steal: part_of_a_cpu(after.ticks.steal - before.ticks.steal) / cpus,
            cpu_stall: part_of_time(after.cpu_stall_us - before.cpu_stall_us),
            io_stall: part_of_time(after.io_stall_us - before.io_stall_us),
            others_write_mb_s: written.saturating_sub(own_write_bytes) as f64 / 1e6 / seconds,
        };
        let is_disturbed = disturbance.others_cpu > OTHERS_CPU_MAX
            || disturbance.steal > STEAL_MAX
            || disturbance.others_write_mb_s > OTHERS_WRITE_MB_S_MAX;
        self.rounds += 1;
        section.rounds += 1;
        if is_disturbed {
            section.disturbances.push(disturbance);
        }
        Ok(())
    }
}

/// Bytes that our systems wrote to disks that are not emulated.
fn own_write_bytes(systems: &[Running]) -> Result<u64> {
    systems.iter().map(Running::disk_write_bytes).sum()
}

impl Look {
    fn now(mark: &[u8], disk: Option<&str>, known: &mut HashMap<i32, bool>) -> Result<Look> {
        let counts = disk.map(DeviceCounts::of_block_device).transpose()?.unwrap_or_default();
        Ok(Look {
            at: Instant::now(),
            ticks: CpuTicks::now()?,
            others_ticks: others_ticks(mark, known),
            cpu_stall_us: stall_us("cpu"),
            io_stall_us: stall_us("io"),
            disk_write_bytes: counts.write_bytes,
        })
    }
}

/// Time since the machine started during which any process waited; 0 on kernels that do not report
/// it.
fn stall_us(resource: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default();
    let some = text.lines().next().unwrap_or_default();
    some.rsplit_once("total=").and_then(|(_, total)| total.parse().ok()).unwrap_or(0)
}

/// CPU time of all processes that are not ours, including children that they waited for. The time
/// of a process that ends moves to its parent, so the sum only grows.
fn others_ticks(mark: &[u8], known: &mut HashMap<i32, bool>) -> u64 {
    let mut sum = 0;
    for pid in processes::all() {
        let is_ours = *known.entry(pid).or_insert_with(|| is_ours(pid, mark));
        if !is_ours {
            sum += processes::cpu_ticks_with_children(pid).unwrap_or(0);
        }
    }
    sum
}

fn is_ours(pid: i32, mark: &[u8]) -> bool {
    if pid.cast_unsigned() == std::process::id() || processes::is_kernel_thread(pid) {
        return true;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_looked_at() {
        let mut known = HashMap::new();
        let look = Look::now(b"NONE=1", None, &mut known).unwrap();
        assert!(look.ticks.all > 0);
        assert!(known[&std::process::id().cast_signed()], "this process is ours");
        assert!(!known[&1], "the first process is not");
    }
}
