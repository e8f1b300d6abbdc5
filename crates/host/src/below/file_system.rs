//! Which file system stores the files of an overlay.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FsWord, Mode, OFlags, StatFs};

use super::mount_table::mount_of;

const OVERLAYFS_MAGIC: FsWord = 0x794c_7630;

/// An upper directory that is an overlay itself is resolved so often.
const OVERLAYS_MAX: usize = 4;

/// The file system that stores what is written to a file.
pub enum Store {
    /// The one that the file is on.
    Own,
    /// The one of this directory: the file is on an overlay.
    Upper(OwnedFd),
    /// The file is on an overlay whose upper directory cannot be found: it is in another mount
    /// namespace, or was mounted by a relative path.
    Unknown,
}

/// The store of an open file. The descriptor may be one of `O_PATH`.
pub fn store_of(fd: impl AsFd) -> Store {
    let mut upper: Option<OwnedFd> = None;
    for _ in 0..OVERLAYS_MAX {
        let current = upper.as_ref().map_or(fd.as_fd(), |upper| upper.as_fd());
        if !is_overlay(current) {
            return upper.map_or(Store::Own, Store::Upper);
        }
        match upper_directory(current) {
            Some(directory) => upper = Some(directory),
            None => return Store::Unknown,
        }
    }
    Store::Unknown
}

fn is_overlay(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|statfs| statfs.f_type == OVERLAYFS_MAGIC)
}

/// The upper directory of the overlay that `fd` is on.
fn upper_directory(fd: impl AsFd) -> Option<OwnedFd> {
    let path = mount_of(&fd)?.option("upperdir")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        path.is_absolute().then(|| rustix::fs::open(path, flags, Mode::empty()))?.ok()?;
    // In this mount namespace, the path may lead to another directory. An overlay shows the size
    // of the file system of its upper directory.
    let size = |statfs: StatFs| (statfs.f_blocks, statfs.f_bsize, statfs.f_files);
    let sizes = (rustix::fs::fstatfs(&fd).ok()?, rustix::fs::fstatfs(&directory).ok()?);
    (size(sizes.0) == size(sizes.1)).then_some(directory)
}
