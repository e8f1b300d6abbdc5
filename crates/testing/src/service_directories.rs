//! The directories of a log service: one on a disk, and one for what the machine keeps in memory.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Temporary directories for one service.
pub struct ServiceDirectories {
    /// Files of the service.
    pub root: TempDir,
    /// Shared memory, and the directory that stands for NVRAM.
    pub memory: TempDir,
}

impl ServiceDirectories {
    /// New ones, with nothing but an empty directory for NVRAM.
    #[expect(clippy::new_without_default, reason = "it makes directories")]
    pub fn new() -> ServiceDirectories {
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let directories =
            ServiceDirectories { root: tempfile::tempdir().expect("a directory"), memory };
        std::fs::create_dir(directories.nvram()).expect("a directory");
        directories
    }

    /// For a log beside other files; it is not made.
    pub fn log(&self) -> PathBuf {
        self.root.path().join("log")
    }

    /// For a daemon's socket; it is not made.
    pub fn socket(&self) -> PathBuf {
        self.root.path().join("socket")
    }

    /// Stands for NVRAM.
    pub fn nvram(&self) -> PathBuf {
        self.memory.path().join(NVRAM)
    }

    /// The machine restarts.
    pub fn reboot(&self) {
        lose_memory(self.memory.path());
    }
}

const NVRAM: &str = "nvram";

/// Removes the content of `memory`, but for its directory `nvram`.
pub fn lose_memory(memory: &Path) {
    for entry in std::fs::read_dir(memory).expect("memory") {
        let path = entry.expect("an entry").path();
        if !path.ends_with(NVRAM) {
            std::fs::remove_dir_all(path).expect("remove");
        }
    }
}
