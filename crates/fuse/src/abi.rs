//! The FUSE kernel protocol: layouts, operation codes and flags, version 7.34 to 7.42.
//!
//! Facts are those of the kernel's `include/uapi/linux/fuse.h`. Structures, fields and flags have
//! its names, without the prefix `fuse_`. All fields are in the machine's own byte order. A request
//! is an [`InHeader`], a structure that depends on the operation, and names or data; names end with
//! a NUL. An answer is an [`OutHeader`] and what the operation returns, or a negative errno and
//! nothing else.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// Newest minor version that is spoken here.
pub const MINOR: u32 = 42;
/// Oldest minor version that is accepted (Linux 5.14). Older kernels are not tried. Before 5.13
/// they also cut a large `write` into other requests.
pub const OLDEST_MINOR: u32 = 34;
/// Node number of the root directory.
pub const ROOT_NODE: u64 = 1;

/// Flags of INIT, requested and answered; from bit 32 on they travel in `flags2`.
pub mod init {
    #![allow(missing_docs)]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of [`SetattrIn::valid`].
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// [`OpenOut::open_flags`]: nothing of the file is cached, and its size does not bound what is
/// read.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// [`OpenOut::open_flags`]: the kernel keeps what it has cached of the file.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// [`OpenOut::open_flags`]: the kernel sends no FLUSH when a descriptor is closed.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// [`OutHeader::error`] of a message that tells the kernel to drop cached pages.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// [`GetattrIn::getattr_flags`]: for a call on an open file, such as `write`.
pub const GETATTR_FH: u32 = 1 << 0;
/// [`WriteIn::write_flags`]: pages that were changed through a mapping.
pub const WRITE_CACHE: u32 = 1 << 0;
/// [`WriteIn::write_flags`]: clear set-user-ID and set-group-ID.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// [`FsyncIn::fsync_flags`]: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// [`SetxattrIn::setxattr_flags`]: clear set-group-ID when the access ACL is set.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Commands of FUSE over io_uring, and the layout of the header of a ring entry
/// (`struct fuse_uring_req_header`).
pub mod uring {
    use std::ops::Range;

    /// Makes a ring entry available to the kernel.
    pub const CMD_REGISTER: u32 = 1;
    /// Delivers an answer and makes the entry available again.
    pub const CMD_COMMIT_AND_FETCH: u32 = 2;
    /// [`super::InHeader`] of the request, then [`super::OutHeader`] of the answer.
    pub const IN_OUT: Range<usize> = 0..128;
    /// The structure that depends on the operation.
    pub const OP_IN: Range<usize> = 128..256;
    /// [`super::UringEntInOut`].
    pub const ENT_IN_OUT: Range<usize> = 256..288;
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 288;
}

/// Declares [`Opcode`] and its conversion from the number on the wire.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Opcode { $($(#[$doc])* $name = $number,)* }

