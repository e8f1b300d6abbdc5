//! Extended attributes of an inode: first in its spare bytes, then in one external block.
//!
//! Linux lets inodes with equal attributes share a block; such a block is copied before a change.
//! Access control lists are converted between their form on disk and Linux's, and setting the
//! access list also sets the mode.

use journal::{BlockRef, HomeBlock};

use crate::acl::Acl;
use crate::attr::SET_GROUP_ID;
use crate::data_mode;
use crate::error::{Error, Result};
use crate::features::compat;
use crate::inode::{Inode, flags, read_inode};
use crate::op::{Op, credits};
use crate::source::Source;
use crate::types::{FileKind, InodeNo, XattrFlags};
use crate::volume::Volume;
use crate::xattr_set::{ACL_ACCESS, ACL_DEFAULT, SECURITY_INDEX, USER_INDEX, XattrName, XattrSet};

/// Where `h_refcount` and `h_checksum` are in a block.
const REFCOUNT_OFFSET: usize = 4;
const CHECKSUM_OFFSET: usize = 16;

/// Blocks that one call of [`store`] or [`release_block`] changes: the old block, a new one.
pub(crate) const STORE_CREDITS: usize = 2 + credits::ALLOC_BLOCKS + credits::FREE_BLOCKS;

/// All attributes of an inode.
struct Stored {
    in_inode: XattrSet,
    in_block: XattrSet,
    /// Inodes that share the block.
    refcount: u32,
}

/// The inode's external block, checked.
fn read_block(source: &impl Source, inode: &Inode) -> Result<Option<(HomeBlock, BlockRef)>> {
    let home = inode.file_acl();
    if home.0 == 0 {
        return Ok(None);
    }
    let block = source.block(home)?;
    let checksums = &source.facts().checksums;
    let stored = word(&block, CHECKSUM_OFFSET);
    if checksums.enabled() && stored != checksums.xattr_block(home, &block) {
        return Err(Error::corrupt("attribute block checksum", format!("{home} of {}", inode.ino)));
    }
    Ok(Some((home, block)))
}

fn word(block: &journal::BlockBytes, offset: usize) -> u32 {
    let bytes = block[offset..].first_chunk::<4>().expect("inside of a block");
    u32::from_le_bytes(*bytes)
}

fn load(source: &impl Source, inode: &Inode) -> Result<Stored> {
    let in_inode = XattrSet::from_inode_area(inode.xattr_area())?;
    let (in_block, refcount) = match read_block(source, inode)? {
        Some((_, block)) => XattrSet::from_block(&block)?,
        None => (XattrSet::default(), 0),
    };
    Ok(Stored { in_inode, in_block, refcount })
}

/// The stored value of an attribute.
pub(crate) fn get(
    source: &impl Source,
    inode: &Inode,
    name: &XattrName,
) -> Result<Option<Vec<u8>>> {
    let stored = load(source, inode)?;
    let value = stored.in_inode.get(name).or_else(|| stored.in_block.get(name));
    Ok(value.map(<[u8]>::to_vec))
}

/// Stores an attribute, or removes it (`None`). The caller puts the inode back.
pub(crate) fn store(
    op: &mut Op<'_>,
    inode: &mut Inode,
    name: &XattrName,
    value: Option<&[u8]>,
) -> Result<()> {
    let Stored { mut in_inode, mut in_block, refcount } = load(op, inode)?;
    let block_before = in_block.clone();
    in_inode.remove(name);
    in_block.remove(name);
    if let Some(value) = value {
        let mut with_value = in_inode.clone();
        with_value.set(name, value);
        if with_value.fits_inode_area(inode.xattr_area()) {
            in_inode = with_value;
        } else {
            in_block.set(name, value);
        }
    }
    if !in_block.fits_block() {
        return Err(Error::AttributeTooLarge);
    }
    in_inode.to_inode_area(inode.xattr_area_mut());
    if in_block != block_before {
        write_block_set(op, inode, &in_block, refcount)?;
    }
    Ok(())
}

