//! Reading and setting the attributes of an inode.

use super::declared::check_declared;
use crate::error::{Error, Result};
use crate::file::FILE_BYTES_MAX;
use crate::inode::{Inode, flags, read_inode};
use crate::memory::Mounted;
use crate::op::{Op, Spending, credits};
use crate::types::{Attr, FileKind, InodeNo, SetAttr, SetTime, Timestamp};
use crate::xattr;

/// Flags that users may set.
const SETTABLE_FLAGS: u32 = flags::SYNC
    | flags::IMMUTABLE
    | flags::APPEND
    | flags::NODUMP
    | flags::NOATIME
    | flags::JOURNAL_DATA
    | flags::DIRSYNC
    | flags::TOPDIR;

impl Mounted {
    /// [`Volume::get_attr`](crate::Volume::get_attr).
    pub(crate) fn get_attr(&self, ino: InodeNo) -> Result<Attr> {
        Ok(self.give_out(&read_inode(self, ino)?))
    }

    /// [`Volume::peek_attr`](crate::Volume::peek_attr).
    pub(crate) fn peek_attr(&self, ino: InodeNo) -> Result<Attr> {
        Ok(read_inode(self, ino)?.attr())
    }
}

impl Spending<'_> {
    /// [`VolumeAs::set_attr`](crate::VolumeAs::set_attr).
    pub(crate) fn set_attr(&self, ino: InodeNo, set: &SetAttr) -> Result<Attr> {
        let inode = read_inode(&**self, ino)?;
        let is_sync = inode.has_flag(flags::SYNC) && !is_times_only(set);
        check(&inode, set)?;
        let in_core = self.in_core(ino);
        let changes_mode = changes_data_mode(&inode, set);
        let content = if changes_mode { Some(in_core.content.write()) } else { None };
        if changes_mode {
            self.check_writable()?;
            self.leave_mode()?;
        }
        if let Some(size_bytes) = set.size_bytes {
            if size_bytes > FILE_BYTES_MAX {
                return Err(Error::FileTooBig);
            }
            // First: a power cut leaves no file that is trusted and has other content.
            self.drop_capabilities(ino, set)?;
            self.set_size(ino, size_bytes, |op, inode| {
                check(inode, set)?;
                apply(inode, set, op.now());
                Ok(())
            })?;
        }
        if set.size_bytes.is_none() || set.mode.is_some() {
            let _xattr = in_core.xattr.write();
            self.with_op(2 * xattr::STORE_CREDITS + credits::PUT_INODE, |op| {
                let mut inode = op.inode(ino)?;
                check(&inode, set)?;
                let changes_flag = changes_mode_flag(&inode, set);
                apply(&mut inode, set, op.now());
                apply_to_xattrs(op, &mut inode, set)?;
                if changes_flag {
                    check_declared(op, &inode)?;
                }
                inode.bump_version();
                if is_times_only(set) { op.put_inode_times(&inode) } else { op.put_inode(&inode) }
            })?;
        }
        drop(content);
        if is_sync {
            self.fsync(ino, false)?;
        }
        self.get_attr(ino)
    }

    /// Removes the file capabilities of a file that will be cut, if it has any.
    fn drop_capabilities(&self, ino: InodeNo, set: &SetAttr) -> Result<()> {
        let in_core = self.in_core(ino);
        let _xattr = in_core.xattr.write();
        if !xattr::has_capabilities(&**self, &read_inode(&**self, ino)?)? {
            return Ok(());
        }
        self.with_op(xattr::STORE_CREDITS + credits::PUT_INODE, |op| {
            let mut inode = op.inode(ino)?;
            check(&inode, set)?;
            xattr::drop_capabilities(op, &mut inode)?;
            inode.set_ctime(op.now());
            inode.bump_version();
            op.put_inode(&inode)
        })
    }
}

/// `chattr +j` and `-j` change the data mode of a file.
fn changes_data_mode(inode: &Inode, set: &SetAttr) -> bool {
    inode.kind() == FileKind::Regular && set.size_bytes.is_none() && changes_mode_flag(inode, set)
}

/// Whether the flag of `chattr +j` changes.
fn changes_mode_flag(inode: &Inode, set: &SetAttr) -> bool {
    let changes = |wanted: u32| (wanted ^ inode.flags()) & flags::JOURNAL_DATA != 0;
    set.flags.is_some_and(changes)
}

/// Whether an fdatasync need not commit this change.
fn is_times_only(set: &SetAttr) -> bool {
    let without_times = SetAttr { atime: None, mtime: None, ctime: None, ..*set };
    without_times == SetAttr::default()
}

/// Refuses a change that the inode's flags or kind forbid.
fn check(inode: &Inode, set: &SetAttr) -> Result<()> {
    let is_size = set.size_bytes.is_some();
    let is_time = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
    let is_mode = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    let is_frozen = is_mode || is_size || is_time(set.atime) || is_time(set.mtime);
    let is_any = is_frozen || set.atime.is_some() || set.mtime.is_some() || set.kill_suid_sgid;
    if inode.has_flag(flags::IMMUTABLE) && is_any || inode.has_flag(flags::APPEND) && is_frozen {
        return Err(Error::NotPermitted);
    }
    match (inode.kind(), is_size) {
        (FileKind::Directory, true) => return Err(Error::IsDirectory),
        (FileKind::Symlink, _) if set.mode.is_some() => return Err(Error::NotSupported),
        (FileKind::Regular, _) | (_, false) => {}
        (_, true) => return Err(Error::InvalidArgument),
    }
    match set.flags {
        Some(wanted) if (wanted ^ inode.flags()) & !SETTABLE_FLAGS != 0 => Err(Error::NotSupported),
        _ => Ok(()),
    }
}

/// Sets the attributes that are stored in the inode's own fields.
fn apply(inode: &mut Inode, set: &SetAttr, now: Timestamp) {
    let time = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    if let Some(uid) = set.uid {
        inode.set_uid(uid);
    }
    if let Some(gid) = set.gid {
        inode.set_gid(gid);
    }
    if let Some(mode) = set.mode {
        inode.set_permissions(mode & 0o7777);
    }
    // To a directory the bits mean something else.
    if set.kill_suid_sgid && inode.kind() != FileKind::Directory {
        inode.clear_set_ids(set.kill_sgid);
    }
    if let Some(wanted) = set.flags {
        inode.set_flags(inode.flags() & !SETTABLE_FLAGS | wanted & SETTABLE_FLAGS);
    }
    if let Some(atime) = set.atime {
        inode.set_atime(time(atime));
    }
    if let Some(mtime) = set.mtime {
        inode.set_mtime(time(mtime));
    }
    inode.set_ctime(set.ctime.unwrap_or(now));
}

/// Whether the change of owner removes file capabilities: the new owner must not inherit what the
/// file was trusted with. Before a change of content, the crate `mount` removes them.
fn drops_capabilities(set: &SetAttr) -> bool {
    set.uid.is_some() || set.gid.is_some() || set.kill_suid_sgid
}

fn apply_to_xattrs(op: &mut Op<'_>, inode: &mut Inode, set: &SetAttr) -> Result<()> {
    if set.mode.is_some() {
        xattr::follow_chmod(op, inode)?;
    }
    if drops_capabilities(set) && inode.kind() == FileKind::Regular {
        xattr::drop_capabilities(op, inode)?;
    }
    Ok(())
}
