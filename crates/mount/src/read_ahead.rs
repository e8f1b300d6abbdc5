//! How far the kernel reads ahead on the mount: its default for FUSE, 128 KiB, makes eight round trips
//! of what one of ours can carry. Set through sysfs, as root; without that reading is only slower.

use std::path::Path;

use crate::connection::MAX_TRANSFER_BYTES;

/// Lets the kernel read ahead as much as two requests carry on what is mounted on `dir` (an
/// absolute path without symbolic links). Asks nothing of the mount itself, which is not served yet.
pub(crate) fn widen(dir: &Path) {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
    let Some(device) = dir.to_str().and_then(|dir| device_of_mount(&table, dir)) else { return };
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let kib = 2 * MAX_TRANSFER_BYTES / 1024;
    if let Err(error) = std::fs::write(&path, kib.to_string()) {
        tracing::debug!(%error, path, "the read-ahead stays as it is");
    }
}

/// `MAJOR:MINOR` of the newest mount on `dir`. Paths with spaces are escaped in the table and not found.
fn device_of_mount<'a>(table: &'a str, dir: &str) -> Option<&'a str> {
    let fields = |line: &'a str| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        (fields.nth(1)? == dir).then_some(device)
    };
    table.lines().rev().find_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_on_a_directory_counts() {
        let table = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
                     30 22 0:40 / /mnt rw - fuse.x x rw\n\
                     31 30 7:3 / /mnt rw,relatime shared:1 - fuseblk.x /dev/loop3 rw\n";
        assert_eq!(device_of_mount(table, "/mnt"), Some("7:3"));
        assert_eq!(device_of_mount(table, "/"), Some("8:1"));
        assert_eq!(device_of_mount(table, "/other"), None);
        assert_eq!(device_of_mount("garbage", "/"), None);
    }
}
