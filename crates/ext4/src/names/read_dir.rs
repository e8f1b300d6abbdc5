//! Reads a directory. Reading can continue at any entry, although the directory changes meanwhile.
//!
//! On volumes with dir_index, entries are delivered in the order of their names' hashes, and
//! [`crate::memory::Cursors`] says what a cursor is. Splitting leaves and making an index move
//! entries, but do not change this order. So an entry that exists all the time is delivered once.
//!
//! Other directories are read in the order of their blocks, and a cursor is a byte offset.
//!
//! The lock on the directory's content is held for one step (a leaf, and the leaves in which its
//! last slot goes on), never during a callback.

use std::ops::Range;

use crate::dir::block;
use crate::dir::{self, NameHasher, Path, Sealer};
use crate::error::{Error, Result};
use crate::inode::{Inode, read_inode};
use crate::memory::{Cursors, InCoreInode, Mounted, Resume, SLOT_BITS, after_slot};
use crate::types::{DirEntry, FileKind, InodeNo};

const BLOCK: u64 = journal::BLOCK_BYTES as u64;

/// Leaves that one slot may fill before the index counts as damaged.
const CHAIN_LIMIT: usize = 4096;

/// Where a step begins.
#[derive(Debug, PartialEq)]
enum Start {
    /// At a cursor: 0, 1, or a byte offset.
    Cursor(u64),
    /// In the order of hashes: at this major hash, and after these names of its slot.
    Hash { major: u32, resume: Resume },
}

impl Start {
    fn at_slot(resume: Resume) -> Start {
        Start::Hash { major: resume.slot << (32 - SLOT_BITS), resume }
    }

    fn at_hash(major: u32) -> Start {
        Start::Hash { major, resume: Resume::at_slot(slot_of(major)) }
    }

    /// Whether a step that began at `before` may end here.
    fn is_beyond(&self, before: &Start) -> bool {
        match (before, self) {
            (Start::Cursor(before), Start::Cursor(next)) => next > before,
            (Start::Hash { major: before, .. }, Start::Hash { major, .. }) => major > before,
            (Start::Cursor(_), Start::Hash { .. }) => true,
            (Start::Hash { .. }, Start::Cursor(_)) => false,
        }
    }
}

/// Entries that are delivered together. Their names are in one buffer.
#[derive(Default)]
struct Step {
    items: Vec<Item>,
    names: Vec<u8>,
    /// The highest place of an entry.
    last: Option<Place>,
    /// Where to continue; `None` at the end.
    next: Option<Start>,
}

struct Item {
    ino: u32,
    kind: Option<FileKind>,
    name: Range<usize>,
    place: Place,
}

/// Where an entry is in its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// With this cursor after it.
    Before(u64),
    Slot(u32),
}

impl Step {
    fn push(&mut self, name: &[u8], ino: u32, kind: Option<FileKind>, place: Place) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let name = start..self.names.len();
        self.last = self.last.max(Some(place));
        self.items.push(Item { ino, kind, name, place });
    }

    fn push_dot(&mut self, name: &[u8], ino: InodeNo, cursor: u64) {
        self.push(name, ino.0, Some(FileKind::Directory), Place::Before(cursor));
    }

    /// Sorts by slot and name.
    fn sort(&mut self) {
        let names = &self.names;
        self.items.sort_by(|a, b| {
            let by_name = || names[a.name.clone()].cmp(&names[b.name.clone()]);
            a.place.cmp(&b.place).then_with(by_name)
        });
    }

    /// Whether the last slot may have further names in a leaf with this lower bound.
    fn goes_on_at(&self, bound: u32) -> bool {
        bound & 1 == 1 || self.last == Some(Place::Slot(slot_of(bound)))
    }

    /// Delivers the entries; `false` if the receiver wants no more.
    fn deliver(&self, cursors: &Cursors, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        self.items.iter().enumerate().all(|(at, item)| {
            let name = &self.names[item.name.clone()];
            let is_last = self.items.get(at + 1).is_none_or(|next| next.place != item.place);
            let cursor = match item.place {
                Place::Before(cursor) => cursor,
                Place::Slot(slot) if is_last => after_slot(slot),
                Place::Slot(slot) => cursors.after_name(slot, name),
            };
            each(DirEntry { ino: InodeNo(item.ino), kind: item.kind, name, cursor })
        })
    }
}

impl Mounted {
    /// [`Volume::read_dir`](crate::Volume::read_dir).
    pub(crate) fn read_dir(
        &self,
        ino: InodeNo,
        cursor: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let in_core = self.in_core(ino);
        let mut start = Start::Cursor(cursor);
        loop {
            let step = self.read_dir_step(ino, &in_core, &start)?;
            if !step.deliver(&in_core.cursors, each) {
                return Ok(());
            }
            match step.next {
                Some(next) if next.is_beyond(&start) => start = next,
                Some(_) => return Err(Error::corrupt("order of a directory index", ino)),
                None => return Ok(()),
            }
        }
    }