fn write_block_set(
    op: &mut Op<'_>,
    inode: &mut Inode,
    set: &XattrSet,
    refcount: u32,
) -> Result<()> {
    if set.0.is_empty() {
        return release_block(op, inode);
    }
    if op.facts().superblock.s_feature_compat.get() & compat::EXT_ATTR == 0 {
        return Err(Error::NotSupported);
    }
    let home = match inode.file_acl() {
        old if old.0 != 0 && refcount == 1 => old,
        old => {
            let goal = if old.0 != 0 { old } else { goal(op, inode)? };
            let (home, _) = op.alloc_blocks(goal, 1)?;
            release_block(op, inode)?;
            inode.set_file_acl(home);
            inode.add_blocks(1)?;
            home
        }
    };
    set.to_block(op.create_block(home)?);
    seal(op, home)
}

/// A block near the inode.
fn goal(op: &Op<'_>, inode: &Inode) -> Result<HomeBlock> {
    let geometry = &op.facts().geometry;
    let (group, _) = geometry.group_of_inode(inode.ino)?;
    Ok(geometry.first_block(group))
}

fn seal(op: &mut Op<'_>, home: HomeBlock) -> Result<()> {
    let checksums = op.facts().checksums;
    if checksums.enabled() {
        let block = op.write_block(home)?;
        let checksum = checksums.xattr_block(home, block);
        block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    Ok(())
}

/// Gives up the inode's external block: it is freed, or has one owner less. The caller puts the
/// inode back.
pub(crate) fn release_block(op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
    let Some((home, block)) = read_block(op, inode)? else { return Ok(()) };
    let (_, refcount) = XattrSet::from_block(&block)?;
    inode.set_file_acl(HomeBlock(0));
    inode.add_blocks(-1)?;
    if refcount == 1 {
        return op.free_blocks(home, 1);
    }
    let block = op.write_block(home)?;
    let refcount = (refcount - 1).to_le_bytes();
    block[REFCOUNT_OFFSET..REFCOUNT_OFFSET + 4].copy_from_slice(&refcount);
    seal(op, home)
}

/// The access control list that is stored under [`ACL_ACCESS`] or [`ACL_DEFAULT`].
pub(crate) fn get_acl(
    source: &impl Source,
    inode: &Inode,
    name: &XattrName,
) -> Result<Option<Acl>> {
    get(source, inode, name)?.map(|value| Acl::from_disk(&value)).transpose()
}

/// Lets the access list of an inode, if it has one, say what its new mode says.
pub(crate) fn follow_chmod(op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
    if let Some(mut acl) = get_acl(op, inode, &ACL_ACCESS)? {
        acl.chmod(inode.mode());
        store(op, inode, &ACL_ACCESS, Some(&acl.to_disk()))?;
    }
    Ok(())
}

fn capability() -> XattrName {
    XattrName { index: SECURITY_INDEX, rest: b"capability".to_vec() }
}

/// Whether a file has capabilities.
pub(crate) fn has_capabilities(source: &impl Source, inode: &Inode) -> Result<bool> {
    Ok(get(source, inode, &capability())?.is_some())
}

/// Removes the file capabilities of a file whose content or owner changes.
pub(crate) fn drop_capabilities(op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
    if has_capabilities(op, inode)? {
        store(op, inode, &capability(), None)?;
    }
    Ok(())
}

/// Refuses attributes that this kind of inode cannot have, and inodes that must not change.
fn check_change(inode: &Inode, name: &XattrName) -> Result<()> {
    if inode.has_flag(flags::IMMUTABLE | flags::APPEND) {
        return Err(Error::NotPermitted);
    }
    let kind = inode.kind();
    match name.index {
        USER_INDEX if !matches!(kind, FileKind::Regular | FileKind::Directory) => {
            Err(Error::NotPermitted)
        }
        _ if is_acl(name) && kind == FileKind::Symlink => Err(Error::NotSupported),
        _ => Ok(()),
    }
}

fn is_acl(name: &XattrName) -> bool {
    *name == ACL_ACCESS || *name == ACL_DEFAULT
}

/// The bytes to store for an access control list; `None`: none. Setting the access list sets the
/// mode as well.
fn prepare_acl(inode: &mut Inode, name: &XattrName, value: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(acl) = Acl::from_xattr(value)? else { return Ok(None) };
    if *name == ACL_DEFAULT {
        let is_directory = inode.kind() == FileKind::Directory;
        return if is_directory { Ok(Some(acl.to_disk())) } else { Err(Error::NotPermitted) };
    }
    inode.set_permissions(inode.mode() & !0o777 | acl.mode());
    Ok((!acl.is_minimal()).then(|| acl.to_disk()))
}

impl Volume {
    /// The value of an extended attribute, by its full name; lists of `system.posix_acl_*` come
    /// in Linux's form.
    pub fn get_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let name = XattrName::parse(name)?;
        let cell = self.cell(ino);
        let _xattr = cell.xattr.read();
        let inode = read_inode(self, ino)?;
        let value = get(self, &inode, &name)?.ok_or(Error::NoAttribute)?;
        if is_acl(&name) { Ok(Acl::from_disk(&value)?.to_xattr()) } else { Ok(value) }
    }

    /// The full names of all extended attributes.
    pub fn list_xattr(&self, ino: InodeNo) -> Result<Vec<Vec<u8>>> {
        let cell = self.cell(ino);
        let _xattr = cell.xattr.read();
        let stored = load(self, &read_inode(self, ino)?)?;
        let all = stored.in_inode.0.iter().chain(&stored.in_block.0);
        Ok(all.filter_map(|xattr| xattr.name.full()).collect())
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
    ) -> Result<()> {
        self.set_xattr_and(ino, name, value, how, |_| {})
    }

    /// The same, and takes the set-group-ID bit off: an access control list that is set by somebody who is not in the
    /// file's group.
    pub fn set_acl_as_stranger(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
    ) -> Result<()> {
        self.set_xattr_and(ino, name, value, how, |inode| {
            inode.set_permissions(inode.mode() & 0o7777 & !SET_GROUP_ID);
        })
    }

    fn set_xattr_and(
        &self,
        ino: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrFlags,
        also: impl Fn(&mut Inode),
    ) -> Result<()> {
        let name = XattrName::parse(name)?;
        data_mode::check_value(&name, value)?;
        self.change_xattrs(ino, &name, |op, inode| {
            check_change(inode, &name)?;
            let exists = get(op, inode, &name)?.is_some();
            match how {
                XattrFlags::Create if exists => return Err(Error::Exists),
                XattrFlags::Replace if !exists => return Err(Error::NoAttribute),
                _ => {}
            }
            also(inode);
            if !is_acl(&name) {
                return store(op, inode, &name, Some(value));
            }
            let acl = prepare_acl(inode, &name, value)?;
            store(op, inode, &name, acl.as_deref())
        })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, ino: InodeNo, name: &[u8]) -> Result<()> {
        let name = XattrName::parse(name)?;
        self.change_xattrs(ino, &name, |op, inode| {
            check_change(inode, &name)?;
            // Linux lets a list that is not there be removed.
            if get(op, inode, &name)?.is_none() && !is_acl(&name) {
                return Err(Error::NoAttribute);
            }
            store(op, inode, &name, None)
        })
    }

    fn change_xattrs(
        &self,
        ino: InodeNo,
        name: &XattrName,
        change: impl Fn(&mut Op<'_>, &mut Inode) -> Result<()>,
    ) -> Result<()> {
        let cell = self.cell(ino);
        let changes_mode = *name == data_mode::mode_attribute();
        let is_file = || Ok::<_, Error>(read_inode(self, ino)?.kind() == FileKind::Regular);
        let _content = if changes_mode && is_file()? { Some(cell.content.write()) } else { None };
        if changes_mode {
            self.check_writable()?;
            self.leave_mode()?;
        }
        let _xattr = cell.xattr.write();
        let changed = self.with_op(STORE_CREDITS + credits::PUT_INODE, |op| {
            let mut inode = op.inode(ino)?;
            change(op, &mut inode)?;
            inode.set_ctime(op.now());
            inode.bump_version();
            op.put_inode(&inode)
        });
        if changes_mode {
            cell.set_mode_code(None);
        }
        changed
    }
}
