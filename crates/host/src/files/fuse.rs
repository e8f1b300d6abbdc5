//! Which files are on a FUSE file system.

use rustix::fs::StatFs;

/// Type of a FUSE file system.
const MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Whether a file is on a FUSE file system, of which statfs(2) said this.
pub fn is_fuse(found: &StatFs) -> bool {
    found.f_type == MAGIC
}
