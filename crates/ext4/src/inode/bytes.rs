//! The 256 bytes of an inode: checked, and given names.

use journal::HomeBlock;
use zerocopy::FromBytes;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::time::{decode_time, encode_time};
use crate::layout::inode::{GOOD_OLD_INODE_BYTES, INODE_BYTES, RawInode};
use crate::layout::xattr::XATTR_MAGIC;
use crate::{Attr, Error, FileKind, InodeNo, Result, Timestamp};

/// The bits of `i_flags` that this driver knows, under the kernel's names (without `EXT4_` and
/// `_FL`).
#[allow(dead_code)] // complete on purpose
pub(crate) mod flags {
    pub(crate) const SYNC: u32 = 0x8;
    pub(crate) const IMMUTABLE: u32 = 0x10;
    pub(crate) const APPEND: u32 = 0x20;
    pub(crate) const NODUMP: u32 = 0x40;
    pub(crate) const NOATIME: u32 = 0x80;
    pub(crate) const ENCRYPT: u32 = 0x800;
    pub(crate) const INDEX: u32 = 0x1000;
    pub(crate) const JOURNAL_DATA: u32 = 0x4000;
    pub(crate) const DIRSYNC: u32 = 0x10000;
    pub(crate) const TOPDIR: u32 = 0x20000;
    pub(crate) const HUGE_FILE: u32 = 0x40000;
    pub(crate) const EXTENTS: u32 = 0x80000;
    pub(crate) const VERITY: u32 = 0x100000;
    pub(crate) const EA_INODE: u32 = 0x200000;
    pub(crate) const INLINE_DATA: u32 = 0x1000_0000;
    pub(crate) const CASEFOLD: u32 = 0x4000_0000;
}

/// `i_mode`: the bits of the type.
const S_IFMT: u16 = 0o170000;
const SET_USER_ID: u16 = 0o4000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// An inode's number and bytes. This is a copy: nothing changes until `Op::put_inode`.
#[derive(Debug, Clone)]
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: InodeNo,
    /// Its bytes.
    pub(crate) raw: RawInode,
}

/// The type bits of a kind.
fn type_bits(kind: FileKind) -> u16 {
    match kind {
        FileKind::Fifo => 0o010000,
        FileKind::CharDevice => 0o020000,
        FileKind::Directory => 0o040000,
        FileKind::BlockDevice => 0o060000,
        FileKind::Regular => 0o100000,
        FileKind::Symlink => 0o120000,
        FileKind::Socket => 0o140000,
    }
}

fn kind_of(mode: u16) -> Option<FileKind> {
    Some(match mode & S_IFMT {
        0o010000 => FileKind::Fifo,
        0o020000 => FileKind::CharDevice,
        0o040000 => FileKind::Directory,
        0o060000 => FileKind::BlockDevice,
        0o100000 => FileKind::Regular,
        0o120000 => FileKind::Symlink,
        0o140000 => FileKind::Socket,
        _ => return None,
    })
}

impl Inode {
    /// A new inode of `kind` with link count 0. Everything except type, extra size and creation
    /// time is zero; the caller fills in the rest.
    pub(crate) fn new(ino: InodeNo, kind: FileKind, generation: u32, now: Timestamp) -> Inode {
        let raw = RawInode::read_from_bytes(&[0; INODE_BYTES]).expect("256 bytes");
        let mut inode = Inode { ino, raw };
        inode.raw.i_mode = U16::new(type_bits(kind));
        inode.raw.i_extra_isize = U16::new(32);
        inode.raw.i_generation = U32::new(generation);
        inode.set_atime(now);
        inode.set_mtime(now);
        inode.set_ctime(now);
        inode.set_crtime(now);
        inode
    }

