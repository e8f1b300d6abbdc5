//! One linear directory block: a chain of entries that covers it completely.
//!
//! Every walk checks the entries that it passes: lengths are multiples of four and at least as long
//! as the name needs, and the last entry ends exactly at the end of the block (or at its checksum
//! tail). Free space is an entry with inode number 0, or the slack after the name of a used entry.
//!
//! Functions here know neither checksums nor the block's place, so errors say only what is wrong.

use journal::{BLOCK_BYTES, BlockBytes};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};
use crate::layout::dir::{DIR_ENTRY_HEADER_BYTES, DIR_TAIL_BYTES, DirEntryHeader, DirTail};

/// Shortest entry on disk: a one-byte name.
const MIN_ENTRY_BYTES: usize = entry_bytes(1);

/// Bytes that an entry with a name of this length needs.
pub(crate) const fn entry_bytes(name_len: usize) -> usize {
    (DIR_ENTRY_HEADER_BYTES + name_len).next_multiple_of(4)
}

/// An entry of a block, used or free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawEntry<'a> {
    /// Where it starts in the block.
    pub offset: usize,
    /// Bytes to the next one.
    pub len: usize,
    /// Inode number; 0: free.
    pub ino: u32,
    /// `EXT4_FT_*`.
    pub file_type: u8,
    pub name: &'a [u8],
}

impl RawEntry<'_> {
    /// Bytes in use at its start.
    fn used_bytes(&self) -> usize {
        if self.ino == 0 { 0 } else { entry_bytes(self.name.len()) }
    }
}

/// Where the entries of a block end: at the checksum tail if there is one.
pub(super) fn end_of_entries(has_tail: bool) -> usize {
    if has_tail { BLOCK_BYTES - DIR_TAIL_BYTES } else { BLOCK_BYTES }
}

fn corrupt(what: &str, offset: usize) -> Error {
    Error::corrupt(what, format!("a directory block at byte {offset}"))
}

/// Walks all entries, used and free.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    offset: usize,
}

/// All entries of a block; stops after the first error.
pub(crate) fn entries(block: &BlockBytes, has_tail: bool) -> Entries<'_> {
    Entries { bytes: &block[..end_of_entries(has_tail)], offset: 0 }
}

/// The used entries of a block.
pub(crate) fn used_entries(
    block: &BlockBytes,
    has_tail: bool,
) -> impl Iterator<Item = Result<RawEntry<'_>>> {
    entries(block, has_tail).filter(|entry| !matches!(entry, Ok(entry) if entry.ino == 0))
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<RawEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let entry = entry_at(self.bytes, self.offset);
        self.offset = match &entry {
            Ok(entry) => entry.offset + entry.len,
            Err(_) => self.bytes.len(),
        };
        Some(entry)
    }
}

/// The checked entry at `offset` of `bytes`.
fn entry_at(bytes: &[u8], offset: usize) -> Result<RawEntry<'_>> {
    let rest = &bytes[offset..];
    let Ok((header, names)) = DirEntryHeader::ref_from_prefix(rest) else {
        return Err(corrupt("entry cut off by the end of the block", offset));
    };
    let len = usize::from(header.rec_len.get());
    let name_len = usize::from(header.name_len);
    if len < MIN_ENTRY_BYTES || !len.is_multiple_of(4) || len > rest.len() {
        return Err(corrupt("entry length", offset));
    }
    if entry_bytes(name_len) > len {
        return Err(corrupt("name longer than its entry", offset));
    }
    let ino = header.inode.get();
    if ino != 0 && name_len == 0 {
        return Err(corrupt("empty name", offset));
    }
    Ok(RawEntry { offset, len, ino, file_type: header.file_type, name: &names[..name_len] })
}

