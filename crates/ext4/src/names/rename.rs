//! Renames within a directory or to another one, over an existing name, or exchanges two names.

use std::collections::HashSet;

use super::lookup::{self, change_dir, find_target, read_dir_inode};
use super::make;
use super::unlink::check_empty;
use crate::dir::{self, FoundEntry};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::op::{Op, Spending, credits};
use crate::types::{FileKind, InodeNo, RenameHow};

/// Credits beside those of inserting the new name: two leaves, four inodes, two `..`, the orphan
/// list. A whiteout needs an inode, and a name in place of the one that was removed.
const CREDITS: usize =
    2 + 4 * credits::PUT_INODE + 2 + credits::ORPHAN + credits::ALLOC_INODE + credits::PUT_INODE;

/// One side of a rename.
#[derive(Clone, Copy)]
struct NamedEntry<'a> {
    parent: InodeNo,
    name: &'a [u8],
}

impl Spending<'_> {
    /// [`VolumeAs::rename`](crate::VolumeAs::rename).
    pub(crate) fn rename(
        &self,
        from_parent: InodeNo,
        from_name: &[u8],
        to_parent: InodeNo,
        to_name: &[u8],
        how: RenameHow,
    ) -> Result<()> {
        lookup::check_changeable_name(from_name)?;
        lookup::check_changeable_name(to_name)?;
        let to_dir = lookup::dir_to_grow(self, to_parent)?;
        let credit_count = CREDITS + lookup::insert_credit_count(&to_dir);
        let from = NamedEntry { parent: from_parent, name: from_name };
        let to = NamedEntry { parent: to_parent, name: to_name };
        let victim = self.with_op(credit_count, |op| rename(op, from, to, how))?;
        if let Some(victim) = victim {
            self.forget(victim, 1);
        }
        Ok(())
    }
}

/// Renames. Returns the replaced inode, which is pinned.
fn rename(
    op: &mut Op<'_>,
    from: NamedEntry<'_>,
    to: NamedEntry<'_>,
    how: RenameHow,
) -> Result<Option<InodeNo>> {
    let (from_dir, to_dir) = (read_dir_inode(op, from.parent)?, read_dir_inode(op, to.parent)?);
    let moved = find_target(op, &from_dir, from.name)?.ok_or(Error::NotFound)?;
    let target = find_target(op, &to_dir, to.name)?;
    // As Linux has it, before all other checks.
    if target.is_some() && matches!(how, RenameHow::NoReplace) {
        return Err(Error::Exists);
    }
    lookup::check_removable_from(&from_dir)?;
    lookup::check_addable_to(&to_dir)?;
    lookup::check_linkable(&moved.1)?;
    check_no_loop(op, &moved.1, from.parent, to.parent)?;
    match (target, how) {
        (None, RenameHow::Exchange) => Err(Error::NotFound),
        // Two names of one inode: POSIX wants nothing to happen.
        (Some(target), _) if target.1.ino == moved.1.ino => Ok(None),
        (Some(target), how) => {
            lookup::check_removable_from(&to_dir)?;
            lookup::check_linkable(&target.1)?;
            if let RenameHow::Exchange = how {
                check_no_loop(op, &target.1, to.parent, from.parent)?;
                exchange(op, from, to, moved, target)?;
                Ok(None)
            } else {
                let victim = replace(op, from, to, moved, target)?;
                leave_whiteout(op, from, how)?;
                Ok(Some(victim))
            }
        }
        (None, _) => {
            move_to_free_name(op, from, to, moved)?;
            leave_whiteout(op, from, how)?;
            Ok(None)
        }
    }
}

/// Puts a whiteout in place of the moved inode, if that is wanted. The block from which the old
/// entry was removed has room for it.
fn leave_whiteout(op: &mut Op<'_>, from: NamedEntry<'_>, how: RenameHow) -> Result<()> {
    let RenameHow::Whiteout(owner) = how else { return Ok(()) };
    change_dir(op, from.parent, |op, dir| make::insert_whiteout(op, dir, from.name, owner))
}

/// Refuses to move a directory into itself or below itself.
fn check_no_loop(op: &Op<'_>, moved: &Inode, from: InodeNo, to: InodeNo) -> Result<()> {
    if moved.kind() != FileKind::Directory || from == to {
        return Ok(());
    }
    let (mut ino, mut seen) = (to, HashSet::new());
    while ino != InodeNo::ROOT {
        if ino == moved.ino {
            return Err(Error::InvalidArgument);
        }
        if !seen.insert(ino) {
            return Err(Error::corrupt("`..` that leads in a circle", ino));
        }
        ino = dir::parent(op, &read_dir_inode(op, ino)?)?;
    }
    Ok(())
}

