//! Finds the programs that use a mounted volume. Sends no request to the volume, because its daemon
//! may be the process that looks.
//!
//! Processes that `/proc` does not show us (of another user, or outside of our PID namespace) are
//! not found. A process may keep everybody waiting who looks at its files. So another process
//! looks (`crate::looks`), and is left behind after a time.

use std::fs;
use std::path::Path;

use device::{cached_stat, process_name};

use crate::aside;
use crate::process_looks::TELL_LIMIT;

/// If there are more programs than this, the rest are only counted.
const NAMED_COUNT: usize = 8;

/// The programs that have a file of the file system `device` open or mapped, or have their
/// directory there, by name and process; then the number of further ones.
pub fn of(device: (u32, u32)) -> String {
    let users = Users::of(device);
    users.text().unwrap_or_else(|| users.none().into())
}

/// The same; `None` if there is none that is visible.
pub fn named(device: (u32, u32)) -> Option<String> {
    Users::of(device).text()
}

/// The processes of these programs.
pub fn pids_of(device: (u32, u32)) -> Vec<i32> {
    Users::of(device).pids
}

/// The processes that use a file system, as far as they were found in time.
struct Users {
    pids: Vec<i32>,
    is_all: bool,
}

impl Users {
    fn of((major, minor): (u32, u32)) -> Users {
        let told = aside::told_within(["look", "users", &format!("{major}:{minor}")], TELL_LIMIT);
        let mut pids: Vec<i32> = told.lines.iter().filter_map(|pid| pid.parse().ok()).collect();
        pids.sort_unstable();
        Users { pids, is_all: told.is_all }
    }

    fn text(&self) -> Option<String> {
        let named = self.pids.iter().take(NAMED_COUNT);
        let named: Vec<String> =
            named.map(|pid| format!("{} ({pid})", process_name(*pid))).collect();
        let more = match self.pids.len().saturating_sub(NAMED_COUNT) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let perhaps = if self.is_all { "" } else { ", and perhaps others" };
        (!named.is_empty()).then(|| named.join(", ") + &more + perhaps)
    }

    /// The text if none was found.
    fn none(&self) -> &'static str {
        match self.is_all {
            true => "none that is visible from here; perhaps a mount below it, or swap",
            false => "unknown",
        }
    }
}

/// Whether the process is one of them. May wait without an end.
pub fn uses(pid: i32, device: (u32, u32)) -> bool {
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
    found.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == (major, minor))
}

/// Whether the process runs a program, or has mapped a file, from the file system.
fn maps(process: &Path, (major, minor): (u32, u32)) -> bool {
    let number = format!("{major:02x}:{minor:02x}");
    let table = fs::read(process.join("maps")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    table.lines().any(|line| line.split_whitespace().nth(3) == Some(number.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_may_be_missing_are_said() {
        let own = i32::try_from(std::process::id()).unwrap();
        let [all, some] = [true, false].map(|is_all| Users { pids: vec![own], is_all });
        let name = format!("{} ({own})", process_name(own));
        assert_eq!(all.text(), Some(name.clone()));
        assert_eq!(some.text(), Some(name + ", and perhaps others"));
        let none = |is_all| Users { pids: Vec::new(), is_all };
        assert_eq!((none(false).text(), none(false).none()), (None, "unknown"));
        assert!(none(true).none().starts_with("none that is visible"));
    }
}
