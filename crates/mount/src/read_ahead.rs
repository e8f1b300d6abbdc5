//! How far the kernel reads ahead on the mount: its default for FUSE, 128 KiB, makes eight round trips
//! of what one of ours can carry. Set through sysfs, as root; without that reading is only slower.

use std::path::Path;

use crate::connection::MAX_TRANSFER_BYTES;

/// Requests that the kernel has under way ahead of a sequential reader.
const REQUEST_COUNT: usize = 2;

/// Lets the kernel read ahead as much as some requests carry on what is mounted on `dir` (an
/// absolute path without symbolic links). Asks nothing of the mount itself, which is not served yet.
pub(crate) fn widen(dir: &Path) {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
    let Some(queue) = dir.to_str().and_then(|dir| queue_of_mount(&table, dir)) else { return };
    let path = format!("/sys/class/bdi/{queue}/read_ahead_kb");
    let kib = REQUEST_COUNT * MAX_TRANSFER_BYTES / 1024;
    if let Err(error) = std::fs::write(&path, kib.to_string()) {
        tracing::debug!(%error, path, "the read-ahead stays as it is");
    }
}

/// Name in `/sys/class/bdi` of the newest mount on `dir`: `MAJOR:MINOR`, and for a `fuseblk` mount a
/// suffix, since the name alone is the block device's own. Paths with spaces are escaped in the table
/// and not found.
fn queue_of_mount(table: &str, dir: &str) -> Option<String> {
    let queue = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let device = fields.next()?;
        let is_fuseblk = file_system.starts_with("fuseblk");
        let suffix = if is_fuseblk { "-fuseblk" } else { "" };
        (fields.nth(1)? == dir).then(|| format!("{device}{suffix}"))
    };
    table.lines().rev().find_map(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_on_a_directory_counts() {
        let table = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
                     30 22 0:40 / /mnt rw - fuse.x x rw\n\
                     31 30 7:3 / /mnt rw,relatime shared:1 - fuseblk.x /dev/loop3 rw\n";
        assert_eq!(queue_of_mount(table, "/mnt").as_deref(), Some("7:3-fuseblk"));
        assert_eq!(queue_of_mount(&table[..72], "/mnt").as_deref(), Some("0:40"));
        assert_eq!(queue_of_mount(table, "/").as_deref(), Some("8:1"));
        assert_eq!(queue_of_mount(table, "/other"), None);
        assert_eq!(queue_of_mount("garbage", "/"), None);
    }
}
