//! Cursors of a directory whose names are read in the order of their hashes.
//!
//! A cursor has 31 bits: 32-bit programs without large-file support refuse more. So it cannot hold
//! a whole hash of 63 bits. The upper 30 bits of the major hash of a name are its *slot*, which
//! several names may share. Names are read in the order of slot and name.
//!
//! ```text
//! 0, 1, 2                          the start, after `.`, after `..`
//! 3 + slot                         after all names of the slot
//! 2^30 | slot >> 20 << 20 | number after one name of the slot, which is not the last one
//! ```
//!
//! What a cursor of the last form stands for is kept in memory. It is forgotten with the in-core
//! inode of the directory, which the kernel holds while the directory is open. The oldest is
//! forgotten when there are [`LIMIT`] (a directory of 12 million names has so many). A cursor that
//! was forgotten stands for the first slot with its upper bits: a reader sees some names again, and
//! misses none. Such a reader has kept a cursor for long, for example over NFS. (Numbers come again
//! after a million. They begin anywhere, so a cursor that was forgotten hardly hits another one.)

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use device::sync::Mutex;

/// Bits of a slot, the upper ones of a major hash of 32 bits.
pub(crate) const SLOT_BITS: u32 = 30;

/// Cursors in memory at a time. One listing's reply of 1 MiB holds half as many names.
const LIMIT: usize = 1 << 16;

/// Cursor after a slot minus the slot.
const AFTER_SLOT: u32 = 3;

/// Lowest cursor after one name of a slot.
const AMONG: u32 = 1 << SLOT_BITS;

/// Bits of the number in such a cursor.
const NUMBER_BITS: u32 = 20;

/// Lowest number. The cursors below are those after the last slots.
const FIRST_NUMBER: u32 = 4;

const NUMBER_COUNT: u32 = (1 << NUMBER_BITS) - FIRST_NUMBER;

/// Where a reader continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The first slot.
    pub slot: u32,
    /// The names of this slot up to here were read.
    pub after: Option<Arc<[u8]>>,
}

impl Resume {
    pub(crate) fn at_slot(slot: u32) -> Resume {
        Resume { slot, after: None }
    }

    /// Whether a reader that continues here will see this name.
    pub(crate) fn is_before(&self, slot: u32, name: &[u8]) -> bool {
        let is_read = self.slot == slot && self.after.as_deref().is_some_and(|last| name <= last);
        slot >= self.slot && !is_read
    }
}

/// The cursors of one directory.
#[derive(Default)]
pub(crate) struct Cursors {
    /// Lock: a leaf. Few directories have any.
    kept: Mutex<Option<Box<Kept>>>,
}

struct Kept {
    /// Slots and names, in the order of their numbers.
    names: VecDeque<(u32, Arc<[u8]>)>,
    /// The number of each name.
    numbers: HashMap<Arc<[u8]>, u32>,
    /// The number of the first of `names`. It counts on from [`NUMBER_COUNT`] to 0.
    first: u32,
}

/// The cursor after all names of a slot.
pub(crate) fn after_slot(slot: u32) -> u64 {
    u64::from(slot + AFTER_SLOT)
}

impl Cursors {
    /// Whether a cursor stands for something that is in memory only.
    pub(crate) fn has_any(&self) -> bool {
        self.kept.lock().is_some()
    }

    /// The cursor after one name of a slot that has further names.
    pub(crate) fn after_name(&self, slot: u32, name: &[u8]) -> u64 {
        let mut kept = self.kept.lock();
        let number = kept.get_or_insert_with(|| Kept::from(name)).number(slot, name);
        u64::from(AMONG | bucket(slot) << NUMBER_BITS | (number + FIRST_NUMBER))
    }

