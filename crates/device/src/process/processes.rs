//! The processes that `/proc` shows: not those of other users where it hides them, and none outside of our PID namespace.

use std::fs;

/// Their numbers.
pub fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The name of a process's program; empty when it has ended.
pub fn process_name(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
