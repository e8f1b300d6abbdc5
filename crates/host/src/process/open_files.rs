//! The files that a process has open. A process may keep everybody waiting who looks at its files.
//! So each of these looks may wait without an end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::reach::cached_stat;

/// `/dev/fuse`, whatever the node is named.
const FUSE_NODE: (u32, u32) = (10, 229);
/// Bits of a minor number in the kernel's own form of a device number.
const MINOR_BITS: u32 = 20;

/// The links of `/proc` to the open files of a process, in the order of their descriptors.
pub fn open_files(pid: i32) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.map(|file| file.path())
}

/// Whether the process has a file of the file system `device` open or mapped, or has its directory
/// or root there.
pub fn process_uses(pid: i32, device: (u32, u32)) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let mut links = ["cwd", "root"].map(|name| process.join(name)).into_iter();
    links.any(|link| is_on(&link, device))
        || open_files(pid).any(|link| is_on(&link, device))
        || maps(&process, device)
}

/// Whether the target of a link in `/proc` is on the file system.
fn is_on(link: &Path, (major, minor): (u32, u32)) -> bool {
    let found = cached_stat(link);
    found.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == (major, minor))
}

/// Whether the process runs a program, or has mapped a file, from the file system.
fn maps(process: &Path, (major, minor): (u32, u32)) -> bool {
    let number = format!("{major:02x}:{minor:02x}");
    let table = fs::read(process.join("maps")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().any(|line| line.split_whitespace().nth(3) == Some(number.as_str()))
}

/// The number of the file system that the process has a FUSE connection for, if the kernel reports
/// it (Linux 6.18 does). Outer `None`: the process has no connection.
pub fn fuse_connection(pid: i32) -> Option<Option<(u32, u32)>> {
    let is_node = |path: &PathBuf| {
        cached_stat(path)
            .is_ok_and(|found| (found.stx_rdev_major, found.stx_rdev_minor) == FUSE_NODE)
    };
    let mut found = None;
    for file in open_files(pid).filter(is_node) {
        let info = Path::new("/proc").join(pid.to_string()).join("fdinfo");
        let info = fs::read_to_string(info.join(file.file_name()?)).unwrap_or_default();
        let number = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"));
        let number: Option<u32> = number.and_then(|number| number.trim().parse().ok());
        match number {
            Some(number) => {
                return Some(Some((number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1))));
            }
            None => found = Some(None),
        }
    }
    found
}
