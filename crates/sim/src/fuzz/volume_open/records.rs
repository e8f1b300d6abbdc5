//! The records in the journal of a volume after a crash, as places to patch. A patched record gets
//! the right checksum, as an attacker would give it.

use std::ops::Range;
use std::sync::Arc;

use journal::format::{RawCommit, RawDescriptor, record_seed};
use journal::{Space, scan};
use onejournal_testing::{Image, SimDevice};
use zerocopy::FromBytes;

use crate::fuzz::patch::Patch;

/// Offset of `s_uuid` on the volume.
const UUID_OFFSET: u64 = 1024 + 0x68;
/// Size of a block of the journal's space.
const BLOCK: u64 = 4096;
const COMMIT_BYTES: usize = size_of::<RawCommit>();
/// Offset of the checksum in a commit record.
const CHECKSUM_AT: usize = 4;

/// The records of one volume.
pub struct Records {
    /// The byte ranges of the blocks of the journal's space, in its order.
    space: Vec<Range<u64>>,
    /// Start value of the checksum of each record.
    seed: u32,
    /// Bytes of each record in the space, without the padding.
    places: Vec<Range<u64>>,
}

impl Records {
    /// Finds the records. `journal` has the byte ranges of the journal's blocks, of which the first
    /// is the superblock of JBD2.
    pub(super) fn of(image: &Image, journal: &[Range<u64>]) -> Records {
        let mut uuid = [0; 16];
        image.read(UUID_OFFSET, &mut uuid);
        let device = Arc::new(SimDevice::from_image(image.clone(), 512));
        let blocks = journal[1..].to_vec();
        let found = Space::new(device, blocks.clone()).and_then(|space| scan(&space, &uuid));
        let found = found.expect("the journal is sound");
        let seed = record_seed(&uuid, found.header.incarnation);
        let mut records = Records { space: blocks, seed, places: Vec::new() };
        for record in &found.records {
            let mut head = [0; size_of::<RawDescriptor>()];
            let start = record.offset;
            records.read(image, &(start..start + head.len() as u64), &mut head);
            let head = RawDescriptor::read_from_bytes(&head).expect("its size");
            records.places.push(start..start + u64::from(head.used_bytes.get()));
        }
        assert!(!records.places.is_empty(), "a crash left records");
        records
    }

    /// Applies the patch to one of the records. With `is_sealed` the checksum is right afterwards.
    pub(super) fn patch(
        &self,
        image: &mut Image,
        which: usize,
        patch: &Patch<'_>,
        is_sealed: bool,
    ) {
        let place = &self.places[which % self.places.len()];
        let mut bytes = vec![0; usize::try_from(place.end - place.start).expect("in memory")];
        self.read(image, place, &mut bytes);
        let (body, commit) = bytes.split_at_mut(place_of_commit(place));
        patch.apply(body);
        if is_sealed {
            let checksum = crc32c::crc32c_append(self.seed, body).to_le_bytes();
            commit[CHECKSUM_AT..CHECKSUM_AT + checksum.len()].copy_from_slice(&checksum);
        }
        for (offset, part) in self.pieces(place) {
            image.write(offset, &bytes[part]);
        }
    }

    fn read(&self, image: &Image, place: &Range<u64>, buf: &mut [u8]) {
        for (offset, part) in self.pieces(place) {
            image.read(offset, &mut buf[part]);
        }
    }

    /// The offsets on the volume of the pieces of `place`, and their ranges in it.
    fn pieces(&self, place: &Range<u64>) -> Vec<(u64, Range<usize>)> {
        let within = |at: u64| usize::try_from(at - place.start).expect("in memory");
        let mut pieces = Vec::new();
        let mut at = place.start;
        while at < place.end {
            let index = at / BLOCK;
            let end = place.end.min((index + 1) * BLOCK);
            let block = &self.space[usize::try_from(index).expect("few")];
            pieces.push((block.start + at % BLOCK, within(at)..within(end)));
            at = end;
        }
        pieces
    }
}

/// Offset of the commit record in the record at `place`.
fn place_of_commit(place: &Range<u64>) -> usize {
    usize::try_from(place.end - place.start).expect("in memory") - COMMIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::input::Input;
    use crate::fuzz::volume_open::images::seeds;

    /// The instructions of a patch that adds `number` to the transaction's time, which recovery
    /// does not use.
    fn patch_of_time(number: u8) -> [u8; 5] {
        [24, 0, 4, number, 0]
    }

    #[test]
    fn a_sealed_record_is_history_and_another_one_is_not() {
        for seed in seeds() {
            let Some(records) = &seed.records else { continue };
            let (count, journal) = (records.places.len(), &records.space);
            let history = |image: Image| {
                let mut uuid = [0; 16];
                image.read(UUID_OFFSET, &mut uuid);
                let device = Arc::new(SimDevice::from_image(image, 512));
                let space = Space::new(device, journal.clone()).expect("whole blocks");
                scan(&space, &uuid).map(|scan| scan.records.len())
            };
            assert_eq!(history(seed.image.clone()).expect("sound"), count);
            for (is_sealed, expected) in [(true, count), (false, count - 1)] {
                let mut image = seed.image.clone();
                let bytes = patch_of_time(7);
                let patch = Patch::read(&mut Input::new(&bytes));
                records.patch(&mut image, count - 1, &patch, is_sealed);
                assert!(image != seed.image, "the patch changes the record");
                assert_eq!(history(image).expect("its last record"), expected, "{is_sealed}");
            }
        }
    }

    #[test]
    fn the_journal_of_one_volume_has_more_than_a_region() {
        let logged = seeds()
            .iter()
            .filter_map(|seed| seed.records.as_ref())
            .map(|records| records.places.iter().map(|place| place.end - place.start).sum::<u64>());
        assert!(logged.max().expect("crashed volumes") > 2 << 20);
    }
}
