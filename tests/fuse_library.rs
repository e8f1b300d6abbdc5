//! The example file system, through the kernel: as root, over `/dev/fuse` and over io_uring.
//!
//! `enable_uring` is the machine's: a test that needs it locks the file, sets it, and puts it back.

#[path = "../crates/fuse/examples/memory/file_system.rs"]
mod file_system;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fuse::abi::init::OVER_IO_URING;
use fuse::{Connection, Guard, IoUring, MountError, MountHandle, MountOptions, Source};
use onejournal_testing::{ENABLE_URING, can_mount_fuse, has_fuse_over_uring};

use file_system::Memory;

/// The mounted file system, served by a thread. Unmounted when dropped, also by a failed test.
struct Mounted {
    dir: tempfile::TempDir,
    handle: MountHandle,
    is_uring: bool,
    thread: Option<JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    fn new(io_uring: IoUring) -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::Plain { name: "memory".into() };
        let options = MountOptions { io_uring, ..MountOptions::default() };
        let connection = Connection::mount(&source, dir.path(), &options).unwrap();
        let handle = connection.handle();
        let is_uring = connection.agreed_flags() & OVER_IO_URING != 0;
        let thread = std::thread::spawn(move || connection.run(&Memory::new()).map(drop));
        Mounted { dir, handle, is_uring, thread: Some(thread) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts; the service ends by itself, without an error.
    fn close(mut self) {
        self.handle.unmount().unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
        assert!(fs::read_dir(self.dir.path()).unwrap().next().is_none(), "the directory is free");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The test has failed already.
            let _ = self.handle.unmount_lazily();
            let _ = thread.join();
        }
    }
}

/// What every transport must carry: names, small and large data, attributes.
fn use_files(mounted: &Mounted) {
    let small = mounted.path("small");
    fs::write(&small, b"hello").unwrap();
    assert_eq!(fs::read(&small).unwrap(), b"hello");
    let again = OpenOptions::new().write(true).create_new(true).open(&small);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);

    // Larger than one request: written and read in several, also past the kernel's cache.
    let large: Vec<u8> = (0..3_000_001u32).map(|index| (index / 7) as u8).collect();
    let path = mounted.path("large");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&large).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut found = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut found).unwrap();
    assert!(found == large);
    file.write_all_at(b"in the middle", 1_500_000).unwrap();
    let mut piece = [0; 15];
    file.read_exact_at(&mut piece, 1_499_999).unwrap();
    assert_eq!(&piece[1..14], b"in the middle");
    assert_eq!((piece[0], piece[14]), (large[1_499_999], large[1_500_013]));

    file.set_len(10).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (10, 0o640));

    for index in 0..300 {
        fs::write(mounted.path(&format!("{index:0200}")), b"").unwrap();
    }
    let list = || {
        let entries = fs::read_dir(mounted.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let mut names = list();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 302, "each name is listed once, in several READDIRs");

    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(list().len(), 301);
    file.write_all_at(b"x", 9).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10, "it lives while it is open");
    assert_eq!(fs::create_dir(mounted.path("d")).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn files_are_read_and_written_through_dev_fuse() {
    if !can_mount_fuse() {
        return;
    }
    let mounted = Mounted::new(IoUring::Off);
    assert!(!mounted.is_uring);
    use_files(&mounted);
    mounted.close();
}

/// Notes what it is told of the connection.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<bool>>);

impl Guard for Noted {
    fn watch(&self, _: (u32, u32), is_connected: &dyn Fn() -> bool) {
        self.0.lock().unwrap().push(is_connected());
    }
}

#[test]
fn regression_a_guard_learns_that_the_connection_has_ended() {
    if !can_mount_fuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = Source::Plain { name: "memory".into() };
    let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
    let connection = Connection::mount(&source, dir.path(), &options).unwrap();
    let noted = Arc::new(Noted::default());
    connection.guarded_by(noted.clone());
    let (handle, notifier) = (connection.handle(), connection.notifier().unwrap());
    let thread = std::thread::spawn(move || connection.run(&Memory::new()).map(drop));
    notifier.drop_pages(1, vec![(0, 0)]).wait();
    handle.unmount().unwrap();
    notifier.drop_pages(1, vec![(0, 0)]).wait();
    thread.join().unwrap().unwrap();
    assert_eq!(*noted.0.lock().unwrap(), [true, false]);
}

/// What `enable_uring` was, put back when dropped.
struct Setting {
    _locked: File,
    before: String,
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(ENABLE_URING, &self.before).unwrap();
    }
}

#[test]
fn files_are_read_and_written_through_io_uring() {
    if !can_mount_fuse() {
        return;
    }
    if !has_fuse_over_uring() {
        return;
    }
    let locked = File::open(ENABLE_URING).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let setting = Setting { _locked: locked, before: fs::read_to_string(ENABLE_URING).unwrap() };
    let mounted = Mounted::new(IoUring::On);
    drop(setting);
    assert!(mounted.is_uring);
    use_files(&mounted);
    mounted.close();
}

#[test]
fn a_mount_in_use_is_busy_and_a_dropped_connection_leaves_nothing() {
    if !can_mount_fuse() {
        return;
    }
    let mounted = Mounted::new(IoUring::Off);
    let file = File::create(mounted.path("f")).unwrap();
    assert!(matches!(mounted.handle.unmount(), Err(MountError::MountBusy(_))));
    assert!(mounted.handle.is_mounted());
    drop(file);
    mounted.close();

    let dir = tempfile::tempdir().unwrap();
    let source = Source::Plain { name: "memory".into() };
    let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
    let connection = Connection::mount(&source, dir.path(), &options).unwrap();
    let handle = connection.handle();
    assert!(handle.is_mounted());
    drop(connection);
    assert!(!handle.is_mounted());
}
