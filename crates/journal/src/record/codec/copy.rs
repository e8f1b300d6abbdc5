//! A whole block as literal bytes, and copies from whole blocks that the journal's region already
//! holds.
//!
//! ```text
//! change:  | checksum | piece | piece | ... |
//! piece:   | literal len | literal bytes | copy len | record | offset |
//! ```
//!
//! | field | type | meaning |
//! |---|---|---|
//! | checksum | u32, little endian | CRC32C of the block that results |
//! | literal len | varint, 0 to 4095 | bytes that follow |
//! | copy len | varint, 1 to 4096 | bytes that are copied |
//! | record | u32, little endian | where the record with the source begins: units of 8 bytes from the start of the region |
//! | offset | u32, little endian | where the source begins: bytes from the start of that record's uncompressed payload |
//!
//! The pieces make the block from its start to its end. A literal that completes the block is the
//! last field. Varints are those of [`runs`](super::runs).
//!
//! The result does not depend on any version of the block, at home or in the journal: the record is
//! *whole*. Sources are bytes of earlier records of the same region. They do not change, and they
//! are freed together with the record that copies them.
//!
//! **Search.** Some offsets of a block are *anchors*: whether an offset is one depends on the three
//! bytes there only, so equal bytes have equal anchors, wherever they are. (SQLite stores pages
//! behind headers of 8 or 24 bytes.) [`Sources`] has the anchors of the blocks that the region
//! holds, by a hash of their bytes. The encoder looks up the anchors of the new block. Bytes that
//! are found are extended in both directions.

use super::CodecError;
use super::runs::{put_varint, take_varint};
use crate::types::{BLOCK_BYTES, BlockBytes, BlockRef};

/// One offset in 64 is an anchor, on average. Zeros are none.
const ANCHOR_MASK: u8 = 63;
const ANCHOR_VALUE: u8 = 29;

/// Bytes at an anchor that are compared first, and hashed.
const HASHED_BYTES: usize = 16;

/// A shorter copy is not worth its fields.
const COPY_MIN_BYTES: usize = 32;

const CHECKSUM_BYTES: usize = 4;

/// log2 of the number of anchors that are known.
const TABLE_BITS: u32 = 18;

/// The most blocks that are known. A larger region's later blocks replace them all.
const SOURCE_COUNT_MAX: usize = 1 << 12;

/// Where bytes are in a region of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where the record begins: units of 8 bytes from the start of the region.
    pub record: u32,
    /// Bytes from the start of the record's uncompressed payload.
    pub offset: u32,
}

/// Blocks that a region holds whole, and where.
pub struct Sources {
    count_max: usize,
    blocks: Vec<(BlockRef, Place)>,
    /// By hash. Empty until the first block is added.
    table: Vec<Slot>,
}

impl Sources {
    /// None yet, and never more than `count_max`.
    pub fn new(count_max: usize) -> Sources {
        let count_max = count_max.min(SOURCE_COUNT_MAX);
        Sources { count_max, blocks: Vec::new(), table: Vec::new() }
    }

    /// Whether no block is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Forgets all blocks, because another region begins.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.blocks.clear();
            self.table.fill(Slot::EMPTY);
        }
    }

    /// The region holds the block.
    pub fn add(&mut self, block: BlockRef, place: Place) {
        if self.blocks.len() >= self.count_max {
            self.clear();
        }
        if self.table.is_empty() {
            self.table.resize(1 << TABLE_BITS, Slot::EMPTY);
        }
        let number = self.blocks.len();
        let (anchors, mut at) = (Anchors::of(&block), 0);
        while let Some(anchor) = anchors.next(at) {
            if let Some((index, rest)) = hash(&block, anchor) {
                self.table[index] = Slot::new(number, anchor, rest);
            }
            at = anchor + 1;
        }
        self.blocks.push((block, place));
    }

    /// The source of the bytes at an anchor: its block, its place, and its offset there.
    fn find(&self, block: &BlockBytes, anchor: usize) -> Option<(&(BlockRef, Place), usize)> {
        let (index, rest) = hash(block, anchor)?;
        let (number, from) = self.table[index].get(rest)?;
        let source = &self.blocks[number];
        (source.0[from..from + HASHED_BYTES] == block[anchor..anchor + HASHED_BYTES])
            .then_some((source, from))
    }
}

