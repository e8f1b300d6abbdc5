//! Reads a directory. Reading can continue at any entry, although the directory changes meanwhile.
//!
//! On volumes with dir_index, entries are delivered in the order of their names' hashes, and a
//! cursor is a hash. Splitting leaves and making an index move entries, but do not change this
//! order. So an entry that exists all the time is delivered once. The 63 bits of a position are
//!
//! ```text
//! major hash without its lowest bit (31) | minor hash, or CRC32C of the name for legacy hashes (32)
//! ```
//! and the cursor after an entry is its position + [`BEHIND`]. The cursor 1 is after `.`, and 2
//! after `..`. Names with equal positions share the cursor after the last of them. The others carry
//! the cursor before all of them. So a reader that stops among them sees them again, and misses
//! none.
//!
//! Other directories are read in the order of their blocks, and a cursor is a byte offset.
//!
//! The lock on the directory's content is held for one step (a leaf), never during a callback.

use std::ops::Range;

use crate::dir::block;
use crate::dir::{self, HashVersion, NameHash, NameHasher, Path, Sealer};
use crate::error::{Error, Result};
use crate::inode::{Inode, read_inode};
use crate::memory::Mounted;
use crate::types::{DirEntry, FileKind, InodeNo};

const BLOCK: u64 = journal::BLOCK_BYTES as u64;

/// Cursor after an entry minus its position: 0 to 2 stand for the start, `.` and `..`.
const BEHIND: u64 = 3;

/// Leaves that one hash value may fill before the index counts as damaged.
const CHAIN_LIMIT: usize = 4096;

/// Entries that are delivered together. Their names are in one buffer.
#[derive(Default)]
struct Step {
    items: Vec<Item>,
    names: Vec<u8>,
    /// Where to continue; `None` at the end.
    next: Option<u64>,
}

struct Item {
    ino: u32,
    kind: Option<FileKind>,
    name: Range<usize>,
    position: u64,
    cursor: u64,
}

