//! The whole disks that finally hold the bytes of a directory or device, and their write caches.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Stat, StatxFlags, major, minor};

use crate::below::kind::Kind;
use crate::below::mount_table::{MountEntry, own_mounts};
use crate::below::sysfs::sysfs_directory;
use crate::disk::caches::{below, members};

/// What the kernel believes about the write cache of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// "write back": a write may be in a cache that a power cut empties, until a flush.
    Volatile,
    /// "write through": what was written is durable. The kernel sends no flushes.
    None,
    /// It is not known.
    Unknown,
}

/// A disk that is neither a partition, nor a loop device, nor made of other disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeDisk {
    /// Its numbers, major and minor.
    pub device: (u32, u32),
    /// Its name in sysfs, such as `nvme0n1`.
    pub name: String,
    /// Its write cache.
    pub write_cache: WriteCache,
}

/// The disks that a directory or device is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisksBelow {
    /// Each of them once.
    pub disks: Vec<WholeDisk>,
    /// Whether these are all: nothing of it is on a network, in memory, or on something that sysfs
    /// does not show.
    pub is_complete: bool,
}

impl DisksBelow {
    /// The write cache of all of them together: volatile if one of them is.
    pub fn write_cache(&self) -> WriteCache {
        let has = |cache| self.disks.iter().any(|disk| disk.write_cache == cache);
        let is_all_known = self.is_complete && !self.disks.is_empty() && !has(WriteCache::Unknown);
        match (has(WriteCache::Volatile), is_all_known) {
            (true, _) => WriteCache::Volatile,
            (false, true) => WriteCache::None,
            (false, false) => WriteCache::Unknown,
        }
    }
}

/// The disks below the directory, file or block device at `path`.
pub fn disks_below(path: &Path) -> io::Result<DisksBelow> {
    let stat = rustix::fs::stat(path)?;
    let kind =
        if fs::metadata(path)?.file_type().is_block_device() { Kind::Block } else { Kind::File };
    if kind == Kind::Block || sysfs_directory(stat.st_dev).exists() {
        return Ok(disks_of(kind, &stat));
    }
    // btrfs and FUSE have device numbers of their own, and name in the mount table what they are on.
    let source = mount_of(path).map(|mount| mount.source).filter(|source| source.is_absolute());
    let Some(stat) = source.and_then(|source| rustix::fs::stat(source).ok()) else {
        return Ok(disks_of(kind, &stat));
    };
    Ok(disks_of(Kind::of(&stat).unwrap_or(Kind::File), &stat))
}

fn disks_of(kind: Kind, stat: &Stat) -> DisksBelow {
    let (mut disks, mut is_complete) = (Vec::new(), true);
    for device in below(kind, stat) {
        let directory = sysfs_directory(device);
        let is_made_of_others =
            directory.join("loop/backing_file").exists() || !members(device).is_empty();
        match fs::canonicalize(&directory) {
            _ if is_made_of_others => {}
            Ok(own) => disks.push(WholeDisk {
                device: (major(device), minor(device)),
                name: own.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                write_cache: write_cache(&own),
            }),
            Err(_) => is_complete = false,
        }
    }
    DisksBelow { disks, is_complete }
}

/// The write cache of the disk with this directory in sysfs.
fn write_cache(directory: &Path) -> WriteCache {
    match fs::read_to_string(directory.join("queue/write_cache")).unwrap_or_default().trim() {
        "write back" => WriteCache::Volatile,
        "write through" => WriteCache::None,
        _ => WriteCache::Unknown,
    }
}

/// The mount that `path` is on, as the mount table of this process shows it.
pub fn mount_of(path: &Path) -> Option<MountEntry> {
    let statx = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let has_id = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::MNT_ID);
    let device = fs::metadata(path).ok()?.dev();
    // Before Linux 5.8 the device number decides.
    let is_it = |entry: &MountEntry| match has_id {
        true => entry.id == statx.stx_mnt_id,
        false => entry.device_number() == device,
    };
    own_mounts().ok()?.into_iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::loop_device::{LoopDevice, LoopOptions};

    fn below_of(caches: &[WriteCache], is_complete: bool) -> DisksBelow {
        let disk = |(minor, write_cache): (u32, &WriteCache)| WholeDisk {
            device: (8, minor),
            name: "sda".into(),
            write_cache: *write_cache,
        };
        DisksBelow { disks: (0..).zip(caches).map(disk).collect(), is_complete }
    }

    #[test]
    fn the_weakest_disk_decides() {
        use WriteCache::{None, Unknown, Volatile};
        let cases: [(&[WriteCache], bool, WriteCache); 9] = [
            (&[], true, Unknown),
            (&[], false, Unknown),
            (&[None], true, None),
            (&[None], false, Unknown),
            (&[None, None], true, None),
            (&[None, Unknown], true, Unknown),
            (&[None, Volatile], true, Volatile),
            (&[Volatile], false, Volatile),
            (&[Unknown, Volatile], false, Volatile),
        ];
        for (caches, is_complete, expected) in cases {
            let found = below_of(caches, is_complete).write_cache();
            assert_eq!(found, expected, "{caches:?} {is_complete}");
        }
    }

    #[test]
    fn a_file_system_in_memory_is_on_no_disk() {
        if !Path::new("/dev/shm").exists() {
            return eprintln!("skipped: needs /dev/shm");
        }
        let found = disks_below(Path::new("/dev/shm")).expect("found");
        assert_eq!((found.disks.len(), found.is_complete), (0, false));
        assert_eq!(mount_of(Path::new("/dev/shm")).expect("a mount").dir, Path::new("/dev/shm"));
    }

    #[test]
    fn a_loop_device_is_on_the_disks_of_its_file() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            return eprintln!("skipped: needs root and /dev/loop-control");
        }
        let image = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
        image.as_file().set_len(1 << 20).expect("its length");
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(image.as_file(), options).expect("attach");
        let of_loop = disks_below(device.path()).expect("found");
        assert_eq!(of_loop, disks_below(image.path()).expect("found"));
        assert!(of_loop.disks.iter().all(|disk| !disk.name.starts_with("loop")), "{of_loop:?}");
    }
}
