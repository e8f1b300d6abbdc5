//! What a durable write survives.

use std::os::fd::AsFd;

use host::{Store, store_of};
use rustix::fs::FsWord;

const TMPFS_MAGIC: FsWord = 0x0102_1994;
const RAMFS_MAGIC: FsWord = 0x8584_58f6;
const HUGETLBFS_MAGIC: FsWord = 0x9584_58f6;

/// What a completed durable write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Only the process: the medium is ordinary memory (tmpfs, an in-memory device).
    Process,
    /// A reboot, not a power cut (reserved or battery-backed memory).
    Reboot,
    /// A power cut.
    Power,
}

impl Durability {
    /// The word shown to users: `process`, `reboot` or `power`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::Reboot => "reboot",
            Durability::Power => "power",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Durability> {
        let all = [Durability::Process, Durability::Reboot, Durability::Power];
        all.into_iter().find(|class| class.name() == name)
    }
}

/// The durability of the file system that stores a file; `None` if that file system is not known.
/// A file system in memory survives the process only: swap does not count as storage.
pub fn known_durability(fd: impl AsFd) -> Option<Durability> {
    match store_of(&fd) {
        Store::Own => Some(own_durability(fd)),
        Store::Upper(directory) => Some(own_durability(directory)),
        Store::Unknown => None,
    }
}

fn own_durability(fd: impl AsFd) -> Durability {
    match rustix::fs::fstatfs(fd).map(|statfs| statfs.f_type) {
        Ok(TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC) => Durability::Process,
        _ => Durability::Power,
    }
}

/// The durability of the file system that a file is on. An overlay counts as what stores its
/// files, and as a disk if that is not known.
pub fn file_system_durability(fd: impl AsFd) -> Durability {
    known_durability(fd).unwrap_or(Durability::Power)
}
