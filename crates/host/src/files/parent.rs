//! The directory that a path is in.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::descriptor::above_standard;

/// The directory that `path` is in, for calls relative to it. A user who renames a directory above
/// it later changes nothing for these.
pub fn open_parent(path: &Path) -> io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || open(parent.unwrap_or(Path::new(".")), flags, Mode::empty());
    Ok(above_standard(open)?)
}
