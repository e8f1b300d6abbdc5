//! How far the kernel's page cache reads ahead on the mount, and how much it collects. Set through
//! sysfs, as root. Without root these are the kernel's defaults for FUSE: 128 KiB, and a hundredth
//! of the memory that may be dirty.
//!
//! Sequential reading is as fast as the device allows when several requests are under way at a
//! time, each in a worker of its own. A page fault of a mapped file reads as many bytes as these
//! requests have together. So a few large requests are worse than several of middle size: in a cold
//! read of 1 GiB, eight of 256 KiB are as fast as four of 1 MiB, and faster than two of 1 MiB.

use std::path::Path;

use host::{MountEntry, own_mounts};

/// Largest READ that the kernel is to send, in bytes.
pub(crate) const READ_BYTES_MAX: usize = 256 << 10;

/// Requests that the kernel has under way ahead of a sequential reader.
const REQUEST_COUNT: usize = 8;

/// Lets the kernel read ahead as much as these requests carry on what is mounted on `dir` (an
/// absolute path without symbolic links). If it `collects_writes`, it may collect as much as on a
/// disk: this mount alone may have all the memory that may be dirty. The limit stays strict: the
/// mount's writers wait for its own writes, before the machine has much that is dirty. Asks nothing
/// of the mount itself, which is not served yet.
pub(crate) fn widen(dir: &Path, collects_writes: bool) {
    let Some(queue) = queue_of(&own_mounts().unwrap_or_default(), dir) else { return };
    let set = |name: &str, value: usize| {
        let path = format!("/sys/class/bdi/{queue}/{name}");
        if let Err(error) = std::fs::write(&path, value.to_string()) {
            tracing::debug!(%error, path, "the page cache keeps its limit");
        }
    };
    set("read_ahead_kb", REQUEST_COUNT * READ_BYTES_MAX / 1024);
    if collects_writes {
        set("max_ratio", 100);
    }
}

/// Name in `/sys/class/bdi` of the newest mount on `dir`: `MAJOR:MINOR`, and for a `fuseblk` mount
/// a suffix, since the name alone is the block device's own.
fn queue_of(mounts: &[MountEntry], dir: &Path) -> Option<String> {
    let mount = mounts.iter().rev().find(|mount| mount.dir == dir)?;
    let suffix = if mount.kind.starts_with("fuseblk") { "-fuseblk" } else { "" };
    Some(format!("{}:{}{suffix}", mount.device.0, mount.device.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_on_a_directory_counts() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\
                      30 22 0:40 / /mnt rw - fuse.x x rw\n\
                      31 30 7:3 / /mnt rw,relatime shared:1 - fuseblk.x /dev/loop3 rw\n";
        let mounts = host::parse_mounts(table);
        let of = |mounts: &[MountEntry], dir: &str| queue_of(mounts, Path::new(dir));
        assert_eq!(of(&mounts, "/mnt").as_deref(), Some("7:3-fuseblk"));
        assert_eq!(of(&mounts[..2], "/mnt").as_deref(), Some("0:40"));
        assert_eq!(of(&mounts, "/").as_deref(), Some("8:1"));
        assert_eq!(of(&mounts, "/other"), None);
    }
}
