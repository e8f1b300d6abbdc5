//! How an overwrite gets to the disk, and so what `fdatasync` does after it.

use std::os::fd::AsFd;

use host::MountEntry;
use rustix::fs::FsWord;

const EXT_MAGIC: FsWord = 0xef53;
const XFS_MAGIC: FsWord = 0x5846_5342;

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A block device without a file system.
    BlockDevice,
    /// ext2, ext3 or ext4, unless data go through its journal.
    Ext,
    /// ext3 or ext4 with `data=journal`.
    ExtDataJournal,
    /// XFS.
    Xfs,
    /// Any other file system. It may write elsewhere (btrfs, f2fs, ZFS), or ask a server (FUSE,
    /// NFS), or it is not known.
    Other,
}

impl Medium {
    /// The medium of an open file of a file system. `mount` is the mount of the file.
    pub(crate) fn of(fd: impl AsFd, mount: Option<&MountEntry>) -> Medium {
        let journals_data = || {
            let option = mount.and_then(|mount| mount.option("data"));
            option.is_some_and(|value| value.as_os_str() == "journal")
        };
        match rustix::fs::fstatfs(fd).map(|statfs| statfs.f_type) {
            Ok(EXT_MAGIC) if journals_data() => Medium::ExtDataJournal,
            Ok(EXT_MAGIC) => Medium::Ext,
            Ok(XFS_MAGIC) => Medium::Xfs,
            _ => Medium::Other,
        }
    }

    /// Whether a direct overwrite goes to its place on the disk, so that `fdatasync` after it does
    /// nothing but flush.
    pub fn overwrites_in_place(self) -> bool {
        match self {
            Medium::BlockDevice | Medium::Ext | Medium::Xfs => true,
            Medium::ExtDataJournal | Medium::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overwrites_in_place_is_said_to_do_so() {
        use Medium::{BlockDevice, Ext, ExtDataJournal, Other, Xfs};
        let all = [BlockDevice, Ext, ExtDataJournal, Xfs, Other];
        assert_eq!(all.map(Medium::overwrites_in_place), [true, true, false, true, false]);
    }

    #[test]
    fn a_file_system_in_memory_is_another_one() {
        if !onejournal_testing::has_shm() {
            return;
        }
        let file = tempfile::tempfile_in("/dev/shm").expect("a file");
        assert_eq!(Medium::of(&file, None), Medium::Other);
    }
}
