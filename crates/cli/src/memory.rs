//! The memory that a daemon may take: the limits of its control groups and of the machine; and its
//! protection from the OOM killer.
//!
//! A daemon that is killed takes its mount with it, and with that every program that uses it. So
//! the default stays below what the kernel would kill it for: three quarters of the smallest limit
//! of its control groups, and half of the machine's memory. The rest is for what the kernel counts
//! for the daemon, and for other processes of the group.

use std::fs;
use std::path::{Path, PathBuf};

use host::MountEntry;
use mount::Memory;

/// The kernel adds it to a process's share of memory, in thousandths, when it looks for a process
/// to kill. Not -1000: if the daemon alone is at its group's limit, it must be killed rather than
/// hang.
const OOM_SCORE_ADJUST: i32 = -900;

const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// The memory that this process may take, in bytes, if a mount would otherwise take more.
pub fn limit() -> Option<u64> {
    limit_at(Path::new("/"))
}

/// [`limit`] with the files below `root`.
fn limit_at(root: &Path) -> Option<u64> {
    let groups = group_limit(root).map(|bytes| bytes / 4 * 3);
    let machine = machine_bytes(root).map(|bytes| bytes / 2);
    groups.into_iter().chain(machine).min()
}

/// The smallest limit of this process's control groups and of the groups around them.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = host::mounts_in(&root.join("proc/self/mountinfo")).ok()?;
    mounts.iter().filter_map(|mount| smallest_in(root, mount, &groups)).min()
}

/// The smallest limit in the hierarchy that is mounted there.
fn smallest_in(root: &Path, mount: &MountEntry, groups: &str) -> Option<u64> {
    let files: &[&str] = match mount.kind.as_str() {
        "cgroup2" => &["memory.max", "memory.high"],
        "cgroup" if mount.has_option("memory") => &["memory.limit_in_bytes"],
        _ => return None,
    };
    let group = Path::new(group_in(groups, files.len() == 2)?);
    let inside = group.strip_prefix(&mount.root).ok()?;
    let mounted = root.join(mount.dir.strip_prefix("/").ok()?);
    let around = inside.ancestors().map(|group| mounted.join(group));
    around.flat_map(|dir| files.iter().filter_map(move |file| read_bytes(&dir.join(file)))).min()
}

/// The path of this process's group, from `/proc/self/cgroup`.
fn group_in(groups: &str, is_unified: bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match is_unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|controller| controller == "memory"),
        };
        is_it.then_some(path)
    })
}

/// A limit; `None`: there is none.
fn read_bytes(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Lets the kernel kill other processes first when memory is short. It stays as it is where the
/// caller has decided so, and where this process may not.
pub fn protect_from_oom_killer() {
    if oom_score().is_none_or(|score| score < 0) {
        return;
    }
    if let Err(error) = set_oom_score(OOM_SCORE_ADJUST) {
        tracing::debug!("the OOM killer may take this process as any other: {error}");
    }
}

/// What the kernel adds to this process's share of memory, if it says so.
pub fn oom_score() -> Option<i32> {
    fs::read_to_string(OOM_SCORE_FILE).ok()?.trim().parse().ok()
}

/// Changes [`oom_score`].
pub fn set_oom_score(score: i32) -> std::io::Result<()> {
    fs::write(OOM_SCORE_FILE, score.to_string())
}

/// Small pages for everything: in a huge page, a buffer of which one byte is used takes 2 MiB.
pub fn do_without_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!("huge pages stay on, and take more memory than memory= says: {error}");
    }
}

/// The limit of a mount: `asked`, or `found`.
pub fn for_mount(asked: Option<u64>, found: Option<u64>) -> Option<u64> {
    asked.or_else(|| {
        let bytes = found?;
        if bytes < Memory::MIN_BYTES {
            let (has, least) = (bytes >> 20, Memory::MIN_BYTES >> 20);
            tracing::warn!(
                "the control group or the machine leaves {has} MiB of memory for this mount, which \
                 needs {least} MiB: it may be killed. Raise the limit (MemoryMax= of a unit)"
            );
        }
        Some(bytes.max(Memory::MIN_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files.
    fn limit_with(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        limit_at(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        1024000 kB\nMemFree: 7 kB\n");
    const MACHINE: u64 = 512_000 << 10;
    const UNIFIED: &str = "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_groups_the_machine_is_the_limit() {
        assert_eq!(limit_with(&[]), None);
        assert_eq!(limit_with(&[MEMINFO]), Some(MACHINE));
        let (cgroup, mountinfo) = ("proc/self/cgroup", "proc/self/mountinfo");
        let max = [("sys/fs/cgroup/a/memory.max", "max\n"), MEMINFO];
        let files = [(cgroup, "0::/a\n"), (mountinfo, UNIFIED), max[0], max[1]];
        assert_eq!(limit_with(&files), Some(MACHINE));
    }

    #[test]
    fn the_smallest_limit_around_the_group_counts() {
        let files = |inner: &'static str, high: &'static str, outer: &'static str| {
            limit_with(&[
                ("proc/self/cgroup", "0::/a.slice/b.service\n"),
                ("proc/self/mountinfo", UNIFIED),
                ("sys/fs/cgroup/a.slice/b.service/memory.max", inner),
                ("sys/fs/cgroup/a.slice/b.service/memory.high", high),
                ("sys/fs/cgroup/a.slice/memory.max", outer),
                MEMINFO,
            ])
        };
        assert_eq!(files("100000000\n", "max\n", "max\n"), Some(75_000_000));
        assert_eq!(files("100000000\n", "80000000\n", "max\n"), Some(60_000_000));
        assert_eq!(files("100000000\n", "max\n", "40000000\n"), Some(30_000_000));
        assert_eq!(files("4000000000\n", "max\n", "max\n"), Some(MACHINE));
    }

    #[test]
    fn a_container_sees_its_own_group_only() {
        let mounts = "9 1 0:22 /docker/1 /sys/fs/cg\\040v2 ro - cgroup2 cgroup rw\n";
        let found = limit_with(&[
            ("proc/self/cgroup", "0::/docker/1\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cg v2/memory.max", "8000000\n"),
        ]);
        assert_eq!(found, Some(6_000_000));
        let elsewhere = limit_with(&[
            ("proc/self/cgroup", "0::/other\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cg v2/memory.max", "8000000\n"),
        ]);
        assert_eq!(elsewhere, None);
    }

    #[test]
    fn the_older_hierarchy_is_known() {
        let mounts = "30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = limit_with(&[
            ("proc/self/cgroup", "5:devices:/\n4:memory:/x/y\n0::/\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "67108864\n"),
            ("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "1\n"),
        ]);
        assert_eq!(found, Some(48 << 20));
    }

    #[test]
    fn an_option_counts_before_a_limit_and_a_limit_below_the_least_is_the_least() {
        assert_eq!(for_mount(Some(Memory::MIN_BYTES), Some(1)), Some(Memory::MIN_BYTES));
        assert_eq!(for_mount(None, Some(1)), Some(Memory::MIN_BYTES));
        assert_eq!(for_mount(None, Some(Memory::MIN_BYTES + 1)), Some(Memory::MIN_BYTES + 1));
        assert_eq!(for_mount(None, None), None);
    }
}
