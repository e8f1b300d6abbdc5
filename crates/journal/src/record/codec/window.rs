//! Versions of the blocks that a region of the journal got, for changes that copy from them.
//!
//! The engine and recovery take each change of each record of the region, in the same order. A
//! small one changes the last version of its block, any other one adds a version. A source is named
//! by its *slot*, so both find the same one. A change that is not whole tells a part of its block
//! only; the rest is *known* if the window has the previous version.
//!
//! **Which version leaves.** A full window gives up the version that was superseded longest ago.
//! The newest version of a block leaves only if the window has no other versions. So a block that
//! changes again and again takes a slot each time, but displaces no other block. (SQLite writes
//! each old page to the same few blocks of its rollback journal.)
//!
//! **Anchors.** Whether an offset of a block is an anchor depends on the three bytes there only, so
//! equal bytes have equal anchors, wherever they are. (SQLite stores pages behind headers of 8 or
//! 24 bytes.) The engine finds the block with the bytes at an anchor by a hash of them.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::offsets::Offsets;
use crate::format::WINDOW_BLOCKS_MAX;
use crate::observer::BlockOwner;
use crate::types::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock};

/// One offset in 64 is an anchor, on average. Zeros are none.
const ANCHOR_MASK: u8 = 63;
const ANCHOR_VALUE: u8 = 29;

/// Bytes at an anchor that are compared first, and hashed.
const HASHED_BYTES: usize = 16;

/// log2 of the number of anchors that are known.
const TABLE_BITS: u32 = 18;

/// Which bytes of a block are known.
#[derive(Debug, Clone)]
pub(crate) struct Known(Option<Box<[u64; BLOCK_BYTES / 64]>>);

impl Known {
    pub(crate) const ALL: Known = Known(None);

    pub(crate) fn none() -> Known {
        Known(Some(Box::new([0; BLOCK_BYTES / 64])))
    }

    /// Whether all bytes are known.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn add(&mut self, range: Range<usize>) {
        let Some(words) = &mut self.0 else { return };
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let (index, bit) = (at / 64, at % 64);
            let count = (64 - bit).min(end - at);
            words[index] |= (u64::MAX >> (64 - count)) << bit;
            at += count;
        }
        if words.iter().all(|word| *word == u64::MAX) {
            self.0 = None;
        }
    }

    /// How many bytes are known from `at` on.
    fn run_from(&self, at: usize) -> usize {
        let Some(words) = &self.0 else { return BLOCK_BYTES - at };
        let mut end = at;
        while end < BLOCK_BYTES {
            let unknown = !words[end / 64] >> (end % 64);
            if unknown != 0 {
                return end + unknown.trailing_zeros() as usize - at;
            }
            end = (end / 64 + 1) * 64;
        }
        BLOCK_BYTES - at
    }

    /// How many bytes are known before `at`.
    fn run_before(&self, at: usize) -> usize {
        let Some(words) = &self.0 else { return at };
        let mut start = at;
        while start > 0 {
            let last = start - 1;
            let unknown = !words[last / 64] << (63 - last % 64);
            if unknown != 0 {
                return at - (start - unknown.leading_zeros() as usize);
            }
            start = last / 64 * 64;
        }
        at
    }
}

/// A block as it was logged.
pub(crate) struct Entry {
    pub home: HomeBlock,
    pub owner: BlockOwner,
    pub version: BlockRef,
    pub known: Known,
}

/// Versions of the blocks of a region.
pub(crate) struct Window {
    count_max: usize,
    /// By slot.
    entries: Vec<Entry>,
    /// The slots of the newest versions.
    newest: FxHashMap<HomeBlock, usize>,
    /// The slots of all others. The version that was the newest one longest ago comes first.
    superseded: VecDeque<usize>,
    /// If all versions are the newest ones: the slot that is taken next.
    next: usize,
    /// By hash. Empty until the first block is found by its bytes.
    table: Vec<Anchor>,
}

impl Window {
    /// The most blocks of any window.
    pub(crate) const COUNT_MAX: usize = WINDOW_BLOCKS_MAX as usize;

