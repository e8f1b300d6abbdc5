//! Makes inodes (files, directories, symbolic links, special files), and further names for them.

use super::lookup::{self, change_dir, read_dir_inode};
use crate::dir;
use crate::error::{Error, Result};
use crate::extent;
use crate::inode::{Inode, SET_GROUP_ID, flags};
use crate::memory::Mounted;
use crate::op::{Op, Spending, credits};
use crate::types::{Attr, FileKind, InodeNo, NewNode, Owner};
use crate::xattr::{self, ACL_ACCESS, ACL_DEFAULT, Acl, atomic_attribute, mode_attribute};

/// Longest target of a symbolic link in bytes.
const TARGET_MAX: usize = 4095;
/// Targets up to this length are stored in the inode.
const FAST_TARGET_MAX: usize = 59;

/// Flags that a new inode inherits from its directory: secrm, unrm, compr, sync, nodump, noatime,
/// nocompr, journal-data, notail, dirsync, dax.
const INHERITED_FLAGS: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | 0x1_0000 | 0x0200_0000;

/// Permissions of a new inode, and the access control lists that it inherits.
struct Inherited {
    permissions: u16,
    access: Option<Acl>,
    default: Option<Acl>,
}

fn kind_of(node: NewNode<'_>) -> Result<FileKind> {
    match node {
        NewNode::Regular => Ok(FileKind::Regular),
        NewNode::Directory => Ok(FileKind::Directory),
        NewNode::Symlink(target) => {
            if target.len() > TARGET_MAX {
                return Err(Error::NameTooLong);
            }
            let is_bad = target.is_empty() || target.contains(&0);
            if is_bad { Err(Error::InvalidArgument) } else { Ok(FileKind::Symlink) }
        }
        NewNode::Special(kind, _) => match kind {
            FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket => {
                Ok(kind)
            }
            _ => Err(Error::InvalidArgument),
        },
    }
}

fn inherited_flags(dir: &Inode, kind: FileKind) -> u32 {
    let inherited = dir.flags() & INHERITED_FLAGS;
    match kind {
        FileKind::Directory => inherited,
        FileKind::Regular => inherited & !(flags::DIRSYNC | flags::TOPDIR),
        _ => inherited & (flags::NODUMP | flags::NOATIME),
    }
}

/// The rule of POSIX: if the directory has a default list, it becomes the access list, narrowed by
/// the permissions, and the umask is ignored. Otherwise the umask is used.
fn inherit(
    op: &Op<'_>,
    dir: &Inode,
    kind: FileKind,
    permissions: u16,
    umask: u16,
) -> Result<Inherited> {
    let permissions = permissions & 0o7777;
    if kind == FileKind::Symlink {
        return Ok(Inherited { permissions: 0o777, access: None, default: None });
    }
    let Some(default) = xattr::get_acl(op, dir, &ACL_DEFAULT)? else {
        return Ok(Inherited { permissions: permissions & !umask, access: None, default: None });
    };
    let mut access = default.clone();
    let bits = access.inherit(permissions);
    Ok(Inherited {
        permissions: permissions & !0o777 | bits,
        access: (!access.is_minimal()).then_some(access),
        default: (kind == FileKind::Directory).then_some(default),
    })
}

/// A new inode with owner, flags and link count. If the directory has set-group-ID, every inode
/// inherits its group, and a directory inherits the bit. The caller sets the other permissions.
fn new_inode(op: &mut Op<'_>, dir: &Inode, kind: FileKind, owner: Owner) -> Result<Inode> {
    let ino = op.alloc_inode(dir.ino, kind)?;
    let generation = op.new_generation();
    let mut inode = Inode::new(ino, kind, generation, op.now());
    inode.set_uid(owner.uid);
    inode.set_gid(owner.gid);
    if dir.mode() & SET_GROUP_ID != 0 {
        inode.set_gid(dir.gid());
        if kind == FileKind::Directory {
            inode.set_permissions(SET_GROUP_ID);
        }
    }
    inode.set_flags(inherited_flags(dir, kind));
    inode.set_link_count(if kind == FileKind::Directory { 2 } else { 1 });
    Ok(inode)
}

