//! A directory of one's own on a real file system, with an image in it that can be mounted.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

use super::{HeldDevice, can_mount, check_clean, onejournal, system, wait_until};

/// Longest that a daemon may take to end before a test calls it stuck.
const END_LIMIT: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// Where tests make their directories.
pub(super) fn parent() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

/// An empty directory below `TMPDIR` or `/var/tmp`; the latter is hardly ever a tmpfs.
pub fn scratch_dir() -> TempDir {
    tempfile::Builder::new().prefix("onejournal-test-").tempdir_in(parent()).unwrap()
}

/// An empty directory on a tmpfs.
pub fn tmpfs_dir() -> TempDir {
    tempfile::Builder::new().prefix("onejournal-test-").tempdir_in("/dev/shm").unwrap()
}

/// The options of a mount. `ONEJOURNAL_TEST_ORDER` is the order of writes of mounts that name none.
fn in_order(options: &str) -> String {
    match std::env::var("ONEJOURNAL_TEST_ORDER") {
        Ok(order) if !options.split(',').any(|option| option.starts_with("order=")) => {
            format!("order={order},{options}")
        }
        _ => options.into(),
    }
}

/// A serving process, which is not a child of the test.
pub struct Daemon {
    pub id: Pid,
    descriptor: OwnedFd,
}

impl Daemon {
    /// The process that serves `dir`.
    pub fn of(dir: &Path) -> Daemon {
        let value = volume_client::virtual_attribute(dir, "user.onejournal.pid").unwrap();
        let pid = std::str::from_utf8(&value).unwrap().trim().parse().unwrap();
        let id = Pid::from_raw(pid).expect("process numbers are not zero");
        Daemon { id, descriptor: pidfd_open(id, PidfdFlags::empty()).unwrap() }
    }

    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.descriptor, signal).unwrap();
    }

    /// Stops it, and returns when each of its threads has stopped. On a slow processor that takes a
    /// while.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id.as_raw_nonzero());
        let is_stopped = |thread: &std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The state follows the name, which ends with the last parenthesis.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
        };
        while !std::fs::read_dir(&tasks).unwrap().all(|it| is_stopped(&it.unwrap())) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Returns when it has ended; `false` if it has not after a long time.
    pub fn ended(&self) -> bool {
        poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&END_LIMIT)) == Ok(1)
    }

    pub fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&now)) == Ok(0)
    }
}

/// A scratch volume: an image file and a directory to mount it on.
pub struct Scratch {
    root: TempDir,
    daemon: Option<Daemon>,
    /// The device of the last mount.
    device: Option<HeldDevice>,
}

impl Scratch {
    /// A volume of 64 MiB, not mounted; `None`, and a word about it, where that is not possible.
    #[track_caller]
    pub fn new() -> Option<Scratch> {
        Scratch::with_size("64M")
    }

    #[track_caller]
    pub fn with_size(size: &str) -> Option<Scratch> {
        let scratch = Scratch::empty()?;
        let image = scratch.image();
        onejournal(["mkfs", "--size", size, image.to_str().unwrap()]).good();
        Some(scratch)
    }

    /// Without a volume yet.
    pub fn empty() -> Option<Scratch> {
        if !can_mount() {
            return None;
        }
        let root = scratch_dir();
        fs::create_dir(root.path().join("mnt")).unwrap();
        Some(Scratch { root, daemon: None, device: None })
    }

    /// A mounted volume of 64 MiB.
    #[track_caller]
    pub fn mounted(options: &str) -> Option<Scratch> {
        let mut scratch = Scratch::new()?;
        scratch.mount(options);
        Some(scratch)
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn image(&self) -> PathBuf {
        self.root().join("image")
    }

    /// The directory it is mounted on.
    pub fn dir(&self) -> PathBuf {
        self.root().join("mnt")
    }

    /// A path on the volume.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Makes a file that holds its own name, durably.
    #[track_caller]
    pub fn write_synced(&self, name: &str) {
        fs::write(self.path(name), name).unwrap();
        fs::File::open(self.path(name)).unwrap().sync_all().unwrap();
    }

    /// Mounts the image.
    #[track_caller]
    pub fn mount(&mut self, options: &str) {
        self.mount_target(&self.image(), options);
    }

    /// Mounts something else than the image.
    #[track_caller]
    pub fn mount_target(&mut self, target: &Path, options: &str) {
        assert!(self.daemon.is_none(), "mounted already");
        let (target, dir) = (target.to_owned(), self.dir());
        let options = &in_order(options);
        onejournal(["mount", "-o", options, target.to_str().unwrap(), dir.to_str().unwrap()])
            .good();
        self.adopt();
    }

    /// For a test that has mounted in another way.
    pub fn adopt(&mut self) {
        self.daemon = Some(Daemon::of(&self.dir()));
        self.device = HeldDevice::below(&self.dir());
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("is mounted")
    }

    /// `onejournal umount`, after which the daemon is gone. Returns when the kernel has closed the
    /// device, too.
    #[track_caller]
    pub fn umount(&mut self) {
        onejournal(["umount", self.dir().to_str().unwrap()]).good();
        self.expect_closed();
    }

    /// For a test that has unmounted in another way.
    #[track_caller]
    pub fn expect_ended(&mut self) {
        assert!(self.daemon.take().expect("was mounted").ended(), "the daemon lives on");
    }

    /// The same for a test whose next step uses the device: returns when the kernel has closed it.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        self.expect_ended();
        self.device.take().iter().for_each(HeldDevice::wait_until_closed);
    }

