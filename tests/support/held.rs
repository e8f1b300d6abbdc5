//! Waiting for the block device below a file system: the kernel keeps it open exclusively until the
//! last copy of the mount is gone, and a mount namespace that any process of the machine is just
//! making has copies of all mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// Longest that a copy of a mount may live before a test calls it stuck.
const LIMIT: Duration = Duration::from_secs(120);
/// The kernel gives no sign when it closes a device or makes a namespace.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The block device of a mounted file system.
pub struct HeldDevice {
    node: PathBuf,
    number: String,
    /// A loop device may be given to another file as soon as it is free.
    backing: Option<String>,
}

impl HeldDevice {
    /// That of the file system mounted on `dir`, if it has one.
    pub fn below(dir: &Path) -> Option<HeldDevice> {
        // The search asks the file system nothing: a test may depend on what the kernel has cached
        // of it.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_on_dir = |line: &&str| {
            let place = line.split(' ').nth(4).unwrap_or_default().replace("\\040", " ");
            Path::new(&place) == dir
        };
        let number = table.lines().rfind(is_on_dir)?.split(' ').nth(2)?.to_owned();
        let uevent = fs::read_to_string(format!("/sys/dev/block/{number}/uevent")).ok()?;
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
        let backing = backing_of(&number);
        Some(HeldDevice { node: Path::new("/dev").join(name), number, backing })
    }

    pub fn path(&self) -> &Path {
        &self.node
    }

    /// Its number, MAJOR:MINOR.
    pub fn number(&self) -> &str {
        &self.number
    }

    /// Whether our namespace has a mount of it.
    pub fn is_mounted_here(&self) -> bool {
        self.is_mounted_in(Path::new("/proc/self/mountinfo"))
    }

    fn is_mounted_in(&self, table: &Path) -> bool {
        let table = fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| line.split(' ').nth(2) == Some(&self.number))
    }

    /// Returns when the kernel has closed it.
    #[track_caller]
    pub fn wait_until_closed(&self) {
        wait_until(&format!("{} stays open exclusively", self.node.display()), || {
            backing_of(&self.number) != self.backing
                || open(&self.node, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
                    .map_or_else(|errno| errno != Errno::BUSY, |_| true)
        });
    }

    /// Returns when no namespace has a mount of it.
    #[track_caller]
    pub fn wait_until_mounted_nowhere(&self) {
        wait_until(&format!("{} stays mounted", self.node.display()), || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            let mut tables = processes.map(|process| process.path().join("mountinfo"));
            !tables.any(|table| self.is_mounted_in(&table))
        });
    }
}

/// The file of a loop device.
fn backing_of(number: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/dev/block/{number}/loop/backing_file")).ok()
}

/// Returns when it holds. Panics with `otherwise` if that takes too long.
#[track_caller]
pub fn wait_until(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "{otherwise}");
        std::thread::sleep(LOOK_EVERY);
    }
}
