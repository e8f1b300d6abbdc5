//! Frees inodes without a name: when the last pin is removed, and when a volume is opened after a
//! crash or closed.
//!
//! An inode is freed if it has neither name nor pin. Two races are avoided. An inode could be found
//! by its last name, opened, and then lose the name, between the check of its pins and the check of
//! its names. And another thread could free it between check and freeing, so that its number
//! belongs to another file. So one thread at a time examines an inode, and checks the names first:
//! an inode without a name cannot get a new pin, and its number stays while no other thread frees
//! it.

use crate::inode::{Inode, read_inode};
use crate::memory::Mounted;
use crate::op::{Op, credits};
use crate::xattr;
use crate::{Error, FileKind, InodeNo, Result};

/// For the attribute block (its bits, or its reference count), the orphan, and the inode.
const CREDITS: usize = 1 + credits::FREE_BLOCKS + credits::ORPHAN + credits::FREE_INODE;

impl Mounted {
    /// [`Volume::forget`](crate::Volume::forget).
    pub(crate) fn forget(&self, ino: InodeNo, count: u64) {
        if !self.in_core.unpin(ino, count, self.committed()) || self.is_read_only() {
            return;
        }
        if let Err(error) = self.evict_if_unlinked(ino) {
            // It stays an orphan: the next opening tries again.
            tracing::warn!("{ino} cannot be freed: {error}");
        }
    }

    /// [`Volume::has_deleted_files`](crate::Volume::has_deleted_files).
    pub(crate) fn has_deleted_files(&self) -> bool {
        self.orphans.all(self).is_ok_and(|orphans| !orphans.is_empty())
    }

    fn evict_if_unlinked(&self, ino: InodeNo) -> Result<()> {
        if !self.in_core.begin_eviction(ino) {
            return Ok(());
        }
        loop {
            let evicted = match read_inode(self, ino) {
                Ok(inode) if inode.link_count() == 0 && self.in_core.is_unpinned(ino) => {
                    self.evict(&inode)
                }
                Ok(_) | Err(Error::NotFound) => Ok(()),
                Err(error) => Err(error),
            };
            let is_again = self.in_core.end_eviction(ino);
            if evicted.is_err() {
                // Other threads that asked for this eviction do not look again. It has ended for
                // them, too.
                while is_again && self.in_core.end_eviction(ino) {}
                return evicted;
            }
            if !is_again {
                return Ok(());
            }
        }
    }

    fn evict(&self, inode: &Inode) -> Result<()> {
        let ino = inode.ino;
        self.free_inode_blocks(ino)?;
        self.as_root().with_op(CREDITS, |op| {
            let mut inode = op.inode(ino)?;
            assert!(inode.link_count() == 0, "freeing {ino}, which has names");
            release_attributes(op, &mut inode)?;
            op.orphan_remove(&mut inode)?;
            op.free_inode(ino, inode.kind())
        })
    }

    /// Cuts every orphan, or frees it if it is not pinned. If that fails for an orphan, it is left
    /// alone with a warning.
    pub(crate) fn clean_up_orphans(&self) -> Result<()> {
        let orphans = self.orphans.all(self)?;
        for ino in orphans {
            let inode = match read_inode(self, ino) {
                Ok(inode) => inode,
                Err(error) => {
                    tracing::warn!("orphan {ino} cannot be read: {error}");
                    continue;
                }
            };
            let cleaned = match (inode.link_count(), inode.kind()) {
                (0, _) if !self.in_core.is_unpinned(ino) => continue,
                (0, _) => self.evict(&inode),
                (_, FileKind::Regular) => self.finish_truncate(ino),
                _ => Err(Error::corrupt("orphan: has names and cannot be cut", ino)),
            };
            match cleaned {
                Ok(()) => {}
                Err(error @ (Error::Corrupt { .. } | Error::LargeBlockMap(_))) => {
                    tracing::warn!("orphan {ino} cannot be cleaned up: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn release_attributes(op: &mut Op<'_>, inode: &mut Inode) -> Result<()> {
    if inode.file_acl().0 == 0 {
        return Ok(());
    }
    xattr::release_block(op, inode)?;
    op.put_inode(inode)
}
