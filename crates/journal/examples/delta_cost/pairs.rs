//! Pairs of versions of a block, generated in real layouts or found in two states of a file.

use fastrand::Rng;
use onejournal_journal::codec::extent::Ranges;
use onejournal_journal::{BLOCK_BYTES, BlockBytes};

const PAIR_COUNT: usize = 64;

/// A block before and after a transaction, and what the writer knows to have written.
pub struct Pair {
    pub base: BlockBytes,
    pub new: BlockBytes,
    pub written: Ranges,
}

/// The blocks of two images that differ.
pub fn of_images(before: &[u8], after: &[u8]) -> Vec<Pair> {
    let blocks = before.as_chunks().0.iter().zip(after.as_chunks().0);
    let changed = blocks.filter(|(base, new)| base != new);
    changed.map(|(base, new)| Pair { base: *base, new: *new, written: Ranges::whole() }).collect()
}

/// Makes the block before a change.
type Make = fn(&mut Rng) -> BlockBytes;
/// A change of a page or structure; returns the bytes that its writer writes.
type Change = fn(&mut BlockBytes, &mut Rng) -> (usize, usize);

/// Pairs by kind of change.
pub fn made_up() -> Vec<(String, Vec<Pair>)> {
    let cases: [(&str, Make, Change); 8] = [
        ("leaf update", leaf, update_row),
        ("leaf grow", leaf, grow_row),
        ("leaf insert", leaf, insert_row),
        ("leaf delete", leaf, delete_row),
        ("inode table", inode_table, touch_inode),
        ("bitmap", bitmap, allocate_bits),
        ("group desc", group_descriptors, count_groups),
        ("rewritten", noise, rewrite),
    ];
    let mut random = Rng::with_seed(1);
    let mut make = |block: Make, change: Change| {
        let base = block(&mut random);
        let mut new = base;
        let mut written = Ranges::new();
        let (at, len) = change(&mut new, &mut random);
        written.insert(at, len);
        Pair { base, new, written }
    };
    cases
        .map(|(name, block, change)| {
            (name.to_string(), (0..PAIR_COUNT).map(|_| make(block, change)).collect())
        })
        .into()
}

/// SQLite writes whole pages, whatever has changed in them.
const WHOLE_PAGE: (usize, usize) = (0, BLOCK_BYTES);
const LEAF_HEADER_BYTES: usize = 8;
const ROW_BYTES: usize = 96;
const ROW_COUNT: usize = 32;

/// A b-tree leaf of a table: header, cell pointers, free space, cells that grow downwards. Its
/// fields are big endian. The cells need not be in the order of the pointers.
fn leaf(random: &mut Rng) -> BlockBytes {
    let mut page = [0; BLOCK_BYTES];
    let mut order: Vec<usize> = (0..ROW_COUNT).collect();
    random.shuffle(&mut order);
    page[0] = 0x0d;
    put_u16(&mut page, 3, ROW_COUNT);
    put_u16(&mut page, 5, BLOCK_BYTES - ROW_COUNT * ROW_BYTES);
    for (index, place) in order.into_iter().enumerate() {
        let at = BLOCK_BYTES - (place + 1) * ROW_BYTES;
        put_u16(&mut page, LEAF_HEADER_BYTES + 2 * index, at);
        put_row(&mut page[at..at + ROW_BYTES], random);
    }
    page
}

/// A record: sizes and types, an integer, a float, text.
fn put_row(cell: &mut [u8], random: &mut Rng) {
    cell[..8].copy_from_slice(&[(ROW_BYTES - 3) as u8, 0x81, 0x12, 5, 0, 4, 7, 0x99]);
    cell[8..20].fill_with(|| random.u8(..));
    cell[20..].fill_with(|| random.alphanumeric() as u8);
}