/// An anchor of a source: number of the block plus one, offset, and bits of the hash. The bits tell
/// most other bytes apart without reading the block. 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    const EMPTY: Slot = Slot(0);
    const OFFSET_BITS: u32 = BLOCK_BYTES.ilog2();
    const REST_BITS: u32 = u32::BITS - Slot::OFFSET_BITS - (SOURCE_COUNT_MAX.ilog2() + 1);

    fn new(number: usize, offset: usize, rest: u32) -> Slot {
        let place = ((number + 1) << Slot::OFFSET_BITS | offset) as u32;
        Slot(place << Slot::REST_BITS | rest)
    }

    /// Number and offset, if these bits of the hash are equal.
    fn get(self, rest: u32) -> Option<(usize, usize)> {
        let (place, its_rest) = (self.0 >> Slot::REST_BITS, self.0 & ((1 << Slot::REST_BITS) - 1));
        let number = (place >> Slot::OFFSET_BITS).checked_sub(1)? as usize;
        (its_rest == rest).then_some((number, place as usize % BLOCK_BYTES))
    }
}

/// The anchors of a block, ascending.
struct Anchors([u64; BLOCK_BYTES / 64]);

impl Anchors {
    /// Looks at three bytes of each offset. Written so that the compiler compares 16 offsets at a
    /// time.
    fn of(block: &BlockBytes) -> Anchors {
        let mut masks = [0; BLOCK_BYTES / 64];
        let mut flags = [0u8; 64];
        for (index, mask) in masks.iter_mut().enumerate() {
            let start = index * 64;
            let Some(bytes) = block.get(start..start + 66) else { break };
            for (at, flag) in flags.iter_mut().enumerate() {
                let (two, four) = (bytes[at + 1].wrapping_mul(2), bytes[at + 2].wrapping_mul(4));
                let mixed = bytes[at].wrapping_add(two).wrapping_add(four);
                *flag = u8::from(mixed & ANCHOR_MASK == ANCHOR_VALUE);
            }
            for (at, word) in flags.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                // The lowest bits of eight bytes, side by side.
                *mask |= (word.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at);
            }
        }
        Anchors(masks)
    }

    /// The first anchor from `at` on.
    fn next(&self, at: usize) -> Option<usize> {
        let mut index = at / 64;
        let mut mask = self.0.get(index)? & (u64::MAX << (at % 64));
        while mask == 0 {
            index += 1;
            mask = *self.0.get(index)?;
        }
        let anchor = index * 64 + mask.trailing_zeros() as usize;
        (anchor + COPY_MIN_BYTES <= BLOCK_BYTES).then_some(anchor)
    }
}

/// The place of an anchor in the table, and the bits of its slot. `None`: its bytes repeat
/// themselves.
fn hash(block: &BlockBytes, anchor: usize) -> Option<(usize, u32)> {
    let (first, second) = block[anchor..anchor + HASHED_BYTES].split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"));
    let (first, second) = (word(first), word(second));
    let mixed = (first ^ second.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let rest = (mixed >> 16) as u32 & ((1 << Slot::REST_BITS) - 1);
    (first != second).then_some(((mixed >> (64 - TABLE_BITS)) as usize, rest))
}

/// Number of equal bytes at the start of both.
fn equal_bytes(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8));
    let whole = words.take_while(|(one, other)| one == other).count() * 8;
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(one, other)| one == other).count()
}

