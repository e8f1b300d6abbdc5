//! The bytes of a block as pieces: literal bytes, bytes of blocks that the journal's region already
//! holds, and bytes that stay as they are.
//!
//! ```text
//! change:  | checksum | piece | piece | ... |
//! piece:   | head | literal bytes, or slot and offset, or nothing |
//! ```
//!
//! | field | type | meaning |
//! |---|---|---|
//! | checksum | u32, little endian | CRC32C of all bytes that the pieces make, one after the other |
//! | head | varint | `(bytes - 1) * 4 + kind`; the piece has 1 to 4096 bytes of the block |
//! | literal bytes | bytes | kind 0 |
//! | slot | varint, 0 to 4095 | kind 1: the source is the block in this slot of the window (`codec/window.rs`) |
//! | offset | varint, 0 to 4095 | kind 1: where the bytes begin in the source |
//!
//! Kind 2 copies from the source of the last piece of kind 1, as far from its bytes as this piece
//! is from the bytes of that piece. If there is none before it, the source is the last block of the
//! window for the same home block, at the same offset. Kind 3 has bytes of the *base*, and so have
//! the bytes after the last piece. The base of the form *copy* is zeros, that of the form *patch*
//! the previous version.
//!
//! Varints are those of [`runs`](super::runs).
//!
//! A *copy* does not depend on any version of the block: the record is *whole*. A *patch* can be
//! applied to any mixture of the earlier versions, as a list of runs can.
//!
//! **Search.** The encoder compares the block with its previous version and with the source that it
//! used last. Where neither goes on, it looks up *anchors* in the window (`codec/window.rs`).

use std::cell::RefCell;
use std::ops::Range;

use super::CodecError;
use super::offsets::Offsets;
use super::runs::{put_varint, take_varint};
use super::window::{Known, Window, anchors_of, equal_bytes};
use crate::faults::{self, Fault};
use crate::types::{BLOCK_BYTES, BlockBytes, HomeBlock};

const CHECKSUM_BYTES: usize = 4;

/// Fewer equal bytes are not worth a piece of kind 2 or 3, and the head of the literal after it.
const SAME_MIN_BYTES: usize = Offsets::RUN_BYTES;
/// A shorter copy is not worth its fields.
const COPY_MIN_BYTES: usize = 16;
/// So many bytes after a copy are compared one by one.
const NEAR_BYTES: usize = 128;
/// A search that finds fewer bytes was not worth its time.
const FOUND_MIN_BYTES: usize = 256;

const LITERAL: usize = 0;
const COPY: usize = 1;
const RESUME: usize = 2;
const KEEP: usize = 3;

/// A source and the distance of its bytes from those of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    /// The slot in the window.
    slot: usize,
    /// Offset in the source minus offset in the block.
    shift: isize,
}

impl Source {
    fn newest(window: &Window, home: HomeBlock) -> Option<Source> {
        window.newest(home).map(|slot| Source { slot, shift: 0 })
    }

    /// Where bytes begin that the source may have. (Which of them are known, is not asked.)
    fn runs(&self, window: &Window, block: &BlockBytes) -> Offsets {
        let Some(bytes) = window.bytes(self.slot) else { return Offsets::NONE };
        if self.shift == 0 {
            return Offsets::of_equal_runs(block, bytes);
        }
        // Where the source has no bytes, they differ.
        let (mut shifted, by) = (block.map(|byte| !byte), self.shift.unsigned_abs());
        let len = BLOCK_BYTES - by;
        if self.shift < 0 {
            shifted[by..].copy_from_slice(&bytes[..len]);
        } else {
            shifted[..len].copy_from_slice(&bytes[by..]);
        }
        Offsets::of_equal_runs(block, &shifted)
    }

    /// Where the byte at an offset of the block is in the source.
    fn offset(&self, at: usize) -> Option<usize> {
        at.checked_add_signed(self.shift).filter(|offset| *offset < BLOCK_BYTES)
    }
}

