//! The database as what atomic changes are made to.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use host::{above_standard, link_to};
use rustix::fs::{Mode, OFlags};
use volume_client::{RANGES_XATTR, Range, RangeError};

use crate::abi::real::Real;

/// An open database. The descriptor is one without access (`O_PATH`): closing any other descriptor
/// of the file would release SQLite's POSIX locks.
pub struct Target {
    _file: OwnedFd,
    path: PathBuf,
}

impl Target {
    /// The file `main`, which SQLite has opened at `path`. `None`: its volume takes no such
    /// changes, or the path leads to another file by now.
    pub fn new(path: &Path, main: &Real) -> Option<Target> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = above_standard(|| rustix::fs::open(path, flags, Mode::empty())).ok()?;
        let target = link_to(&file);
        // A volume that does not know the attribute would store it.
        volume_client::virtual_attribute(&target, RANGES_XATTR).ok()?;
        let [found, named] = [rustix::fs::fstat(&file).ok()?, rustix::fs::stat(path).ok()?];
        let is_same = (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino);
        (is_same && !main.has_moved()).then_some(Target { _file: file, path: target })
    }

    /// Writes `ranges`, all or none.
    pub fn write(&self, ranges: &[Range<'_>], is_durable: bool) -> Result<(), RangeError> {
        volume_client::write_ranges(&self.path, ranges, is_durable)
    }
}