/// Changes one of the two directories. Counts a subdirectory that it gains or loses.
fn change_parent(
    op: &mut Op<'_>,
    parent: InodeNo,
    gained: bool,
    lost: bool,
    change: impl FnOnce(&mut Op<'_>, &mut Inode) -> Result<()>,
) -> Result<()> {
    change_dir(op, parent, |op, dir| {
        change(op, dir)?;
        match (gained, lost) {
            (true, false) => lookup::add_subdirectory(op, dir),
            (false, true) => {
                lookup::remove_subdirectory(dir);
                Ok(())
            }
            _ => Ok(()),
        }
    })
}

/// Updates the moved inode: its ctime, and `..` if it is a directory with a new parent.
fn finish_moved(op: &mut Op<'_>, ino: InodeNo, from: InodeNo, to: InodeNo) -> Result<()> {
    let mut inode = op.inode(ino)?;
    inode.set_ctime(op.now());
    op.put_inode(&inode)?;
    if inode.kind() == FileKind::Directory {
        op.dir_renamed();
        if from != to {
            dir::set_parent(op, &inode, to)?;
            op.directory_changed(ino);
        }
    }
    Ok(())
}

fn remove_name(op: &mut Op<'_>, dir: &Inode, name: &[u8]) -> Result<()> {
    let found = dir::find(op, dir, name)?.ok_or_else(|| Error::corrupt("lost entry", dir.ino))?;
    dir::remove(op, dir, &found)
}

fn move_to_free_name(
    op: &mut Op<'_>,
    from: NamedEntry<'_>,
    to: NamedEntry<'_>,
    (found, moved): (FoundEntry, Inode),
) -> Result<()> {
    let changes_parent = moved.kind() == FileKind::Directory && from.parent != to.parent;
    let (ino, kind) = (moved.ino, moved.kind());
    change_parent(op, from.parent, false, changes_parent, |op, dir| dir::remove(op, dir, &found))?;
    change_parent(op, to.parent, changes_parent, false, |op, dir| {
        dir::insert(op, dir, to.name, ino, kind)
    })?;
    finish_moved(op, ino, from.parent, to.parent)
}

fn replace(
    op: &mut Op<'_>,
    from: NamedEntry<'_>,
    to: NamedEntry<'_>,
    (_, moved): (FoundEntry, Inode),
    (target_found, mut target): (FoundEntry, Inode),
) -> Result<InodeNo> {
    let is_directory = moved.kind() == FileKind::Directory;
    match (is_directory, target.kind() == FileKind::Directory) {
        (true, false) => return Err(Error::NotDirectory),
        (false, true) => return Err(Error::IsDirectory),
        (true, true) => {
            check_empty(op, &target)?;
            op.directory_changed(target.ino);
        }
        (false, false) => {}
    }
    // A replaced directory leaves room in `to` for the moved one: only `from` loses one.
    change_parent(op, to.parent, false, false, |op, dir| {
        dir::set_target(op, dir, &target_found, moved.ino, moved.kind())
    })?;
    change_parent(op, from.parent, false, is_directory, |op, dir| remove_name(op, dir, from.name))?;
    lookup::drop_link(op, &mut target)?;
    op.pin(target.ino);
    finish_moved(op, moved.ino, from.parent, to.parent)?;
    Ok(target.ino)
}

fn exchange(
    op: &mut Op<'_>,
    from: NamedEntry<'_>,
    to: NamedEntry<'_>,
    (moved_found, moved): (FoundEntry, Inode),
    (target_found, target): (FoundEntry, Inode),
) -> Result<()> {
    let crosses = |inode: &Inode| inode.kind() == FileKind::Directory && from.parent != to.parent;
    let (moved_crosses, target_crosses) = (crosses(&moved), crosses(&target));
    change_parent(op, from.parent, target_crosses, moved_crosses, |op, dir| {
        dir::set_target(op, dir, &moved_found, target.ino, target.kind())
    })?;
    change_parent(op, to.parent, moved_crosses, target_crosses, |op, dir| {
        dir::set_target(op, dir, &target_found, moved.ino, moved.kind())
    })?;
    finish_moved(op, moved.ino, from.parent, to.parent)?;
    finish_moved(op, target.ino, to.parent, from.parent)
}