    /// What a cursor after `..` stands for. `None`: the end.
    pub(crate) fn resume(&self, cursor: u64) -> Option<Resume> {
        let cursor = u32::try_from(cursor).ok().filter(|cursor| *cursor >> 31 == 0)?;
        if cursor < AMONG + FIRST_NUMBER {
            let slot = (cursor + 1).saturating_sub(AFTER_SLOT);
            return (slot >> SLOT_BITS == 0).then(|| Resume::at_slot(slot));
        }
        let within = cursor & !AMONG;
        let (upper, number) = (within >> NUMBER_BITS, within & ((1 << NUMBER_BITS) - 1));
        let kept = self.kept.lock();
        let found = number
            .checked_sub(FIRST_NUMBER)
            .and_then(|number| kept.as_ref()?.name(number))
            .filter(|(slot, _)| bucket(*slot) == upper);
        Some(match found {
            Some((slot, name)) => Resume { slot: *slot, after: Some(name.clone()) },
            None => Resume::at_slot(upper << NUMBER_BITS),
        })
    }
}

/// The upper bits of a slot.
fn bucket(slot: u32) -> u32 {
    slot >> NUMBER_BITS
}

impl Kept {
    fn from(first_name: &[u8]) -> Box<Kept> {
        let first = crc32c::crc32c(first_name) % NUMBER_COUNT;
        Box::new(Kept { names: VecDeque::new(), numbers: HashMap::new(), first })
    }

    fn number(&mut self, slot: u32, name: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.names.len() == LIMIT
            && let Some((_, oldest)) = self.names.pop_front()
        {
            self.numbers.remove(&oldest);
            self.first = (self.first + 1) % NUMBER_COUNT;
        }
        let index = u32::try_from(self.names.len()).expect("at most LIMIT names");
        let number = (self.first + index) % NUMBER_COUNT;
        let name: Arc<[u8]> = name.into();
        self.names.push_back((slot, name.clone()));
        self.numbers.insert(name, number);
        number
    }

    fn name(&self, number: u32) -> Option<&(u32, Arc<[u8]>)> {
        let index = (number + NUMBER_COUNT - self.first) % NUMBER_COUNT;
        self.names.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST_SLOT: u32 = (1 << SLOT_BITS) - 1;

    fn after(slot: u32, name: &[u8]) -> Option<Resume> {
        Some(Resume { slot, after: Some(name.into()) })
    }

    #[test]
    fn every_cursor_fits_31_bits_and_resumes_after_its_name() {
        let cursors = Cursors::default();
        for slot in [0, 1, 1 << 20, LAST_SLOT - 1] {
            let (plain, among) = (after_slot(slot), cursors.after_name(slot, &slot.to_le_bytes()));
            assert_ne!(plain, among);
            assert!(plain < 1 << 31 && among < 1 << 31, "{plain} {among}");
            assert_eq!(cursors.resume(plain), Some(Resume::at_slot(slot + 1)));
            assert_eq!(cursors.resume(among), after(slot, &slot.to_le_bytes()));
        }
        assert_eq!(cursors.resume(2), Some(Resume::at_slot(0)));
        for end in [after_slot(LAST_SLOT), after_slot(LAST_SLOT) + 1, 1 << 31, 1 << 32, u64::MAX] {
            assert_eq!(cursors.resume(end), None, "{end}");
        }
    }

    #[test]
    fn a_name_keeps_its_cursor() {
        let cursors = Cursors::default();
        let first = cursors.after_name(7, b"a");
        assert_ne!(first, cursors.after_name(7, b"b"));
        assert_eq!(first, cursors.after_name(7, b"a"));
    }

    /// Also when the numbers begin anew.
    #[test]
    fn a_forgotten_cursor_leads_to_names_before() {
        let cursors = Cursors::default();
        let slot = 5 << NUMBER_BITS | 77;
        let first = cursors.after_name(slot, b"first");
        for n in 0..NUMBER_COUNT + 100 {
            let last = cursors.after_name(slot, &n.to_le_bytes());
            if n % 100_000 == 0 {
                assert_eq!(cursors.resume(last), after(slot, &n.to_le_bytes()));
            }
            if n == LIMIT as u32 {
                assert_eq!(cursors.resume(first), Some(Resume::at_slot(5 << NUMBER_BITS)));
            }
        }
        let kept = cursors.kept.lock();
        let kept = kept.as_ref().expect("cursors");
        assert_eq!((kept.names.len(), kept.numbers.len()), (LIMIT, LIMIT));
    }
}
