//! A database that the power leaves.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::copy_tree;
use super::crash_vfs::Recorder;

/// A database, its log and its memory, in one directory.
pub struct World {
    pub home: tempfile::TempDir,
    pub is_nvram: bool,
}

impl World {
    pub fn new(is_nvram: bool) -> World {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        for name in ["data", "memory", "nvram"] {
            std::fs::create_dir(home.path().join(name)).expect("directory");
        }
        let world = World { home, is_nvram };
        let nvram = world.home.path().join("nvram");
        let options = log::Options {
            nvram: is_nvram.then_some(nvram),
            durability: is_nvram.then_some(device::Durability::Process),
            pool_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            group_bytes: 1 << 20,
            memory: world.home.path().join("memory"),
            ..log::Options::default()
        };
        log::Log::open(world.data().join(".onejournal"), &options).expect("log");
        world
    }

    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub fn try_open(&self, vfs: &str) -> rusqlite::Result<Connection> {
        self.try_open_with(vfs, "")
    }

    pub fn try_open_with(&self, vfs: &str, more: &str) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI;
        let memory = self.home.path().join("memory");
        let path = self.data().join("a.db");
        let uri = format!("file:{}?vfs={vfs}&memory={}{more}", path.display(), memory.display());
        let connection = Connection::open_with_flags(uri, flags)?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        Ok(connection)
    }
}

/// What a power cut leaves of all this: of the log everything, because that is what it promises.
pub fn cut(
    home: &Path,
    is_nvram: bool,
    recorder: &Recorder,
    random: &mut fastrand::Rng,
) -> tempfile::TempDir {
    let target = cut_log(home, is_nvram);
    recorder.crash(&target.path().join("data"), random);
    target
}

/// The same, when of all files only the WAL loses what is not durable.
pub fn cut_wal(home: &Path, is_nvram: bool, recorder: &Recorder) -> tempfile::TempDir {
    let target = cut_log(home, is_nvram);
    recorder.crash_without(&target.path().join("data"), "a.db-wal");
    target
}

/// The same, when the disk had all that was written.
pub fn cut_nothing(home: &Path, is_nvram: bool, recorder: &Recorder) -> tempfile::TempDir {
    let target = cut_log(home, is_nvram);
    recorder.crash_without(&target.path().join("data"), "");
    target
}

fn cut_log(home: &Path, is_nvram: bool) -> tempfile::TempDir {
    let target = tempfile::tempdir_in("/dev/shm").expect("directory");
    std::fs::create_dir(target.path().join("memory")).expect("directory");
    std::fs::create_dir(target.path().join("nvram")).expect("directory");
    if is_nvram {
        let nvram = target.path().join("nvram");
        copy_tree(&home.join("nvram"), &nvram);
        for own in std::fs::read_dir(&nvram).expect("directory") {
            // It is that log, and no copy.
            let owner = own.expect("entry").path().join("owner");
            if let Err(e) = std::fs::remove_file(owner) {
                assert_eq!(e.kind(), std::io::ErrorKind::NotFound);
            }
        }
    }
    let log = target.path().join("data/.onejournal");
    copy_tree(&home.join("data/.onejournal"), &log);
    let settings = std::fs::read_to_string(log.join("service.json")).expect("settings");
    let (old, new) = (home.display().to_string(), target.path().display().to_string());
    std::fs::write(log.join("service.json"), settings.replace(&old, &new)).expect("settings");
    target
}