impl Step {
    fn push(&mut self, name: &[u8], ino: u32, kind: Option<FileKind>, position: u64) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let name = start..self.names.len();
        self.items.push(Item { ino, kind, name, position, cursor: position + BEHIND });
    }

    fn push_dot(&mut self, name: &[u8], ino: InodeNo, cursor: u64) {
        self.push(name, ino.0, Some(FileKind::Directory), 0);
        if let Some(item) = self.items.last_mut() {
            item.cursor = cursor;
        }
    }

    /// Sorts by position. Of equal positions, all but the last get the cursor before them.
    fn sort(&mut self) {
        let names = &self.names;
        self.items.sort_by(|a, b| {
            let by_name = || names[a.name.clone()].cmp(&names[b.name.clone()]);
            a.position.cmp(&b.position).then_with(by_name)
        });
        for at in 1..self.items.len() {
            let position = self.items[at].position;
            if self.items[at - 1].position == position {
                self.items[at - 1].cursor = position + BEHIND - 1;
            }
        }
    }

    /// Delivers the entries; `false` if the receiver wants no more.
    fn deliver(&self, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> bool {
        self.items.iter().all(|item| {
            each(DirEntry {
                ino: InodeNo(item.ino),
                kind: item.kind,
                name: &self.names[item.name.clone()],
                cursor: item.cursor,
            })
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
        let mut cursor = cursor;
        loop {
            let step = self.read_dir_step(ino, cursor)?;
            if !step.deliver(each) {
                return Ok(());
            }
            match step.next {
                Some(next) if next > cursor => cursor = next,
                Some(_) => return Err(Error::corrupt("order of a directory index", ino)),
                None => return Ok(()),
            }
        }
    }

    fn read_dir_step(&self, ino: InodeNo, cursor: u64) -> Result<Step> {
        let in_core = self.in_core(ino);
        let _content = in_core.content.read();
        let dir = read_inode(self, ino)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if dir.link_count() == 0 {
            return Ok(Step::default());
        }
        let one_block = dir::block_count(&dir)? == 1;
        if dir::is_indexed(&dir) || one_block && dir::volume_has_index(&self.facts) {
            self.hashed_step(&dir, cursor)
        } else {
            self.linear_step(&dir, cursor)
        }
    }

    fn hashed_step(&self, dir: &Inode, cursor: u64) -> Result<Step> {
        let mut step = Step::default();
        if cursor < 2 {
            if cursor == 0 {
                step.push_dot(b".", dir.ino, 1);
            }
            step.push_dot(b"..", dir::parent(self, dir)?, 2);
            step.next = Some(2);
            return Ok(step);
        }
        let start = cursor - 2;
        if start >> 63 != 0 {
            return Ok(step);
        }
        if dir::is_indexed(dir) {
            self.indexed_step(dir, start, &mut step)?;
        } else {
            let hasher = dir::default_hasher(&self.facts)?;
            let (_, block) = dir::read_leaf(self, dir, 0)?;
            self.take_leaf(dir, &block, &hasher, start, &mut step)?;
        }
        step.sort();
        Ok(step)
    }

    /// Reads one leaf, and the leaves that continue it.
    fn indexed_step(&self, dir: &Inode, start: u64, step: &mut Step) -> Result<()> {
        let mut path = Path::find(self, dir, |_| major_of(start))?;
        for _ in 0..CHAIN_LIMIT {
            let (_, block) = path.leaf()?;
            let hasher = path.hasher;
            self.take_leaf(dir, &block, &hasher, start, step)?;
            match path.advance()? {
                Some(bound) if bound & 1 == 1 => {}
                Some(bound) => {
                    step.next = Some(position_of(NameHash { major: bound, minor: 0 }) + BEHIND - 1);
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
        start: u64,
        step: &mut Step,
    ) -> Result<()> {
        for entry in block::used_entries(block, Sealer::new(self, dir).has_tail()) {
            let entry = entry?;
            if matches!(entry.name, b"." | b"..") {
                continue;
            }
            let position = position(hasher, entry.name);
            if position >= start {
                step.push(entry.name, entry.ino, dir::kind_of(entry.file_type), position);
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
                step.push(entry.name, entry.ino, dir::kind_of(entry.file_type), offset);
                if let Some(item) = step.items.last_mut() {
                    item.cursor = offset + entry.len as u64;
                }
            }
        }
        step.next = (logical + 1 < block_count).then_some(block_start + BLOCK);
        Ok(step)
    }
}

fn position_of(hash: NameHash) -> u64 {
    u64::from(hash.major >> 1) << 32 | u64::from(hash.minor)
}

/// The major hash of a position below 2^63.
fn major_of(position: u64) -> u32 {
    u32::try_from(position >> 32).expect("positions have 63 bits") << 1
}

/// The position of a name in its directory.
fn position(hasher: &NameHasher, name: &[u8]) -> u64 {
    let mut hash = hasher.hash(name);
    if hasher.version == HashVersion::Legacy {
        // It has no minor part; 31 bits alone collide in directories of usual size.
        hash.minor = crc32c::crc32c(name);
    }
    position_of(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_positions_share_the_cursor_behind_them() {
        let mut step = Step::default();
        for (name, position) in [(b"d", 9), (b"b", 7), (b"a", 7), (b"c", 7), (b"e", 3)] {
            step.push(name, 12, None, position);
        }
        step.sort();
        let mut seen = Vec::new();
        assert!(step.deliver(&mut |entry| {
            seen.push((entry.name[0], entry.cursor));
            true
        }));
        assert_eq!(seen, [(b'e', 6), (b'a', 9), (b'b', 9), (b'c', 10), (b'd', 12)]);
    }

    #[test]
    fn positions_are_ordered_as_hashes() {
        let hash = NameHash { major: 0xffff_fffc, minor: u32::MAX };
        assert_eq!(position_of(hash), 0x7fff_fffe_ffff_ffff);
        assert_eq!(major_of(position_of(hash)), 0xffff_fffc);
    }
}