    /// No blocks yet, and never more than `block_count_max`, which is at most
    /// [`WINDOW_BLOCKS_MAX`]. Recovery has as many as the engine had.
    pub(crate) fn new(block_count_max: u32) -> Window {
        assert!(block_count_max <= WINDOW_BLOCKS_MAX, "slots are not larger");
        Window {
            count_max: block_count_max as usize,
            entries: Vec::new(),
            newest: FxHashMap::default(),
            superseded: VecDeque::new(),
            next: 0,
            table: Vec::new(),
        }
    }

    /// Whether no block is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether blocks are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.count_max > 0
    }

    /// Forgets all blocks, because another region begins.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.entries.clear();
            self.newest.clear();
            self.superseded.clear();
            self.next = 0;
            self.table.fill(Anchor::NONE);
        }
    }

    /// Adds a version that was logged. `is_found`: later blocks find it by its bytes.
    pub(crate) fn add(&mut self, entry: Entry, is_found: bool) {
        if !self.is_wanted() {
            return;
        }
        if let Some(slot) = self.newest(entry.home) {
            self.superseded.push_back(slot);
        }
        let slot = self.free_slot();
        self.newest.insert(entry.home, slot);
        if is_found {
            self.index(&entry.version, slot);
        }
        match self.entries.get_mut(slot) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// Takes the place of the newest version of its block, if there is one. `is_found`: as in
    /// [`Window::add`]. Then later blocks find its bytes here, and not in the copy of them that was
    /// logged last, which may leave earlier.
    pub(crate) fn replace_newest(&mut self, entry: Entry, is_found: bool) {
        let Some(slot) = self.newest(entry.home) else { return };
        if is_found {
            self.index(&entry.version, slot);
        }
        self.entries[slot] = entry;
    }

    /// The next slot that is empty, or one whose version leaves: the oldest superseded one, or a
    /// newest one, in turn, if there is no other.
    fn free_slot(&mut self) -> usize {
        if self.entries.len() < self.count_max {
            return self.entries.len();
        }
        self.superseded.pop_front().unwrap_or_else(|| {
            let slot = self.next;
            self.newest.remove(&self.entries[slot].home);
            self.next = (slot + 1) % self.count_max;
            slot
        })
    }

    fn index(&mut self, block: &BlockBytes, slot: usize) {
        if self.table.is_empty() {
            self.table.resize(1 << TABLE_BITS, Anchor::NONE);
        }
        for anchor in anchors_of(block).each() {
            if let Some((index, rest)) = hash(block, anchor) {
                self.table[index] = Anchor::new(slot, anchor, rest);
            }
        }
    }

    /// The slot of the last version that was logged for `home`.
    pub(crate) fn newest(&self, home: HomeBlock) -> Option<usize> {
        self.newest.get(&home).copied()
    }

    /// The last version that was logged for `home`.
    pub(crate) fn version(&self, home: HomeBlock) -> Option<&Entry> {
        self.entries.get(self.newest(home)?)
    }

    /// The same, for a small change, which takes the place of the last version.
    pub(crate) fn version_mut(&mut self, home: HomeBlock) -> Option<&mut Entry> {
        let slot = self.newest(home)?;
        self.entries.get_mut(slot)
    }

    /// Whose block a source is.
    pub(crate) fn owner(&self, slot: usize) -> Option<BlockOwner> {
        self.entries.get(slot).map(|entry| entry.owner)
    }

    /// Bytes of a source, if all of them are known.
    pub(crate) fn read(&self, slot: usize, offset: usize, len: usize) -> Option<&[u8]> {
        let entry = self.entries.get(slot)?;
        let bytes = entry.version.get(offset..offset.checked_add(len)?)?;
        (entry.known.run_from(offset) >= len).then_some(bytes)
    }

    /// All bytes of a source, known or not.
    pub(crate) fn bytes(&self, slot: usize) -> Option<&BlockBytes> {
        self.entries.get(slot).map(|entry| &*entry.version)
    }

    /// How many bytes of a source are known and the same, from its offset on.
    pub(crate) fn equal_from(&self, slot: usize, offset: Option<usize>, bytes: &[u8]) -> usize {
        let (Some(entry), Some(offset)) = (self.entries.get(slot), offset) else { return 0 };
        if bytes.first() != entry.version.get(offset) {
            return 0;
        }
        let known = entry.known.run_from(offset);
        equal_bytes(bytes, &entry.version[offset..offset + known])
    }

    /// The same before its offset.
    pub(crate) fn equal_before(&self, slot: usize, offset: usize, bytes: &[u8]) -> usize {
        let Some(entry) = self.entries.get(slot) else { return 0 };
        let known = entry.known.run_before(offset);
        equal_bytes_before(bytes, &entry.version[offset - known..offset])
    }

    /// A source of the bytes at an anchor: its slot, and its offset.
    pub(crate) fn find(&self, block: &BlockBytes, anchor: usize) -> Option<(usize, usize)> {
        let (index, rest) = hash(block, anchor)?;
        let (slot, from) = self.table.get(index)?.get(rest)?;
        // The slot may have another version since.
        let bytes = self.read(slot, from, HASHED_BYTES)?;
        (bytes == &block[anchor..anchor + HASHED_BYTES]).then_some((slot, from))
    }
}

