//! An ioctl of a mounted volume that makes everything durable that the volume has.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{self, NoArg, Opcode, opcode};

/// `_IO('O', 0xE3)`.
pub const VOLUME_SYNC_IOCTL: u32 = 0x4fe3;

const OPCODE: Opcode = opcode::none(b'O', 0xe3);
/// Type of a FUSE file system.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Makes everything durable that the volume on which `file` is has been sent. Pages that the kernel
/// still holds are not: syncfs(2) sends them.
///
/// # Errors
/// `EOPNOTSUPP` if it is not on a volume. Others: what the volume has may not be durable.
pub fn sync_volume(file: impl AsFd) -> rustix::io::Result<()> {
    if rustix::fs::fstatfs(&file)?.f_type != FUSE_MAGIC {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: the file is on a FUSE file system, and the opcode says that there is no argument: the
    // kernel reads and writes no memory of this process.
    let asked = unsafe { ioctl::ioctl(file, NoArg::<OPCODE>::new()) };
    asked.map_err(|errno| match errno {
        Errno::NOTTY | Errno::NOSYS | Errno::INVAL => Errno::OPNOTSUPP,
        errno => errno,
    })
}

#[cfg(test)]
mod tests {
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
