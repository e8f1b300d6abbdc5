//! Finds users of a disk's bytes that use another block device.
//!
//! The kernel knows of each block device whether a user has it exclusively (a mount, swap, RAID, a
//! [claim](super::take)), in every namespace. It does not know that two loop devices show the same
//! file. So each device that shares bytes with the disk is tried. A user that opens a disk first
//! claims its own device and then looks at the others. If two users do so at the same time, at
//! least one of them sees the other.

use std::fs;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::below::backing::{Backing, Root};
use crate::below::mount_table::own_mounts;
use crate::below::sysfs::{open_node, parse_device, sysfs_directory};

/// A block device that shares bytes with `claimed`, and that another user has exclusively. The
/// caller has its own device exclusively.
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
    // A disk is not tried if one of its partitions is: while a user has the whole disk, the kernel
    // refuses the partition, too.
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

/// Whether a user has the device exclusively. Without permission to try, the mount table shows at
/// least the mounts. The mount table also decides if the disk may be busy because of a partition
/// that shares no bytes. `whole`: the disk of a partition; a mount of the whole disk makes the
/// partition busy, too.
fn is_claimed(device: u64, whole: Option<u64>, root: Root) -> bool {
    let mounts = || own_mounts().unwrap_or_default().into_iter();
    let is_it = |number: u64| number == device || Some(number) == whole;
    let is_mounted = || mounts().find(|entry| is_it(entry.device_number()));
    let is_on_file = matches!(root, Root::File { .. });
    let is_on_served = || is_on_file && (is_served(device) || whole.is_some_and(is_served));
    match try_exclusive(device) {
        Exclusive::Free => false,
        // The process that serves the mount has a lock on the file. After it was killed, its mount
        // may remain for as long as other programs have files open on it.
        Exclusive::Taken | Exclusive::Unknown if is_on_served() => {
            is_mounted().is_some_and(|mounted| !mounted.is_volume())
        }
        Exclusive::Taken if !has_partitions(device) => true,
        Exclusive::Taken | Exclusive::Unknown => is_mounted().is_some(),
    }
}

/// The result of an attempt to open a device exclusively.
enum Exclusive {
    Free,
    /// The device, or a partition of it, is open exclusively.
    Taken,
    /// The attempt failed for another reason, such as a missing permission.
    Unknown,
}

fn try_exclusive(device: u64) -> Exclusive {
    match open_node(device, OFlags::RDONLY | OFlags::EXCL) {
        Ok(_) => Exclusive::Free,
        Err(Errno::BUSY) => Exclusive::Taken,
        Err(_) => Exclusive::Unknown,
    }
}

/// Whether any process, in any namespace, has the device mounted.
fn is_served(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Path::new(&format!("/sys/class/bdi/{major}:{minor}-fuseblk")).exists()
}
