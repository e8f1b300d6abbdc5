//! Removes names.

use super::lookup::{self, change_dir, find_target, read_dir_inode};
use crate::dir::{self, FoundEntry};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::memory::Mounted;
use crate::op::{Op, credits};
use crate::types::{FileKind, InodeNo};

/// Credits for the leaf, the directory's inode, the victim's inode, and the orphan list.
const CREDITS: usize = 1 + 2 * credits::PUT_INODE + credits::ORPHAN;

impl Mounted {
    /// [`Volume::unlink`](crate::Volume::unlink).
    pub(crate) fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        lookup::check_changeable_name(name)?;
        self.remove_name(parent, |op| {
            let (found, victim) = find_removable(op, parent, name)?;
            if victim.kind() == FileKind::Directory {
                return Err(Error::IsDirectory);
            }
            change_dir(op, parent, |op, dir| dir::remove(op, dir, &found))?;
            Ok(victim)
        })
    }

    /// [`Volume::rmdir`](crate::Volume::rmdir).
    pub(crate) fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        lookup::check_changeable_name(name)?;
        self.remove_name(parent, |op| {
            let (found, victim) = find_removable(op, parent, name)?;
            if victim.kind() != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            check_empty(op, &victim)?;
            op.directory_changed(victim.ino);
            change_dir(op, parent, |op, dir| {
                lookup::remove_subdirectory(dir);
                dir::remove(op, dir, &found)
            })?;
            Ok(victim)
        })
    }

    /// `remove` removes the name and returns the inode that had it.
    fn remove_name(
        &self,
        parent: InodeNo,
        remove: impl Fn(&mut Op<'_>) -> Result<Inode>,
    ) -> Result<()> {
        read_dir_inode(self, parent)?;
        let victim = self.as_root().with_op(CREDITS, |op| {
            let mut victim = remove(op)?;
            lookup::drop_link(op, &mut victim)?;
            op.pin(victim.ino);
            Ok(victim.ino)
        })?;
        // This frees an orphan, unless the inode has other pins. Then the `forget` of the last pin
        // frees it.
        self.forget(victim, 1);
        Ok(())
    }
}

fn find_removable(op: &Op<'_>, parent: InodeNo, name: &[u8]) -> Result<(FoundEntry, Inode)> {
    let dir = read_dir_inode(op, parent)?;
    let (found, victim) = find_target(op, &dir, name)?.ok_or(Error::NotFound)?;
    lookup::check_removable_from(&dir)?;
    lookup::check_linkable(&victim)?;
    Ok((found, victim))
}

/// Refuses a directory with entries, and the root, which cannot be removed.
pub(super) fn check_empty(op: &Op<'_>, dir: &Inode) -> Result<()> {
    if dir.ino == InodeNo::ROOT {
        return Err(Error::corrupt("entry that names the root directory", dir.ino));
    }
    if dir::is_empty(op, dir)? { Ok(()) } else { Err(Error::NotEmpty) }
}
