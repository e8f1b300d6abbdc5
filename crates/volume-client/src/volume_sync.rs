//! An ioctl of a mounted volume that makes everything durable that the volume has.

use std::os::fd::AsFd;

use rustix::ioctl::{self, NoArg, Opcode, opcode};

use crate::fuse::{check_fuse, ioctl_error};

/// `_IO('O', 0xE3)`.
pub const VOLUME_SYNC_IOCTL: u32 = 0x4fe3;

const OPCODE: Opcode = opcode::none(b'O', 0xe3);

/// Makes everything durable that the volume on which `file` is has been sent. Pages that the kernel
/// still holds are not: syncfs(2) sends them.
///
/// # Errors
/// `EOPNOTSUPP` if it is not on a volume. Others: what the volume has may not be durable.
pub fn sync_volume(file: impl AsFd) -> rustix::io::Result<()> {
    check_fuse(&file)?;
    // SAFETY: the file is on a FUSE file system, and the opcode says that there is no argument: the
    // kernel reads and writes no memory of this process.
    unsafe { ioctl::ioctl(file, NoArg::<OPCODE>::new()) }.map_err(ioctl_error)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_number_is_that_of_its_parts() {
        assert_eq!(OPCODE as u64 & 0xffff_ffff, u64::from(VOLUME_SYNC_IOCTL));
    }

    #[test]
    fn elsewhere_there_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(sync_volume(&file), Err(Errno::OPNOTSUPP));
    }
}
