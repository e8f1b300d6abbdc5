//! Corrects the checksums of a patched volume. This is a second implementation of ext4's checksums,
//! from the kernel's documentation of the format.
//!
//! The kind of a block is found on the volume before it is patched: it is the kind under whose rule
//! the block's checksum is right. If no block has a checksum (no `metadata_csum`), nothing has to
//! be done.

use std::collections::BTreeMap;
use std::ops::Range;

use ext4::layout::jbd2::{JBD2_MAGIC, Jbd2SuperBlock};
use journal::format::RawHeader;
use onejournal_testing::Image;
use zerocopy::{FromBytes, IntoBytes};

use super::BLOCK_BYTES;

type Block = Vec<u8>;

const INODE_BYTES: usize = 256;
const DESC_BYTES: usize = 64;
const METADATA_CSUM: u32 = 0x400;
const CSUM_SEED: u32 = 0x2000;
const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;

/// The kind of a block, and the start value of its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Superblock,
    Descriptors,
    /// The first inode of the block.
    Inodes(u32),
    /// The group.
    BlockBitmap(usize),
    InodeBitmap(usize),
    Leaf(u32),
    Index(u32),
    Extents(u32),
    Attributes,
    Orphans(u32),
    Jbd2,
    /// A header slot of our journal.
    JournalHeader,
}

/// Corrects the checksums of one volume.
pub struct Seals {
    kinds: BTreeMap<u64, Kind>,
    seed: u32,
    blocks_per_group: usize,
    inodes_per_group: usize,
}

