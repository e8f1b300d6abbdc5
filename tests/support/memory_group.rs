//! Control groups with a limit of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{Need, is_root, skip};

use super::wait_until;

/// A control group of its own, removed with the value.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group whose processes together have at most `limit_mib` MiB; `None`, and a word about it,
    /// where that is not possible.
    #[track_caller]
    pub fn new(limit_mib: u64) -> Option<MemoryGroup> {
        if !is_root() {
            return None;
        }
        let made = hierarchy().and_then(|(dir, file)| {
            let random: u64 = fastrand::u64(..);
            let group = MemoryGroup(dir.join(format!("onejournal-test-{random:016x}")));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(file), (limit_mib << 20).to_string()).ok()?;
            Some(group)
        });
        if made.is_none() {
            skip(Need::Cgroups, "needs control groups that limit memory");
        }
        made
    }

    /// A command whose process, and the processes that it starts, are in the group.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]);
        command.arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = fs::remove_dir(&self.0);
            return;
        }
        wait_until("processes stay in the group", || fs::remove_dir(&self.0).is_ok());
    }
}

/// Where groups with a limit can be made, and the name of the file of the limit.
fn hierarchy() -> Option<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let dir = Path::new(words[1]);
        match words[2] {
            "cgroup" if words[3].split(',').any(|option| option == "memory") => {
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
    })
}