/// An anchor of a source: slot of the block plus one, offset, and bits of the hash. The bits tell
/// most other bytes apart without reading the block. 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Anchor(u32);

impl Anchor {
    const NONE: Anchor = Anchor(0);
    const OFFSET_BITS: u32 = BLOCK_BYTES.ilog2();
    const REST_BITS: u32 = u32::BITS - Anchor::OFFSET_BITS - (Window::COUNT_MAX.ilog2() + 1);

    fn new(slot: usize, offset: usize, rest: u32) -> Anchor {
        let place = (slot as u32 + 1) << Anchor::OFFSET_BITS | offset as u32;
        Anchor(place << Anchor::REST_BITS | rest)
    }

    /// Slot and offset, if these bits of the hash are equal.
    fn get(self, rest: u32) -> Option<(usize, usize)> {
        let (place, its_rest) =
            (self.0 >> Anchor::REST_BITS, self.0 & ((1 << Anchor::REST_BITS) - 1));
        let slot = (place >> Anchor::OFFSET_BITS).checked_sub(1)?;
        (its_rest == rest).then_some((slot as usize, place as usize % BLOCK_BYTES))
    }
}

/// The anchors of a block. Looks at three bytes of each offset. Written so that the compiler
/// compares 16 offsets at a time.
pub(crate) fn anchors_of(block: &BlockBytes) -> Offsets {
    let mut anchors = Offsets::NONE;
    let mut flags = [0u8; 64];
    for (index, mask) in anchors.0.iter_mut().enumerate() {
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
    anchors
}

/// The place of an anchor in the table, and the bits that are kept there. `None`: its bytes repeat
/// themselves.
fn hash(block: &BlockBytes, anchor: usize) -> Option<(usize, u32)> {
    let (first, second) = block.get(anchor..anchor + HASHED_BYTES)?.split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"));
    let (first, second) = (word(first), word(second));
    let mixed = (first ^ second.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let rest = (mixed >> 16) as u32 & ((1 << Anchor::REST_BITS) - 1);
    (first != second).then_some(((mixed >> (64 - TABLE_BITS)) as usize, rest))
}

/// Number of equal bytes at the start of both.
pub(crate) fn equal_bytes(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8));
    let whole = words.take_while(|(one, other)| one == other).count() * 8;
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(one, other)| one == other).count()
}