/// Writes pieces.
struct Writer<'a> {
    block: &'a BlockBytes,
    out: &'a mut Vec<u8>,
    /// Where the next piece begins in the block.
    made: usize,
    checksum: u32,
    source: Option<Source>,
    found_bytes: usize,
    /// The longest copy, and the slot of its source.
    longest: (usize, usize),
}

impl<'a> Writer<'a> {
    fn new(block: &'a BlockBytes, out: &'a mut Vec<u8>, source: Option<Source>) -> Writer<'a> {
        Writer { block, out, made: 0, checksum: 0, source, found_bytes: 0, longest: (0, 0) }
    }

    fn head(&mut self, kind: usize, len: usize) {
        put_varint((len - 1) * 4 + kind, self.out);
        if kind != KEEP {
            let bytes = &self.block[self.made..self.made + len];
            self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        }
        self.made += len;
    }

    fn literal_until(&mut self, end: usize) {
        let bytes = &self.block[self.made..end];
        if !bytes.is_empty() {
            self.head(LITERAL, bytes.len());
            self.out.extend_from_slice(bytes);
        }
    }

    fn copy(&mut self, source: Source, len: usize) {
        let mut offset = source.offset(self.made).expect("the source has the bytes");
        if faults::is(Fault::CopyBesideSource) && offset + len + 8 <= BLOCK_BYTES {
            offset += 8;
        }
        self.head(COPY, len);
        put_varint(source.slot, self.out);
        put_varint(offset, self.out);
        self.source = Some(source);
    }
}

/// Where the bytes of a block may be found.
pub(crate) struct Search<'a> {
    window: &'a Window,
    newest: Option<Source>,
    /// Where bytes begin that the newest version may have in their place.
    in_newest: Offsets,
    /// The anchors whose bytes a block of the window may have. One that was looked up in vain is
    /// taken out.
    anchors: RefCell<Offsets>,
}

impl<'a> Search<'a> {
    /// For the next block that is logged for `home`. `is_wide`: among all blocks of the window, and
    /// not only in its last version.
    pub(crate) fn new(
        window: &'a Window,
        (home, block): (HomeBlock, &BlockBytes),
        is_wide: bool,
    ) -> Search<'a> {
        let is_wide = is_wide && !window.is_empty();
        let anchors = RefCell::new(if is_wide { anchors_of(block) } else { Offsets::NONE });
        let newest = Source::newest(window, home);
        let in_newest = newest.map_or(Offsets::NONE, |newest| newest.runs(window, block));
        Search { window, newest, in_newest, anchors }
    }

    /// How many bytes of the block from `at` on are the same where the source goes on.
    fn resumed(&self, source: Option<Source>, block: &BlockBytes, at: usize) -> usize {
        source.map_or(0, |source| {
            self.window.equal_from(source.slot, source.offset(at), &block[at..])
        })
    }

    /// The source of the bytes at an anchor, and how many bytes from `made` on before it, and from
    /// it on, are the same.
    fn find(&self, block: &BlockBytes, made: usize, at: usize) -> Option<(Source, usize, usize)> {
        if !self.anchors.borrow().has(at) {
            return None;
        }
        let Some((slot, from)) = self.window.find(block, at) else {
            self.anchors.borrow_mut().remove(at);
            return None;
        };
        let len = self.window.equal_from(slot, Some(from), &block[at..]);
        let before = self.window.equal_before(slot, from, &block[made..at]);
        let source = Source { slot, shift: from as isize - at as isize };
        (before + len >= COPY_MIN_BYTES).then_some((source, before, len))
    }
}

/// Where in a block a piece may begin that is not literal.
struct Places<'a> {
    search: &'a Search<'a>,
    block: &'a BlockBytes,
    in_base: Offsets,
    /// `None`: not known yet, after a copy.
    in_source: Option<Offsets>,
}

