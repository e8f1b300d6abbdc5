//! The whole disks that finally hold the bytes of a directory or device.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use device::{devices_below, member_devices};
use host::{Store, device_number, mount_of, read_number, store_of, sysfs_directory};
use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor};

use super::write_cache::{WriteCache, write_cache};

/// Where sysfs lists file systems and their devices.
const BTRFS: &str = "/sys/fs/btrfs";

/// A disk that is neither a partition, nor a loop device, nor made of other disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeDisk {
    /// Its numbers, major and minor.
    pub device: (u32, u32),
    /// Its name in sysfs, such as `nvme0n1`.
    pub name: String,
    /// Its write cache.
    pub write_cache: WriteCache,
    /// The kernel's sequence number of the disk: no other disk has it until the machine starts
    /// again. `None` before Linux 5.15.
    pub sequence_number: Option<u64>,
}

impl WholeDisk {
    fn of(device: u64, directory: &Path) -> WholeDisk {
        WholeDisk {
            device: (major(device), minor(device)),
            name: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            write_cache: write_cache(directory),
            sequence_number: read_number(&directory.join("diskseq")),
        }
    }

    /// Whether its numbers still belong to the same disk.
    pub fn is_still_there(&self) -> bool {
        let device = rustix::fs::makedev(self.device.0, self.device.1);
        let now = fs::canonicalize(sysfs_directory(device)).map(|own| WholeDisk::of(device, &own));
        now.is_ok_and(|now| (&now.name, now.sequence_number) == (&self.name, self.sequence_number))
    }
}

/// The disks that a directory or device is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisksBelow {
    /// Each of them once.
    pub disks: Vec<WholeDisk>,
    /// Whether these are all: nothing of it is on a network, in memory, or on something that sysfs
    /// does not show.
    pub is_complete: bool,
    /// The numbers, major and minor, of the loop devices in between.
    pub loops: Vec<(u32, u32)>,
}

impl DisksBelow {
    /// Nothing is known.
    pub(crate) fn unknown() -> DisksBelow {
        DisksBelow { disks: Vec::new(), is_complete: false, loops: Vec::new() }
    }

    /// The write cache of all of them together: volatile if one of them is.
    pub fn write_cache(&self) -> WriteCache {
        let has = |cache| self.disks.iter().any(|disk| disk.write_cache == cache);
        let is_all_known = self.is_complete && !self.disks.is_empty() && !has(WriteCache::Unknown);
        match (has(WriteCache::Volatile), is_all_known, has(WriteCache::NotReported)) {
            (true, _, _) => WriteCache::Volatile,
            (false, false, _) => WriteCache::Unknown,
            (false, true, true) => WriteCache::NotReported,
            (false, true, false) => WriteCache::None,
        }
    }
}

/// The disks below the directory, file or block device at `path`.
pub fn disks_below(path: &Path) -> io::Result<DisksBelow> {
    let own = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&own)?;
    if is_block_device(&stat) {
        return Ok(disks_below_device(stat.st_rdev));
    }
    match store_of(&own) {
        Store::Own => disks_below_file(own.as_fd()),
        Store::Upper(upper) => disks_below_file(upper.as_fd()),
        Store::Unknown => Ok(DisksBelow::unknown()),
    }
}

fn is_block_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}

/// The disks below the block device with this number.
pub(crate) fn disks_below_device(device: u64) -> DisksBelow {
    let mut found = DisksBelow { disks: Vec::new(), is_complete: true, loops: Vec::new() };
    found.add(device);
    found
}

/// The disks below the file system of an open file or directory, which is no overlay.
pub(crate) fn disks_below_file(fd: BorrowedFd<'_>) -> io::Result<DisksBelow> {
    let stat = rustix::fs::fstat(fd)?;
    if sysfs_directory(stat.st_dev).exists() {
        return Ok(disks_below_device(stat.st_dev));
    }
    // btrfs and FUSE have device numbers of their own, and name in the mount table what they are
    // on.
    let source = mount_of(fd).map(|mount| mount.source).filter(|source| source.is_absolute());
    let Some(source) = source.and_then(|source| rustix::fs::stat(source).ok()) else {
        return Ok(disks_below_device(stat.st_dev));
    };
    let is_device = is_block_device(&source);
    let mut found = disks_below_device(if is_device { source.st_rdev } else { source.st_dev });
    for other in other_btrfs_devices(Path::new(BTRFS), source.st_rdev) {
        found.add(other);
    }
    Ok(found)
}

impl DisksBelow {
    /// Adds what is below the block device with this number.
    fn add(&mut self, device: u64) {
        devices_below(device).into_iter().for_each(|device| self.add_layer(device));
    }

    /// Adds one of the devices that are below something.
    fn add_layer(&mut self, device: u64) {
        let (directory, numbers) = (sysfs_directory(device), (major(device), minor(device)));
        let is_loop = directory.join("loop/backing_file").exists();
        if is_loop && !self.loops.contains(&numbers) {
            self.loops.push(numbers);
        }
        if is_loop || !member_devices(device).is_empty() {
            return;
        }
        match fs::canonicalize(&directory) {
            Ok(_) if self.disks.iter().any(|disk| disk.device == numbers) => {}
            Ok(own) => self.disks.push(WholeDisk::of(device, &own)),
            Err(_) => self.is_complete = false,
        }
    }
}

