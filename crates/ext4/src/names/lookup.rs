//! Names: which are allowed, how they are looked up, and what the changes of directories share.

use crate::dir::{self, FoundEntry};
use crate::error::{Error, Result};
use crate::extent::{self, Target};
use crate::facts::{Source, ro_compat};
use crate::inode::{Inode, flags, read_inode};
use crate::memory::Mounted;
use crate::op::{Op, credits};
use crate::types::{Attr, FileKind, InodeNo};

/// Longest name in bytes.
const NAME_MAX: usize = 255;

/// Most links to an inode.
pub(super) const LINK_MAX: u32 = 65_000;

/// The number of blocks that adding or removing one name changes: up to two new blocks (leaf and
/// node), the old leaf, node and root, and the directory's inode. It is computed before the
/// operation, so the tree may have grown by a level when the operation begins.
pub(super) fn insert_credit_count(dir: &Inode) -> usize {
    const GROWTH: usize = 8;
    2 * (extent::append_credit_count(dir) + 1) + 3 + credits::PUT_INODE + GROWTH
}

/// Refuses bytes that cannot be a name. `.` and `..` are accepted; they are refused only for names
/// that are made or removed.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::InvalidArgument),
        1..=NAME_MAX if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(Error::InvalidArgument)
        }
        1..=NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Refuses `.` and `..` as well.
pub(super) fn check_changeable_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if matches!(name, b"." | b"..") { Err(Error::InvalidArgument) } else { Ok(()) }
}

/// Reads a directory that is about to get a name, before the operation begins. Gives it an extent
/// tree, so that it can grow.
pub(super) fn read_dir_inode(source: &impl Source, ino: InodeNo) -> Result<Inode> {
    let dir = read_inode(source, ino)?;
    match dir.kind() {
        FileKind::Directory if dir.link_count() == 0 => Err(Error::NotFound),
        FileKind::Directory => Ok(dir),
        _ => Err(Error::NotDirectory),
    }
}

/// A directory that is about to get a name, before the operation begins: with a tree of extents, so
/// that it can grow.
pub(super) fn dir_to_grow(volume: &Mounted, ino: InodeNo) -> Result<Inode> {
    let dir = read_dir_inode(volume, ino)?;
    // The operation will refuse what is not to be changed.
    if check_addable_to(&dir).is_ok() { volume.use_extents(dir) } else { Ok(dir) }
}

/// The inode that an entry of `dir` names.
fn read_target(source: &impl Source, dir: &Inode, ino: InodeNo) -> Result<Inode> {
    let first = source.facts().geometry.first_inode;
    let dangling = || Error::corrupt(format!("entry that names {ino}"), dir.ino);
    if ino == dir.ino || ino.0 < first && ino != InodeNo::ROOT {
        return Err(dangling());
    }
    match read_inode(source, ino) {
        Ok(inode) if inode.link_count() > 0 => Ok(inode),
        Ok(_) | Err(Error::NotFound) => Err(dangling()),
        Err(error) => Err(error),
    }
}

/// The entry with this name, and the inode that it names.
pub(super) fn find_target(
    source: &impl Source,
    dir: &Inode,
    name: &[u8],
) -> Result<Option<(FoundEntry, Inode)>> {
    match dir::find(source, dir, name)? {
        Some(found) => Ok(Some((found, read_target(source, dir, found.ino)?))),
        None => Ok(None),
    }
}

