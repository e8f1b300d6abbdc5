//! Finds the volatile caches that hold what was written to a disk: those of the whole disks below
//! it, as sysfs shows them.
//!
//! A partition shares the cache of its disk, a loop device that of its file's disk, and a file that
//! of its file system's disk. A device-mapper or RAID device shares those of all its members. A
//! failed flush of one user may lose the writes of another one, so users must know that they share
//! a cache.
//!
//! A file system that is not on one block device (tmpfs, network, btrfs, overlay) is represented by
//! its own number: two files on it share the caches below it.

use std::fs;

use host::{Backing, DiskKind, Root, device_number, sysfs_directory};
use rustix::fs::Stat;

/// At most this many devices below one disk are examined.
const DEVICES_MAX: usize = 64;

/// The numbers of the whole devices below the file or block device that `stat` describes.
pub(crate) fn below(kind: DiskKind, stat: &Stat) -> Vec<u64> {
    devices_below(match kind {
        DiskKind::File => stat.st_dev,
        DiskKind::Block => stat.st_rdev,
    })
}

/// The numbers of the whole devices below the device with this number.
pub fn devices_below(device: u64) -> Vec<u64> {
    let mut left = vec![device];
    let mut devices = Vec::new();
    while let Some(device) = left.pop()
        && devices.len() < DEVICES_MAX
    {
        let Ok(Backing { root, whole, .. }) = Backing::of_device(device) else {
            devices.push(device);
            continue;
        };
        let found = match root {
            Root::File { device, .. } => {
                left.push(device);
                whole
            }
            Root::Disk(disk) => {
                devices.extend(whole.filter(|whole| *whole != disk));
                Some(disk).filter(|disk| !devices.contains(disk))
            }
        };
        left.extend(found.into_iter().flat_map(member_devices));
        devices.extend(found);
    }
    devices
}

/// The devices that a device-mapper or RAID device is made of.
pub fn member_devices(device: u64) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(sysfs_directory(device).join("slaves")) else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| device_number(&entry.path()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use host::{Access, LoopDevice, LoopOptions};
    use onejournal_testing::{has_loop_devices, has_shm};

    use super::*;
    use crate::block::block_device::BlockDevice;
    use crate::disk::device::Disk;

    #[test]
    fn a_file_system_without_a_block_device_is_its_own() {
        if !has_shm() {
            return;
        }
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
        let stat = rustix::fs::fstat(file.as_file()).expect("stat");
        assert_eq!(below(DiskKind::File, &stat), [stat.st_dev]);
    }

    #[test]
    fn a_device_that_is_gone_is_only_itself() {
        let mut stat = rustix::fs::stat("/").expect("stat");
        stat.st_rdev = rustix::fs::makedev(4095, 77);
        assert_eq!(below(DiskKind::Block, &stat), [stat.st_rdev]);
    }

    #[test]
    fn a_loop_device_shares_the_cache_of_its_file() {
        if !has_loop_devices() {
            return;
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
