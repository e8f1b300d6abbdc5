//! Control groups that limit memory, page cache included; of version 1 or 2.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::abilities::is_root;
use crate::skip::{Need, skip};

/// Longest that a process may stay in a group after it was told to end.
const LIMIT: Duration = Duration::from_secs(120);
/// The kernel gives no sign when the last process has left.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// For a shell: enters the group whose list of processes is `$0`, and becomes the command that
/// follows.
const ENTER: &str = r#"echo 0 >"$0" && exec "$@""#;

/// A control group of its own, removed with the value.
pub struct MemoryGroup {
    dir: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// A group without a limit. Its name begins with `name`.
    ///
    /// # Errors
    /// If the kernel has no control groups for memory, or this process may not make one.
    pub fn make(name: &str) -> io::Result<MemoryGroup> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let (top, limit_file) = mounts.lines().find_map(hierarchy).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel has none that can be made here")
        })?;
        let dir = top.join(format!("{name}-{:016x}", fastrand::u64(..)));
        fs::create_dir(&dir)?;
        Ok(MemoryGroup { dir, limit_file })
    }

    /// A group for a test, whose processes together have at most `limit_mib` MiB. `None`, and a
    /// word about it, where that is not possible.
    #[track_caller]
    pub fn with_limit(limit_mib: u64) -> Option<MemoryGroup> {
        if !is_root() {
            return None;
        }
        let made = MemoryGroup::make("onejournal-test");
        let made = made.and_then(|group| group.set_limit(limit_mib << 20).map(|()| group));
        if let Err(error) = &made {
            skip(Need::Cgroups, format!("needs control groups that limit memory: {error}"));
        }
        made.ok()
    }

    /// Sets the limit of its processes.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.dir.join(self.limit_file), bytes.to_string())
    }

    /// The first words of a command that enters the group. A program and its arguments follow.
    pub fn entering(&self) -> [OsString; 4] {
        let processes = self.dir.join("cgroup.procs");
        ["sh".into(), "-c".into(), ENTER.into(), processes.into()]
    }

    /// A command whose process, and the processes that it starts, are in the group.
    pub fn command(&self, program: &str) -> Command {
        let [shell, words @ ..] = self.entering();
        let mut command = Command::new(shell);
        command.args(words).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let begun = Instant::now();
        while let Err(error) = fs::remove_dir(&self.dir) {
            if std::thread::panicking() {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "removing {}: {error}", self.dir.display());
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Where groups with a limit can be made, if a line of the mount table shows it, and the name of
/// the file of the limit.
fn hierarchy(line: &str) -> Option<(PathBuf, &'static str)> {
    let mut words = line.split(' ').skip(1);
    let (dir, kind, options) = (Path::new(words.next()?), words.next()?, words.next()?);
    match kind {
        "cgroup" if options.split(',').any(|option| option == "memory") => {
            Some((dir.into(), "memory.limit_in_bytes"))
        }
        "cgroup2" => {
            let has_it = |file: &str| {
                let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
                text.split_whitespace().any(|controller| controller == "memory")
            };
            let is_given = has_it("cgroup.subtree_control")
                || has_it("cgroup.controllers")
                    && fs::write(dir.join("cgroup.subtree_control"), "+memory").is_ok();
            is_given.then(|| (dir.into(), "memory.max"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_the_controller_of_memory_is_found_in_both_versions() {
        let root = tempfile::tempdir().expect("directory");
        let line = |kind: &str, options: &str| {
            format!("none {} {kind} {options} 0 0", root.path().display())
        };
        let file_of = |kind: &str, options: &str| hierarchy(&line(kind, options)).map(|it| it.1);
        assert_eq!(file_of("cgroup", "rw,memory"), Some("memory.limit_in_bytes"));
        assert_eq!(file_of("cgroup", "rw,cpu"), None);
        assert_eq!(file_of("tmpfs", "rw"), None);
        let set = |name: &str, text: &str| fs::write(root.path().join(name), text).expect("file");
        set("cgroup.controllers", "cpu io\n");
        set("cgroup.subtree_control", "\n");
        assert_eq!(file_of("cgroup2", "rw"), None, "version 1 has the controller");
        set("cgroup.controllers", "cpu io memory\n");
        assert_eq!(file_of("cgroup2", "rw"), Some("memory.max"));
        let enabled = fs::read_to_string(root.path().join("cgroup.subtree_control"));
        assert_eq!(enabled.expect("file"), "+memory");
    }
}