/// Refuses to remove names from this directory.
pub(super) fn check_removable_from(dir: &Inode) -> Result<()> {
    if dir.has_flag(flags::IMMUTABLE | flags::APPEND) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses to add names to this directory.
pub(super) fn check_addable_to(dir: &Inode) -> Result<()> {
    if dir.has_flag(flags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses to change the links of this inode.
pub(super) fn check_linkable(inode: &Inode) -> Result<()> {
    if inode.has_flag(flags::IMMUTABLE | flags::APPEND) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Counts the `..` of one more subdirectory. An indexed directory may have any number of them: from
/// the limit on its count is 1, which means "not counted".
pub(super) fn add_subdirectory(op: &Op<'_>, dir: &mut Inode) -> Result<()> {
    let ro_compat = op.facts().superblock.s_feature_ro_compat.get();
    let uncounted = ro_compat & ro_compat::DIR_NLINK != 0 && dir::is_indexed(dir);
    dir.set_link_count(match dir.link_count() {
        1 if uncounted => 1,
        LINK_MAX.. if uncounted => 1,
        LINK_MAX.. => return Err(Error::TooManyLinks),
        count => count + 1,
    });
    Ok(())
}

/// Subtracts the `..` of a subdirectory.
pub(super) fn remove_subdirectory(dir: &mut Inode) {
    if dir.link_count() > 2 {
        dir.set_link_count(dir.link_count() - 1);
    }
}

/// Changes a directory's inode, and updates its times and version. If the directory has `chattr +D`
/// or `+S`, the operation is durable when it returns.
pub(super) fn change_dir(
    op: &mut Op<'_>,
    ino: InodeNo,
    change: impl FnOnce(&mut Op<'_>, &mut Inode) -> Result<()>,
) -> Result<()> {
    let mut dir = op.inode(ino)?;
    change(op, &mut dir)?;
    if dir.has_flag(flags::SYNC | flags::DIRSYNC) {
        op.make_durable();
    }
    dir.set_mtime(op.now());
    dir.set_ctime(op.now());
    dir.bump_version();
    op.put_inode(&dir)?;
    op.directory_changed(ino);
    Ok(())
}

/// Removes a link of an inode. Without any link it becomes an orphan, and is freed when it has no
/// pin any more.
pub(super) fn drop_link(op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
    let left = match inode.kind() {
        FileKind::Directory => 0,
        _ => inode.link_count().saturating_sub(1),
    };
    inode.set_link_count(left);
    inode.set_ctime(op.now());
    if left == 0 {
        op.orphan_add(inode)?;
    }
    op.put_inode(inode)
}

impl Mounted {
    /// [`Volume::lookup`](crate::Volume::lookup).
    pub(crate) fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let in_core = self.in_core(parent);
        let _content = in_core.content.read();
        let dir = read_dir_inode(self, parent)?;
        let inode = match name {
            b"." => dir,
            b".." => read_inode(self, dir::parent(self, &dir)?)?,
            _ => find_target(self, &dir, name)?.ok_or(Error::NotFound)?.1,
        };
        // Under the lock: a removal of the name is published later and then sees the pin.
        self.in_core.pin(inode.ino);
        Ok(self.give_out(&inode))
    }

    /// [`Volume::read_link`](crate::Volume::read_link).
    pub(crate) fn read_link(&self, ino: InodeNo) -> Result<Vec<u8>> {
        let inode = read_inode(self, ino)?;
        if inode.kind() != FileKind::Symlink {
            return Err(Error::InvalidArgument);
        }
        let corrupt = || Error::corrupt("symbolic link", ino);
        let size = usize::try_from(inode.size()).map_err(|_| corrupt())?;
        let target = if !inode.maps_blocks() {
            inode.i_block().get(..size).ok_or_else(corrupt)?.to_vec()
        } else {
            match extent::map(self, &inode, 0, 1)?.target {
                Target::Written(home) => {
                    self.block(home)?.get(..size).ok_or_else(corrupt)?.to_vec()
                }
                _ => return Err(corrupt()),
            }
        };
        if target.is_empty() || target.contains(&0) { Err(corrupt()) } else { Ok(target) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(check_name(&[b'n'; 255]).is_ok() && check_name(b"..").is_ok());
        assert!(matches!(check_name(&[b'n'; 256]), Err(Error::NameTooLong)));
        for name in [&b""[..], b"a/b", b"a\0"] {
            assert!(matches!(check_name(name), Err(Error::InvalidArgument)));
        }
        assert!(check_changeable_name(b".").is_err() && check_changeable_name(b"...").is_ok());
    }
}