        impl Opcode {
            /// The operation with this number, if it is known here.
            #[inline]
            pub fn from_wire(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Getlk = 31,
    Setlk = 32,
    Setlkw = 33,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Bmap = 37,
    Destroy = 38,
    Ioctl = 39,
    Poll = 40,
    NotifyReply = 41,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Setupmapping = 48,
    Removemapping = 49,
    Syncfs = 50,
    Tmpfile = 51,
    Statx = 52,
}

/// Declares a structure of the wire with its size in bytes.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident[$size:literal] { $($field:ident: $type:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

wire! {
    /// Head of every request.
    InHeader[40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Head of every answer; `error` is 0 or a negative errno.
    OutHeader[16] { len: u32, error: i32, unique: u64, }
    /// Body of INIT: what the kernel offers.
    InitIn[16] { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// What follows [`InitIn`] when the kernel set [`init::INIT_EXT`].
    InitInExt[48] { flags2: u32, unused: [u32; 11], }
    /// Answer to INIT. `max_readahead` and `max_write` are bytes.
    InitOut[64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, unused: [u32; 6],
    }
    /// Attributes; times are seconds (two's complement) and nanoseconds, `blocks` are 512 bytes.
    FuseAttr[88] {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    /// Answer to LOOKUP and to all that make a name; in READDIRPLUS before each [`Dirent`]. Node 0:
    /// there is no such name, which the kernel may remember for `entry_valid` seconds.
    EntryOut[128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: FuseAttr,
    }
    /// Body of GETATTR.
    GetattrIn[16] { getattr_flags: u32, dummy: u32, fh: u64, }
    /// Answer to GETATTR and SETATTR. The kernel may use it for `attr_valid` seconds.
    AttrOut[104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FuseAttr, }
    /// Body of FORGET: the kernel gives so many lookups of the node back.
    ForgetIn[8] { nlookup: u64, }
    /// Body of BATCH_FORGET; `count` times [`ForgetOne`] follow.
    BatchForgetIn[8] { count: u32, dummy: u32, }
    /// One node of BATCH_FORGET.
    ForgetOne[16] { nodeid: u64, nlookup: u64, }
    /// Body of SETATTR; `valid` has the bits of [`fattr`].
    SetattrIn[88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    /// Body of MKNOD, then the name.
    MknodIn[16] { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// Body of MKDIR, then the name.
    MkdirIn[8] { mode: u32, umask: u32, }
    /// Body of RENAME, then the old and the new name.
    RenameIn[8] { newdir: u64, }
    /// Body of RENAME2, then the old and the new name.
    Rename2In[16] { newdir: u64, flags: u32, padding: u32, }
    /// Body of LINK, then the new name.
    LinkIn[8] { oldnodeid: u64, }
    /// Body of OPEN and OPENDIR.
    OpenIn[8] { flags: u32, open_flags: u32, }
    /// Answer to OPEN and OPENDIR; after [`EntryOut`] the answer to CREATE and TMPFILE.
    OpenOut[16] { fh: u64, open_flags: u32, backing_id: i32, }
    /// Body of CREATE and TMPFILE, then the name.
    CreateIn[16] { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// Body of FLUSH: a descriptor is closed.
    FlushIn[24] { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// Body of RELEASE and RELEASEDIR: the last descriptor is closed.
    ReleaseIn[24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    /// Bytes of a node that are to be dropped from the cache, and its attributes.
    NotifyInvalInodeOut[24] { ino: u64, off: u64, len: u64, }
    /// Body of READ, READDIR and READDIRPLUS; of the latter two `offset` is the cursor of a
    /// [`Dirent`], 0 at first.
    ReadIn[40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// Body of WRITE, then `size` bytes of data.
    WriteIn[40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    /// Answer to WRITE: bytes written.
    WriteOut[8] { size: u32, padding: u32, }
    /// Answer to STATFS. `bsize` and `frsize` are bytes, the counts of blocks are in `frsize`.
    StatfsOut[80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// Body of FSYNC and FSYNCDIR.
    FsyncIn[16] { fh: u64, fsync_flags: u32, padding: u32, }
    /// Body of SETXATTR with [`init::SETXATTR_EXT`], then the name and `size` bytes.
    SetxattrIn[16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// Body of SETXATTR without [`init::SETXATTR_EXT`].
    SetxattrInShort[8] { size: u32, flags: u32, }
    /// Body of GETXATTR and LISTXATTR. With `size` 0 the size alone is asked for.
    GetxattrIn[8] { size: u32, padding: u32, }
    /// Answer to GETXATTR and LISTXATTR where the size alone was asked for.
    GetxattrOut[8] { size: u32, padding: u32, }
    /// Body of IOCTL, then `in_size` bytes.
    IoctlIn[32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// Answer to IOCTL, then up to `out_size` bytes.
    IoctlOut[16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// Body of FALLOCATE.
    FallocateIn[32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// Body of LSEEK (`SEEK_DATA` and `SEEK_HOLE` only).
    LseekIn[24] { fh: u64, offset: u64, whence: u32, padding: u32, }
    /// Answer to LSEEK.
    LseekOut[8] { offset: u64, }
    /// One name of a directory; the name follows, then zeros to a multiple of 8 bytes.
    Dirent[24] { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// Body of STATX.
    StatxIn[24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    /// A time in [`FuseStatx`].
    SxTime[16] { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    /// Attributes in [`StatxOut`].
    FuseStatx[256] {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// The request that a ring entry holds (`commit_id`), and how many bytes its payload has.
    UringEntInOut[32] { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64, }
    /// Command of a ring entry.
    UringCmdReq[24] { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// Answer to STATX.
    StatxOut[288] {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: FuseStatx,
    }
}

impl FuseAttr {
    /// Attributes of a file or directory that exists in memory only: one name, no times, owned by
    /// root. `mode` has the type and the permissions.
    pub fn made_up(node: u64, mode: u32, size_bytes: u64) -> FuseAttr {
        FuseAttr {
            ino: node,
            size: size_bytes,
            blocks: size_bytes / 512,
            mode,
            nlink: 1,
            blksize: 4096,
            ..FuseAttr::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_header_is_read_as_the_kernel_lays_it_out() {
        let mut bytes = [0u8; 40];
        bytes[0..4].copy_from_slice(&56u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&15u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&0x1122_3344_5566_7788u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&12u64.to_ne_bytes());
        bytes[24..28].copy_from_slice(&1000u32.to_ne_bytes());
        let header = InHeader::read_from_bytes(&bytes).unwrap();
        assert_eq!((header.len, header.unique), (56, 0x1122_3344_5566_7788));
        assert_eq!((header.nodeid, header.uid), (12, 1000));
        assert_eq!(Opcode::from_wire(header.opcode), Some(Opcode::Read));
    }

    #[test]
    fn unknown_operations_are_no_operation() {
        assert_eq!(Opcode::from_wire(7), None);
        assert_eq!(Opcode::from_wire(4096), None);
        assert_eq!(Opcode::from_wire(u32::MAX), None);
        assert_eq!(Opcode::from_wire(52), Some(Opcode::Statx));
    }

    #[test]
    fn offsets_are_those_of_the_kernel() {
        assert_eq!(std::mem::offset_of!(EntryOut, attr), 40);
        assert_eq!(std::mem::offset_of!(FuseAttr, mode), 60);
        assert_eq!(std::mem::offset_of!(SetattrIn, mode), 68);
        assert_eq!(std::mem::offset_of!(InitOut, max_pages), 28);
        assert_eq!(std::mem::offset_of!(FuseStatx, btime), 80);
    }
}
