//! What survives on the file system of a file.

use std::os::fd::AsFd;

use rustix::fs::FsWord;

use crate::durability::Durability;

/// The durability of the file system that a file is on. A file system in memory survives the
/// process only: swap does not count as storage.
pub fn file_system_durability(fd: impl AsFd) -> Durability {
    const TMPFS_MAGIC: FsWord = 0x0102_1994;
    const RAMFS_MAGIC: FsWord = 0x8584_58f6;
    const HUGETLBFS_MAGIC: FsWord = 0x9584_58f6;
    match rustix::fs::fstatfs(fd).map(|statfs| statfs.f_type) {
        Ok(TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC) => Durability::Process,
        _ => Durability::Power,
    }
}
