//! Orphans: inodes that have to be freed, or cut to their size, when the volume is opened after a
//! crash. With the `orphan_file` feature they are stored in the blocks of a file. Without it, or if
//! that file is full, they are in a list that begins in the superblock and continues through
//! `i_dtime`.
//!
//! The table in memory mirrors the volume as the open operation sees it. If an operation that
//! changed the table is dropped, the table becomes invalid, and the next user reads it again.
//!
//! Lock: the table's mutex, taken inside a handle. It is held while blocks are read.

use std::collections::HashMap;

use device::sync::Mutex;
use journal::{BlockBytes, HomeBlock};
use zerocopy::FromBytes;

use crate::facts::{Source, ro_compat};
use crate::inode::read_inode;
use crate::layout::orphan::{ORPHAN_MAGIC, ORPHANS_PER_BLOCK, OrphanTail};
use crate::layout::superblock::SuperBlock;
use crate::{Error, InodeNo, Result};

pub(crate) const TAIL_OFFSET: usize = ORPHANS_PER_BLOCK * 4;

/// The place of the orphan file.
#[derive(Debug, Clone)]
pub(crate) struct OrphanFile {
    /// Its blocks, in order.
    pub(crate) blocks: Vec<HomeBlock>,
    /// Seed of their checksums.
    pub(crate) seed: u32,
}

/// The orphans of a volume.
pub(crate) struct Orphans {
    pub(crate) file: Option<OrphanFile>,
    table: Mutex<Option<Table>>,
}

/// Neighbours in the list. *Next* is the direction in which `i_dtime` points.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Links {
    pub(crate) previous: Option<InodeNo>,
    pub(crate) next: Option<InodeNo>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Option<InodeNo>,
    links: HashMap<InodeNo, Links>,
    pub(crate) slots: HashMap<InodeNo, usize>,
    /// Slots of the file that became empty, and the first slot that was never used.
    empty: Vec<usize>,
    fresh: usize,
}

/// Where an orphan is stored.
pub(crate) enum OrphanLink {
    Slot(usize),
    List(Links),
}

impl Orphans {
    /// An empty table that was not read yet. `file`: with the `orphan_file` feature.
    pub(crate) fn new(file: Option<OrphanFile>) -> Orphans {
        Orphans { file, table: Mutex::new(None) }
    }

    /// Makes the table invalid, so that it is read again.
    pub(crate) fn invalidate(&self) {
        *self.table.lock() = None;
    }

    pub(crate) fn with<T>(
        &self,
        source: &impl Source,
        work: impl FnOnce(&mut Table) -> T,
    ) -> Result<T> {
        let mut table = self.table.lock();
        if table.is_none() {
            *table = Some(self.load(source)?);
        }
        Ok(work(table.as_mut().expect("it was just read")))
    }

    /// The value of `i_dtime` for an inode on the list; `None` if it is not on the list.
    pub(crate) fn next_of(&self, source: &impl Source, ino: InodeNo) -> Result<Option<u32>> {
        self.with(source, |table| {
            table.links.get(&ino).map(|links| links.next.map_or(0, |next| next.0))
        })
    }

    /// All orphans: first the orphan list, newest first, then the orphan file in the order of its
    /// slots.
    pub(crate) fn all(&self, source: &impl Source) -> Result<Vec<InodeNo>> {
        self.with(source, |table| {
            let next = |ino: &InodeNo| table.links.get(ino).and_then(|links| links.next);
            let mut all: Vec<InodeNo> = std::iter::successors(table.head, next).collect();
            let mut slots: Vec<_> = table.slots.iter().map(|(ino, slot)| (*slot, *ino)).collect();
            slots.sort_unstable();
            all.extend(slots.iter().map(|(_, ino)| *ino));
            all
        })
    }

    fn load(&self, source: &impl Source) -> Result<Table> {
        let superblock = SuperBlock::of_block(&*source.super_bytes()?);
        let mut table = Table::default();
        load_list(source, &superblock, &mut table)?;
        if let Some(file) = &self.file
            && superblock.s_feature_ro_compat.get() & ro_compat::ORPHAN_PRESENT != 0
        {
            load_file(source, file, &mut table)?;
        }
        Ok(table)
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.blocks.len() * ORPHANS_PER_BLOCK)
    }
}