    /// Checks what must hold for an inode of any kind. The error says what is wrong.
    pub(crate) fn check(&self) -> std::result::Result<(), &'static str> {
        if kind_of(self.mode()).is_none() {
            return Err("i_mode: no type of file");
        }
        let extra = usize::from(self.raw.i_extra_isize.get());
        if extra > INODE_BYTES - GOOD_OLD_INODE_BYTES || !extra.is_multiple_of(4) {
            return Err("i_extra_isize");
        }
        let refused = flags::ENCRYPT | flags::VERITY | flags::INLINE_DATA | flags::CASEFOLD;
        if self.flags() & refused != 0 {
            return Err("i_flags: a feature the volume does not have");
        }
        if self.size() > i64::MAX as u64 {
            return Err("i_size: too large");
        }
        Ok(())
    }

    /// Type.
    pub(crate) fn kind(&self) -> FileKind {
        // `check` refuses an inode without a type, and `Inode::new` sets the type.
        kind_of(self.mode()).expect("an inode has a type")
    }

    /// Type and permission bits.
    pub(crate) fn mode(&self) -> u16 {
        self.raw.i_mode.get()
    }

    /// Sets the permission bits (07777); the type stays.
    pub(crate) fn set_permissions(&mut self, permissions: u16) {
        self.raw.i_mode = U16::new(self.mode() & S_IFMT | permissions & !S_IFMT);
    }

    pub(crate) fn clear_set_group_id(&mut self) {
        self.set_permissions(self.mode() & !SET_GROUP_ID);
    }

    /// Clears set-user-ID and set-group-ID. A set-group-ID bit without the right to execute stays
    /// unless `kill_sgid` says otherwise, because it once meant mandatory locking.
    pub(crate) fn clear_set_ids(&mut self, kill_sgid: bool) {
        let mut permissions = self.mode() & !SET_USER_ID;
        if kill_sgid || permissions & GROUP_EXECUTE != 0 {
            permissions &= !SET_GROUP_ID;
        }
        self.set_permissions(permissions);
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.raw.i_size_lo.get()) | u64::from(self.raw.i_size_high.get()) << 32
    }

    /// Sets the size in bytes.
    pub(crate) fn set_size(&mut self, size_bytes: u64) {
        self.raw.i_size_lo = U32::new((size_bytes & 0xFFFF_FFFF) as u32);
        self.raw.i_size_high = U32::new((size_bytes >> 32) as u32);
    }

    /// Link count (of a directory with very many children: 1).
    pub(crate) fn link_count(&self) -> u32 {
        u32::from(self.raw.i_links_count.get())
    }

    /// Sets the link count, at most 65535.
    pub(crate) fn set_link_count(&mut self, count: u32) {
        let count = u16::try_from(count).expect("a link count is checked before it is raised");
        self.raw.i_links_count = U16::new(count);
    }

    /// `i_flags`.
    pub(crate) fn flags(&self) -> u32 {
        self.raw.i_flags.get()
    }

    /// Sets `i_flags`.
    pub(crate) fn set_flags(&mut self, flags: u32) {
        self.raw.i_flags = U32::new(flags);
    }

    /// Whether this one of the [`flags`] is set.
    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    /// Owner.
    pub(crate) fn uid(&self) -> u32 {
        u32::from(self.raw.i_uid.get()) | u32::from(self.raw.i_uid_high.get()) << 16
    }

    /// Sets the owner.
    pub(crate) fn set_uid(&mut self, uid: u32) {
        self.raw.i_uid = U16::new((uid & 0xFFFF) as u16);
        self.raw.i_uid_high = U16::new((uid >> 16) as u16);
    }

    /// Group.
    pub(crate) fn gid(&self) -> u32 {
        u32::from(self.raw.i_gid.get()) | u32::from(self.raw.i_gid_high.get()) << 16
    }

    /// Sets the group.
    pub(crate) fn set_gid(&mut self, gid: u32) {
        self.raw.i_gid = U16::new((gid & 0xFFFF) as u16);
        self.raw.i_gid_high = U16::new((gid >> 16) as u16);
    }

    /// Device number of a special file (Linux's 32-bit encoding); 0 for other kinds.
    pub(crate) fn rdev(&self) -> u32 {
        if !matches!(self.kind(), FileKind::CharDevice | FileKind::BlockDevice) {
            return 0;
        }
        let word = |i: usize| {
            let bytes = self.raw.i_block[i * 4..i * 4 + 4].try_into().expect("4 bytes");
            u32::from_le_bytes(bytes)
        };
        // i_block[0] is the old encoding: major << 8 | minor, both of 8 bits; its bit pattern is
        // the new encoding's as well.
        if word(0) != 0 { word(0) & 0xFFFF } else { word(1) }
    }

    /// Sets the device number of a special file. Uses the old encoding if the number fits, as the
    /// kernel does.
    pub(crate) fn set_rdev(&mut self, rdev: u32) {
        self.raw.i_block.fill(0);
        let at = if rdev >> 16 == 0 { 0 } else { 4 };
        self.raw.i_block[at..at + 4].copy_from_slice(&rdev.to_le_bytes());
    }

    /// Space used, in 512-byte sectors.
    pub(crate) fn sectors(&self) -> u64 {
        let count =
            u64::from(self.raw.i_blocks_lo.get()) | u64::from(self.raw.i_blocks_high.get()) << 32;
        if self.has_flag(flags::HUGE_FILE) { count * 8 } else { count }
    }

    /// Adds blocks of 4096 bytes to the space used, or with a negative count subtracts them.
    pub(crate) fn add_blocks(&mut self, block_count: i64) -> Result<()> {
        let sectors = block_count.checked_mul(8).and_then(|n| self.sectors().checked_add_signed(n));
        let Some(sectors) = sectors else {
            return Err(Error::corrupt("block count", self.ino));
        };
        let is_huge = sectors >> 48 != 0;
        let count = if is_huge { sectors / 8 } else { sectors };
        let huge = if is_huge { flags::HUGE_FILE } else { 0 };
        self.set_flags(self.flags() & !flags::HUGE_FILE | huge);
        self.raw.i_blocks_lo = U32::new((count & 0xFFFF_FFFF) as u32);
        self.raw.i_blocks_high = U16::new((count >> 32 & 0xFFFF) as u16);
        Ok(())
    }

    /// The attribute block; 0 = none.
    pub(crate) fn file_acl(&self) -> HomeBlock {
        let high = u64::from(self.raw.i_file_acl_high.get());
        HomeBlock(u64::from(self.raw.i_file_acl_lo.get()) | high << 32)
    }

    /// Sets the attribute block; 0 = none.
    pub(crate) fn set_file_acl(&mut self, block: HomeBlock) {
        assert!(block.0 >> 48 == 0, "{block} does not fit into 48 bits");
        self.raw.i_file_acl_lo = U32::new((block.0 & 0xFFFF_FFFF) as u32);
        self.raw.i_file_acl_high = U16::new((block.0 >> 32) as u16);
    }

    /// Generation.
    pub(crate) fn generation(&self) -> u32 {
        self.raw.i_generation.get()
    }

    /// `i_version`: counts changes.
    pub(crate) fn version(&self) -> u64 {
        u64::from(self.raw.i_version.get()) | u64::from(self.raw.i_version_hi.get()) << 32
    }

    /// Counts one change more in `i_version`.
    pub(crate) fn bump_version(&mut self) {
        let version = self.version().wrapping_add(1);
        self.raw.i_version = U32::new((version & 0xFFFF_FFFF) as u32);
        self.raw.i_version_hi = U32::new((version >> 32) as u32);
    }

    /// Whether `i_block` maps blocks, as extents or as a block map. Otherwise it holds the target
    /// of a short symbolic link, or a device number.
    pub(crate) fn maps_blocks(&self) -> bool {
        match self.kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => {
                self.has_flag(flags::EXTENTS) || self.size() >= self.raw.i_block.len() as u64
            }
            _ => false,
        }
    }

    /// `i_block`: root of the block mapping, target of a short symbolic link, or device number.
    pub(crate) fn i_block(&self) -> &[u8; 60] {
        &self.raw.i_block
    }

    /// `i_block`, to change.
    pub(crate) fn i_block_mut(&mut self) -> &mut [u8; 60] {
        &mut self.raw.i_block
    }

    fn xattr_start(&self) -> usize {
        let extra = usize::from(self.raw.i_extra_isize.get());
        GOOD_OLD_INODE_BYTES + extra // read_inode checked that this is at most 256
    }

    /// The area of the attributes inside the inode: everything after the extra fields. Empty if the
    /// inode has no extra fields.
    pub(crate) fn xattr_area(&self) -> &[u8] {
        match self.raw.i_extra_isize.get() {
            0 => &[],
            _ => &self.raw.as_bytes()[self.xattr_start()..],
        }
    }

    /// The area of the in-inode attributes, to change.
    pub(crate) fn xattr_area_mut(&mut self) -> &mut [u8] {
        let start = self.xattr_start();
        match self.raw.i_extra_isize.get() {
            0 => &mut [],
            _ => &mut self.raw.as_mut_bytes()[start..],
        }
    }

    fn extra(&self, end: usize, value: U32) -> u32 {
        if usize::from(self.raw.i_extra_isize.get()) >= end { value.get() } else { 0 }
    }

    /// Last access.
    pub(crate) fn atime(&self) -> Timestamp {
        decode_time(self.raw.i_atime, self.extra(16, self.raw.i_atime_extra))
    }

    /// Last data change.
    pub(crate) fn mtime(&self) -> Timestamp {
        decode_time(self.raw.i_mtime, self.extra(12, self.raw.i_mtime_extra))
    }

    /// Last inode change.
    pub(crate) fn ctime(&self) -> Timestamp {
        decode_time(self.raw.i_ctime, self.extra(8, self.raw.i_ctime_extra))
    }

    /// Creation; 1970 if the inode has no room for it.
    pub(crate) fn crtime(&self) -> Timestamp {
        if usize::from(self.raw.i_extra_isize.get()) < 20 {
            return Timestamp::default();
        }
        decode_time(self.raw.i_crtime, self.extra(24, self.raw.i_crtime_extra))
    }

    /// Sets the last access.
    pub(crate) fn set_atime(&mut self, time: Timestamp) {
        let (seconds, extra) = encode_time(time, self.has_extra(16));
        self.raw.i_atime = seconds;
        self.put_extra(16, extra, |raw| &mut raw.i_atime_extra);
    }

    /// Sets the last data change.
    pub(crate) fn set_mtime(&mut self, time: Timestamp) {
        let (seconds, extra) = encode_time(time, self.has_extra(12));
        self.raw.i_mtime = seconds;
        self.put_extra(12, extra, |raw| &mut raw.i_mtime_extra);
    }

    /// Sets the last inode change.
    pub(crate) fn set_ctime(&mut self, time: Timestamp) {
        let (seconds, extra) = encode_time(time, self.has_extra(8));
        self.raw.i_ctime = seconds;
        self.put_extra(8, extra, |raw| &mut raw.i_ctime_extra);
    }

    fn set_crtime(&mut self, time: Timestamp) {
        let (seconds, extra) = encode_time(time, self.has_extra(24));
        self.put_extra(20, seconds, |raw| &mut raw.i_crtime);
        self.put_extra(24, extra, |raw| &mut raw.i_crtime_extra);
    }

    fn has_extra(&self, end: usize) -> bool {
        usize::from(self.raw.i_extra_isize.get()) >= end
    }

    /// Writes an extra field that ends `end` bytes after the first 128 bytes of the inode, if there
    /// is room.
    fn put_extra(&mut self, end: usize, value: U32, field: fn(&mut RawInode) -> &mut U32) {
        if self.has_extra(end) {
            *field(&mut self.raw) = value;
        }
    }

    /// Whether it may have extended attributes: it names a block of them, or its own area was used.
    fn may_have_xattrs(&self) -> bool {
        self.file_acl().0 != 0 || self.xattr_area().starts_with(&XATTR_MAGIC.to_le_bytes())
    }

    /// The attributes of the inode, as operations return them.
    pub(crate) fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            generation: self.generation(),
            kind: self.kind(),
            mode: self.mode(),
            uid: self.uid(),
            gid: self.gid(),
            link_count: self.link_count(),
            size_bytes: self.size(),
            sectors: self.sectors(),
            rdev: self.rdev(),
            atime: self.atime(),
            mtime: self.mtime(),
            ctime: self.ctime(),
            crtime: self.crtime(),
            flags: self.flags(),
            may_have_xattrs: self.may_have_xattrs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode() -> Inode {
        Inode::new(InodeNo(12), FileKind::Regular, 7, Timestamp { seconds: 5, nanoseconds: 6 })
    }

    #[test]
    fn without_extra_fields_times_are_seconds() {
        let mut inode = inode();
        inode.raw.i_extra_isize = U16::ZERO;
        inode.set_ctime(Timestamp { seconds: 1 << 32, nanoseconds: 3 });
        assert_eq!(inode.ctime(), Timestamp { seconds: i64::from(i32::MAX), nanoseconds: 0 });
        assert!(inode.xattr_area().is_empty());
    }

    #[test]
    fn wide_fields_have_their_halves() {
        let mut inode = inode();
        inode.set_uid(0x1234_5678);
        inode.set_gid(0x9ABC_DEF0);
        inode.set_size(0x12_3456_789A);
        inode.set_file_acl(HomeBlock(0x1234_5678_9ABC));
        assert_eq!((inode.uid(), inode.gid()), (0x1234_5678, 0x9ABC_DEF0));
        assert_eq!((inode.raw.i_uid.get(), inode.raw.i_uid_high.get()), (0x5678, 0x1234));
        assert_eq!(inode.size(), 0x12_3456_789A);
        assert_eq!(inode.file_acl(), HomeBlock(0x1234_5678_9ABC));
    }

    #[test]
    fn block_counts_become_huge_and_small_again() {
        let mut inode = inode();
        inode.add_blocks(1 << 45).unwrap();
        assert!(inode.has_flag(flags::HUGE_FILE));
        assert_eq!(inode.sectors(), 1 << 48);
        inode.add_blocks(-1).unwrap();
        assert!(!inode.has_flag(flags::HUGE_FILE));
        assert_eq!(inode.sectors(), (1 << 48) - 8);
        inode.add_blocks(1 - (1 << 45)).unwrap();
        assert_eq!(inode.sectors(), 0);
        assert!(inode.add_blocks(-1).is_err());
    }

    #[test]
    fn device_numbers_use_the_old_form_when_they_fit() {
        let mut inode = Inode::new(InodeNo(12), FileKind::CharDevice, 0, Timestamp::default());
        for rdev in [0x0103, 0xFFF0_0103] {
            inode.set_rdev(rdev);
            assert_eq!(inode.rdev(), rdev);
        }
        inode.set_rdev(0x0103);
        assert_eq!(inode.i_block()[..8], [3, 1, 0, 0, 0, 0, 0, 0]);
    }
}