/// The other devices of the btrfs file system that the block device with this number is part of, as
/// `btrfs`, a directory of sysfs, lists them.
fn other_btrfs_devices(btrfs: &Path, device: u64) -> Vec<u64> {
    let of = |file_system: PathBuf| -> Option<Vec<u64>> {
        let entries = fs::read_dir(file_system.join("devices")).ok()?.flatten();
        Some(entries.filter_map(|entry| device_number(&entry.path()).ok()).collect())
    };
    let file_systems = fs::read_dir(btrfs).into_iter().flatten().flatten();
    let mut all = file_systems.filter_map(|entry| of(entry.path()));
    let found = all.find(|devices| devices.contains(&device)).unwrap_or_default();
    found.into_iter().filter(|other| *other != device).collect()
}

#[cfg(test)]
mod tests {
    use host::{LoopDevice, LoopOptions};
    use onejournal_testing::{Need, has_loop_devices, has_shm, skip};

    use super::*;

    fn below_of(caches: &[WriteCache], is_complete: bool) -> DisksBelow {
        let disk = |(minor, write_cache): (u32, &WriteCache)| WholeDisk {
            device: (8, minor),
            name: "sda".into(),
            write_cache: *write_cache,
            sequence_number: None,
        };
        let disks = (0..).zip(caches).map(disk).collect();
        DisksBelow { disks, is_complete, loops: Vec::new() }
    }

    #[test]
    fn the_weakest_disk_decides() {
        use WriteCache::{None, NotReported, Unknown, Volatile};
        let cases: [(&[WriteCache], bool, WriteCache); 14] = [
            (&[], true, Unknown),
            (&[], false, Unknown),
            (&[None], true, None),
            (&[None], false, Unknown),
            (&[None, None], true, None),
            (&[None, Unknown], true, Unknown),
            (&[None, Volatile], true, Volatile),
            (&[Volatile], false, Volatile),
            (&[Unknown, Volatile], false, Volatile),
            (&[NotReported], true, NotReported),
            (&[NotReported], false, Unknown),
            (&[None, NotReported], true, NotReported),
            (&[NotReported, Unknown], true, Unknown),
            (&[NotReported, Volatile], true, Volatile),
        ];
        for (caches, is_complete, expected) in cases {
            let found = below_of(caches, is_complete).write_cache();
            assert_eq!(found, expected, "{caches:?} {is_complete}");
        }
    }

    #[test]
    fn a_file_system_in_memory_is_on_no_disk() {
        if !has_shm() {
            return;
        }
        let found = disks_below(Path::new("/dev/shm")).expect("found");
        assert_eq!((found.disks.len(), found.is_complete), (0, false));
    }

    #[test]
    fn a_loop_device_is_on_the_disks_of_its_file() {
        if !has_loop_devices() {
            return;
        }
        let image = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
        image.as_file().set_len(1 << 20).expect("its length");
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(image.as_file(), options).expect("attach");
        let of_loop = disks_below(device.path()).expect("found");
        let of_image = disks_below(image.path()).expect("found");
        assert_eq!((&of_loop.disks, of_loop.is_complete), (&of_image.disks, of_image.is_complete));
        assert_eq!(of_loop.loops.len(), of_image.loops.len() + 1, "{of_loop:?}");
        assert!(of_loop.disks.iter().all(|disk| !disk.name.starts_with("loop")), "{of_loop:?}");
    }

    #[test]
    fn a_btrfs_is_on_all_its_devices() {
        let btrfs = tempfile::tempdir().expect("a directory");
        for (device, number) in
            [("one/devices/sda", "8:0"), ("one/devices/sdb1", "8:17"), ("two/devices/sdc", "8:32")]
        {
            let directory = btrfs.path().join(device);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("dev"), format!("{number}\n")).expect("written");
        }
        let device = |minor| rustix::fs::makedev(8, minor);
        let others = |minor| other_btrfs_devices(btrfs.path(), device(minor));
        assert_eq!([others(0), others(17)], [[device(17)], [device(0)]]);
        assert_eq!([others(32), others(99)], [const { Vec::<u64>::new() }; 2]);
        assert!(other_btrfs_devices(Path::new("/none"), device(0)).is_empty());
    }

    #[test]
    fn a_disk_that_was_replaced_is_another_one() {
        let found = disks_below(Path::new("/var/tmp")).expect("found");
        if found.disks.is_empty() {
            return skip(Need::Disk, "needs a disk below /var/tmp");
        }
        for disk in found.disks {
            assert!(disk.is_still_there(), "{disk:?}");
            let renamed = WholeDisk { name: "other".into(), ..disk.clone() };
            assert!(!renamed.is_still_there());
            let replaced = WholeDisk { sequence_number: Some(u64::MAX), ..disk };
            assert!(!replaced.is_still_there());
        }
    }
}
