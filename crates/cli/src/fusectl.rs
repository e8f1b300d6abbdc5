//! The kernel's connections to FUSE servers, as its file system `fusectl` shows them: one directory
//! for each device number.

use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where `fusectl` is usually mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// MAJOR:MINOR as an argument.
pub fn parse_device(text: &str) -> std::result::Result<(u32, u32), String> {
    let numbers = text.split_once(':').map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err("give MAJOR:MINOR".into()),
    }
}

/// Opens a file of the connection in `fusectl`. It belongs to the user who mounted. Root does not
/// need a mounted `fusectl`.
pub fn open_control((major, minor): (u32, u32), name: &str, how: OFlags) -> io::Result<File> {
    let name = format!("{}/{name}", u64::from(major) << 20 | u64::from(minor));
    let how = how | OFlags::CLOEXEC;
    let opened = rustix::fs::open(format!("{CONNECTIONS}/{name}"), how, Mode::empty());
    if opened.is_ok() || !rustix::process::geteuid().is_root() {
        return Ok(File::from(opened?));
    }
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(File::from(rustix::fs::openat(&root, name, how, Mode::empty())?))
}
