//! What `/proc` says about processes.

use std::fs;

use crate::error::{Error, Result};

/// Numbers of all processes.
pub fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// CPU time of a process and of its children that it waited for, in clock ticks.
pub fn cpu_ticks_with_children(pid: i32) -> Option<u64> {
    // utime, stime, cutime, cstime: fields 14 to 17, so 11 to 14 after the name.
    let fields = stat_fields(pid)?;
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// Threads of the kernel are children of process 2.
pub fn is_kernel_thread(pid: i32) -> bool {
    pid == 2 || stat_fields(pid).is_some_and(|fields| fields.get(1).is_some_and(|ppid| ppid == "2"))
}

/// The fields after the name, which is in brackets and may contain anything.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Bytes that a process passed to calls that write.
pub fn written_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// A field of `/proc/PID/status`, such as `VmHWM`, in KiB or as a number.
pub fn status(pid: i32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| *key == name)?;
    value.split_whitespace().next()?.parse().ok()
}

/// CPU time of the machine since it started, in clock ticks.
#[derive(Clone, Copy)]
pub struct CpuTicks {
    /// Without work, or with work that waits for a disk.
    pub idle: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
    pub all: u64,
}

impl CpuTicks {
    /// The times until now.
    pub fn now() -> Result<CpuTicks> {
        let text = fs::read_to_string("/proc/stat").map_err(Error::io("/proc/stat"))?;
        let line = text.lines().next().unwrap_or_default();
        let words = line.split_whitespace().skip(1);
        // user nice system idle iowait irq softirq steal
        let fields: Vec<u64> = words.filter_map(|word| word.parse().ok()).take(8).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Ok(CpuTicks { idle: field(3) + field(4), steal: field(7), all: fields.iter().sum() })
    }

    /// The part of all CPU time since `before` in which a CPU worked, 0 to 1.
    pub fn busy_since(self, before: CpuTicks) -> f64 {
        let all = (self.all - before.all).max(1) as f64;
        1.0 - self.idle.saturating_sub(before.idle) as f64 / all
    }
}
