//! The file or whole disk that holds the bytes of a disk, and the span of it that the disk
//! occupies.
//!
//! A partition is a span of its disk, and a loop device is a span of its file. Either may be
//! stacked on the other, many times. Two disks share bytes exactly if they have the same root and
//! their spans overlap. The file of a loop device is identified by the numbers that the kernel
//! reports: it may have another name by now, or none.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, Stat, makedev};
use rustix::io::Errno;

use super::kind::DiskKind;
use super::loop_status::{LoopStatus, loop_status};
use super::sysfs::{device_number, open_node, read_number, sysfs_directory};
use crate::files::reach::cached_attributes;
use crate::files::trust::Trust;

/// Deeper stacks of loop devices and partitions are refused.
const DEPTH_MAX: usize = 16;

/// Unit of `start` and `size` in sysfs, independent of the device's sector size.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// The lowest layer: what finally holds the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A file: the numbers of its file system and of its inode.
    File {
        /// That of its file system.
        device: u64,
        /// That of its inode.
        inode: u64,
    },
    /// A whole disk that is neither a partition nor a loop device.
    Disk(u64),
}

/// Where the bytes of a disk are.
#[derive(Debug, Clone)]
pub struct Backing {
    /// What holds the bytes.
    pub root: Root,
    /// Where the disk begins in the root, in bytes.
    pub start: u64,
    /// Where it ends. Exclusive; `u64::MAX` stands for the end of the root.
    pub end: u64,
    /// A name of the file, if the disk is a loop device or is on one.
    pub name: Option<PathBuf>,
    /// The kernel's device that the disk is, or is a partition of; `None` for a file.
    pub whole: Option<u64>,
}

impl Backing {
    /// The backing of the file or block device that `stat` describes.
    pub fn of(kind: DiskKind, stat: &Stat) -> io::Result<Backing> {
        match kind {
            DiskKind::File => {
                let root = Root::File { device: stat.st_dev, inode: stat.st_ino };
                Ok(Backing { root, start: 0, end: u64::MAX, name: None, whole: None })
            }
            DiskKind::Block => Backing::of_device(stat.st_rdev),
        }
    }

    /// The backing of the block device with this number.
    pub fn of_device(mut device: u64) -> io::Result<Backing> {
        let (mut start, mut end, mut whole) = (0, u64::MAX, None);
        for _ in 0..DEPTH_MAX {
            let directory = sysfs_directory(device);
            if directory.join("partition").exists() {
                let from = sectors(&directory.join("start"))?;
                let len = sectors(&directory.join("size"))?;
                (start, end) = within(from, from.saturating_add(len), start, end);
                device = device_number(&directory.join(".."))?;
                continue;
            }
            whole = whole.or(Some(device));
            let Some(name) = file_name(&directory) else {
                return Ok(Backing { root: Root::Disk(device), start, end, name: None, whole });
            };
            let status = status_of(device, &directory, &name)?;
            let limit = match status.limit_bytes {
                0 => u64::MAX,
                len => status.offset_bytes.saturating_add(len),
            };
            (start, end) = within(status.offset_bytes, limit, start, end);
            if status.block_device == 0 {
                let root = Root::File { device: status.device, inode: status.inode };
                return Ok(Backing { root, start, end, name: Some(name), whole });
            }
            device = status.block_device;
        }
        Err(io::Error::other(format!("more than {DEPTH_MAX} loop devices and partitions deep")))
    }

    /// Whether the two share bytes.
    pub fn overlaps(&self, other: &Backing) -> bool {
        self.root == other.root && self.start < other.end && other.start < self.end
    }
}

/// The path of the file that a loop device shows as a whole. `None` also if it shows a part.
pub fn backing_file((major, minor): (u32, u32)) -> Option<PathBuf> {
    let directory = sysfs_directory(makedev(major, minor));
    let is_zero = |name: &str| read_number(&directory.join("loop").join(name)) == Some(0);
    let is_all = is_zero("offset") && is_zero("sizelimit");
    is_all.then(|| file_name(&directory)).flatten()
}