fn put_u16(page: &mut BlockBytes, at: usize, number: usize) {
    page[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
}

fn get_u16(page: &BlockBytes, at: usize) -> usize {
    usize::from(u16::from_be_bytes([page[at], page[at + 1]]))
}

/// The float and half of the text of a row, in place.
fn update_row(page: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let at = get_u16(page, LEAF_HEADER_BYTES + 2 * random.usize(..ROW_COUNT));
    page[at + 12..at + 20].fill_with(|| random.u8(..));
    page[at + 20..at + 60].fill_with(|| random.alphanumeric() as u8);
    WHOLE_PAGE
}

/// A row gets longer: it goes to the end of the free space, its old place becomes a free block.
fn grow_row(page: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let pointer = LEAF_HEADER_BYTES + 2 * random.usize(..ROW_COUNT);
    let old = get_u16(page, pointer);
    let new = get_u16(page, 5) - ROW_BYTES - 20;
    page.copy_within(old..old + ROW_BYTES, new);
    page[new + ROW_BYTES..new + ROW_BYTES + 20].fill_with(|| random.alphanumeric() as u8);
    put_u16(page, pointer, new);
    put_u16(page, 5, new);
    free_cell(page, old);
    WHOLE_PAGE
}

/// Inserts a row between two others: the pointers after it move up.
fn insert_row(page: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let at = get_u16(page, 5) - ROW_BYTES;
    let pointer = LEAF_HEADER_BYTES + 2 * random.usize(..=ROW_COUNT);
    let end = LEAF_HEADER_BYTES + 2 * ROW_COUNT;
    put_row(&mut page[at..at + ROW_BYTES], random);
    page.copy_within(pointer..end, pointer + 2);
    put_u16(page, pointer, at);
    put_u16(page, 3, ROW_COUNT + 1);
    put_u16(page, 5, at);
    WHOLE_PAGE
}

fn delete_row(page: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let pointer = LEAF_HEADER_BYTES + 2 * random.usize(..ROW_COUNT);
    let end = LEAF_HEADER_BYTES + 2 * ROW_COUNT;
    let old = get_u16(page, pointer);
    page.copy_within(pointer + 2..end, pointer);
    put_u16(page, 3, ROW_COUNT - 1);
    free_cell(page, old);
    WHOLE_PAGE
}

/// The page's first free block is the cell: next one, size.
fn free_cell(page: &mut BlockBytes, at: usize) {
    let next = get_u16(page, 1);
    put_u16(page, at, next);
    put_u16(page, at + 2, ROW_BYTES);
    put_u16(page, 1, at);
}

const INODE_BYTES: usize = 256;

/// Inodes of regular files with one extent each.
fn inode_table(random: &mut Rng) -> BlockBytes {
    let mut block = [0; BLOCK_BYTES];
    for inode in block.chunks_exact_mut(INODE_BYTES) {
        inode[..2].copy_from_slice(&0x81a4u16.to_le_bytes());
        inode[4..6].fill_with(|| random.u8(..));
        for at in [8, 12, 16, 0x90] {
            inode[at..at + 4].copy_from_slice(&(1_700_000_000 + random.u32(..1000)).to_le_bytes());
        }
        inode[0x28..0x2c].copy_from_slice(&[0x0a, 0xf3, 1, 0]);
        inode[0x38..0x40].fill_with(|| random.u8(..));
        inode[0x64..0x68].fill_with(|| random.u8(..));
        inode[0x7c..0x7e].fill_with(|| random.u8(..));
        inode[0x80..0x90].fill_with(|| random.u8(..));
    }
    block
}

/// Size, ctime and mtime with their nanoseconds, checksum; the writer writes the inode.
fn touch_inode(block: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let at = INODE_BYTES * random.usize(..BLOCK_BYTES / INODE_BYTES);
    let inode = &mut block[at..at + INODE_BYTES];
    inode[4..6].fill_with(|| random.u8(..));
    for at in [0x0c, 0x10] {
        inode[at] = inode[at].wrapping_add(5);
    }
    inode[0x7c..0x7e].fill_with(|| random.u8(..));
    inode[0x82..0x84].fill_with(|| random.u8(..));
    inode[0x84..0x8c].fill_with(|| random.u8(..));
    (at, INODE_BYTES)
}

/// In use up to a place, then free.
fn bitmap(random: &mut Rng) -> BlockBytes {
    let mut block = [0; BLOCK_BYTES];
    block[..random.usize(..BLOCK_BYTES - 8)].fill(0xff);
    block
}

/// The next one to 16 bits.
fn allocate_bits(block: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let first = block.iter().position(|byte| *byte == 0).unwrap_or(0);
    let bits = (1u32 << random.u32(1..=16)) - 1;
    block[first..first + 2].copy_from_slice(&(bits as u16).to_le_bytes());
    (first, 2)
}

const DESCRIPTOR_BYTES: usize = 64;

fn group_descriptors(random: &mut Rng) -> BlockBytes {
    let mut block = [0; BLOCK_BYTES];
    for descriptor in block.chunks_exact_mut(DESCRIPTOR_BYTES) {
        for at in (0..0x20).step_by(4) {
            descriptor[at..at + 2].fill_with(|| random.u8(..));
        }
    }
    block
}

/// Free blocks, free inodes, the bitmaps' checksums, the descriptor's own.
fn count_groups(block: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    let at = DESCRIPTOR_BYTES * random.usize(..BLOCK_BYTES / DESCRIPTOR_BYTES);
    let descriptor = &mut block[at..at + DESCRIPTOR_BYTES];
    descriptor[0x0c] = descriptor[0x0c].wrapping_sub(1);
    descriptor[0x0e] = descriptor[0x0e].wrapping_sub(1);
    for field in [0x18, 0x1a, 0x1e, 0x38, 0x3a] {
        descriptor[field..field + 2].fill_with(|| random.u8(..));
    }
    (at, DESCRIPTOR_BYTES)
}

fn noise(random: &mut Rng) -> BlockBytes {
    std::array::from_fn(|_| random.u8(..))
}

/// Nothing stays: no delta is worth it.
fn rewrite(block: &mut BlockBytes, random: &mut Rng) -> (usize, usize) {
    *block = noise(random);
    (0, BLOCK_BYTES)
}