    /// For a test that has taken the mount off and keeps files open on it: returns when the copies
    /// are gone that new namespaces had of it.
    #[track_caller]
    pub fn expect_mounted_nowhere(&self) {
        self.device.iter().for_each(HeldDevice::wait_until_mounted_nowhere);
    }

    /// What a crash of the daemon leaves.
    #[track_caller]
    pub fn kill(&mut self) {
        let daemon = self.daemon.take().expect("is mounted");
        match pidfd_send_signal(&daemon.descriptor, Signal::KILL) {
            // The test has killed it already, and it is gone.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => panic!("{errno}"),
        }
        assert!(daemon.ended());
        unmount(self.dir(), UnmountFlags::DETACH).unwrap();
    }

    /// `e2fsck -fn` has nothing to say against the image.
    #[track_caller]
    pub fn check(&self) {
        check_clean(&self.image());
    }

    /// Unmounts and checks.
    #[track_caller]
    pub fn close_and_check(mut self) {
        self.umount();
        self.check();
    }

    /// Unmounts, checks, mounts again.
    #[track_caller]
    pub fn remount(&mut self, options: &str) {
        self.umount();
        self.check();
        self.mount(options);
    }

    /// What `onejournal stat --json` shows.
    #[track_caller]
    pub fn stat(&self) -> Value {
        let text = onejournal(["stat", "--json", self.dir().to_str().unwrap()]).good();
        serde_json::from_str(&text).unwrap()
    }

    /// One of its numbers.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let stat = self.stat();
        stat[name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stat}"))
    }

    /// How much some of its numbers have grown since it was `before`.
    #[track_caller]
    pub fn grown<const N: usize>(&self, before: &Value, names: [&str; N]) -> [u64; N] {
        let after = self.stat();
        names.map(|name| after[name].as_u64().unwrap() - before[name].as_u64().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only a test that failed comes here with a daemon.
        if let Some(daemon) = self.daemon.take() {
            let _ = unmount(self.dir(), UnmountFlags::DETACH);
            let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
            let mut wanted = [PollFd::new(&daemon.descriptor, PollFlags::IN)];
            if poll(&mut wanted, Some(&limit)) == Ok(0) {
                let _ = pidfd_send_signal(&daemon.descriptor, Signal::KILL);
            }
        }
    }
}

/// A loop device, detached with the value.
pub struct Loop {
    pub path: PathBuf,
}

impl Loop {
    #[track_caller]
    pub fn attach(image: &Path) -> Loop {
        Loop::with_sectors(image, 512)
    }

    #[track_caller]
    pub fn with_sectors(image: &Path, sector_bytes: usize) -> Loop {
        Loop::with(&["--sector-size", &sector_bytes.to_string(), image.to_str().unwrap()])
    }

    /// The device that losetup(8) makes of these arguments.
    #[track_caller]
    pub fn with(arguments: &[&str]) -> Loop {
        let arguments = ["--find", "--show"].iter().chain(arguments);
        Loop { path: system("losetup", arguments).good().trim().into() }
    }
}

impl Drop for Loop {
    /// Waits until the device has no file any more. The kernel detaches it when the last process
    /// closes it, and another test may just read all block devices.
    fn drop(&mut self) {
        system("losetup", ["--detach", self.path.to_str().unwrap()]);
        let name = self.path.file_name().unwrap().to_str().unwrap();
        let file = format!("/sys/block/{name}/loop/backing_file");
        let ours = std::fs::read(&file).ok();
        let begun = std::time::Instant::now();
        // A test may drop it while it is mounted.
        let is_patient = || begun.elapsed().as_secs() < 5;
        while ours.is_some() && std::fs::read(&file).ok() == ours && is_patient() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// A partition, taken away with the value: one that was added would outlast the loop device.
pub struct Partition {
    disk: String,
    number: u32,
}

impl Partition {
    #[track_caller]
    pub fn add(disk: &Path, number: u32, start_mib: u32, size_mib: u32) -> Partition {
        let disk = disk.to_str().unwrap().to_owned();
        let numbers = [number, start_mib * 2048, size_mib * 2048].map(|n| n.to_string());
        system("addpart", [&disk, &numbers[0], &numbers[1], &numbers[2]]).good();
        Partition { disk, number }
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("{}p{}", self.disk, self.number))
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        // A program that reads all block devices may have it open for a moment. If it stayed, it
        // would be in the way of the next user of the loop device.
        let number = self.number.to_string();
        wait_until(&format!("{} stays", self.path().display()), || {
            system("delpart", [&self.disk, &number]).code == Some(0)
        });
    }
}

/// A mount of the kernel's own, taken away with the value.
pub struct TempMount {
    pub dir: PathBuf,
}

impl TempMount {
    /// Runs mount(8) with `arguments` and the directory, which is made.
    #[track_caller]
    pub fn new(arguments: &[&str], dir: &Path) -> TempMount {
        fs::create_dir_all(dir).unwrap();
        let arguments = arguments.iter().copied().chain([dir.to_str().unwrap()]);
        system("mount", arguments).good();
        TempMount { dir: dir.to_owned() }
    }
}

impl Drop for TempMount {
    fn drop(&mut self) {
        // By umount(8), which is started when no other child is about that has a file of it open:
        // else the mount would go a moment later, and what is below it would be in use until then.
        let device = HeldDevice::below(&self.dir);
        if system("umount", [&self.dir]).code != Some(0) {
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
        } else if let Some(device) = device.filter(|device| !device.is_mounted_here()) {
            device.wait_until_closed();
        }
    }
}
