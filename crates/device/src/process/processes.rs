//! The processes that `/proc` shows: without those of other users if `/proc` hides them, and none
//! outside of this PID namespace.

use std::fs;

/// The process numbers.
pub fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The name of a process's program; empty if the process has ended.
pub fn process_name(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
