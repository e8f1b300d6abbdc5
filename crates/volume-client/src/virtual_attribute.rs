//! Virtual attributes of a mounted volume, such as `user.onejournal.stat`: no file holds them.
//!
//! They are extended attributes. A mount that has none of these tells them through an ioctl. The
//! kernel copies the argument of an ioctl as a whole, up to 16 KiB, so a value has to be shorter.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode, Updater, opcode};

use crate::fuse::{check_fuse, ioctl_error};

/// Bytes of the ioctl's argument, `[u8; VIRTUAL_ATTRIBUTE_BYTES]`. The program puts the name of the
/// attribute there, with a zero after it. The answer is the number of bytes of the value (`u32` of
/// the machine), and the value.
pub const VIRTUAL_ATTRIBUTE_BYTES: usize = 16_380;
/// `_IOWR('O', 0xE2, char[16380])`.
pub const VIRTUAL_ATTRIBUTE_IOCTL: u32 = 0xfffc_4fe2;

const OPCODE: Opcode = opcode::read_write::<[u8; VIRTUAL_ATTRIBUTE_BYTES]>(b'O', 0xe2);
const COUNT_BYTES: usize = size_of::<u32>();
/// Linux's limit for the value of an extended attribute.
const XATTR_BYTES_MAX: usize = 65_536;

/// The value of an attribute of the file at `path`; of a virtual one also where the mount has no
/// extended attributes.
///
/// # Errors
/// The errors of getxattr(2). `EOPNOTSUPP` also means that the file system has no extended
/// attributes and is no volume.
pub fn virtual_attribute(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; XATTR_BYTES_MAX];
    match rustix::fs::getxattr(path, name, value.as_mut_slice()) {
        Ok(len_bytes) => {
            value.truncate(len_bytes);
            Ok(value)
        }
        Err(Errno::OPNOTSUPP) => through_ioctl(path, name),
        Err(errno) => Err(errno),
    }
}

fn through_ioctl(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    check_fuse(&file)?;
    let mut argument = [0; VIRTUAL_ATTRIBUTE_BYTES];
    argument.get_mut(..name.len()).ok_or(Errno::INVAL)?.copy_from_slice(name.as_bytes());
    // SAFETY: the file is on a FUSE file system. For all servers but those of character devices,
    // the kernel copies `VIRTUAL_ATTRIBUTE_BYTES` bytes (it takes the number from the opcode) from
    // the argument, and at most as many back. It keeps no pointer. Any bytes are valid in the
    // array.
    let asked = unsafe { ioctl::ioctl(&file, Updater::<OPCODE, _>::new(&mut argument)) };
    asked.map_err(ioctl_error)?;
    let (count, value) = argument.split_first_chunk::<COUNT_BYTES>().ok_or(Errno::IO)?;
    let count = usize::try_from(u32::from_ne_bytes(*count)).map_err(|_| Errno::IO)?;
    Ok(value.get(..count).ok_or(Errno::IO)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_its_parts() {
        assert_eq!(OPCODE as u64 & 0xffff_ffff, u64::from(VIRTUAL_ATTRIBUTE_IOCTL));
    }

    #[test]
    fn elsewhere_there_is_none() {
        // It has no extended attributes, and is no FUSE file system.
        let path = Path::new("/proc/self");
        assert_eq!(virtual_attribute(path, "user.onejournal.stat"), Err(Errno::OPNOTSUPP));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(virtual_attribute(file.path(), "user.onejournal.stat").is_err());
    }
}
