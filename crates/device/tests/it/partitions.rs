//! Partitions of one disk. These tests have a program of their own, because they start other
//! programs: between fork and exec a child has its parent's files open.

use std::path::{Path, PathBuf};
use std::process::Command;

use host::{Access, LoopDevice, LoopOptions};
use onejournal_device::{BlockDevice, Disk};
use onejournal_testing::{Need, has_loop_devices, has_program, skip};
use tempfile::NamedTempFile;

fn backing() -> NamedTempFile {
    let file = NamedTempFile::new_in("/var/tmp").expect("temporary file");
    file.as_file().set_len(16 << 20).expect("size");
    file
}

fn attach(file: &NamedTempFile) -> LoopDevice {
    let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
    LoopDevice::attach(file.as_file(), options).expect("attach")
}

/// A partition, removed when the value is dropped. It would otherwise outlast the loop device.
struct Partition {
    disk: PathBuf,
    number: u64,
    path: PathBuf,
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = Command::new("delpart").arg(&self.disk).arg(self.number.to_string()).status();
    }
}

/// Adds partition `number` with 4 MiB. `None`, with a message, if the kernel makes no node for it.
fn add_partition(disk: &Path, number: u64) -> Option<Partition> {
    let numbers = [number, number * 8192, 8192].map(|number| number.to_string());
    let added = Command::new("addpart").arg(disk).args(numbers).status().expect("addpart");
    let path = PathBuf::from(format!("{}p{number}", disk.display()));
    let partition = Partition { disk: disk.to_owned(), number, path };
    if !added.success() || !partition.path.exists() {
        skip(Need::Partitions, format!("needs {}; addpart: {added}", partition.path.display()));
        return None;
    }
    Some(partition)
}

#[test]
fn partitions_of_one_disk_share_its_cache() {
    if !has_loop_devices() || !has_program("addpart") || !has_program("delpart") {
        return;
    }
    let (file, other) = (backing(), backing());
    let (disk, other) = (attach(&file), attach(&other));
    let Some(first) = add_partition(disk.path(), 1) else { return };
    let Some(second) = add_partition(disk.path(), 2) else { return };
    let caches = |path: &Path| Disk::open(path, Access::ReadOnly).expect("open").caches().to_vec();
    let whole = caches(disk.path());
    assert_eq!(caches(&first.path), whole);
    assert_eq!(caches(&second.path), whole);
    // The first is the disk itself; another loop device has only the disk below their files in
    // common.
    assert_eq!(whole[1..], caches(other.path())[1..]);
    assert_ne!(whole[0], caches(other.path())[0]);
    let written = Disk::open(&first.path, Access::ReadWrite).expect("open");
    Disk::open(&second.path, Access::ReadWrite).expect("it is another device");
    written.write_durable(0, &[1; 4096]).expect("write");
}