/// CRC32C as ext4 chains it: the state is neither inverted before nor after.
fn crc(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn put_word(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn put_halves(bytes: &mut [u8], low: usize, high: usize, number: u32) {
    let number = number.to_le_bytes();
    bytes[low..low + 2].copy_from_slice(&number[..2]);
    bytes[high..high + 2].copy_from_slice(&number[2..]);
}

fn read(image: &Image, block: u64) -> Block {
    let mut bytes = vec![0; BLOCK_BYTES];
    image.read(block * BLOCK_BYTES as u64, &mut bytes);
    bytes
}

impl Seals {
    /// Finds the kinds of the blocks of an undamaged volume.
    pub fn of(image: &Image, journal: &[Range<u64>]) -> Seals {
        let first = read(image, 0);
        let superblock = &first[1024..2048];
        let seed = match word(superblock, 0x60) & CSUM_SEED {
            0 => crc(!0, &superblock[0x68..0x78]),
            _ => word(superblock, 0x270),
        };
        let mut seals = Seals {
            kinds: BTreeMap::new(),
            seed,
            blocks_per_group: usize::try_from(word(superblock, 0x20)).expect("few"),
            inodes_per_group: usize::try_from(word(superblock, 0x28)).expect("few"),
        };
        for slot in &journal[1..3] {
            seals.kinds.insert(slot.start / 4096, Kind::JournalHeader);
        }
        seals.kinds.insert(journal[0].start / 4096, Kind::Jbd2);
        if word(superblock, 0x64) & METADATA_CSUM != 0 {
            seals.find(image, superblock);
        }
        seals
    }

    fn find(&mut self, image: &Image, superblock: &[u8]) {
        let block_count = usize::try_from(word(superblock, 4)).expect("few");
        self.kinds.insert(0, Kind::Superblock);
        self.kinds.insert(1, Kind::Descriptors);
        let descriptors = read(image, 1);
        let mut owners = Vec::new();
        for group in 0..block_count.div_ceil(self.blocks_per_group) {
            let desc = &descriptors[group * DESC_BYTES..];
            // A bitmap that is not in use yet has no checksum.
            let flags = half(desc, 0x12);
            if flags & BLOCK_UNINIT == 0 {
                self.kinds.insert(word(desc, 0).into(), Kind::BlockBitmap(group));
            }
            if flags & INODE_UNINIT == 0 {
                self.kinds.insert(word(desc, 4).into(), Kind::InodeBitmap(group));
            }
            for index in 0..self.inodes_per_group * INODE_BYTES / BLOCK_BYTES {
                let block = u64::from(word(desc, 8)) + index as u64;
                let ino = 1 + group * self.inodes_per_group + index * BLOCK_BYTES / INODE_BYTES;
                let ino = u32::try_from(ino).expect("few");
                self.kinds.insert(block, Kind::Inodes(ino));
                owners.extend(self.owners(&read(image, block), ino));
            }
        }
        for block in 2..block_count as u64 {
            let bytes = read(image, block);
            if !self.kinds.contains_key(&block) && bytes.iter().any(|byte| *byte != 0) {
                let kind =
                    self.candidates(&owners).find(|kind| self.is_right(*kind, block, &bytes));
                self.kinds.extend(kind.map(|kind| (block, kind)));
            }
        }
    }

    /// The start values of the checksums of the inodes in use.
    fn owners(&self, table: &[u8], first: u32) -> Vec<u32> {
        let inodes = table.chunks(INODE_BYTES).zip(first..);
        let used = inodes.filter(|(raw, _)| half(raw, 0x1A) > 0);
        used.map(|(raw, ino)| self.inode_seed(raw, ino)).collect()
    }

    fn inode_seed(&self, raw: &[u8], ino: u32) -> u32 {
        crc(crc(self.seed, &ino.to_le_bytes()), &raw[0x64..0x68])
    }

    fn candidates<'a>(&self, owners: &'a [u32]) -> impl Iterator<Item = Kind> + use<'a> {
        let owned =
            |seed| [Kind::Leaf(seed), Kind::Index(seed), Kind::Extents(seed), Kind::Orphans(seed)];
        owners.iter().flat_map(move |seed| owned(*seed)).chain([Kind::Attributes])
    }

    fn is_right(&self, kind: Kind, block: u64, bytes: &[u8]) -> bool {
        let mut sealed = bytes.to_vec();
        let place = self.checksum_place(kind, bytes);
        let Some(place) = place else { return false };
        put_word(&mut sealed, place, !word(bytes, place));
        self.seal_block(kind, block, &mut sealed);
        sealed == bytes
    }

    /// The offset of the checksum in the block. `None`: the block cannot be of that kind.
    fn checksum_place(&self, kind: Kind, bytes: &[u8]) -> Option<usize> {
        match kind {
            Kind::Leaf(_) => Some(BLOCK_BYTES - 4),
            Kind::Index(_) => index_tail(bytes).map(|tail| tail + 4),
            Kind::Extents(_) => (half(bytes, 0) == 0xF30A).then_some(BLOCK_BYTES - 4),
            Kind::Attributes => (word(bytes, 0) == 0xEA02_0000).then_some(16),
            Kind::Orphans(_) => {
                (word(bytes, BLOCK_BYTES - 8) == 0x0B10_CA04).then_some(BLOCK_BYTES - 4)
            }
            _ => None,
        }
    }

    /// Corrects the checksums in all of the `changed` blocks, the checksums of changed bitmaps,
    /// which the group descriptors hold, and then the checksums of the group descriptors and the
    /// superblock.
    pub fn seal(&self, image: &mut Image, changed: &[u64]) {
        let has_checksums = self.kinds.contains_key(&0);
        for block in changed {
            let Some(kind) = self.kinds.get(block) else { continue };
            let mut bytes = read(image, *block);
            self.seal_block(*kind, *block, &mut bytes);
            image.write(block * BLOCK_BYTES as u64, &bytes);
            self.seal_bitmap(*kind, &bytes, image);
        }
        for block in if has_checksums { &[1, 0][..] } else { &[] } {
            let mut bytes = read(image, *block);
            self.seal_block(self.kinds[block], *block, &mut bytes);
            image.write(block * BLOCK_BYTES as u64, &bytes);
        }
    }

    fn seal_bitmap(&self, kind: Kind, bytes: &[u8], image: &mut Image) {
        let (group, count, low, high) = match kind {
            Kind::BlockBitmap(group) => (group, self.blocks_per_group, 0x18, 0x38),
            Kind::InodeBitmap(group) => (group, self.inodes_per_group, 0x1A, 0x3A),
            _ => return,
        };
        let mut descriptors = read(image, 1);
        let desc = &mut descriptors[group * DESC_BYTES..(group + 1) * DESC_BYTES];
        put_halves(desc, low, high, crc(self.seed, &bytes[..count / 8]));
        image.write(BLOCK_BYTES as u64, &descriptors);
    }

    fn seal_block(&self, kind: Kind, block: u64, bytes: &mut [u8]) {
        match kind {
            Kind::Superblock => {
                let sum = crc(!0, &bytes[1024..2044]);
                put_word(bytes, 2044, sum);
            }
            Kind::Descriptors => self.seal_descriptors(bytes),
            Kind::Inodes(first) => self.seal_inodes(first, bytes),
            Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => {}
            Kind::Leaf(seed) => {
                let sum = crc(seed, &bytes[..BLOCK_BYTES - 12]);
                put_word(bytes, BLOCK_BYTES - 4, sum);
            }
            Kind::Index(seed) => seal_index(seed, bytes),
            Kind::Extents(seed) => {
                let sum = crc(seed, &bytes[..BLOCK_BYTES - 4]);
                put_word(bytes, BLOCK_BYTES - 4, sum);
            }
            Kind::Attributes => {
                put_word(bytes, 16, 0);
                let sum = crc(crc(self.seed, &block.to_le_bytes()), bytes);
                put_word(bytes, 16, sum);
            }
            Kind::Orphans(seed) => {
                let sum = crc(crc(seed, &block.to_le_bytes()), &bytes[..BLOCK_BYTES - 8]);
                put_word(bytes, BLOCK_BYTES - 4, sum);
            }
            Kind::Jbd2 => seal_jbd2(bytes),
            Kind::JournalHeader => {
                put_word(bytes, 8, 0);
                let sum = crc32c::crc32c(&bytes[..size_of::<RawHeader>()]);
                put_word(bytes, 8, sum);
            }
        }
    }

    fn seal_descriptors(&self, bytes: &mut [u8]) {
        for (group, desc) in (0_u32..).zip(bytes.chunks_mut(DESC_BYTES)) {
            if desc.iter().any(|byte| *byte != 0) {
                desc[0x1E..0x20].fill(0);
                let sum = crc(crc(self.seed, &group.to_le_bytes()), desc);
                desc[0x1E..0x20].copy_from_slice(&sum.to_le_bytes()[..2]);
            }
        }
    }

    fn seal_inodes(&self, first: u32, bytes: &mut [u8]) {
        for (raw, ino) in bytes.chunks_mut(INODE_BYTES).zip(first..) {
            if raw.iter().all(|byte| *byte == 0) {
                continue;
            }
            let has_high = half(raw, 0x80) >= 4;
            raw[0x7C..0x7E].fill(0);
            if has_high {
                raw[0x82..0x84].fill(0);
            }
            let sum = crc(self.inode_seed(raw, ino), raw).to_le_bytes();
            raw[0x7C..0x7E].copy_from_slice(&sum[..2]);
            if has_high {
                raw[0x82..0x84].copy_from_slice(&sum[2..]);
            }
        }
    }
}