/// Number of equal bytes at the end of both.
fn equal_bytes_before(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn noise(seed: u64) -> BlockBytes {
        let mut random = fastrand::Rng::with_seed(seed);
        std::array::from_fn(|_| random.u8(..))
    }

    fn entry(home: u64, seed: u64) -> Entry {
        let (home, owner) = (HomeBlock(home), BlockOwner::NOBODY);
        Entry { home, owner, version: Arc::new(noise(seed)), known: Known::ALL }
    }

    /// The slot of the block, if it is found by its first anchor.
    fn found(window: &Window, block: &BlockBytes) -> Option<usize> {
        let anchor = anchors_of(block).each().next().expect("an anchor");
        window.find(block, anchor).map(|(slot, from)| {
            assert_eq!(from, anchor);
            slot
        })
    }

    #[test]
    fn the_first_block_leaves_when_there_are_too_many() {
        for count_max in [3, WINDOW_BLOCKS_MAX] {
            let (mut window, count_max) = (Window::new(count_max), count_max as usize);
            for number in 0..count_max as u64 + 2 {
                window.add(entry(number, number), true);
            }
            assert_eq!(found(&window, &noise(1)), None);
            assert_eq!(found(&window, &noise(2)), Some(2));
            assert_eq!(found(&window, &noise(count_max as u64 + 1)), Some(1));
            assert_eq!(window.newest(HomeBlock(1)), None);
            assert_eq!(window.newest(HomeBlock(2)), Some(2));
            assert!(window.read(count_max - 1, 0, 1).is_some());
            assert!(window.read(count_max, 0, 1).is_none());
            window.clear();
            assert_eq!(found(&window, &noise(2)), None);
            assert_eq!(window.newest(HomeBlock(2)), None);
            window.add(entry(2, 2), true);
            assert_eq!(found(&window, &noise(2)), Some(0));
        }
    }

    #[test]
    fn older_versions_stay_until_the_window_is_full_and_leave_first() {
        let mut window = Window::new(4);
        window.add(entry(4, 40), true);
        for seed in 50..53 {
            window.add(entry(5, seed), true);
        }
        assert_eq!(found(&window, &noise(50)), Some(1));
        window.add(entry(6, 60), true);
        assert_eq!(found(&window, &noise(50)), None);
        assert_eq!(found(&window, &noise(51)), Some(2));
        window.add(entry(4, 41), true);
        window.add(entry(7, 70), true);
        let slots = [4, 5, 6, 7].map(|home| window.newest(HomeBlock(home)));
        assert_eq!(slots, [Some(2), Some(3), Some(1), Some(0)]);
        // All of them are the newest ones.
        window.add(entry(6, 61), true);
        assert_eq!(window.newest(HomeBlock(6)), Some(1));
        window.add(entry(8, 80), true);
        assert_eq!(window.newest(HomeBlock(8)), Some(0));
        assert_eq!(window.newest(HomeBlock(7)), None);
    }

    #[test]
    fn bytes_are_found_in_the_version_that_was_replaced_last() {
        let mut window = Window::new(3);
        window.add(entry(4, 40), true);
        window.add(entry(5, 40), true);
        assert_eq!(found(&window, &noise(40)), Some(1));
        window.replace_newest(entry(4, 40), false);
        assert_eq!(found(&window, &noise(40)), Some(1));
        window.replace_newest(entry(4, 40), true);
        assert_eq!(found(&window, &noise(40)), Some(0));
        window.replace_newest(entry(6, 60), true);
        assert_eq!(window.newest(HomeBlock(6)), None);
    }

    #[test]
    fn a_block_of_a_resting_owner_is_found_by_its_home_only() {
        let mut window = Window::new(2);
        window.add(entry(5, 1), false);
        assert_eq!(found(&window, &noise(1)), None);
        assert_eq!(window.newest(HomeBlock(5)), Some(0));
    }

    #[test]
    fn bytes_that_were_added_are_known() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let (mut known, mut bytes) = (Known::none(), [false; BLOCK_BYTES]);
            for _ in 0..random.usize(..8) {
                let start = random.usize(..BLOCK_BYTES);
                let end = random.usize(start..=BLOCK_BYTES);
                known.add(start..end);
                bytes[start..end].fill(true);
            }
            let mut offsets: Vec<usize> = (0..100).map(|_| random.usize(..BLOCK_BYTES)).collect();
            offsets.extend([0, 63, 64, BLOCK_BYTES - 1]);
            for at in offsets {
                let run = bytes[at..].iter().take_while(|is_known| **is_known).count();
                assert_eq!(known.run_from(at), run);
                let before = bytes[..at].iter().rev().take_while(|is_known| **is_known).count();
                assert_eq!(known.run_before(at), before);
            }
        }
    }

    #[test]
    fn anchors_depend_on_the_bytes_and_not_on_their_place() {
        let block = noise(1);
        let mut shifted = [0; BLOCK_BYTES];
        shifted[24..].copy_from_slice(&block[..BLOCK_BYTES - 24]);
        let moved: Vec<usize> = anchors_of(&block).each().map(|at| at + 24).collect();
        let found: Vec<usize> = anchors_of(&shifted).each().filter(|at| *at > 24 + 2).collect();
        assert!(found.len() > 30, "about one in 64");
        assert!(found.iter().all(|at| moved.contains(at)));
        assert_eq!(anchors_of(&[0; BLOCK_BYTES]).each().count(), 0);
    }
}
