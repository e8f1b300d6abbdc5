//! The inode allocator.
//!
//! A file goes into the group of its directory, and so does a directory. But directories in the
//! root directory are spread over the groups: they begin independent trees, which need room to
//! grow. The first group with a free inode is taken, beginning with the wanted group.
//!
//! An inode number may be used again by the transaction that freed it. That is safe: transactions
//! and their operations have one total order, and inode table, bitmap and directory are all
//! journaled. So a crash leaves either the old file or the new one. (For its data blocks see
//! `pending_frees`.)

use std::sync::Arc;

use journal::{BlockRef, HomeBlock};
use zerocopy::FromZeros;

use super::bitmap;
use crate::facts::{BITS_PER_BLOCK, INODES_PER_BLOCK, Source, read_desc};
use crate::inode::Inode;
use crate::layout::group::{GroupDesc, INODE_UNINIT};
use crate::layout::inode::RawInode;
use crate::op::Op;
use crate::{Error, FileKind, InodeNo, Result};

/// Groups that are compared when a directory is placed.
const CANDIDATE_COUNT: u32 = 16;

impl Op<'_> {
    /// Allocates an inode for a new child of `parent`. Its bytes are undefined: the caller puts a
    /// whole new inode (`Inode::new`).
    pub(crate) fn alloc_inode(&mut self, parent: InodeNo, kind: FileKind) -> Result<InodeNo> {
        let geometry = &self.mounted().facts.geometry;
        let goal = match kind {
            FileKind::Directory if parent == InodeNo::ROOT => self.spread_group()?,
            _ => geometry.group_of_inode(parent)?.0,
        };
        for step in 0..geometry.group_count {
            let group =
                ((u64::from(goal) + u64::from(step)) % u64::from(geometry.group_count)) as u32;
            let desc = read_desc(self, group)?;
            if desc.free_inode_count() > 0
                && let Some(index) = self.take_inode(group, desc, kind)?
            {
                let ino = geometry.inode_at(group, index);
                self.mounted().file_stats.forget(ino);
                self.begin_owner(ino);
                return Ok(ino);
            }
        }
        Err(Error::NoSpace)
    }

    /// Chooses one of a few groups, beginning with a random one. The best group has the highest
    /// product of free inodes and free blocks, divided by the number of its directories.
    fn spread_group(&self) -> Result<u32> {
        let volume = self.mounted();
        let group_count = volume.facts.geometry.group_count;
        let start = (volume.random() % u64::from(group_count)) as u32; // below a u32
        let mut best = (u64::MIN, start);
        for step in 0..CANDIDATE_COUNT.min(group_count) {
            let group = ((u64::from(start) + u64::from(step)) % u64::from(group_count)) as u32;
            let desc = read_desc(self, group)?;
            let inodes = u64::from(desc.free_inode_count()) << 15;
            let inodes = inodes / u64::from(volume.facts.geometry.inodes_per_group);
            let blocks = u64::from(desc.free_block_count()) << 15;
            let blocks = blocks / u64::from(volume.facts.geometry.blocks_per_group);
            let score = (inodes * blocks + 1) / (1 + u64::from(desc.directory_count()));
            if desc.free_inode_count() > 0 && score > best.0 {
                best = (score, group);
            }
        }
        Ok(best.1)
    }

    /// Takes the first free inode of a group; `None` if the bitmap has none.
    fn take_inode(
        &mut self,
        group: u32,
        mut desc: GroupDesc,
        kind: FileKind,
    ) -> Result<Option<u32>> {
        let geometry = &self.mounted().facts.geometry;
        let mut bits = self.inode_bitmap(group, &desc)?;
        let from = geometry.first_inode - 1; // reserved inodes are in group 0
        let from = if group == 0 { from } else { 0 };
        let Some(index) = bitmap::find_clear(&bits, from..geometry.inodes_per_group) else {
            return Ok(None);
        };
        bitmap::fill(Arc::make_mut(&mut bits), index..index + 1, true);
        self.init_block_bitmap(group, &mut desc)?;
        desc.set_free_inode_count(desc.free_inode_count() - 1); // the caller saw that it is not 0
        if kind == FileKind::Directory {
            desc.set_directory_count(desc.directory_count().saturating_add(1));
        }
        self.extend_inode_table(&mut desc, index)?;
        self.put_inode_bitmap(&mut desc, bits)?;
        self.put_desc(group, &desc)?;
        self.free_inode_delta -= 1;
        Ok(Some(index))
    }

    /// Extends the used part of an inode table up to `index`. The blocks that are newly used may
    /// hold anything, and become zeros.
    fn extend_inode_table(&mut self, desc: &mut GroupDesc, index: u32) -> Result<()> {
        let volume = self.mounted();
        if !volume.facts.checksums.groups_enabled() {
            return Ok(());
        }
        let used_count = if desc.has_flag(INODE_UNINIT) {
            0
        } else {
            volume.facts.geometry.inodes_per_group - desc.unused_inode_count()
        };
        if index < used_count {
            return Ok(());
        }
        let reached = used_count.div_ceil(INODES_PER_BLOCK)..index / INODES_PER_BLOCK + 1;
        if reached.len() > 1 {
            // The bitmap shows inodes in use in the unused part of the table.
            let place = format!("inode table at {}", HomeBlock(desc.inode_table()));
            return Err(Error::corrupt("unused inode count", place));
        }
        for block in reached {
            self.create_block(HomeBlock(desc.inode_table() + u64::from(block)))?;
        }
        desc.set_unused_inode_count(volume.facts.geometry.inodes_per_group - index - 1);
        Ok(())
    }

    /// Frees an inode, which must have been taken off the orphan list. Its bytes become those of a
    /// deleted inode. The generation stays, so that the next user of the number can get another
    /// one.
    pub(crate) fn free_inode(&mut self, ino: InodeNo, kind: FileKind) -> Result<()> {
        let volume = self.mounted();
        let (group, index) = volume.facts.geometry.group_of_inode(ino)?;
        let mut desc = read_desc(self, group)?;
        let mut bits = self.inode_bitmap(group, &desc)?;
        if ino.0 < volume.facts.geometry.first_inode || !bitmap::is_set(&bits, index) {
            return Err(Error::corrupt("free of an inode that is not in use", ino));
        }
        self.store_deleted(ino)?;
        bitmap::fill(Arc::make_mut(&mut bits), index..index + 1, false);
        let free_count = desc.free_inode_count() + 1;
        desc.set_free_inode_count(free_count.min(volume.facts.geometry.inodes_per_group));
        if kind == FileKind::Directory {
            desc.set_directory_count(desc.directory_count().saturating_sub(1));
        }
        self.put_inode_bitmap(&mut desc, bits)?;
        self.put_desc(group, &desc)?;
        self.free_inode_delta += 1;
        Ok(())
    }

    fn store_deleted(&mut self, ino: InodeNo) -> Result<()> {
        let old = self.inode(ino)?;
        let mut raw = RawInode::new_zeroed();
        raw.i_dtime.set((self.now().seconds & 0xFFFF_FFFF) as u32);
        raw.i_generation = old.raw.i_generation;
        raw.i_extra_isize = old.raw.i_extra_isize;
        self.store_inode(&Inode { ino, raw })
    }

    /// A group's inode bitmap. It is read and checked, or made if it was never written.
    fn inode_bitmap(&self, group: u32, desc: &GroupDesc) -> Result<BlockRef> {
        let volume = self.mounted();
        let count = volume.facts.geometry.inodes_per_group;
        if volume.facts.checksums.groups_enabled() && desc.has_flag(INODE_UNINIT) {
            let mut bits = [0; 4096];
            bitmap::fill(&mut bits, count..BITS_PER_BLOCK, true);
            return Ok(Arc::new(bits));
        }
        let bits = self.block(HomeBlock(desc.inode_bitmap()))?;
        if volume.facts.checksums.enabled()
            && volume.facts.checksums.bitmap(&bits[..(count / 8) as usize])
                != desc.inode_bitmap_csum()
        {
            return Err(Error::corrupt("checksum of the inode bitmap", format!("group {group}")));
        }
        Ok(bits)
    }

    fn put_inode_bitmap(&mut self, desc: &mut GroupDesc, bits: BlockRef) -> Result<()> {
        let volume = self.mounted();
        if volume.facts.checksums.enabled() {
            let covered = (volume.facts.geometry.inodes_per_group / 8) as usize;
            desc.set_inode_bitmap_csum(volume.facts.checksums.bitmap(&bits[..covered]));
        }
        desc.clear_flag(INODE_UNINIT);
        self.put_metadata(HomeBlock(desc.inode_bitmap()), bits)
    }
}
