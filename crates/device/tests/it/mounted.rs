//! A disk that the kernel has mounted. These tests have a program of their own, because they start
//! other programs: between fork and exec a child holds every lock of its parent, which the unit
//! tests of locks would notice.

use std::path::Path;

use host::{Access, LoopDevice, LoopOptions};
use onejournal_device::Disk;
use onejournal_testing::{can_mount_ext4, has_program};
use tempfile::{NamedTempFile, TempDir};

const SIZE_BYTES: u64 = 8 << 20;

#[test]
fn a_mounted_block_device_is_refused_and_unharmed() {
    if !can_mount_ext4() || !has_program("mkfs.ext4") {
        return;
    }
    let file = NamedTempFile::new_in("/var/tmp").expect("temporary file");
    file.as_file().set_len(SIZE_BYTES).expect("size");
    let options = LoopOptions { autoclear: true, direct_io: true, ..LoopOptions::default() };
    let device = LoopDevice::attach(file.as_file(), options).expect("attach");
    let mounted = Mounted::new(device.path());
    let error = Disk::open(device.path(), Access::ReadWrite).err().expect("mounted");
    let where_to = format!(
        "in use: mounted on {} as ext4 ({})",
        mounted.0.path().display(),
        device.path().display()
    );
    assert!(error.to_string().contains(&where_to), "{error}");
    let error = Disk::open(file.path(), Access::ReadWrite).err().expect("its file is mounted");
    assert!(error.to_string().contains(&where_to), "{error}");
    drop(mounted);
    Disk::open(device.path(), Access::ReadWrite).expect("not mounted any more");
}

/// An ext4 that the kernel has mounted, until dropped.
struct Mounted(TempDir);

impl Mounted {
    fn new(device: &Path) -> Mounted {
        let dir = TempDir::new().expect("directory");
        let run = |program: &str, args: &[&Path]| {
            let output = std::process::Command::new(program).args(args).output().expect(program);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}: {said}");
        };
        run("mkfs.ext4", &[Path::new("-q"), device]);
        run("mount", &[device, dir.path()]);
        Mounted(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(self.0.path()).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.path().display());
        }
    }
}
