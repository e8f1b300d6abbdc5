//! The block devices of the machine, for a caller that looks for one by what it holds.
//!
//! Nothing is locked, and nothing is written. A device that is part of another one (of a RAID, a
//! logical volume, a multipath device) is left out: the other one shows the same bytes, and is the
//! one to use.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat};

use super::backing::{Backing, Root};
use super::kind::DiskKind;
use super::sysfs::{node_path, open_node, parse_device, read_number, sysfs_directory};
use crate::files::found::Found;

/// Floppy drives: reading an empty one takes seconds, and none holds anything of use here.
const FLOPPY_MAJOR: u32 = 2;

/// A block device of the machine.
#[derive(Debug, Clone)]
pub struct ListedDevice {
    /// Its usual path.
    pub path: PathBuf,
    number: u64,
}

/// The block devices of the machine, ordered by path: disks, partitions, loop and mapped devices.
pub fn block_devices() -> Vec<ListedDevice> {
    let entries = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| parse_device(entry.file_name().to_str()?));
    let listed = numbers.filter(|number| is_listed(*number));
    let mut devices: Vec<ListedDevice> =
        listed.map(|number| ListedDevice { path: node_path(number), number }).collect();
    devices.sort_by(|one, other| one.path.cmp(&other.path));
    devices
}

/// Whether a device has a medium, and is not part of another device.
fn is_listed(number: u64) -> bool {
    let directory = sysfs_directory(number);
    let is_part =
        || fs::read_dir(directory.join("holders")).is_ok_and(|mut all| all.next().is_some());
    rustix::fs::major(number) != FLOPPY_MAJOR
        && read_number(&directory.join("size")).is_some_and(|sector_count| sector_count > 0)
        && !is_part()
}

impl ListedDevice {
    /// The open device, for reading past the page cache.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK;
        Ok(open_node(self.number, flags)?.into())
    }

    /// Whether both begin with the same bytes of the same medium, such as two loop devices of one
    /// file.
    pub fn begins_where(&self, other: &ListedDevice) -> bool {
        let start = |device: &ListedDevice| -> Option<(Root, u64)> {
            let backing = Backing::of_device(device.number).ok()?;
            Some((backing.root, backing.start))
        };
        self.number == other.number || start(self).is_some_and(|at| start(other) == Some(at))
    }
}

/// Whether two files or block devices have bytes in common: they are one, or one is a partition or
/// a loop device of the other one.
pub fn share_bytes(one: &Path, other: &Found) -> io::Result<bool> {
    Ok(backing(&rustix::fs::stat(one)?)?.overlaps(&backing(&other.stat)?))
}

fn backing(stat: &Stat) -> io::Result<Backing> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => DiskKind::Block,
        _ => DiskKind::File,
    };
    Backing::of(kind, stat)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use onejournal_testing::has_loop_devices;

    use super::*;
    use crate::below::loop_device::{LoopDevice, LoopOptions};

    #[test]
    fn two_loop_devices_of_one_file_are_listed_and_begin_at_the_same_place() {
        if !has_loop_devices() {
            return;
        }
        let file = || {
            let mut file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
            file.write_all(&[7; 4096])
                .and_then(|()| file.as_file().set_len(1 << 20))
                .expect("bytes");
            file.as_file().sync_all().expect("a sync");
            file
        };
        let (shared, other) = (file(), file());
        let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
        let attach = |file: &tempfile::NamedTempFile| {
            LoopDevice::attach(file.as_file(), options).expect("attach")
        };
        let devices = [attach(&shared), attach(&shared), attach(&other)];
        let listed = block_devices();
        assert!(listed.is_sorted_by(|one, next| one.path < next.path));
        let find = |device: &LoopDevice| {
            let found = listed.iter().find(|listed| listed.path == device.path());
            found.expect("it is listed").clone()
        };
        let [one, same, different] = devices.each_ref().map(find);
        assert!(one.begins_where(&same) && one.begins_where(&one));
        assert!(!one.begins_where(&different));
        let mut buf = vec![0; 8192];
        let aligned = buf.as_ptr().align_offset(4096);
        let start = &mut buf[aligned..aligned + 4096];
        one.open().expect("open").read_exact_at(start, 0).expect("it can be read");
        assert_eq!(start, [7; 4096]);
        for path in [one.path.as_path(), shared.path()] {
            let found = Found::at(path, OFlags::empty()).expect("there");
            assert!(share_bytes(&same.path, &found).expect("both exist"));
            assert!(!share_bytes(&different.path, &found).expect("both exist"));
            assert!(share_bytes(Path::new("/none"), &found).is_err());
        }
    }
}
