//! What the unit tests stand on: a volume in memory that `mke2fs` made and `e2fsck` and `debugfs`
//! judge.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use device::{BlockDevice, MemoryDevice};

use crate::{DataMode, InodeNo, OpenOptions, RootVolume, Timestamp};

/// Runs a program of e2fsprogs and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("e2fsprogs are installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// A volume in memory with empty files `f0`, `f1`, … in its root.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    pub(crate) device: Arc<MemoryDevice>,
    mode: DataMode,
    pub(crate) files: Vec<InodeNo>,
}

impl Bench {
    pub(crate) fn new(mode: DataMode, size_mib: u64, file_count: usize) -> Bench {
        Bench::with_options(mode, size_mib, file_count, &[])
    }

    pub(crate) fn with_options(
        mode: DataMode,
        size_mib: u64,
        file_count: usize,
        mke2fs: &[&str],
    ) -> Bench {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (image, root) = (directory.path().join("image"), directory.path().join("root"));
        std::fs::create_dir(&root).expect("a directory");
        for at in 0..file_count {
            std::fs::write(root.join(format!("f{at}")), b"").expect("an empty file");
        }
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-b", "4096", "-I", "256", "-d"])
            .arg(&root)
            .args(mke2fs)
            .arg(&image)
            .arg(format!("{size_mib}M")));
        let files = (0..file_count).map(|at| ino_of(&image, at)).collect();
        let bytes = onejournal_testing::read_sparse(&image).expect("the image");
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        Bench { directory, device, mode, files }
    }

    pub(crate) fn open(&self) -> RootVolume {
        self.open_on(self.device.clone())
    }

    pub(crate) fn open_on(&self, device: Arc<dyn BlockDevice>) -> RootVolume {
        let seconds = AtomicI64::new(4_000_000_000);
        let clock =
            move || Timestamp { seconds: seconds.fetch_add(1, Ordering::Relaxed), nanoseconds: 7 };
        let options = OpenOptions {
            data_mode: self.mode,
            commit_interval: None,
            background: false,
            clock: Arc::new(clock),
            random_seed: 1,
            ..OpenOptions::default()
        };
        RootVolume::open(device, options).expect("a volume")
    }

    fn save(&self) -> std::path::PathBuf {
        let image = self.directory.path().join("image");
        let saved = onejournal_testing::save_device(&image, &*self.device);
        saved.expect("room in the temporary directory");
        image
    }

    pub(crate) fn fsck(&self) {
        run(Command::new("e2fsck").arg("-fn").arg(self.save()));
    }

    /// What `debugfs` finds in the file.
    pub(crate) fn dump(&self, at: usize) -> Vec<u8> {
        let out = self.directory.path().join("dump");
        let request = format!("dump /f{at} {}", out.display());
        run(Command::new("debugfs").args(["-R", &request]).arg(self.save()));
        std::fs::read(out).expect("what debugfs wrote")
    }
}

fn ino_of(image: &std::path::Path, at: usize) -> InodeNo {
    let text = run(Command::new("debugfs").args(["-R", &format!("stat /f{at}")]).arg(image));
    let number = text.split_whitespace().nth(1).expect("Inode: N");
    InodeNo(number.parse().expect("a number"))
}
