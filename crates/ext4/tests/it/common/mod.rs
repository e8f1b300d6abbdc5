//! Images that `mke2fs` makes and `e2fsck` checks, as devices in memory.

#![allow(dead_code)] // each test program uses its part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use device::{BlockDevice, MemoryDevice};
use onejournal_ext4::{DataMode, InodeNo, NewNode, OpenOptions, Owner, RootVolume, Timestamp};
use onejournal_testing::{SimDevice, read_sparse, save_device, write_sparse};

/// An ext4 image in a temporary directory.
pub struct Image {
    directory: tempfile::TempDir,
}

/// Runs a program, wherever the distribution keeps it.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.output().expect("e2fsprogs and mount(8) are installed")
}

impl Image {
    /// `mke2fs -t ext4` with more arguments; `size` as mke2fs takes it.
    pub fn new(arguments: &[&str], size: &str) -> Image {
        let image = Image { directory: tempfile::tempdir().expect("a temporary directory") };
        image.make(arguments, size)
    }

    /// The same on a medium full of old bytes, which mke2fs leaves where it does not write.
    pub fn on_garbage(arguments: &[&str], size_mib: usize) -> Image {
        let image = Image { directory: tempfile::tempdir().expect("a temporary directory") };
        image.put(&vec![0xA5; size_mib << 20]);
        let mut all = vec!["-E", "nodiscard,lazy_itable_init=1"];
        all.extend_from_slice(arguments);
        image.make(&all, &format!("{size_mib}M"))
    }

    fn make(self, arguments: &[&str], size: &str) -> Image {
        let image = self;
        let path = image.path();
        let path = path.to_str().expect("a path in UTF-8");
        let mut all = vec!["-q", "-F", "-t", "ext4", "-b", "4096"];
        all.extend_from_slice(arguments);
        all.extend_from_slice(&[path, size]);
        let output = run("mke2fs", &all);
        assert!(output.status.success(), "mke2fs {all:?}: {output:?}");
        image
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn bytes(&self) -> Vec<u8> {
        read_sparse(&self.path()).expect("the image can be read")
    }

    pub fn put(&self, bytes: &[u8]) {
        write_sparse(&self.path(), bytes).expect("room in the temporary directory");
    }

    /// Makes the image hold what the device holds.
    pub fn save(&self, device: &MemoryDevice) {
        save_device(&self.path(), device).expect("room in the temporary directory");
    }

    /// The image as a device in memory.
    pub fn device(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::from_bytes(self.bytes(), 512))
    }

    /// The image as a simulated device.
    pub fn sim_device(&self) -> Arc<SimDevice> {
        Arc::new(SimDevice::from_bytes(&self.bytes(), 512))
    }

    /// Runs e2fsck on the image; its exit code and what it said.
    pub fn e2fsck(&self, how: &str) -> (i32, String) {
        let path = self.path();
        let output = run("e2fsck", &[how, path.to_str().expect("a path in UTF-8")]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().expect("an exit code"), text)
    }

    /// Takes over what the device holds; e2fsck must find nothing to complain about.
    pub fn assert_clean(&self, device: &MemoryDevice) {
        self.save(device);
        let (code, text) = self.e2fsck("-fn");
        assert_eq!(code, 0, "{text}");
    }

    /// Runs a debugfs command on the image, with write access.
    pub fn debugfs(&self, command: &str) -> String {
        let path = self.path();
        let output = run("debugfs", &["-w", "-R", command, path.to_str().expect("UTF-8")]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Options under which everything depends on the calls alone.
pub fn options() -> OpenOptions {
    let seconds = AtomicI64::new(1_700_000_000);
    OpenOptions {
        data_mode: DataMode::Journal,
        commit_interval: None,
        background: false,
        clock: Arc::new(move || Timestamp {
            seconds: seconds.fetch_add(1, Ordering::Relaxed),
            nanoseconds: 1,
        }),
        random_seed: 7,
        ..OpenOptions::default()
    }
}

pub fn open(device: &Arc<MemoryDevice>) -> onejournal_ext4::Result<RootVolume> {
    RootVolume::open(device.clone(), options())
}

/// The volume on any device, in this data mode.
pub fn open_in(device: Arc<dyn BlockDevice>, data_mode: DataMode) -> RootVolume {
    RootVolume::open(device, OpenOptions { data_mode, ..options() }).expect("a volume")
}

/// Makes an empty file in the root.
pub fn make(volume: &RootVolume, name: &str) -> InodeNo {
    let (root, node) = (InodeNo::ROOT, NewNode::Regular);
    volume.make(root, name.as_bytes(), node, 0o644, 0, Owner::default()).expect("a file").ino
}

/// [`make`], durably.
pub fn make_synced(volume: &RootVolume, name: &str) {
    make(volume, name);
    volume.sync().expect("a sync");
}

/// Whether the root has this name.
pub fn has(volume: &RootVolume, name: &str) -> bool {
    volume.lookup(InodeNo::ROOT, name.as_bytes()).is_ok()
}

/// All bytes of a file.
pub fn read_all(volume: &RootVolume, ino: InodeNo) -> Vec<u8> {
    let size = volume.get_attr(ino).unwrap().size_bytes;
    let mut bytes = vec![9; usize::try_from(size).unwrap()];
    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// The number of operations in `work`.
pub fn handles(volume: &RootVolume, work: impl FnOnce()) -> u64 {
    let before = volume.journal().stats().handles;
    work();
    volume.journal().stats().handles - before
}

/// The error of an opening that must fail without having written anything.
pub fn refused(device: &Arc<MemoryDevice>) -> onejournal_ext4::Error {
    let before = device.to_bytes();
    let error = open(device).err().expect("the volume must be refused");
    assert!(before == device.to_bytes(), "a refused volume was written to: {error}");
    error
}

/// An image that the kernel's ext4 has mounted; unmounted when dropped.
pub struct Mounted {
    directory: tempfile::TempDir,
    is_mounted: bool,
}

impl Mounted {
    /// `Err`: what mount(8) says.
    pub fn new(image: &Path, options: &str) -> Result<Mounted, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = format!("loop,{options}");
        let arguments = ["-t", "ext4", "-o", &options, text(image), text(directory.path())];
        let output = run("mount", &arguments);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(Mounted { directory, is_mounted: true })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn unmount(mut self) {
        let output = self.try_unmount();
        assert!(output.status.success(), "{output:?}");
    }

    fn try_unmount(&mut self) -> Output {
        self.is_mounted = false;
        run("umount", &[text(self.directory.path())])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            self.try_unmount();
        }
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
