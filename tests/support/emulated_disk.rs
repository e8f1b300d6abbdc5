//! An emulated disk that holds its answers back, or fails, when a test says so.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use mount::MountHandle;
use onejournal_testing::drive::{Disk, Emulator, Mounted, Parameters};

use super::{onejournal, text};

/// An emulated disk with a volume.
pub struct EmulatedDisk {
    dir: PathBuf,
    handle: MountHandle,
    service: Option<JoinHandle<()>>,
}

impl EmulatedDisk {
    pub fn new(dir: PathBuf) -> EmulatedDisk {
        fs::create_dir(&dir).unwrap();
        let emulator = Emulator::new(Parameters::preset("zero").unwrap(), Disk::new(64 << 20));
        let mounted = Mounted::new(&dir, "emulated-disk").unwrap();
        let handle = mounted.handle();
        let service = thread::spawn(move || drop(mounted.serve(emulator).unwrap()));
        let disk = EmulatedDisk { dir, handle, service: Some(service) };
        onejournal(["mkfs", "--force", text(&disk.path())]).good();
        disk
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("disk")
    }

    pub fn counter(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.dir.join("counters")).unwrap();
        let counters: serde_json::Value = serde_json::from_str(&text).unwrap();
        counters[name].as_u64().unwrap()
    }

    /// Requests are answered only after [`EmulatedDisk::release`].
    pub fn hold(&self) {
        self.command("hold on");
    }

    pub fn release(&self) {
        self.command("hold off");
    }

    pub fn command(&self, text: &str) {
        let mut control = File::options().write(true).open(self.dir.join("control")).unwrap();
        control.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for EmulatedDisk {
    fn drop(&mut self) {
        let _ = self.handle.unmount_lazily();
        // The daemon of a test that failed has the disk open, and is ended later.
        if thread::panicking() {
            return;
        }
        if let Some(service) = self.service.take() {
            let _ = service.join();
        }
    }
}