impl<'a> Places<'a> {
    fn new(search: &'a Search<'a>, block: &'a BlockBytes, base: &BlockBytes) -> Places<'a> {
        let newest = search.newest.and_then(|newest| search.window.bytes(newest.slot));
        let in_base = match newest.is_some_and(|newest| std::ptr::eq(newest, base)) {
            true => search.in_newest.clone(),
            false => Offsets::of_equal_runs(block, base),
        };
        Places { search, block, in_base, in_source: Some(search.in_newest.clone()) }
    }

    fn source_changed(&mut self) {
        self.in_source = None;
    }

    /// The first one of the range. The next piece after a copy is often near, so the bytes there
    /// are compared one by one.
    fn next(&mut self, source: Option<Source>, mut range: Range<usize>) -> Option<usize> {
        let anchors = self.search.anchors.borrow();
        if self.in_source.is_none() {
            let near = range.start..range.end.min(range.start + NEAR_BYTES);
            let sets = [&self.in_base, &Offsets::NONE, &*anchors];
            let next = Offsets::first_of_any(sets, near.clone());
            let before = near.start..next.unwrap_or(near.end);
            let next = source.and_then(|source| self.first_in(source, before)).or(next);
            if next.is_some() || near.end == range.end {
                return next;
            }
            range.start = near.end;
        }
        let runs = || source.map_or(Offsets::NONE, |it| it.runs(self.search.window, self.block));
        let in_source = self.in_source.get_or_insert_with(runs);
        Offsets::first_of_any([&self.in_base, in_source, &*anchors], range)
    }

    /// The first offset of the range at which the source has the same byte.
    fn first_in(&self, source: Source, mut range: Range<usize>) -> Option<usize> {
        let bytes = self.search.window.bytes(source.slot)?;
        range.find(|at| source.offset(*at).is_some_and(|from| bytes[from] == self.block[*at]))
    }
}

/// What was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub bytes: usize,
    /// Whether bytes of the base are left. If not, the base does not matter.
    pub needs_base: bool,
    /// If the wide search found many bytes: the slot of the source with the most.
    pub found: Option<usize>,
}

/// Appends the block as pieces. `None`, with `out` as it was, if that would be more than
/// `budget_bytes`; the search stops as soon as that is certain.
pub(crate) fn encode(
    search: &Search<'_>,
    block: &BlockBytes,
    base: &BlockBytes,
    budget_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<Made> {
    let start = out.len();
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    let mut writer = Writer::new(block, out, search.newest);
    let mut places = Places::new(search, block, base);
    let (mut at, mut needs_base) = (0, false);
    while at < BLOCK_BYTES {
        if writer.out.len() - start + (at - writer.made) > budget_bytes {
            writer.out.truncate(start);
            return None;
        }
        let rest_bytes = budget_bytes - (writer.out.len() - start);
        let end = BLOCK_BYTES.min(writer.made + rest_bytes + 1);
        let Some(next) = places.next(writer.source, at..end) else {
            at = end;
            continue;
        };
        at = next;
        let kept = equal_bytes(&block[at..], &base[at..]);
        let resumed = search.resumed(writer.source, block, at);
        let same = kept.max(resumed);
        if same >= SAME_MIN_BYTES || at + same == BLOCK_BYTES {
            writer.literal_until(at);
            at += same;
            needs_base |= kept > resumed;
            if resumed == same {
                writer.head(RESUME, same);
                writer.found_bytes += if writer.source == search.newest { 0 } else { same };
            } else if at < BLOCK_BYTES {
                writer.head(KEEP, same);
            } else {
                writer.made = at;
            }
        } else if let Some((source, before, len)) = search.find(block, writer.made, at) {
            writer.literal_until(at - before);
            writer.copy(source, before + len);
            writer.found_bytes += before + len;
            writer.longest = writer.longest.max((before + len, source.slot));
            places.source_changed();
            at += len;
        } else {
            at += 1;
        }
    }
    writer.literal_until(BLOCK_BYTES);
    let checksum = writer.checksum.to_le_bytes();
    let found = (writer.found_bytes >= FOUND_MIN_BYTES).then_some(writer.longest.1);
    if out.len() - start > budget_bytes {
        out.truncate(start);
        return None;
    }
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum);
    Some(Made { bytes: out.len() - start, needs_base, found })
}

/// A part of a block.
enum Piece<'a> {
    Literal(&'a [u8]),
    Copy(Option<Source>),
    Keep,
}

