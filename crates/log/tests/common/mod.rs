//! What the tests of a service share: its directories, a restart of the machine, records.

use std::path::PathBuf;
use std::time::Duration;

use device::Durability;
use onejournal::{Options, Stream};

/// A directory for a service, one for its shared memory, one that stands for NVRAM.
pub struct TestDirectory {
    pub root: tempfile::TempDir,
    pub memory: tempfile::TempDir,
    pub is_nvram: bool,
}

impl TestDirectory {
    pub fn new(is_nvram: bool) -> TestDirectory {
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        std::fs::create_dir(memory.path().join("nvram")).expect("directory");
        TestDirectory { root: tempfile::tempdir().expect("directory"), memory, is_nvram }
    }

    pub fn options(&self) -> Options {
        let nvram: PathBuf = self.memory.path().join("nvram");
        Options {
            nvram: self.is_nvram.then_some(nvram),
            durability: self.is_nvram.then_some(Durability::Process),
            pool_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            group_bytes: 1 << 20,
            memory: self.memory.path().to_owned(),
            // No disk is slower; who finds the pool full waits for as long.
            full_wait: Duration::from_secs(120),
            ..Options::default()
        }
    }

    /// The machine restarts: memory is lost, but for NVRAM.
    pub fn reboot(&self) {
        for entry in std::fs::read_dir(self.memory.path()).expect("memory") {
            let path = entry.expect("entry").path();
            if !path.ends_with("nvram") {
                std::fs::remove_dir_all(path).expect("remove");
            }
        }
    }
}

pub fn payload(number: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|index| (number as usize * 31 + index) as u8).collect()
}

pub fn records(stream: &Stream) -> Vec<Vec<u8>> {
    let reader = stream.read_from(stream.head()).expect("reader");
    reader.map(|record| record.expect("record").payload).collect()
}

/// Runs on ordinary memory and on what stands for NVRAM.
pub fn on_both(test: impl Fn(&TestDirectory)) {
    test(&TestDirectory::new(false));
    test(&TestDirectory::new(true));
}