/// Number of equal bytes at the end of both.
fn equal_bytes_before(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// Appends the block as copies from `sources` and literal bytes.
///
/// Returns the number of bytes appended. `None`, with `out` as it was, if that would be more than
/// `budget_bytes`; the search stops as soon as that is certain.
pub fn encode(
    sources: &Sources,
    block: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    if sources.is_empty() {
        return None;
    }
    let start = out.len();
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    let (anchors, mut made, mut at) = (Anchors::of(block), 0, 0);
    while let Some(anchor) = anchors.next(at) {
        // Not yet counted: the bytes before the anchor that turn out to be a part of a copy.
        if out.len() - start + (at - made) > budget_bytes {
            break;
        }
        at = anchor + 1;
        let Some((source, from)) = sources.find(block, anchor) else { continue };
        let before = equal_bytes_before(&block[made..anchor], &source.0[..from]);
        let len = before + equal_bytes(&block[anchor..], &source.0[from..]);
        if len < COPY_MIN_BYTES {
            continue;
        }
        put_literal(&block[made..anchor - before], out);
        put_varint(len, out);
        out.extend_from_slice(&source.1.record.to_le_bytes());
        let offset = source.1.offset + (from - before) as u32;
        out.extend_from_slice(&offset.to_le_bytes());
        made = anchor - before + len;
        at = made;
    }
    let rest = BLOCK_BYTES - made;
    if rest == BLOCK_BYTES || out.len() - start + rest + 2 > budget_bytes {
        out.truncate(start);
        return None;
    }
    if rest > 0 {
        put_literal(&block[made..], out);
    }
    let checksum = crc32c::crc32c(block).to_le_bytes();
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum);
    Some(out.len() - start)
}

fn put_literal(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// A part of a block.
enum Piece<'a> {
    Literal(&'a [u8]),
    Copy { len: usize, from: Place },
}

/// Reads a change piece by piece, and checks everything except the sources.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    made: usize,
    /// A copy follows, not a literal.
    is_copy_next: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<(u32, Reader<'a>), CodecError> {
        let mut reader = Reader { bytes, at: 0, made: 0, is_copy_next: false };
        Ok((reader.number()?, reader))
    }

    fn next(&mut self) -> Result<Option<Piece<'a>>, CodecError> {
        if self.made == BLOCK_BYTES {
            let rest = self.bytes.len() - self.at;
            return if rest == 0 { Ok(None) } else { Err(CodecError::Trailing(rest)) };
        }
        let len_at = self.at;
        let len = take_varint(self.bytes, &mut self.at)?;
        self.made += len;
        if self.made > BLOCK_BYTES {
            return Err(CodecError::OutOfBlock(self.made));
        }
        self.is_copy_next = !self.is_copy_next;
        if self.is_copy_next {
            if len == BLOCK_BYTES {
                return Err(CodecError::NotCanonical(len_at));
            }
            return Ok(Some(Piece::Literal(self.take(len)?)));
        }
        if len == 0 {
            return Err(CodecError::NotCanonical(len_at));
        }
        let from = Place { record: self.number()?, offset: self.number()? };
        Ok(Some(Piece::Copy { len, from }))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let bytes = self.bytes.get(self.at..self.at + len).ok_or(CodecError::Truncated)?;
        self.at += len;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u32, CodecError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("it has 4 bytes")))
    }
}

/// Fills a slice with the bytes at a place.
pub type ReadSource<'a> = dyn FnMut(Place, &mut [u8]) -> Result<(), CodecError> + 'a;

/// Checks a change, except that its sources exist and give the block that it says.
///
/// # Errors
/// If the bytes are not a whole change.
pub fn check(bytes: &[u8]) -> Result<(), CodecError> {
    let (_, mut reader) = Reader::new(bytes)?;
    while reader.next()?.is_some() {}
    Ok(())
}

