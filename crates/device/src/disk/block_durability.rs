//! What the writes to a block device survive: what the weakest of the things survives that it is
//! made of.

use std::fs;
use std::path::PathBuf;

use host::{Backing, DiskKind, Found, Root, Trust, own_mounts, sysfs_directory};
use rustix::fs::{OFlags, Stat};

use super::caches::member_devices;
use crate::durability::Durability;
use crate::durability::file_system_durability;

/// Deeper stacks of devices are not followed.
const DEPTH_MAX: usize = 8;

/// The next layer below a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layer {
    /// A RAM disk.
    Memory,
    /// A disk, or a device that is made of these others.
    Disk(Vec<u64>),
    /// A loop device on a file: what the file's own file system survives, and the device of that.
    File(Durability, u64),
    Unknown,
}

/// A RAM disk survives nothing. A loop device survives what its file survives, and a device-mapper
/// or RAID device what its members survive.
pub fn block_durability(device: u64) -> Durability {
    weakest(device, DEPTH_MAX, &layer_below)
}

fn weakest(device: u64, depth_left: usize, layer_of: &dyn Fn(u64) -> Layer) -> Durability {
    let Some(depth_left) = depth_left.checked_sub(1) else { return Durability::Power };
    let of = |device| weakest(device, depth_left, layer_of);
    match layer_of(device) {
        Layer::Memory => Durability::Process,
        Layer::Disk(members) => members.into_iter().map(of).min().unwrap_or(Durability::Power),
        Layer::File(own, device) => own.min(of(device)),
        Layer::Unknown => Durability::Power,
    }
}

fn layer_below(device: u64) -> Layer {
    let Ok(backing) = Backing::of_device(device) else { return Layer::Unknown };
    match backing.root {
        Root::Disk(disk) if is_memory(disk) => Layer::Memory,
        Root::Disk(disk) => Layer::Disk(member_devices(disk)),
        Root::File { device, .. } => Layer::File(file_durability(device, backing.name), device),
    }
}

fn is_memory(disk: u64) -> bool {
    let name = fs::canonicalize(sysfs_directory(disk)).unwrap_or_default();
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ram") || name.starts_with("zram")
}

/// The durability of a file on the file system with this number. Only the file system counts, since
/// the file may have no name any more.
fn file_durability(device: u64, name: Option<PathBuf>) -> Durability {
    // Its directory may be another user's, who may have mounted a server there.
    let place = name.and_then(|name| Trust::own().and_root().reach_trusted(&name).ok());
    let found = place.and_then(|place| Found::of(place).ok());
    let is_it = |stat: &Stat| stat.st_dev == device && DiskKind::of(stat) == Ok(DiskKind::File);
    let file = found.filter(|found| is_it(&found.stat));
    if let Some(file) = file.and_then(|found| found.open(OFlags::RDONLY).ok()) {
        return file_system_durability(&file);
    }
    let mounts = own_mounts().unwrap_or_default();
    let is_memory = |kind: &str| ["tmpfs", "ramfs", "hugetlbfs", "rootfs"].contains(&kind);
    match mounts.iter().any(|mount| mount.device_number() == device && is_memory(&mount.kind)) {
        true => Durability::Process,
        false => Durability::Power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 is a disk, 2 a RAM disk; 10 is made of both, 11 of 1 alone, 12 of 10. 20 and 21 are loop
    /// devices on a file on 12 and on 11, 22 on one in memory. 30 is below itself.
    fn layer(device: u64) -> Layer {
        match device {
            1 => Layer::Disk(Vec::new()),
            2 => Layer::Memory,
            10 => Layer::Disk(vec![1, 2]),
            11 => Layer::Disk(vec![1]),
            12 => Layer::Disk(vec![10]),
            20 => Layer::File(Durability::Power, 12),
            21 => Layer::File(Durability::Power, 11),
            22 => Layer::File(Durability::Process, 1),
            30 => Layer::Disk(vec![30]),
            _ => Layer::Unknown,
        }
    }

    #[test]
    fn the_weakest_member_decides_however_deep_it_is() {
        let of = |device| weakest(device, DEPTH_MAX, &layer);
        for device in [1, 11, 21, 30, 99] {
            assert_eq!(of(device), Durability::Power, "{device}");
        }
        for device in [2, 10, 12, 20, 22] {
            assert_eq!(of(device), Durability::Process, "{device}");
        }
    }

    #[test]
    fn a_device_that_is_gone_is_a_disk() {
        assert_eq!(block_durability(rustix::fs::makedev(4095, 77)), Durability::Power);
    }
}