/// The name of the file of the loop device with this directory in sysfs. It need not be UTF-8.
fn file_name(directory: &Path) -> Option<PathBuf> {
    let name = fs::read(directory.join("loop/backing_file")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(OsStr::from_bytes(name).into())
}

/// The absolute span of `start..end` inside something that is itself at `from..to`.
fn within(from: u64, to: u64, start: u64, end: u64) -> (u64, u64) {
    (from.saturating_add(start).min(to), from.saturating_add(end).min(to))
}

/// Asks the kernel. Without permission to open the device, uses sysfs and the name of its file.
fn status_of(device: u64, directory: &Path, name: &Path) -> io::Result<LoopStatus> {
    if let Ok(node) = open_node(device, OFlags::RDONLY)
        && let Ok(status) = loop_status(node)
    {
        return Ok(status);
    }
    let number = |file: &str| -> io::Result<u64> {
        let text = fs::read_to_string(directory.join("loop").join(file))?;
        text.trim().parse().map_err(io::Error::other)
    };
    let reached = Trust::own().and_root().reach(name);
    let found = reached.and_then(|file| cached_attributes(file).ok_or(Errno::ACCESS.into()));
    let found = found.map_err(|error| {
        let why = format!("the file of its loop device cannot be found ({error})");
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    })?;
    Ok(LoopStatus {
        device: makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        block_device: makedev(found.stx_rdev_major, found.stx_rdev_minor),
        offset_bytes: number("offset")?,
        limit_bytes: number("sizelimit")?,
    })
}

fn sectors(path: &Path) -> io::Result<u64> {
    let count: u64 = fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)?;
    Ok(count.saturating_mul(SYSFS_SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use onejournal_testing::has_loop_devices;
    use rustix::fs::{major, minor};

    use super::super::loop_device::{LoopDevice, LoopOptions};
    use super::*;

    fn backing(inode: u64, start: u64, end: u64) -> Backing {
        let root = Root::File { device: 1, inode };
        Backing { root, start, end, name: None, whole: None }
    }

    #[test]
    fn spans_of_one_file_overlap_or_not() {
        let (first, second, all) = (backing(1, 0, 10), backing(1, 10, 20), backing(1, 0, u64::MAX));
        assert!(!first.overlaps(&second) && !second.overlaps(&first));
        for span in [&first, &second] {
            assert!(all.overlaps(span) && span.overlaps(&all) && span.overlaps(span));
        }
        assert!(!first.overlaps(&backing(2, 0, 10)));
    }

    #[test]
    fn regression_a_loop_device_on_a_file_whose_name_is_no_text_has_the_bytes_of_the_file() {
        if !has_loop_devices() {
            return;
        }
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let path = place.path().join(OsStr::from_bytes(b"caf\xe9.img"));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a file");
        file.set_len(1 << 20).expect("its length");
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let device = LoopDevice::attach(&file, options).expect("attach");
        let [of_file, of_device] =
            [path.as_path(), device.path()].map(|path| rustix::fs::stat(path).expect("stat"));
        let of_file = Backing::of(DiskKind::File, &of_file).expect("a file");
        let number = (major(of_device.st_rdev), minor(of_device.st_rdev));
        let of_device = Backing::of_device(of_device.st_rdev).expect("a loop device");
        assert!(of_device.overlaps(&of_file), "{of_device:?}");
        assert_eq!((of_device.name, backing_file(number)), (Some(path.clone()), Some(path)));
    }

    #[test]
    fn a_span_of_a_span_ends_with_it() {
        assert_eq!(within(100, 200, 10, 20), (110, 120));
        assert_eq!(within(100, 200, 10, u64::MAX), (110, 200));
        assert_eq!(within(100, u64::MAX, 10, u64::MAX), (110, u64::MAX));
        assert_eq!(within(100, 200, 300, 400), (200, 200));
    }
}
