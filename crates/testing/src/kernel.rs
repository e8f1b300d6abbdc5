//! What the running kernel has.

use std::fs;

/// Whether the kernel is this version of Linux or a newer one.
pub fn is_linux_since(major: u32, minor: u32) -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(major), Some(minor))
}

/// Whether the kernel tells a volume of syncs of all its files.
pub fn are_syncs_told() -> bool {
    is_linux_since(6, 18)
}
