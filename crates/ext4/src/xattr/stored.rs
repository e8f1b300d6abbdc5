//! The extended attributes of an inode: first in its spare bytes, then in one external block.
//!
//! Linux lets inodes with equal attributes share a block. Such a block is copied before it is
//! changed. Access control lists are converted between their form on disk and Linux's. Setting the
//! access list also sets the mode.

use journal::{BlockRef, HomeBlock};

use super::acl::Acl;
use super::set::{ACL_ACCESS, SECURITY_INDEX, XattrName, XattrSet};
use crate::error::{Error, Result};
use crate::facts::{Source, compat};
use crate::inode::Inode;
use crate::op::{Op, credits};

/// Where `h_refcount` and `h_checksum` are in a block.
const REFCOUNT_OFFSET: usize = 4;
const CHECKSUM_OFFSET: usize = 16;

/// Blocks that one call of [`store`] or [`release_block`] changes: the old block, a new one.
pub(crate) const STORE_CREDITS: usize = 2 + credits::ALLOC_BLOCKS + credits::FREE_BLOCKS;

/// All attributes of an inode.
pub(crate) struct Stored {
    pub(crate) in_inode: XattrSet,
    pub(crate) in_block: XattrSet,
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

pub(crate) fn load(source: &impl Source, inode: &Inode) -> Result<Stored> {
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

/// Releases the inode's external block: frees it, or removes one owner. The caller puts the inode
/// back.
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

/// Changes the access list of an inode, if it has one, so that it agrees with the inode's new mode.
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
