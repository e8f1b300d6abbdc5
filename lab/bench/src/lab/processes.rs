//! What `/proc` says about processes.

use std::fs;

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