/// Offset of the entries of an index block: the root has `.` and `..` before them.
fn index_entries(bytes: &[u8]) -> usize {
    if half(bytes, 4) == 12 { 32 } else { 8 }
}

fn index_tail(bytes: &[u8]) -> Option<usize> {
    let entries = index_entries(bytes);
    let (limit, count) = (usize::from(half(bytes, entries)), usize::from(half(bytes, entries + 2)));
    let tail = entries + limit * 8;
    (count <= limit && tail + 8 <= BLOCK_BYTES).then_some(tail)
}

fn seal_index(seed: u32, bytes: &mut [u8]) {
    let Some(tail) = index_tail(bytes) else { return };
    let entries = index_entries(bytes);
    let used = entries + usize::from(half(bytes, entries + 2)) * 8;
    let sum = crc(crc(crc(seed, &bytes[..used]), &bytes[tail..tail + 4]), &[0; 4]);
    put_word(bytes, tail + 4, sum);
}

fn seal_jbd2(bytes: &mut [u8]) {
    let (mut jbd2, _) = Jbd2SuperBlock::read_from_prefix(bytes).expect("a block is large enough");
    if jbd2.h_magic.get() == JBD2_MAGIC && jbd2.has_checksum() {
        jbd2.s_checksum.set(jbd2.checksum());
        bytes[..size_of::<Jbd2SuperBlock>()].copy_from_slice(jbd2.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzz::volume_open::images::seeds;

    #[test]
    fn a_sound_volume_is_as_it_was_when_it_is_sealed() {
        for seed in seeds() {
            for (block, kind) in &seed.seals.kinds {
                let mut sealed = seed.image.clone();
                seed.seals.seal(&mut sealed, &[*block]);
                assert!(sealed == seed.image, "{kind:?}, crashed: {}", seed.is_crashed);
            }
        }
    }

    #[test]
    fn every_kind_of_block_is_found() {
        let mut names: Vec<String> = Vec::new();
        for kind in seeds().iter().flat_map(|seed| seed.seals.kinds.values()) {
            let name = format!("{kind:?}");
            names.push(name.split('(').next().unwrap_or_default().to_owned());
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 12, "{names:?}");
    }
}
