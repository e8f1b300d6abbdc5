//! Puts inodes on the orphan list or file, and takes them off.

use zerocopy::IntoBytes;

use super::operation::Op;
use crate::facts::{Source, ro_compat};
use crate::inode::Inode;
use crate::layout::orphan::{ORPHAN_MAGIC, ORPHANS_PER_BLOCK, OrphanTail};
use crate::memory::{OrphanLink, TAIL_OFFSET, check_block, read_slot};
use crate::{Error, InodeNo, Result};

impl Op<'_> {
    /// Makes an inode an orphan, unless it is one already. The inode is stored; the caller may
    /// change it and put it again.
    pub(crate) fn orphan_add(&mut self, inode: &mut Inode) -> Result<()> {
        let (volume, ino) = (self.mounted(), inode.ino);
        let orphans = &volume.orphans;
        if orphans.with(self, |table| table.has(ino))? {
            return Ok(());
        }
        self.touched_orphans = true;
        let slot_count = orphans.slot_count();
        match orphans.with(self, |table| table.take_slot(slot_count))? {
            Some(slot) => {
                orphans.with(self, |table| table.slots.insert(ino, slot))?;
                self.announce_orphans()?;
                self.write_slot(slot, InodeNo(0), ino)
            }
            None => {
                let next = orphans.with(self, |table| table.push(ino))?;
                inode.raw.i_dtime.set(next.map_or(0, |next| next.0));
                self.change_superblock(|superblock| superblock.s_last_orphan.set(ino.0))?;
                self.store_inode(inode)
            }
        }
    }

    /// Takes an inode off the orphans, if it is one. The inode is stored; the caller may change it
    /// and put it again.
    pub(crate) fn orphan_remove(&mut self, inode: &mut Inode) -> Result<()> {
        let (volume, ino) = (self.mounted(), inode.ino);
        let orphans = &volume.orphans;
        if !orphans.with(self, |table| table.has(ino))? {
            return Ok(());
        }
        self.touched_orphans = true;
        match orphans.with(self, |table| table.take(ino))? {
            OrphanLink::Slot(slot) => self.write_slot(slot, ino, InodeNo(0)),
            OrphanLink::List(links) => {
                inode.raw.i_dtime.set(0);
                self.store_inode(inode)?;
                match links.previous {
                    // Storing an inode of the list gives it the list's idea of its i_dtime.
                    Some(previous) => {
                        let previous = self.inode(previous)?;
                        self.store_inode(&previous)
                    }
                    None => {
                        let head = links.next.map_or(0, |next| next.0);
                        self.change_superblock(|superblock| superblock.s_last_orphan.set(head))
                    }
                }
            }
        }
    }

    /// Sets `orphan_present`: the next opening must read the orphan file.
    fn announce_orphans(&mut self) -> Result<()> {
        let features = self.superblock()?.s_feature_ro_compat.get();
        if features & ro_compat::ORPHAN_PRESENT != 0 {
            return Ok(());
        }
        self.change_superblock(|superblock| {
            superblock.s_feature_ro_compat.set(features | ro_compat::ORPHAN_PRESENT);
        })
    }

    fn write_slot(&mut self, slot: usize, expected: InodeNo, ino: InodeNo) -> Result<()> {
        let volume = self.mounted();
        let file = volume.orphans.file.as_ref().expect("there are slots only with the file");
        let (block, at) = (file.blocks[slot / ORPHANS_PER_BLOCK], slot % ORPHANS_PER_BLOCK);
        let bytes = self.block(block)?;
        check_block(self, file, block, &bytes)?;
        if read_slot(&bytes, at) != expected {
            return Err(Error::corrupt("orphan file: unexpected entry", block));
        }
        let bytes = self.write_block(block)?;
        bytes[at * 4..at * 4 + 4].copy_from_slice(&ino.0.to_le_bytes());
        let checksum = volume.facts.checksums.orphan_block(file.seed, block, bytes);
        let tail = OrphanTail { ob_magic: ORPHAN_MAGIC.into(), ob_checksum: checksum.into() };
        bytes[TAIL_OFFSET..].copy_from_slice(tail.as_bytes());
        Ok(())
    }
}
