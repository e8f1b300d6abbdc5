//! Who else uses the bytes of a disk through another block device; the locks of the machine.
//!
//! The kernel knows of each block device whether somebody has it exclusively (a mount, swap, RAID,
//! [`crate::Disk`]), in whatever namespace; but not that two loop devices show the same file. So
//! each device that shares bytes with the disk is tried. Whoever opens a disk first claims its own
//! device and then looks at the others: of two who do so at one time at least one sees the other.

use std::fs;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::below::backing::{Backing, Root, open_node, parse_device, sysfs_directory};
use crate::below::mount_table::own_mounts;

/// A block device that shares bytes with `claimed`, whose own device the caller has exclusively,
/// and that somebody else has exclusively.
pub(crate) fn through_another_device(claimed: &Backing) -> Option<u64> {
    let sharing: Vec<(u64, Backing)> = devices()
        .into_iter()
        .filter_map(|device| Some((device, Backing::of_device(device).ok()?)))
        .filter(|(_, other)| other.overlaps(claimed))
        // The kernel keeps a disk and its own partitions apart.
        .filter(|(_, other)| claimed.whole.is_none() || other.whole != claimed.whole)
        .collect();
    let has_shared_partition = |device: u64| {
        sharing.iter().any(|(other, backing)| *other != device && backing.whole == Some(device))
    };
    // While a partition can be had exclusively, nobody has all of its disk.
    let mut tried = sharing.iter().filter(|(device, _)| !has_shared_partition(*device));
    tried
        .find(|(device, backing)| is_claimed(*device, backing.whole, claimed.root))
        .map(|(device, _)| *device)
}

/// Loop devices with a file, partitions, and the disks of partitions.
fn devices() -> Vec<u64> {
    let entries = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
    let device = |entry: fs::DirEntry| parse_device(entry.file_name().to_str()?);
    entries.filter_map(device).filter(|device| may_share(*device)).collect()
}

fn may_share(device: u64) -> bool {
    let directory = sysfs_directory(device);
    directory.join("partition").exists()
        || directory.join("loop/backing_file").exists()
        || has_partitions(device)
}

fn has_partitions(device: u64) -> bool {
    let entries = fs::read_dir(sysfs_directory(device)).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join("partition").exists())
}

/// Whether somebody has the device exclusively. Without permission to try, the mount table tells at
/// least of mounts. The same where a partition that shares nothing may be what makes its disk busy.
/// `whole`: the disk of a partition, which a mount of all of the disk makes busy, too.
fn is_claimed(device: u64, whole: Option<u64>, root: Root) -> bool {
    let mounts = || own_mounts().unwrap_or_default().into_iter();
    let is_it = |number: u64| number == device || Some(number) == whole;
    let is_mounted = || mounts().find(|entry| is_it(entry.device_number()));
    match open_node(device, OFlags::RDONLY | OFlags::EXCL) {
        Ok(_) => false,
        // Of a file, a process of ours has a lock; when it was killed, its mount may still be there,
        // for as long as other programs have files open on it.
        Err(_)
            if matches!(root, Root::File { .. })
                && (is_served(device) || whole.is_some_and(is_served)) =>
        {
            is_mounted().is_some_and(|mounted| !mounted.is_volume())
        }
        Err(Errno::BUSY) if !has_partitions(device) => true,
        Err(_) => is_mounted().is_some(),
    }
}

/// Whether the device is mounted by a process, in whatever namespace.
fn is_served(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Path::new(&format!("/sys/class/bdi/{major}:{minor}-fuseblk")).exists()
}

/// A line of `/proc/locks`, or of `/proc/PID/fdinfo/N` behind `lock:`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Of [`crate::range_lock`]; not by `flock`.
    pub(crate) is_range: bool,
    pub(crate) is_write: bool,
    /// Of the file system that the kernel locked in.
    device: u64,
    inode: u64,
    pub(crate) start: u64,
    /// Exclusive.
    end: u64,
}

impl Lock {
    pub(crate) fn parse(line: &str) -> Option<Lock> {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A process that waits for a lock stands behind the holder, with an arrow.
        let [_, kind, _, access, _, place, start, end] = words[..] else { return None };
        let mut numbers = place.splitn(3, ':');
        let mut hex = || u32::from_str_radix(numbers.next()?, 16).ok();
        let device = rustix::fs::makedev(hex()?, hex()?);
        Some(Lock {
            is_range: kind == "OFDLCK",
            is_write: access == "WRITE",
            device,
            inode: numbers.next()?.parse().ok()?,
            start: start.parse().ok()?,
            end: if end == "EOF" { u64::MAX } else { end.parse::<u64>().ok()?.checked_add(1)? },
        })
    }

    /// Whether it begins at `place`.
    pub(crate) fn is_at(&self, place: u64) -> bool {
        self.start == place
    }

    /// The file that it is on.
    pub(crate) fn root(&self) -> Root {
        Root::File { device: self.device, inode: self.inode }
    }

    /// Whether it is a lock of a part of `disk`.
    pub(crate) fn is_on(&self, disk: &Backing) -> bool {
        let Root::File { device, inode } = disk.root else { return false };
        self.inode == inode
            && is_same_file_system(self.device, device)
            && self.start < disk.end
            && disk.start < self.end
    }
}

/// File systems without a block device (btrfs, overlayfs) have a number in `stat` that differs from
/// the one that locks are shown with: any two of those may be the same.
fn is_same_file_system(one: u64, other: u64) -> bool {
    one == other || rustix::fs::major(one) == 0 && rustix::fs::major(other) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(device: u64, start: u64, end: u64) -> Backing {
        let root = Root::File { device, inode: 77 };
        Backing { root, start, end, name: None, whole: None }
    }

    #[test]
    fn a_line_of_the_locks() {
        let lock = Lock::parse("3: OFDLCK ADVISORY  WRITE -1 fe:01:77 512 1023").expect("a lock");
        let device = rustix::fs::makedev(0xfe, 1);
        let expected =
            Lock { is_range: true, is_write: true, device, inode: 77, start: 512, end: 1024 };
        assert_eq!(lock, expected);
        assert!(lock.is_on(&backing(device, 1023, 2048)));
        assert!(!lock.is_on(&backing(device, 1024, 2048)));
        assert!(!lock.is_on(&backing(rustix::fs::makedev(0xfe, 2), 0, u64::MAX)));
        let flock = Lock::parse("1: FLOCK  ADVISORY  WRITE 8263 fe:01:77 0 EOF").expect("a lock");
        assert!(!flock.is_range && flock.end == u64::MAX);
        assert_eq!(Lock::parse("1: -> FLOCK  ADVISORY  WRITE 8263 fe:01:77 0 EOF"), None);
        assert_eq!(Lock::parse("1: FLOCK"), None);
    }

    #[test]
    fn numbers_of_file_systems_without_a_device_are_not_compared() {
        let [one, other] = [35, 36].map(|minor| rustix::fs::makedev(0, minor));
        assert!(is_same_file_system(one, other));
        assert!(!is_same_file_system(one, rustix::fs::makedev(8, 1)));
    }
}
