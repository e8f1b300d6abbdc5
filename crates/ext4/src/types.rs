//! The parameters and results of operations: plain values, without on-disk layout.

use std::fmt;

/// Number of an inode; the root directory is 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNo(pub u32);

impl InodeNo {
    /// The root directory.
    pub const ROOT: InodeNo = InodeNo(2);
}

impl fmt::Display for InodeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.0)
    }
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A point in time: seconds since 1970 (34 bits are stored) and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

/// Attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: InodeNo,
    /// Generation (changes when an inode number is used again).
    pub generation: u32,
    /// Type.
    pub kind: FileKind,
    /// Type and permission bits (`S_IFMT | 07777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub link_count: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space used, in 512-byte units (as `st_blocks`).
    pub sectors: u64,
    /// Device number of a special file, encoded as Linux's `dev_t` of 32 bits
    /// (`minor & 0xff | major << 8 | (minor & !0xff) << 12`).
    pub rdev: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last data change.
    pub mtime: Timestamp,
    /// Last inode change.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// `FS_*_FL` flags, as `lsattr` shows them.
    pub flags: u32,
    /// Whether it may have extended attributes. `false`: it has none.
    pub may_have_xattrs: bool,
}

/// Owner of a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group. If the parent has its set-group-ID bit, the parent's group is used.
    pub gid: u32,
}

/// What `Volume::make` creates.
#[derive(Debug, Clone, Copy)]
pub enum NewNode<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A device, FIFO or socket with this `rdev` (0 for FIFO and socket).
    Special(FileKind, u32),
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's current time.
    Now,
    /// This time.
    To(Timestamp),
}

/// Which attributes to set; `None` leaves an attribute as it is. ctime becomes the current time
/// unless it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size: truncate or extend with a hole.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last data change.
    pub mtime: Option<SetTime>,
    /// Last inode change.
    pub ctime: Option<Timestamp>,
    /// Clear set-user-ID, and set-group-ID if the group may execute the file (a write or chown by a
    /// non-owner).
    pub kill_suid_sgid: bool,
    /// With it, clear set-group-ID in any case (a change by a stranger to the group).
    pub kill_sgid: bool,
    /// `FS_*_FL` flags that users may set (immutable, append, noatime, nodump, sync, dirsync,
    /// journal-data).
    pub flags: Option<u32>,
}

/// Direction of `Volume::seek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// The first data at or after the offset.
    Data,
    /// The first hole at or after the offset (the end of the file is one).
    Hole,
}

/// What `Volume::rename` does when the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    /// Replace it if both are directories or both are not. A replaced directory must be empty.
    Replace,
    /// Fail with `Exists`.
    NoReplace,
    /// Exchange the two; both must exist.
    Exchange,
    /// As `Replace`; the old name becomes a whiteout (a character device 0:0) with this owner.
    Whiteout(Owner),
}

/// Condition of `Volume::set_xattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrFlags {
    /// Create or replace.
    Any,
    /// Fail with `Exists` if it exists.
    Create,
    /// Fail with `NoAttribute` if it does not exist.
    Replace,
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The inode it names.
    pub ino: InodeNo,
    /// Its type; `None` if the directory does not store it.
    pub kind: Option<FileKind>,
    /// Its name.
    pub name: &'a [u8],
    /// Pass this to the next `Volume::read_dir` to continue after this entry.
    pub cursor: u64,
}

/// Free and used space of the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks for files (without the file system's own overhead).
    pub block_count: u64,
    /// Free blocks.
    pub free_block_count: u64,
    /// Free blocks that are not reserved for root.
    pub available_block_count: u64,
    /// Inodes.
    pub inode_count: u64,
    /// Free inodes.
    pub free_inode_count: u64,
}