/// Makes the block from its sources, which `read` reads.
///
/// # Errors
/// If the bytes are not a whole change, if `read` fails, or if the result does not have the
/// checksum. The block is then unchanged.
pub fn apply(
    block: &mut BlockBytes,
    bytes: &[u8],
    read: &mut ReadSource<'_>,
) -> Result<(), CodecError> {
    let (checksum, mut reader) = Reader::new(bytes)?;
    let mut made = [0; BLOCK_BYTES];
    let mut at = 0;
    while let Some(piece) = reader.next()? {
        let len = match piece {
            Piece::Literal(bytes) => {
                made[at..at + bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Piece::Copy { len, from } => {
                read(from, &mut made[at..at + len])?;
                len
            }
        };
        at += len;
    }
    let found = crc32c::crc32c(&made);
    if found != checksum {
        return Err(CodecError::WrongChecksum { found, expected: checksum });
    }
    *block = made;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn noise(seed: u64) -> BlockBytes {
        let mut random = fastrand::Rng::with_seed(seed);
        std::array::from_fn(|_| random.u8(..))
    }

    fn place(number: usize) -> Place {
        Place { record: 8 * number as u32, offset: 4096 + number as u32 }
    }

    /// Sources at the places of their numbers.
    fn sources(blocks: &[BlockBytes]) -> Sources {
        let mut sources = Sources::new(SOURCE_COUNT_MAX);
        let numbered = blocks.iter().enumerate();
        numbered.for_each(|(number, block)| sources.add(Arc::new(*block), place(number)));
        sources
    }

    /// Reads the sources as recovery does.
    fn reader(blocks: &[BlockBytes]) -> impl FnMut(Place, &mut [u8]) -> Result<(), CodecError> {
        move |from, out| {
            let number = from.record as usize / 8;
            let none = || CodecError::NoSource(format!("{from:?}"));
            let block = blocks.get(number).ok_or_else(none)?;
            let at = from.offset.checked_sub(place(number).offset).ok_or_else(none)? as usize;
            out.copy_from_slice(block.get(at..at + out.len()).ok_or_else(none)?);
            Ok(())
        }
    }

    fn shifted(block: &BlockBytes, by: usize) -> BlockBytes {
        let mut out = [b'!'; BLOCK_BYTES];
        out[by..].copy_from_slice(&block[..BLOCK_BYTES - by]);
        out
    }

    #[test]
    fn golden_bytes() {
        let (base, mut out) = (noise(1), b"-".to_vec());
        let new = shifted(&base, 24);
        assert_eq!(encode(&sources(&[noise(2), base]), &new, 4096, &mut out), Some(39));
        let mut golden = b"-".to_vec();
        golden.extend(crc32c::crc32c(&new).to_le_bytes());
        golden.extend([&[24][..], &[b'!'; 24], &[0xe8, 0x1f, 8, 0, 0, 0, 1, 0x10, 0, 0]].concat());
        assert_eq!(out, golden);
        let mut block = [0; BLOCK_BYTES];
        assert_eq!(apply(&mut block, &out[1..], &mut reader(&[noise(2), base])), Ok(()));
        assert!(block == new);
    }

    #[test]
    fn a_block_without_known_bytes_is_left_alone() {
        let mut out = b"before".to_vec();
        assert_eq!(encode(&Sources::new(0), &noise(1), 4096, &mut out), None);
        assert_eq!(encode(&sources(&[noise(1)]), &noise(2), 4096, &mut out), None);
        let zeros = [0; BLOCK_BYTES];
        assert_eq!(encode(&sources(&[zeros]), &zeros, 4096, &mut out), None);
        let mut known = sources(&[noise(1)]);
        known.clear();
        assert_eq!(encode(&known, &noise(1), 4096, &mut out), None);
        assert_eq!(out, b"before");
    }

    #[test]
    fn the_budget_is_kept() {
        let mut half = noise(1);
        half[2048..].copy_from_slice(&noise(2)[2048..]);
        let (known, mut out) = (sources(&[noise(1)]), Vec::new());
        let len = encode(&known, &half, 4096, &mut out).expect("half of it is known");
        assert!((2048..2100).contains(&len), "{len}");
        out.clear();
        assert_eq!(encode(&known, &half, len - 1, &mut out), None);
        assert_eq!(out, b"");
        assert_eq!(encode(&known, &half, len, &mut out), Some(len));
    }

    #[test]
    fn later_blocks_replace_the_first_ones_when_there_are_too_many() {
        let mut known = sources(&[noise(1)]);
        let filler = Arc::new([0; BLOCK_BYTES]);
        (1..SOURCE_COUNT_MAX).for_each(|_| known.add(filler.clone(), place(0)));
        assert!(encode(&known, &noise(1), 100, &mut Vec::new()).is_some());
        known.add(Arc::new(noise(2)), place(0));
        assert!(encode(&known, &noise(1), 100, &mut Vec::new()).is_none());
        assert!(encode(&known, &noise(2), 100, &mut Vec::new()).is_some());
    }

    #[test]
    fn a_wrong_source_is_noticed() {
        let (base, mut out) = (noise(1), Vec::new());
        encode(&sources(&[base]), &shifted(&base, 8), 4096, &mut out).expect("it is known");
        let mut other = base;
        other[1000] ^= 1;
        let mut block = [7; BLOCK_BYTES];
        let result = apply(&mut block, &out, &mut reader(&[other]));
        assert!(matches!(result, Err(CodecError::WrongChecksum { .. })), "{result:?}");
        let result = apply(&mut block, &out, &mut reader(&[]));
        assert!(matches!(result, Err(CodecError::NoSource(_))), "{result:?}");
        assert!(block == [7; BLOCK_BYTES]);
    }

    #[test]
    fn bytes_that_are_no_change_are_refused() {
        let of = |pieces: &[u8]| check(&[&[0; 4], pieces].concat());
        let from = [0; 8];
        assert_eq!(check(&[0; 3]), Err(CodecError::Truncated));
        assert_eq!(of(&[0]), Err(CodecError::Truncated));
        assert_eq!(of(&[2, 1]), Err(CodecError::Truncated));
        assert_eq!(of(&[0, 0]), Err(CodecError::NotCanonical(5)));
        let whole_literal = [&[0x80, 0x20][..], &[0; BLOCK_BYTES]].concat();
        assert_eq!(of(&whole_literal), Err(CodecError::NotCanonical(4)));
        assert_eq!(of(&[0, 0x80, 0x20, 1, 2, 3]), Err(CodecError::Truncated));
        let whole_copy = [&[0, 0x80, 0x20][..], &from].concat();
        assert_eq!(of(&whole_copy), Ok(()));
        assert_eq!(of(&[&whole_copy[..], &[1]].concat()), Err(CodecError::Trailing(1)));
        assert_eq!(of(&[0, 0x81, 0x20]), Err(CodecError::OutOfBlock(4097)));
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        #[test]
        fn an_encoded_block_is_made_again(
            cuts: Vec<(usize, usize, usize, u8)>, seed in 0..1000u64, change_count in 0..40usize,
        ) {
            let blocks = [noise(seed), noise(seed + 1), noise(seed + 2)];
            let mut random = fastrand::Rng::with_seed(seed);
            let mut new = noise(seed + 3);
            for (at, from, len, block) in cuts {
                let (at, from) = (at % BLOCK_BYTES, from % BLOCK_BYTES);
                let len = (len % 2000).min(BLOCK_BYTES - at).min(BLOCK_BYTES - from);
                let block = &blocks[usize::from(block) % 3];
                new[at..at + len].copy_from_slice(&block[from..from + len]);
            }
            for _ in 0..change_count {
                new[random.usize(..BLOCK_BYTES)] = random.u8(..);
            }
            let mut out = Vec::new();
            if encode(&sources(&blocks), &new, BLOCK_BYTES, &mut out).is_some() {
                prop_assert_eq!(check(&out), Ok(()));
                let mut block = [0; BLOCK_BYTES];
                prop_assert_eq!(apply(&mut block, &out, &mut reader(&blocks)), Ok(()));
                prop_assert!(block == new);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let mut block = [7; BLOCK_BYTES];
            let blocks = [noise(1)];
            if apply(&mut block, &bytes, &mut |_, _| Ok(())).is_err() {
                prop_assert!(block == [7; BLOCK_BYTES]);
            }
            drop(apply(&mut block, &bytes, &mut |from, out| reader(&blocks)(from, out)));
        }
    }
}
