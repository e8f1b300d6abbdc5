//! Finds the programs that use a mounted volume. Sends no request to the volume, because its daemon
//! may be the process that looks.
//!
//! Processes that `/proc` does not show us (of another user, or outside of our PID namespace) are not found.

use std::fs;
use std::path::Path;

use device::{process_name, processes};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

/// If there are more programs than this, the rest are only counted.
const NAMED_COUNT: usize = 8;

/// The programs that have a file of the file system `device` open or mapped, or have their
/// directory there, by name and process; then the number of further ones.
pub fn of(device: (u32, u32)) -> String {
    let none = || "none that is visible from here; perhaps a mount below it, or swap".into();
    named(device).unwrap_or_else(none)
}

/// The same; `None` if there is none that is visible.
pub fn named(device: (u32, u32)) -> Option<String> {
    let users = pids_of(device);
    let named: Vec<String> = users
        .iter()
        .take(NAMED_COUNT)
        .map(|pid| format!("{} ({pid})", process_name(*pid)))
        .collect();
    let more = match users.len().saturating_sub(NAMED_COUNT) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

/// The processes of these programs.
pub fn pids_of(device: (u32, u32)) -> Vec<i32> {
    processes().into_iter().filter(|pid| uses(*pid, device)).collect()
}

fn uses(pid: i32, device: (u32, u32)) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut links = ["cwd", "root"].map(|name| process.join(name)).into_iter();
    links.any(|link| is_on(&link, device))
        || files.into_iter().any(|file| is_on(&file.path(), device))
        || maps(&process, device)
}

/// Whether the target of a link in `/proc` is on the file system.
fn is_on(link: &Path, (major, minor): (u32, u32)) -> bool {
    let found = cached_stat(link);
    found.is_some_and(|found| (found.stx_dev_major, found.stx_dev_minor) == (major, minor))
}

/// Device, number, type and owner of a file, as the kernel has them cached. About the target of a
/// link in `/proc/PID/fd` no file system is asked, which may be one that does not answer.
pub fn cached_stat(path: &Path) -> Option<Statx> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::UID;
    statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()
}

/// Whether the process runs a program, or has mapped a file, from the file system.
fn maps(process: &Path, (major, minor): (u32, u32)) -> bool {
    let number = format!("{major:02x}:{minor:02x}");
    let table = fs::read(process.join("maps")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().any(|line| line.split_whitespace().nth(3) == Some(number.as_str()))
}
