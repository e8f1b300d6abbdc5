//! Block devices by their numbers: their directories in sysfs, and their nodes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::descriptor::above_standard;

/// Opens the node of a block device below `/dev`.
pub(crate) fn open_node(device: u64, flags: OFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let path = node_path(device);
    let fd = above_standard(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()))?;
    if rustix::fs::fstat(&fd)?.st_rdev != device {
        return Err(rustix::io::Errno::NODEV);
    }
    Ok(fd)
}

/// The usual path of a block device.
pub(crate) fn node_path(device: u64) -> PathBuf {
    let uevent = fs::read_to_string(sysfs_directory(device).join("uevent")).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let numbers = format!("block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    Path::new("/dev").join(name.unwrap_or(&numbers))
}

/// The directory of a block device in sysfs.
pub fn sysfs_directory(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The number that a file in sysfs holds.
pub fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number of the device that a directory in sysfs belongs to.
pub fn device_number(directory: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join("dev"))?;
    parse_device(text.trim()).ok_or_else(|| io::Error::other("no device number in sysfs"))
}

/// `MAJOR:MINOR` in decimal.
pub(crate) fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}
