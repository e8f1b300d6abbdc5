//! Whose volatile caches hold what was written to a disk: the whole disks below it, as sysfs shows them.
//!
//! A partition shares the cache of its disk, a loop device that of its file's disk, a file that of its file
//! system's disk, and a device-mapper or RAID device those of all its members. A failed flush of one user may
//! lose what another one has written, so users have to know that they share a cache.
//!
//! A file system that is not on one block device (tmpfs, a network, btrfs, overlay) is known by its own number: two
//! files on it share whatever is below.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::geometry::Kind;

/// More devices than this below one disk are not looked at.
const DEVICES_MAX: usize = 64;

/// The numbers of all devices below the file or block device that `stat` describes, each whole.
pub(crate) fn below(kind: Kind, stat: &Stat) -> Vec<u64> {
    let first = match kind {
        Kind::File => stat.st_dev,
        Kind::Block => stat.st_rdev,
    };
    let mut devices = Vec::new();
    let mut left = vec![first];
    while let Some(device) = left.pop()
        && devices.len() < DEVICES_MAX
    {
        let sysfs = sysfs_directory(device);
        let (whole, sysfs) = match sysfs.join("partition").exists() {
            true => (device_number(&sysfs.join("../dev")), sysfs.join("..")),
            false => (Some(device), sysfs),
        };
        let whole = whole.unwrap_or(device);
        if !devices.contains(&whole) {
            devices.push(whole);
            left.extend(file_of_loop(&sysfs));
            left.extend(members(&sysfs));
        }
    }
    devices
}

fn sysfs_directory(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// What the file of a loop device is on.
fn file_of_loop(sysfs: &Path) -> Option<u64> {
    let name = fs::read_to_string(sysfs.join("loop/backing_file")).ok()?;
    let found = fs::metadata(name.trim_end_matches('\n')).ok()?;
    Some(if found.file_type().is_block_device() { found.rdev() } else { found.dev() })
}

/// The devices that a device-mapper or RAID device is made of.
fn members(sysfs: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(sysfs.join("slaves")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| device_number(&entry.path().join("dev"))).collect()
}

/// `MAJOR:MINOR`, as sysfs has it.
fn device_number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, BlockDevice, Disk, LoopDevice, LoopOptions};

    #[test]
    fn a_file_system_without_a_block_device_is_its_own() {
        let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            return eprintln!("skipped: needs a tmpfs at /dev/shm");
        };
        let stat = rustix::fs::fstat(file.as_file()).expect("stat");
        assert_eq!(below(Kind::File, &stat), [stat.st_dev]);
    }

    #[test]
    fn a_device_that_is_gone_is_only_itself() {
        let mut stat = rustix::fs::stat("/").expect("stat");
        stat.st_rdev = rustix::fs::makedev(4095, 77);
        assert_eq!(below(Kind::Block, &stat), [stat.st_rdev]);
    }

    #[test]
    fn a_loop_device_shares_the_cache_of_its_file() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            return eprintln!("skipped: needs root and /dev/loop-control");
        }
        let file = |len_bytes| {
            let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
            file.as_file().set_len(len_bytes).expect("its length");
            file
        };
        let (image, other) = (file(1 << 20), file(1 << 20));
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(image.as_file(), options).expect("attach");
        let caches =
            |path: &Path| Disk::open(path, Access::ReadOnly).expect("open").caches().to_vec();
        let (of_loop, of_image, of_other) =
            (caches(device.path()), caches(image.path()), caches(other.path()));
        assert_eq!(of_image, of_other);
        assert_eq!(of_loop.len(), 1 + of_image.len());
        assert!(of_image.iter().all(|disk| of_loop.contains(disk)), "{of_loop:?} {of_image:?}");
    }
}
