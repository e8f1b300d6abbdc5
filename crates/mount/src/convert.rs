//! Between the volume's values and those of the wire.

use ext4::{Attr, FileKind, InodeNo, Timestamp};
use fuse::abi::{self, AttrOut, EntryOut, FuseAttr, FuseStatx, StatxOut, SxTime};
use rustix::io::Errno;

/// How long the kernel may believe what it was told: a day, since only this process changes the
/// volume.
const VALID_SECONDS: u64 = 86_400;
/// Block size that `stat` shows.
const BLOCK_BYTES: u32 = 4096;
/// Set-user-ID and set-group-ID.
pub(crate) const SUID_SGID: u16 = 0o6000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
/// And its group may execute it.
pub(crate) const SET_GROUP_ID_PROGRAM: u16 = 0o2010;
/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_MASK: u32 = 0x7ff | 0x800;

/// The inode of a node number: the same number, except for the root.
pub(crate) fn inode_of(node: u64) -> Result<InodeNo, Errno> {
    match node {
        abi::ROOT_NODE => Ok(InodeNo::ROOT),
        // Inodes below 11 are the file system's own; none of them is ever given out.
        0..11 => Err(Errno::STALE),
        _ => u32::try_from(node).map(InodeNo).map_err(|_| Errno::STALE),
    }
}

pub(crate) fn node_of(ino: InodeNo) -> u64 {
    if ino == InodeNo::ROOT { abi::ROOT_NODE } else { u64::from(ino.0) }
}

pub(crate) fn fuse_attr(attr: &Attr) -> FuseAttr {
    FuseAttr {
        ino: u64::from(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.sectors,
        atime: attr.atime.seconds.cast_unsigned(),
        mtime: attr.mtime.seconds.cast_unsigned(),
        ctime: attr.ctime.seconds.cast_unsigned(),
        atimensec: attr.atime.nanoseconds,
        mtimensec: attr.mtime.nanoseconds,
        ctimensec: attr.ctime.nanoseconds,
        mode: u32::from(attr.mode),
        nlink: attr.link_count,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(crate) fn entry_out(attr: &Attr) -> EntryOut {
    EntryOut {
        nodeid: node_of(attr.ino),
        generation: u64::from(attr.generation),
        entry_valid: VALID_SECONDS,
        attr_valid: attr_valid_seconds(attr),
        attr: fuse_attr(attr),
        ..EntryOut::default()
    }
}

/// A write may take set-user-ID and set-group-ID off, and the kernel would go on believing in them,
/// also when the file is executed: it has to ask each time.
fn attr_valid_seconds(attr: &Attr) -> u64 {
    let is_privileged = attr.kind == FileKind::Regular && attr.mode & SUID_SGID != 0;
    if is_privileged { 0 } else { VALID_SECONDS }
}

/// "There is no such name", which the kernel may remember.
pub(crate) fn negative_entry() -> EntryOut {
    EntryOut { entry_valid: VALID_SECONDS, ..EntryOut::default() }
}

pub(crate) fn attr_out(attr: &Attr) -> AttrOut {
    AttrOut { attr_valid: attr_valid_seconds(attr), attr: fuse_attr(attr), ..AttrOut::default() }
}

pub(crate) fn statx_out(attr: &Attr) -> StatxOut {
    let (rdev_major, rdev_minor) = device_numbers(attr.rdev);
    let stat = FuseStatx {
        mask: STATX_MASK,
        blksize: BLOCK_BYTES,
        nlink: attr.link_count,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode,
        ino: u64::from(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.sectors,
        atime: statx_time(attr.atime),
        btime: statx_time(attr.crtime),
        ctime: statx_time(attr.ctime),
        mtime: statx_time(attr.mtime),
        rdev_major,
        rdev_minor,
        ..FuseStatx::default()
    };
    StatxOut { attr_valid: attr_valid_seconds(attr), stat, ..StatxOut::default() }
}

fn statx_time(time: Timestamp) -> SxTime {
    SxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 }
}

/// Major and minor of a 32-bit `dev_t`.
fn device_numbers(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

/// A time from the wire; nanoseconds that are none are refused.
pub(crate) fn timestamp(seconds: u64, nanoseconds: u32) -> Result<Timestamp, Errno> {
    if nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Timestamp { seconds: seconds.cast_signed(), nanoseconds })
}

/// The `DT_*` value of a directory entry; 0 is unknown.
pub(crate) fn dirent_kind(kind: Option<FileKind>) -> u32 {
    match kind {
        None => 0,
        Some(FileKind::Fifo) => 1,
        Some(FileKind::CharDevice) => 2,
        Some(FileKind::Directory) => 4,
        Some(FileKind::BlockDevice) => 6,
        Some(FileKind::Regular) => 8,
        Some(FileKind::Symlink) => 10,
        Some(FileKind::Socket) => 12,
    }
}

/// The type in an `st_mode`.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & 0o170_000 {
        0o010_000 => Some(FileKind::Fifo),
        0o020_000 => Some(FileKind::CharDevice),
        0o040_000 => Some(FileKind::Directory),
        0o060_000 => Some(FileKind::BlockDevice),
        // mknod(2) without a type makes a regular file.
        0 | 0o100_000 => Some(FileKind::Regular),
        0o120_000 => Some(FileKind::Symlink),
        0o140_000 => Some(FileKind::Socket),
        _ => None,
    }
}

/// The permission bits of a mode.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_number_that_fuse_gives_it() {
        assert_eq!(inode_of(1), Ok(InodeNo::ROOT));
        assert_eq!(node_of(InodeNo::ROOT), 1);
        assert_eq!(inode_of(12), Ok(InodeNo(12)));
        for reserved in [0, 2, 8, 10, 1 << 32] {
            assert_eq!(inode_of(reserved), Err(Errno::STALE));
        }
    }

    #[test]
    fn times_before_1970_survive() {
        let time = Timestamp { seconds: -5, nanoseconds: 7 };
        assert_eq!(timestamp((-5i64).cast_unsigned(), 7), Ok(time));
        assert_eq!(timestamp(0, 1_000_000_000), Err(Errno::INVAL));
    }

    #[test]
    fn device_numbers_are_taken_apart() {
        assert_eq!(device_numbers(0x0010_0803), (8, 0x103));
        assert_eq!(device_numbers(259 << 8 | 5), (259, 5));
    }
}
