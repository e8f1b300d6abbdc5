//! How often each inode is pinned.
//!
//! The kernel pins every file that it knows, and may know millions. So a pin takes little memory:
//! a number of 16 bits in the entry of a *block*, which is [`BLOCK_LEN`] inodes with numbers in
//! succession. (A block of the inode table has as many, and a new file gets a number near that of
//! its directory.) Pins beyond 16 bits are in a table of their own.

use std::collections::HashMap;

use crate::types::InodeNo;

/// Inodes of one entry.
pub(super) const BLOCK_LEN: usize = 16;

/// Pins of some inodes.
#[derive(Default)]
pub(super) struct Pins {
    /// By the number of the block. A block without pins has no entry.
    blocks: HashMap<u32, [u16; BLOCK_LEN]>,
    /// Pins beyond [`u16::MAX`].
    more: HashMap<InodeNo, u64>,
}

/// The block of an inode, and the inode's place in it.
pub(super) fn place_of(ino: InodeNo) -> (u32, usize) {
    (ino.0 / BLOCK_LEN as u32, ino.0 as usize % BLOCK_LEN)
}

impl Pins {
    /// How often the inode is pinned.
    pub(super) fn count(&self, ino: InodeNo) -> u64 {
        let (block, at) = place_of(ino);
        match self.blocks.get(&block).map_or(0, |counts| counts[at]) {
            u16::MAX => u64::from(u16::MAX) + self.more.get(&ino).copied().unwrap_or(0),
            count => u64::from(count),
        }
    }

    /// All pinned inodes, and how often each is pinned.
    pub(super) fn all(&self) -> impl Iterator<Item = (InodeNo, u64)> {
        let inodes = self.blocks.keys().flat_map(|block| {
            let first = block * BLOCK_LEN as u32;
            (first..=first + (BLOCK_LEN as u32 - 1)).map(InodeNo)
        });
        inodes.map(|ino| (ino, self.count(ino))).filter(|(_, count)| *count > 0)
    }

    /// Adds a pin.
    pub(super) fn add(&mut self, ino: InodeNo) {
        let (block, at) = place_of(ino);
        let count = &mut self.blocks.entry(block).or_default()[at];
        match count.checked_add(1) {
            Some(next) => *count = next,
            None => *self.more.entry(ino).or_default() += 1,
        }
    }

    /// Pins an inode that has no pin `count` times.
    pub(super) fn set(&mut self, ino: InodeNo, count: u64) {
        let (block, at) = place_of(ino);
        let first = u16::try_from(count).unwrap_or(u16::MAX);
        self.blocks.entry(block).or_default()[at] = first;
        if count > u64::from(first) {
            self.more.insert(ino, count - u64::from(first));
        }
    }

    /// Removes `count` pins, or all. Returns how many there were, and how many are left.
    pub(super) fn remove(&mut self, ino: InodeNo, count: u64) -> (u64, u64) {
        let before = self.count(ino);
        let after = before.saturating_sub(count);
        let (block, at) = place_of(ino);
        if let Some(counts) = self.blocks.get_mut(&block) {
            counts[at] = u16::try_from(after).unwrap_or(u16::MAX);
            if *counts == [0; BLOCK_LEN] {
                self.blocks.remove(&block);
            }
        }
        if let Some(more) = self.more.get_mut(&ino) {
            *more = after.saturating_sub(u64::from(u16::MAX));
            if *more == 0 {
                self.more.remove(&ino);
            }
        }
        (before, after)
    }

    /// Bytes of memory that the table of blocks takes: an entry and a byte for each place of it,
    /// of which at most seven in eight are used.
    #[cfg(test)]
    pub(super) fn table_bytes(&self) -> usize {
        let places = (self.blocks.capacity() * 8 / 7).next_power_of_two();
        places * (size_of::<(u32, [u16; BLOCK_LEN])>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_counted_beyond_sixteen_bits() {
        let mut pins = Pins::default();
        let (one, other) = (InodeNo(15), InodeNo(16));
        let many = u64::from(u16::MAX) + 3;
        (0..many).for_each(|_| pins.add(one));
        pins.add(other);
        assert_eq!((pins.count(one), pins.count(other)), (many, 1));
        let mut all: Vec<_> = pins.all().collect();
        all.sort_unstable();
        assert_eq!(all, [(one, many), (other, 1)]);
        let mut same = Pins::default();
        all.iter().for_each(|(ino, count)| same.set(*ino, *count));
        assert_eq!((same.count(one), same.count(other)), (many, 1));
        assert_eq!(pins.remove(one, 2), (many, many - 2));
        assert_eq!(pins.remove(one, 1), (many - 2, many - 3));
        assert!(pins.more.is_empty());
        assert_eq!(pins.remove(one, u64::MAX), (many - 3, 0));
        assert_eq!(pins.remove(one, 1), (0, 0));
        assert_eq!(pins.remove(other, 0), (1, 1));
        assert_eq!(pins.remove(other, 1), (1, 0));
        assert!(pins.blocks.is_empty(), "what is not pinned takes no memory");
    }

    /// The figures of docs/reference/limits.md.
    #[test]
    fn a_pin_takes_few_bytes() {
        const COUNT: u32 = 1_000_000;
        let bytes_each = |step: u32| {
            let mut pins = Pins::default();
            (0..COUNT).for_each(|n| pins.add(InodeNo(n * step)));
            pins.table_bytes() as f64 / f64::from(COUNT)
        };
        let (beside, apart) = (bytes_each(1), bytes_each(BLOCK_LEN as u32));
        assert!(beside <= 6.0, "{beside} bytes of an inode among its neighbours");
        assert!(apart <= 90.0, "{apart} bytes of an inode without neighbours");
    }
}