/// New files and directories inherit the data mode of their directory, and its declaration of
/// atomic writes.
fn hand_down_data_mode(op: &mut Op<'_>, dir: &Inode, inode: &mut Inode) -> Result<()> {
    let in_core = op.mounted().in_core(inode.ino);
    // The in-core inode may still be there of the inode's former incarnation.
    in_core.set_asked(None);
    in_core.set_synced(false);
    in_core.set_linkable(false);
    if !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) {
        return Ok(());
    }
    let asked = op.asked(dir)?;
    // A flag was inherited as a flag.
    if let Some(mode) = asked.mode.filter(|_| !dir.has_flag(flags::JOURNAL_DATA)) {
        xattr::store(op, inode, &mode_attribute(), Some(mode.name().as_bytes()))?;
    }
    if let Some(bytes) = asked.declared_bytes {
        xattr::store(op, inode, &atomic_attribute(), Some(bytes.to_string().as_bytes()))?;
    }
    Ok(())
}

/// Writes the content that the kind of the new inode requires.
fn fill(op: &mut Op<'_>, inode: &mut Inode, parent: InodeNo, node: NewNode<'_>) -> Result<()> {
    match node {
        NewNode::Regular => extent::init_root(inode),
        NewNode::Directory => {
            extent::init_root(inode);
            dir::init(op, inode, parent)?;
        }
        NewNode::Symlink(target) => write_target(op, inode, target)?,
        NewNode::Special(FileKind::CharDevice | FileKind::BlockDevice, rdev) => {
            inode.set_rdev(rdev);
        }
        NewNode::Special(..) => {}
    }
    Ok(())
}

fn write_target(op: &mut Op<'_>, inode: &mut Inode, target: &[u8]) -> Result<()> {
    if target.len() <= FAST_TARGET_MAX {
        inode.i_block_mut()[..target.len()].copy_from_slice(target);
    } else {
        extent::init_root(inode);
        let (_, home) = extent::append_block(op, inode)?;
        op.create_block(home)?[..target.len()].copy_from_slice(target);
    }
    inode.set_size(target.len() as u64);
    Ok(())
}

impl Mounted {
    /// Whether the inode was made without a name and is in use, so that it may get one. (It cannot
    /// be freed meanwhile.)
    fn is_linkable(&self, ino: InodeNo) -> bool {
        self.in_core(ino).is_linkable() && !self.in_core.is_unpinned(ino)
    }

    fn make_credit_count(&self, parent: InodeNo) -> Result<usize> {
        let dir = lookup::dir_to_grow(self, parent)?;
        let own_block = 1 + extent::append_credit_count(&dir);
        // Two access lists, a mode, a declaration.
        let attributes = 4 * xattr::STORE_CREDITS;
        let inode = credits::ALLOC_INODE + credits::PUT_INODE;
        Ok(lookup::insert_credit_count(&dir) + own_block + attributes + inode)
    }
}

