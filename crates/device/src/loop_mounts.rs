//! Whether a file is mounted by the kernel through a loop device (`mount -o loop`).
//!
//! Nobody holds a lock then, but two file systems on one volume destroy it. Read from the mount
//! table and from sysfs, which needs no privileges; mounts in other name spaces are not seen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::Stat;

/// Major number of loop devices.
const LOOP_MAJOR: &str = "7";

/// The loop device through which the kernel has the file of `stat` mounted.
pub(crate) fn mounted_through(stat: &Stat) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let names = table.lines().filter_map(mounted_loop);
    names
        .filter(|name| is_backed_by(name, stat))
        .map(|name| PathBuf::from("/dev").join(name))
        .next()
}

/// The name of the loop device that a line of the mount table is about. A `fuseblk` mount is none
/// of the kernel's own: it is served by a process, and that one holds the lock.
fn mounted_loop(line: &str) -> Option<String> {
    let (mount, source) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let is_kernels = !source.starts_with("fuseblk");
    (major == LOOP_MAJOR && is_kernels).then(|| format!("loop{minor}"))
}

fn is_backed_by(name: &str, stat: &Stat) -> bool {
    let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    let found = backing.and_then(|path| fs::metadata(path.trim_end_matches('\n')));
    found.is_ok_and(|found| found.dev() == stat.st_dev && found.ino() == stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_loop_devices_are_told_from_others() {
        let line = "61 28 7:3 / /mnt rw,relatime shared:1 - ext4 /dev/loop3 rw";
        assert_eq!(mounted_loop(line).as_deref(), Some("loop3"));
        let ours = "61 28 7:3 / /mnt rw shared:1 - fuseblk.onejournal /dev/loop3 rw";
        assert_eq!(mounted_loop(ours), None);
        assert_eq!(mounted_loop("28 1 254:0 / / rw - ext4 /dev/root rw"), None);
        assert_eq!(mounted_loop("garbage"), None);
    }
}