/// Follows the list. A loop is noticed, because an inode cannot be on the list twice.
fn load_list(source: &impl Source, superblock: &SuperBlock, table: &mut Table) -> Result<()> {
    let mut previous = None;
    let mut word = superblock.s_last_orphan.get();
    while word != 0 {
        let ino = InodeNo(word);
        check_candidate(source, ino)?;
        if table.links.insert(ino, Links { previous, next: None }).is_some() {
            return Err(Error::corrupt("orphan list: a loop", ino));
        }
        match previous {
            None => table.head = Some(ino),
            Some(before) => {
                table.links.get_mut(&before).expect("inserted before").next = Some(ino);
            }
        }
        previous = Some(ino);
        word = match read_inode(source, ino) {
            Ok(inode) => inode.raw.i_dtime.get(),
            Err(Error::NotFound) => return Err(Error::corrupt("orphan list: a free inode", ino)),
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Only users' files can be orphans.
fn check_candidate(source: &impl Source, ino: InodeNo) -> Result<()> {
    let geometry = &source.facts().geometry;
    if ino.0 < geometry.first_inode || ino.0 > geometry.inode_count {
        return Err(Error::corrupt("orphan: an inode number that cannot be one", ino));
    }
    Ok(())
}

fn load_file(source: &impl Source, file: &OrphanFile, table: &mut Table) -> Result<()> {
    for (index, block) in file.blocks.iter().enumerate() {
        let bytes = source.block(*block)?;
        check_block(source, file, *block, &bytes)?;
        for at in 0..ORPHANS_PER_BLOCK {
            let slot = index * ORPHANS_PER_BLOCK + at;
            let ino = read_slot(&bytes, at);
            if ino.0 == 0 {
                table.empty.push(slot);
                continue;
            }
            check_candidate(source, ino)?;
            if table.links.contains_key(&ino) || table.slots.insert(ino, slot).is_some() {
                return Err(Error::corrupt("orphan file: an inode twice", ino));
            }
        }
    }
    table.empty.reverse(); // the lowest is taken first
    table.fresh = file.blocks.len() * ORPHANS_PER_BLOCK;
    Ok(())
}

pub(crate) fn check_block(
    source: &impl Source,
    file: &OrphanFile,
    block: HomeBlock,
    bytes: &BlockBytes,
) -> Result<()> {
    let tail = OrphanTail::read_from_bytes(&bytes[TAIL_OFFSET..]).expect("the tail ends the block");
    let checksums = &source.facts().checksums;
    let is_ok = tail.ob_magic.get() == ORPHAN_MAGIC
        && (!checksums.enabled()
            || tail.ob_checksum.get() == checksums.orphan_block(file.seed, block, bytes));
    if is_ok { Ok(()) } else { Err(Error::corrupt("checksum of the orphan file", block)) }
}

pub(crate) fn read_slot(bytes: &BlockBytes, at: usize) -> InodeNo {
    let word = bytes[at * 4..at * 4 + 4].try_into().expect("4 bytes");
    InodeNo(u32::from_le_bytes(word))
}

impl Table {
    pub(crate) fn has(&self, ino: InodeNo) -> bool {
        self.links.contains_key(&ino) || self.slots.contains_key(&ino)
    }

    pub(crate) fn take_slot(&mut self, slot_count: usize) -> Option<usize> {
        if let Some(slot) = self.empty.pop() {
            return Some(slot);
        }
        let slot = self.fresh;
        (slot < slot_count).then(|| {
            self.fresh += 1;
            slot
        })
    }

    /// Puts the inode at the head of the list. Returns the inode that follows it.
    pub(crate) fn push(&mut self, ino: InodeNo) -> Option<InodeNo> {
        let next = self.head.replace(ino);
        if let Some(links) = next.and_then(|next| self.links.get_mut(&next)) {
            links.previous = Some(ino);
        }
        self.links.insert(ino, Links { previous: None, next });
        next
    }

    pub(crate) fn take(&mut self, ino: InodeNo) -> OrphanLink {
        if let Some(slot) = self.slots.remove(&ino) {
            self.empty.push(slot);
            return OrphanLink::Slot(slot);
        }
        let links = self.links.remove(&ino).expect("the caller saw it in the table");
        match links.previous.and_then(|previous| self.links.get_mut(&previous)) {
            Some(previous) => previous.next = links.next,
            None => self.head = links.next,
        }
        if let Some(next) = links.next.and_then(|next| self.links.get_mut(&next)) {
            next.previous = links.previous;
        }
        OrphanLink::List(links)
    }
}