/// Reads a change piece by piece, and checks everything except the sources.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    made: usize,
    source: Option<Source>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<(u32, Reader<'a>), CodecError> {
        let checksum = bytes.first_chunk().ok_or(CodecError::Truncated)?;
        let reader = Reader { bytes, at: CHECKSUM_BYTES, made: 0, source: None };
        Ok((u32::from_le_bytes(*checksum), reader))
    }

    /// The next piece, and where it is in the block.
    fn next(&mut self) -> Result<Option<(Range<usize>, Piece<'a>)>, CodecError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let head = take_varint(self.bytes, &mut self.at)?;
        let (start, len) = (self.made, head / 4 + 1);
        self.made += len;
        if self.made > BLOCK_BYTES {
            return Err(CodecError::OutOfBlock(self.made));
        }
        let piece = match head % 4 {
            LITERAL => Piece::Literal(self.take(len)?),
            COPY => {
                let slot = take_varint(self.bytes, &mut self.at)?;
                let offset = take_varint(self.bytes, &mut self.at)?;
                if slot >= Window::COUNT_MAX {
                    return Err(CodecError::NoSource(format!("slot {slot}")));
                }
                if offset + len > BLOCK_BYTES {
                    return Err(CodecError::OutOfBlock(offset + len));
                }
                let shift = offset as isize - start as isize;
                self.source = Some(Source { slot, shift });
                Piece::Copy(self.source)
            }
            RESUME => Piece::Copy(self.source),
            _ => Piece::Keep,
        };
        Ok(Some((start..self.made, piece)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let bytes = self.bytes.get(self.at..self.at + len).ok_or(CodecError::Truncated)?;
        self.at += len;
        Ok(bytes)
    }
}

/// Checks a change, except that its sources exist and give the bytes that it says.
///
/// # Errors
/// If the bytes are not a whole change.
pub fn check(bytes: &[u8]) -> Result<(), CodecError> {
    let (_, mut reader) = Reader::new(bytes)?;
    while reader.next()?.is_some() {}
    Ok(())
}

/// The bytes that a change makes.
pub(crate) fn made_by(bytes: &[u8], known: &mut Known) -> Result<(), CodecError> {
    let (_, mut reader) = Reader::new(bytes)?;
    while let Some((range, piece)) = reader.next()? {
        if !matches!(piece, Piece::Keep) {
            known.add(range);
        }
    }
    Ok(())
}

/// Makes the new version of `block`, which holds the base.
///
/// # Errors
/// If the bytes are not a whole change, if a source is not in the window, or if the result does not
/// have the checksum. The block is then unchanged.
pub(crate) fn apply(
    (home, block): (HomeBlock, &mut BlockBytes),
    bytes: &[u8],
    window: &Window,
) -> Result<(), CodecError> {
    let (expected, mut reader) = Reader::new(bytes)?;
    let (mut made, mut found) = (*block, 0);
    while let Some((range, piece)) = reader.next()? {
        match piece {
            Piece::Keep => continue,
            Piece::Literal(bytes) => made[range.clone()].copy_from_slice(bytes),
            Piece::Copy(source) => {
                let none = || CodecError::NoSource(format!("bytes {range:?} of {home}"));
                let source = source.or_else(|| Source::newest(window, home)).ok_or_else(none)?;
                let offset = source.offset(range.start).ok_or_else(none)?;
                let bytes = window.read(source.slot, offset, range.len());
                made[range.clone()].copy_from_slice(bytes.ok_or_else(none)?);
            }
        }
        found = crc32c::crc32c_append(found, &made[range]);
    }
    if found != expected {
        return Err(CodecError::WrongChecksum { found, expected });
    }
    *block = made;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::window::Entry;
    use super::*;
    use crate::format::WINDOW_BLOCKS_MAX;
    use crate::observer::BlockOwner;

    const HOME: HomeBlock = HomeBlock(9);

    fn noise(seed: u64) -> BlockBytes {
        let mut random = fastrand::Rng::with_seed(seed);
        std::array::from_fn(|_| random.u8(..))
    }

    /// Blocks that were logged whole, for homes of their numbers.
    fn window(blocks: &[BlockBytes]) -> Window {
        let mut window = Window::new(WINDOW_BLOCKS_MAX);
        for (home, block) in (0..).zip(blocks) {
            window.add(entry(HomeBlock(home), block, Known::ALL), true);
        }
        window
    }

    fn entry(home: HomeBlock, block: &BlockBytes, known: Known) -> Entry {
        Entry { home, owner: BlockOwner::NOBODY, version: Arc::new(*block), known }
    }

    fn shifted(block: &BlockBytes, by: usize) -> BlockBytes {
        let mut out = [b'!'; BLOCK_BYTES];
        out[by..].copy_from_slice(&block[..BLOCK_BYTES - by]);
        out
    }

    fn whole(window: &Window, block: &BlockBytes, budget: usize) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let search = Search::new(window, (HOME, block), true);
        let made = encode(&search, block, &[0; BLOCK_BYTES], budget, &mut out);
        let len = made.map(|made| made.bytes);
        let change = out.strip_prefix(b"before").expect("what was there stays");
        assert_eq!(change.len(), len.unwrap_or(0));
        len.map(|_| change.to_vec())
    }

    fn apply_whole(window: &Window, change: &[u8]) -> Result<BlockBytes, CodecError> {
        let mut block = [0; BLOCK_BYTES];
        let applied = apply((HOME, &mut block), change, window);
        assert!(applied.is_ok() || block == [0; BLOCK_BYTES], "a failure changes nothing");
        applied.map(|()| block)
    }

    #[test]
    fn golden_bytes() {
        let (older, other) = (noise(1), noise(2));
        let mut new = shifted(&older, 24);
        new[100..108].copy_from_slice(b"a change");
        let known = window(&[older, other]);
        let change = whole(&known, &new, 4096).expect("most of it is known");
        let mut golden = crc32c::crc32c(&new).to_le_bytes().to_vec();
        golden.extend([&[23 * 4][..], &[b'!'; 24]].concat());
        // 76 bytes of the block in slot 0, from offset 0 on.
        golden.extend([0xac | 1, 2, 0, 0]);
        golden.extend([&[7 * 4][..], b"a change"].concat());
        // 3988 bytes, from there on.
        golden.extend([0xce | 0x80, 0x7c]);
        assert_eq!(change, golden);
        assert!(apply_whole(&known, &change) == Ok(new));
    }

    #[test]
    fn a_block_without_known_bytes_is_left_alone() {
        assert_eq!(whole(&Window::new(0), &noise(1), 4000), None);
        assert_eq!(whole(&window(&[noise(1)]), &noise(2), 4000), None);
        let mut known = window(&[noise(1)]);
        known.clear();
        assert_eq!(whole(&known, &noise(1), 4000), None);
    }

    #[test]
    fn the_budget_is_kept() {
        let mut half = noise(1);
        half[2048..].copy_from_slice(&noise(2)[2048..]);
        let known = window(&[noise(1)]);
        let change = whole(&known, &half, 4096).expect("half of it is known");
        assert!((2048..2100).contains(&change.len()), "{}", change.len());
        assert_eq!(whole(&known, &half, change.len() - 1), None);
        assert_eq!(whole(&known, &half, change.len()), Some(change));
    }

    #[test]
    fn the_last_version_of_the_block_is_a_source_without_a_search() {
        // Without anchors.
        let older: BlockBytes = [5; BLOCK_BYTES];
        let mut known = window(&[noise(1)]);
        known.add(entry(HOME, &older, Known::ALL), true);
        let mut new = older;
        new[1000..1008].copy_from_slice(b"a change");
        let change = whole(&known, &new, 100).expect("eight bytes are new");
        assert_eq!(change.len(), 4 + 2 + 9 + 2);
        assert!(apply_whole(&known, &change) == Ok(new));
    }

    #[test]
    fn a_wrong_source_is_noticed() {
        let base = noise(1);
        let change = whole(&window(&[base]), &shifted(&base, 8), 4096).expect("it is known");
        let mut other = base;
        other[1000] ^= 1;
        let result = apply_whole(&window(&[other]), &change);
        assert!(matches!(result, Err(CodecError::WrongChecksum { .. })), "{result:?}");
        let result = apply_whole(&window(&[]), &change);
        assert!(matches!(result, Err(CodecError::NoSource(_))), "{result:?}");
        let mut hole = Known::none();
        hole.add(0..1000);
        hole.add(1001..BLOCK_BYTES);
        let mut known = Window::new(1);
        known.add(entry(HOME, &base, hole), true);
        let result = apply_whole(&known, &change);
        assert!(matches!(result, Err(CodecError::NoSource(_))), "{result:?}");
    }

    #[test]
    fn zeros_cost_nothing() {
        let mut block = [0; BLOCK_BYTES];
        assert_eq!(whole(&window(&[]), &block, 100), Some(vec![0; 4]));
        block[4000..4003].copy_from_slice(b"end");
        assert_eq!(whole(&window(&[]), &block, 100).map(|change| change.len()), Some(4 + 2 + 4));
    }

    #[test]
    fn bytes_that_are_no_change_are_refused() {
        let of = |pieces: &[u8]| check(&[&[0; 4], pieces].concat());
        assert_eq!(check(&[0; 3]), Err(CodecError::Truncated));
        assert_eq!(of(&[]), Ok(()));
        assert_eq!(of(&[4]), Err(CodecError::Truncated));
        let all = |kind: u8| [0xfc | kind, 0x7f];
        assert_eq!(of(&[&all(1)[..], &[0xff, 0x1f, 0]].concat()), Ok(()));
        assert_eq!(of(&all(2)), Ok(()));
        assert_eq!(of(&all(3)), Ok(()));
        let no_source = |result| matches!(result, Err(CodecError::NoSource(_)));
        assert_eq!(of(&[&all(1)[..], &[1, 1]].concat()), Err(CodecError::OutOfBlock(4097)));
        let far = [&all(1)[..], &[0x80, 0x20, 0]].concat();
        assert!(no_source(of(&far)));
        assert_eq!(of(&[&all(2)[..], &[2]].concat()), Err(CodecError::OutOfBlock(4097)));
    }

    /// A version that was made from older ones.
    fn next_version(random: &mut fastrand::Rng, older: &[BlockBytes]) -> BlockBytes {
        let mut new = older[random.usize(..older.len())];
        for _ in 0..random.usize(..5) {
            let (at, from) = (random.usize(..BLOCK_BYTES), random.usize(..BLOCK_BYTES));
            let len = random.usize(..3000).min(BLOCK_BYTES - at).min(BLOCK_BYTES - from);
            if random.bool() {
                let source = older[random.usize(..older.len())];
                new[at..at + len].copy_from_slice(&source[from..from + len]);
            } else {
                new[at..at + len / 20].iter_mut().for_each(|byte| *byte = random.u8(..));
            }
        }
        new
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        #[test]
        fn an_encoded_block_is_made_again(seed: u64, is_patch: bool) {
            let mut random = fastrand::Rng::with_seed(seed);
            let blocks = [noise(seed), noise(!seed), [0; BLOCK_BYTES]];
            let new = next_version(&mut random, &blocks);
            let known = window(&blocks);
            let base = if is_patch { next_version(&mut random, &[new]) } else { [0; BLOCK_BYTES] };
            let (search, mut out) = (Search::new(&known, (HOME, &new), true), Vec::new());
            if let Some(made) = encode(&search, &new, &base, BLOCK_BYTES, &mut out) {
                prop_assert_eq!(check(&out), Ok(()));
                // A mixture of the versions.
                let mut block = if made.needs_base { base } else { noise(seed.wrapping_add(7)) };
                let at = random.usize(..BLOCK_BYTES);
                block[at..].copy_from_slice(&new[at..]);
                prop_assert_eq!(apply((HOME, &mut block), &out, &known), Ok(()));
                prop_assert!(block == new);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let known = window(&[noise(1)]);
            let mut block = [7; BLOCK_BYTES];
            if apply((HOME, &mut block), &bytes, &known).is_err() {
                prop_assert!(block == [7; BLOCK_BYTES]);
            }
            drop(made_by(&bytes, &mut Known::none()));
        }
    }
}
