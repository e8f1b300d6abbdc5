//! The processes that `/proc` shows: without those of other users if `/proc` hides them, and none
//! outside of this PID namespace.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The words that the kernel adds to the path of a program whose file was removed or replaced.
const REMOVED: &str = " (deleted)";

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

/// The user and the group that a process acts as. `None`: it has ended, or it belongs to several
/// users, as a set-user-ID program does. The owner of its directory in `/proc` may be another:
/// root, for a process that hides its memory (prctl(2), `PR_SET_DUMPABLE`).
pub fn process_owner(pid: i32) -> Option<(u32, u32)> {
    owner_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The user and the group in the text of a process's `status`.
fn owner_in(status: &str) -> Option<(u32, u32)> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    // Real, effective, saved, and of the file system.
    let (users, groups) = (numbers("Uid:")?, numbers("Gid:")?);
    let user = *users.first()?;
    users.iter().all(|found| *found == user).then_some((user, *groups.get(1)?))
}

/// The path of the program that a process runs, as it was when the process began; also if that file
/// was replaced since, by an upgrade for example. `None`: it cannot be seen.
pub fn process_program(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok().map(without_mark)
}

/// The path of the program that this process runs, also if that file was replaced or removed since.
/// Empty if it cannot be seen.
pub fn own_program() -> PathBuf {
    let own = i32::try_from(std::process::id()).ok();
    own.and_then(process_program).unwrap_or_default()
}

/// The words of the command line of a process; one empty word if it has ended or cannot be seen.
/// May wait without an end: a process may keep its memory locked.
pub fn command_line(pid: i32) -> Vec<OsString> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Whether the process has no memory any more: it was killed, and has not ended. Unlike
/// [`command_line`], this does not wait.
pub fn has_no_memory(pid: i32) -> bool {
    let sizes = fs::read_to_string(format!("/proc/{pid}/statm"));
    sizes.is_ok_and(|sizes| sizes.starts_with("0 "))
}

/// The path without the mark of a file that was removed.
fn without_mark(path: PathBuf) -> PathBuf {
    let before = path.to_str().and_then(|text| text.strip_suffix(REMOVED));
    before.map(PathBuf::from).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_an_owner_if_it_acts_as_one_user() {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(process_owner(own_pid()), Some(own));
        assert_eq!(owner_in("Uid:\t7\t7\t7\t7\nGid:\t8\t9\t9\t9\n"), Some((7, 9)));
        assert_eq!(owner_in("Uid:\t7\t0\t0\t0\nGid:\t8\t8\t8\t8\n"), None);
        assert_eq!(owner_in("Gid:\t8\t8\t8\t8\n"), None);
        assert_eq!(owner_in(""), None);
    }

    #[test]
    fn a_program_is_known_after_its_file_was_removed() {
        assert_eq!(process_program(own_pid()), std::env::current_exe().ok());
        for (link, program) in [("/a/b (deleted)", "/a/b"), ("/a/b", "/a/b")] {
            assert_eq!(without_mark(link.into()), PathBuf::from(program));
        }
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).expect("a number")
    }
}
