//! A directory as a map from names to inodes: find, insert, remove, whatever its form is.
//!
//! A directory is *linear* (blocks of entries) or *indexed* (a tree of name hashes over such
//! blocks). A directory that outgrows its first block becomes indexed if the volume has the feature
//! dir_index. Callers hold a copy of the inode, and put it back after a change.

use journal::HomeBlock;

use super::block::{self, RawEntry};
use super::htree;
use super::leaf::{
    FoundEntry, block_count, check_dots, file_type, insert_into, is_indexed, leaf_is_empty,
    read_leaf, volume_has_index,
};
use super::seal::Sealer;
use crate::error::Result;
use crate::extent;
use crate::facts::Source;
use crate::inode::Inode;
use crate::op::Op;
use crate::types::{FileKind, InodeNo};

/// Looks a name up (not `.` or `..`, which an index does not hold).
pub(crate) fn find(source: &impl Source, dir: &Inode, name: &[u8]) -> Result<Option<FoundEntry>> {
    if is_indexed(dir) {
        return htree::find(source, dir, name);
    }
    let has_tail = Sealer::new(source, dir).has_tail();
    for logical in 0..block_count(dir)? {
        let (home, block) = read_leaf(source, dir, logical)?;
        if let Some(entry) = block::find(&block, has_tail, name)? {
            return Ok(Some(FoundEntry::new(home, &entry)));
        }
    }
    Ok(None)
}

/// Adds a name that is not there yet. The caller puts the inode back.
pub(crate) fn insert(
    op: &mut Op<'_>,
    dir: &mut Inode,
    name: &[u8],
    ino: InodeNo,
    kind: FileKind,
) -> Result<()> {
    let file_type = file_type(kind);
    if is_indexed(dir) {
        return htree::insert(op, dir, name, ino, file_type);
    }
    let count = block_count(dir)?;
    for logical in 0..count {
        let (home, block) = read_leaf(op, dir, logical)?;
        if insert_into(op, dir, home, &block, name, ino, file_type)? {
            return Ok(());
        }
    }
    if count == 1 && volume_has_index(op.facts()) {
        htree::convert(op, dir)?;
        return htree::insert(op, dir, name, ino, file_type);
    }
    let sealer = Sealer::new(op, dir);
    let (_, home) = extent::append_block(op, dir)?;
    let block = op.create_block(home)?;
    block::fill(block, sealer.has_tail(), [(name, ino.0, file_type)].into_iter());
    sealer.seal_leaf(block);
    Ok(())
}

/// Removes an entry that was found in this state of the directory.
pub(crate) fn remove(op: &mut Op<'_>, dir: &Inode, found: &FoundEntry) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let block = op.write_block(found.home)?;
    block::remove(block, sealer.has_tail(), found.offset)?;
    sealer.seal_leaf(block);
    Ok(())
}

/// Makes an entry that was found in this state of the directory name another inode.
pub(crate) fn set_target(
    op: &mut Op<'_>,
    dir: &Inode,
    found: &FoundEntry,
    ino: InodeNo,
    kind: FileKind,
) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let block = op.write_block(found.home)?;
    block::set_target(block, found.offset, ino.0, file_type(kind));
    sealer.seal_leaf(block);
    Ok(())
}

/// Whether it holds only `.` and `..`.
pub(crate) fn is_empty(source: &impl Source, dir: &Inode) -> Result<bool> {
    if is_indexed(dir) {
        return htree::is_empty(source, dir);
    }
    for logical in 0..block_count(dir)? {
        let (_, block) = read_leaf(source, dir, logical)?;
        if !leaf_is_empty(source, dir, &block)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that the first two entries of block 0 are `.` and `..`. Returns the block and the second
/// entry.
fn read_dot_dot(source: &impl Source, dir: &Inode) -> Result<(HomeBlock, RawEntry<'static>)> {
    let (home, block) = if is_indexed(dir) {
        htree::read_root_block(source, dir)?
    } else {
        read_leaf(source, dir, 0)?
    };
    // To an index root `..` reaches to the very end of the block, over the tail.
    let entry = check_dots(dir, &block)?;
    Ok((home, entry))
}

/// The parent directory.
pub(crate) fn parent(source: &impl Source, dir: &Inode) -> Result<InodeNo> {
    Ok(InodeNo(read_dot_dot(source, dir)?.1.ino))
}

/// Sets the parent directory.
pub(crate) fn set_parent(op: &mut Op<'_>, dir: &Inode, parent: InodeNo) -> Result<()> {
    let (home, entry) = read_dot_dot(op, dir)?;
    if is_indexed(dir) {
        return htree::set_parent(op, dir, parent);
    }
    let found = FoundEntry::new(home, &entry);
    set_target(op, dir, &found, parent, FileKind::Directory)
}

/// Gives a new directory its first block. The caller puts the inode back.
pub(crate) fn init(op: &mut Op<'_>, dir: &mut Inode, parent: InodeNo) -> Result<()> {
    let sealer = Sealer::new(op, dir);
    let (_, home) = extent::append_block(op, dir)?;
    let ino = dir.ino;
    let block = op.create_block(home)?;
    let kind = file_type(FileKind::Directory);
    let entries = [(&b"."[..], ino.0, kind), (b"..", parent.0, kind)];
    block::fill(block, sealer.has_tail(), entries.into_iter());
    sealer.seal_leaf(block);
    Ok(())
}