/// The used entry with this name.
pub(crate) fn find<'a>(
    block: &'a BlockBytes,
    has_tail: bool,
    name: &[u8],
) -> Result<Option<RawEntry<'a>>> {
    for entry in entries(block, has_tail) {
        let entry = entry?;
        if entry.ino != 0 && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The first free space or slack that has room for this name: offset, length and used bytes of the
/// entry.
fn room(block: &BlockBytes, has_tail: bool, name: &[u8]) -> Result<Option<(usize, usize, usize)>> {
    let needed = entry_bytes(name.len());
    for entry in entries(block, has_tail) {
        let entry = entry?;
        let used = entry.used_bytes();
        if entry.len - used >= needed {
            return Ok(Some((entry.offset, entry.len, used)));
        }
    }
    Ok(None)
}

/// Whether [`insert`] would succeed.
pub(super) fn has_room(block: &BlockBytes, has_tail: bool, name: &[u8]) -> Result<bool> {
    Ok(room(block, has_tail, name)?.is_some())
}

/// Puts an entry into free space or slack; `false` if there is not enough in one place. The caller
/// has checked that the name is not in the directory.
pub(crate) fn insert(
    block: &mut BlockBytes,
    has_tail: bool,
    name: &[u8],
    ino: u32,
    file_type: u8,
) -> Result<bool> {
    let Some((offset, len, used)) = room(block, has_tail, name)? else { return Ok(false) };
    if used > 0 {
        set_len(block, offset, used);
    }
    write_entry(block, offset + used, len - used, name, ino, file_type);
    Ok(true)
}

/// Removes the entry at `offset`. The previous entry takes its space; the first entry of the block
/// becomes free space.
pub(crate) fn remove(block: &mut BlockBytes, has_tail: bool, offset: usize) -> Result<()> {
    let mut before: Option<(usize, usize)> = None;
    for entry in entries(block, has_tail) {
        let entry = entry?;
        if entry.offset == offset {
            let len = entry.len;
            match before {
                Some((start, start_len)) => set_len(block, start, start_len + len),
                None => {
                    // Inode number, name length and type; its length stays.
                    block[offset..offset + 4].fill(0);
                    block[offset + 6..offset + 8].fill(0);
                }
            }
            return Ok(());
        }
        before = Some((entry.offset, entry.len));
    }
    Err(corrupt("no entry where one was", offset))
}

/// Makes the entry at `offset` name another inode. A walk of this version of the block found the
/// entry.
pub(crate) fn set_target(block: &mut BlockBytes, offset: usize, ino: u32, file_type: u8) {
    block[offset..offset + 4].copy_from_slice(&ino.to_le_bytes());
    block[offset + 7] = file_type;
}

fn set_len(block: &mut BlockBytes, offset: usize, len: usize) {
    let len = u16::try_from(len).expect("entries are shorter than a block");
    block[offset + 4..offset + 6].copy_from_slice(&len.to_le_bytes());
}

fn write_entry(
    block: &mut BlockBytes,
    offset: usize,
    len: usize,
    name: &[u8],
    ino: u32,
    file_type: u8,
) {
    let header = DirEntryHeader {
        inode: ino.into(),
        rec_len: u16::try_from(len).expect("entries are shorter than a block").into(),
        name_len: u8::try_from(name.len()).expect("names have at most 255 bytes"),
        file_type,
    };
    let name_offset = offset + DIR_ENTRY_HEADER_BYTES;
    block[offset..name_offset].copy_from_slice(header.as_bytes());
    block[name_offset..name_offset + name.len()].copy_from_slice(name);
    block[name_offset + name.len()..offset + entry_bytes(name.len())].fill(0);
}

/// Makes the block hold exactly these entries, packed. The rest becomes zeros, and slack of the
/// last entry. The entries must fit: they have at most the size of what a block held before.
pub(crate) fn fill<'a>(
    block: &mut BlockBytes,
    has_tail: bool,
    contents: impl Iterator<Item = (&'a [u8], u32, u8)>,
) {
    block.fill(0);
    let end = end_of_entries(has_tail);
    let (mut offset, mut last) = (0, None);
    for (name, ino, file_type) in contents {
        let len = entry_bytes(name.len());
        assert!(offset + len <= end, "entries do not fit into the block");
        write_entry(block, offset, len, name, ino, file_type);
        last = Some(offset);
        offset += len;
    }
    // Without any entry the whole block is one free entry, which starts at 0 too.
    let last = last.unwrap_or(0);
    set_len(block, last, end - last);
    if has_tail {
        block[end..].copy_from_slice(DirTail::new().as_bytes());
    }
}

/// Whether the block ends with a valid checksum tail.
pub(super) fn has_valid_tail(block: &BlockBytes) -> bool {
    DirTail::ref_from_bytes(&block[BLOCK_BYTES - DIR_TAIL_BYTES..]).is_ok_and(DirTail::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onejournal_testing::{test_name, tier};

    fn empty(has_tail: bool) -> Box<BlockBytes> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        fill(&mut block, has_tail, std::iter::empty());
        block
    }

    fn names(block: &BlockBytes, has_tail: bool) -> Vec<(Vec<u8>, u32)> {
        used_entries(block, has_tail)
            .map(|entry| entry.map(|entry| (entry.name.to_vec(), entry.ino)).unwrap())
            .collect()
    }

    #[test]
    fn golden_block() {
        let mut block = [0xff; BLOCK_BYTES];
        let contents = [(&b"."[..], 2, 2), (b"..", 2, 2), (b"lost+found", 11, 2)];
        fill(&mut block, true, contents.into_iter());
        let head = [
            2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, //
            2, 0, 0, 0, 12, 0, 2, 2, b'.', b'.', 0, 0, //
            11, 0, 0, 0, 0xdc, 0x0f, 10, 2, b'l', b'o', b's', b't', b'+', b'f', b'o', b'u', b'n',
            b'd', 0, 0,
        ];
        assert_eq!(block[..head.len()], head);
        assert_eq!(block[4084..], [0, 0, 0, 0, 12, 0, 0, 0xde, 0, 0, 0, 0]);
        assert!(has_valid_tail(&block));
    }

    #[test]
    fn random_inserts_and_removes_match_a_model() {
        for seed in tier::seeds(test_name!(), 40) {
            let mut random = fastrand::Rng::with_seed(seed);
            let has_tail = random.bool();
            let mut block = empty(has_tail);
            let mut model = std::collections::BTreeMap::new();
            for step in 1..600_u32 {
                if random.u8(..3) > 0 || model.is_empty() {
                    let name = format!("{step}{}", "x".repeat(random.usize(..250))).into_bytes();
                    if insert(&mut block, has_tail, &name, step, 1).unwrap() {
                        model.insert(name, step);
                    }
                } else {
                    let name = model.keys().nth(random.usize(..model.len())).unwrap().clone();
                    let entry = find(&block, has_tail, &name).unwrap().unwrap();
                    assert_eq!(entry.ino, model[&name]);
                    let offset = entry.offset;
                    remove(&mut block, has_tail, offset).unwrap();
                    assert!(find(&block, has_tail, &name).unwrap().is_none());
                    model.remove(&name);
                }
                let mut found = names(&block, has_tail);
                found.sort();
                assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }

    #[test]
    fn insert_fills_every_byte() {
        let mut block = empty(true);
        let mut count = 0;
        while insert(&mut block, true, format!("{count:04}").as_bytes(), 12, 1).unwrap() {
            count += 1;
        }
        assert_eq!(count, 4084 / 12);
        assert_eq!(names(&block, true).len(), count);
    }

    #[test]
    fn damaged_blocks_are_errors() {
        let mut good = empty(true);
        insert(&mut good, true, b"name", 12, 1).unwrap();
        insert(&mut good, true, b"other", 13, 1).unwrap();
        let damages: [(usize, &[u8]); 7] = [
            (4, &[0, 0]),        // no progress
            (4, &[8, 0]),        // shorter than any entry
            (4, &[14, 0]),       // not a multiple of four
            (4, &[0xff, 0xfc]),  // past the end
            (16, &[0xf4, 0x0f]), // the last one past the end
            (6, &[200]),         // name longer than the entry
            (6, &[0]),           // a used entry without a name
        ];
        for (offset, bytes) in damages {
            let mut block = good.clone();
            block[offset..offset + bytes.len()].copy_from_slice(bytes);
            assert!(entries(&block, true).any(|entry| entry.is_err()), "{offset} {bytes:?}");
            assert!(find(&block, true, b"missing").is_err());
            assert!(remove(&mut block, true, 4000).is_err());
        }
    }

    #[test]
    fn noise_never_panics() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        for _ in 0..tier::count(2000) {
            let mut block = empty(true);
            for _ in 0..20 {
                let _ = insert(&mut block, true, &[b'n'; 9][..random.usize(1..9)], 1, 1);
            }
            for _ in 0..random.usize(1..30) {
                block[random.usize(..400)] = random.u8(..);
            }
            let _ = find(&block, true, b"missing");
            let _ = insert(&mut block, true, b"new", 1, 1);
            let _ = remove(&mut block, true, random.usize(..BLOCK_BYTES));
        }
    }
}
