//! An image made by `mke2fs`, mounted by a thread of the test; unmounted even when the test fails.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use device::{Disk, Metered};
use host::Access;
use mount::{MountHandle, Order, Session, SessionError, SessionOptions, Source, StatSource};
use onejournal_testing::{can_mount_fuse, has_program};

/// Between fork and exec a child has all open files of the process, and a mount on which one of
/// them is open is busy: held by who starts a program, and by who unmounts.
static NO_CHILD_STARTS: Mutex<()> = Mutex::new(());

/// Runs a program to its end; every one has to be started here.
pub fn run(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = {
        let _one = NO_CHILD_STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        onejournal_testing::spawn_without_files(command)
    };
    child.and_then(Child::wait_with_output)
}

const IMAGE_BYTES: u64 = 128 << 20;

struct Running {
    handle: MountHandle,
    thread: JoinHandle<Result<(), SessionError>>,
}

/// A mounted image.
pub struct Mounted {
    scratch: tempfile::TempDir,
    running: Option<Running>,
}

impl Mounted {
    /// Makes and mounts an image; `None`, with a message, where that is not possible.
    pub fn new() -> Option<Mounted> {
        if !can_mount_fuse() || !has_program("mke2fs") || !has_program("e2fsck") {
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("mnt")).unwrap();
        let image = scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-F", "-b", "4096"]).arg(&image);
        assert!(run(&mut mke2fs).unwrap().status.success());
        let mut mounted = Mounted { scratch, running: None };
        mounted.start();
        Some(mounted)
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    fn start(&mut self) {
        let device = Arc::new(Metered::new(Disk::open(self.image(), Access::ReadWrite).unwrap()));
        let volume = ext4::Volume::open(device.clone(), ext4::OpenOptions::default()).unwrap();
        let stat_source = StatSource {
            target: self.image().display().to_string(),
            version: "test".into(),
            durability: "power",
            device_counters: Arc::new(move || device.counters()),
            memory_bytes_max: None,
            journal_target: None,
            journal_counters: None,
        };
        let source = Source::Plain { name: "test".into() };
        let order = std::env::var("ONEJOURNAL_TEST_ORDER").ok();
        let order = order.map(|name| Order::from_name(&name).expect("history or sync"));
        let options =
            SessionOptions { order: order.unwrap_or_default(), ..SessionOptions::default() };
        let place = mount::MountPoint::open(&self.scratch.path().join("mnt")).unwrap();
        let session = Session::mount(volume, &source, &place, &options, stat_source).unwrap();
        let handle = session.handle();
        let thread = std::thread::spawn(move || session.run().map(drop));
        self.running = Some(Running { handle, thread });
    }

    fn stop(&mut self) {
        // Still ours when this fails: then dropping takes the mount away.
        {
            let _none = NO_CHILD_STARTS.lock().unwrap_or_else(PoisonError::into_inner);
            self.handle().unmount().unwrap();
        }
        let running = self.running.take().expect("is mounted");
        running.thread.join().unwrap().unwrap();
    }

    /// The root of the mount.
    pub fn dir(&self) -> &Path {
        self.running.as_ref().expect("is mounted").handle.dir()
    }

    /// A path below it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// With it one can unmount.
    pub fn handle(&self) -> MountHandle {
        self.running.as_ref().expect("is mounted").handle.clone()
    }

    /// Unmounts, has `e2fsck` look at the image, mounts again.
    pub fn remount(&mut self) {
        self.stop();
        self.check();
        self.start();
    }

    /// Unmounts and has `e2fsck` look at the image.
    pub fn close_and_check(mut self) {
        self.stop();
        self.check();
    }

    fn check(&self) {
        let output = run(Command::new("e2fsck").args(["-fn"]).arg(self.image())).unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "e2fsck:\n{text}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // The test has failed already.
            let _ = running.handle.unmount_lazily();
            let _ = running.thread.join();
        }
    }
}
