//! Finds the programs that use a mounted volume. Sends no request to the volume, because its daemon
//! may be the process that looks.
//!
//! Processes that `/proc` does not show us (of another user, or outside of our PID namespace) are
//! not found. A process may keep everybody waiting who looks at its files. So another process
//! looks (`crate::looks`), and is left behind after a time.

use host::process_name;

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