impl Spending<'_> {
    /// [`VolumeAs::make`](crate::VolumeAs::make).
    pub(crate) fn make(
        &self,
        parent: InodeNo,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
        umask: u16,
        owner: Owner,
    ) -> Result<Attr> {
        lookup::check_name(name)?;
        let kind = kind_of(node)?;
        let credit_count = self.make_credit_count(parent)?;
        self.with_op(credit_count, |op| {
            let dir = check_new_name(op, parent, name)?;
            let inode = make_inode(op, &dir, node, (permissions, umask), owner)?;
            let ino = inode.ino;
            op.put_inode(&inode)?;
            change_dir(op, parent, |op, dir| {
                if kind == FileKind::Directory {
                    lookup::add_subdirectory(op, dir)?;
                }
                dir::insert(op, dir, name, ino, kind)
            })?;
            op.pin(ino);
            Ok(self.give_out(&inode))
        })
    }

    /// [`VolumeAs::make_unnamed`](crate::VolumeAs::make_unnamed).
    pub(crate) fn make_unnamed(
        &self,
        parent: InodeNo,
        permissions: u16,
        umask: u16,
        owner: Owner,
    ) -> Result<Attr> {
        let credit_count = self.make_credit_count(parent)? + credits::ORPHAN;
        let attr = self.with_op(credit_count, |op| {
            let dir = read_dir_inode(op, parent)?;
            lookup::check_addable_to(&dir)?;
            let node = NewNode::Regular;
            let mut inode = make_inode(op, &dir, node, (permissions, umask), owner)?;
            inode.set_link_count(0);
            op.put_inode(&inode)?;
            op.orphan_add(&mut inode)?;
            op.put_inode(&inode)?;
            op.pin(inode.ino);
            Ok(self.give_out(&inode))
        })?;
        // Not before it is pinned: the in-core inode could be dropped.
        self.in_core(attr.ino).set_linkable(true);
        Ok(attr)
    }

    /// [`VolumeAs::link`](crate::VolumeAs::link).
    pub(crate) fn link(&self, ino: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        lookup::check_name(name)?;
        let dir = lookup::dir_to_grow(self, parent)?;
        let credit_count = lookup::insert_credit_count(&dir) + credits::PUT_INODE + credits::ORPHAN;
        let attr = self.with_op(credit_count, |op| {
            let mut inode = op.inode(ino)?;
            match inode.kind() {
                FileKind::Directory => return Err(Error::NotPermitted),
                _ if inode.link_count() == 0 && !self.is_linkable(ino) => {
                    return Err(Error::NotFound);
                }
                _ if inode.link_count() >= lookup::LINK_MAX => return Err(Error::TooManyLinks),
                _ => lookup::check_linkable(&inode)?,
            }
            check_new_name(op, parent, name)?;
            if inode.link_count() == 0 {
                op.orphan_remove(&mut inode)?;
            }
            inode.set_link_count(inode.link_count() + 1);
            inode.set_ctime(op.now());
            inode.bump_version();
            op.put_inode(&inode)?;
            let kind = inode.kind();
            change_dir(op, parent, |op, dir| dir::insert(op, dir, name, ino, kind))?;
            op.pin(ino);
            Ok(self.give_out(&inode))
        })?;
        // A name that was taken away again is not given back.
        self.in_core(ino).set_linkable(false);
        Ok(attr)
    }
}

/// A new inode with everything that it inherits from `dir` and the caller. Its link count is 1 (a
/// directory: 2). The caller puts it.
fn make_inode(
    op: &mut Op<'_>,
    dir: &Inode,
    node: NewNode<'_>,
    (permissions, umask): (u16, u16),
    owner: Owner,
) -> Result<Inode> {
    let kind = kind_of(node)?;
    let mut inode = new_inode(op, dir, kind, owner)?;
    let inherited = inherit(op, dir, kind, permissions, umask)?;
    inode.set_permissions(inode.mode() & SET_GROUP_ID | inherited.permissions);
    fill(op, &mut inode, dir.ino, node)?;
    for (name, acl) in [(ACL_DEFAULT, inherited.default), (ACL_ACCESS, inherited.access)] {
        if let Some(acl) = acl {
            xattr::store(op, &mut inode, &name, Some(&acl.to_disk()))?;
        }
    }
    hand_down_data_mode(op, dir, &mut inode)?;
    Ok(inode)
}

/// Puts a whiteout into `dir`: a character device 0:0 that cannot be opened. To overlayfs it says
/// that a name of a lower layer is deleted. The caller has freed the name in this operation, and
/// puts the directory.
pub(super) fn insert_whiteout(
    op: &mut Op<'_>,
    dir: &mut Inode,
    name: &[u8],
    owner: Owner,
) -> Result<()> {
    let inode = new_inode(op, dir, FileKind::CharDevice, owner)?;
    op.put_inode(&inode)?;
    dir::insert(op, dir, name, inode.ino, FileKind::CharDevice)
}

/// Returns the directory, after checking that the name is free and may be added.
fn check_new_name(op: &Op<'_>, parent: InodeNo, name: &[u8]) -> Result<Inode> {
    let dir = read_dir_inode(op, parent)?;
    if matches!(name, b"." | b"..") || dir::find(op, &dir, name)?.is_some() {
        return Err(Error::Exists);
    }
    lookup::check_addable_to(&dir)?;
    Ok(dir)
}