    fn read_dir_step(&self, ino: InodeNo, in_core: &InCoreInode, start: &Start) -> Result<Step> {
        let _content = in_core.content.read();
        let dir = read_inode(self, ino)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if dir.link_count() == 0 {
            return Ok(Step::default());
        }
        let one_block = dir::block_count(&dir)? == 1;
        let is_hashed = dir::is_indexed(&dir) || one_block && dir::volume_has_index(&self.facts);
        match start {
            Start::Hash { major, resume } if is_hashed => self.hashed_step(&dir, *major, resume),
            Start::Cursor(cursor @ 0..2) if is_hashed => self.dots_step(&dir, *cursor),
            Start::Cursor(cursor) if is_hashed => {
                let next = in_core.cursors.resume(*cursor).map(Start::at_slot);
                Ok(Step { next, ..Step::default() })
            }
            Start::Cursor(cursor) => self.linear_step(&dir, *cursor),
            // A directory that is read in the order of hashes stays one.
            Start::Hash { .. } => Err(Error::corrupt("directory without its index", ino)),
        }
    }

    fn dots_step(&self, dir: &Inode, cursor: u64) -> Result<Step> {
        let mut step = Step::default();
        if cursor == 0 {
            step.push_dot(b".", dir.ino, 1);
        }
        step.push_dot(b"..", dir::parent(self, dir)?, 2);
        step.next = Some(Start::at_hash(0));
        Ok(step)
    }

    fn hashed_step(&self, dir: &Inode, major: u32, resume: &Resume) -> Result<Step> {
        let mut step = Step::default();
        if dir::is_indexed(dir) {
            self.indexed_step(dir, major, resume, &mut step)?;
        } else {
            let hasher = dir::default_hasher(&self.facts)?;
            let (_, block) = dir::read_leaf(self, dir, 0)?;
            self.take_leaf(dir, &block, &hasher, resume, &mut step)?;
        }
        step.sort();
        Ok(step)
    }

    /// Reads one leaf, and the leaves in which its last slot goes on.
    fn indexed_step(
        &self,
        dir: &Inode,
        major: u32,
        resume: &Resume,
        step: &mut Step,
    ) -> Result<()> {
        let mut path = Path::find(self, dir, |_| major)?;
        for _ in 0..CHAIN_LIMIT {
            let (_, block) = path.leaf()?;
            let hasher = path.hasher;
            self.take_leaf(dir, &block, &hasher, resume, step)?;
            match path.advance()? {
                Some(bound) if step.goes_on_at(bound) => {}
                Some(bound) => {
                    step.next = Some(Start::at_hash(bound));
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
        Err(Error::corrupt("directory index with too many names of one hash", dir.ino))
    }

    fn take_leaf(
        &self,
        dir: &Inode,
        block: &journal::BlockRef,
        hasher: &NameHasher,
        resume: &Resume,
        step: &mut Step,
    ) -> Result<()> {
        for entry in block::used_entries(block, Sealer::new(self, dir).has_tail()) {
            let entry = entry?;
            if matches!(entry.name, b"." | b"..") {
                continue;
            }
            let slot = slot_of(hasher.hash(entry.name).major);
            if resume.is_before(slot, entry.name) {
                step.push(entry.name, entry.ino, dir::kind_of(entry.file_type), Place::Slot(slot));
            }
        }
        Ok(())
    }

    /// Reads one block of a directory whose cursors are byte offsets.
    fn linear_step(&self, dir: &Inode, cursor: u64) -> Result<Step> {
        let mut step = Step::default();
        let Ok(logical) = u32::try_from(cursor / BLOCK) else { return Ok(step) };
        let block_count = dir::block_count(dir)?;
        if logical >= block_count {
            return Ok(step);
        }
        let (_, block) = dir::read_leaf(self, dir, logical)?;
        let block_start = u64::from(logical) * BLOCK;
        for entry in block::used_entries(&block, Sealer::new(self, dir).has_tail()) {
            let entry = entry?;
            let offset = block_start + entry.offset as u64;
            if offset >= cursor {
                let place = Place::Before(offset + entry.len as u64);
                step.push(entry.name, entry.ino, dir::kind_of(entry.file_type), place);
            }
        }
        step.next = (logical + 1 < block_count).then_some(Start::Cursor(block_start + BLOCK));
        Ok(step)
    }
}

fn slot_of(major: u32) -> u32 {
    major >> (32 - SLOT_BITS)
}
