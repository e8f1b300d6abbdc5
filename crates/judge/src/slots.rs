//! Records at fixed places of one file, which several actors write at the same time.
//!
//! The places are not aligned, so records of different actors share pages and blocks.

use sim::content::pattern;

/// Places of one actor in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// The number of this actor among the actors of the file.
    pub index: usize,
    /// Number of actors that use the file.
    pub actor_count: usize,
}

/// Length of a record, and distance of two places.
pub const RECORD_BYTES: usize = 3001;
/// Places of each actor.
pub const PLACE_COUNT: usize = 6;
const PAGE_BYTES: u64 = 4096;
const FIRST_BYTE: u64 = 7;

impl Places {
    /// Where a place begins in the file.
    pub fn offset(self, place: usize) -> u64 {
        FIRST_BYTE + ((place * self.actor_count + self.index) * RECORD_BYTES) as u64
    }

    /// Size of the file.
    pub fn file_bytes(self) -> usize {
        let records = PLACE_COUNT * self.actor_count * RECORD_BYTES;
        (records + 2 * RECORD_BYTES).next_multiple_of(4096)
    }

    /// The bytes of a record.
    pub fn record(self, place: usize, tag: u32) -> Vec<u8> {
        pattern(tag << 4 | self.index as u32, self.offset(place), RECORD_BYTES)
    }

    /// The number of bytes of a record that the kernel may send as a separate request: those before
    /// the first page boundary inside the record. `None`: the record is one request.
    pub fn first_part(self, place: usize) -> Option<usize> {
        first_part(self.offset(place), RECORD_BYTES)
    }

    /// The actor's records, from the bytes of the file.
    pub fn cut_out(self, file: &[u8]) -> Vec<u8> {
        let record = |place| {
            let start = usize::try_from(self.offset(place)).expect("a small file");
            file.get(start..start + RECORD_BYTES).unwrap_or(&[0; RECORD_BYTES]).to_vec()
        };
        (0..PLACE_COUNT).flat_map(record).collect()
    }
}

/// A write is one request, unless it begins inside a page and continues after it. Then the bytes on
/// its first page may be a separate request.
pub fn first_part(offset: u64, len_bytes: usize) -> Option<usize> {
    let before = offset.next_multiple_of(PAGE_BYTES) - offset;
    let before = usize::try_from(before).expect("less than a page");
    (before > 0 && before < len_bytes).then_some(before)
}

/// What an actor does with its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotOp {
    /// Writes the record with this tag.
    Write { place: usize, tag: u32 },
    /// Makes the file durable.
    Sync { data_only: bool },
}

impl std::fmt::Display for SlotOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SlotOp::Write { place, tag } => write!(f, "record {tag} in place {place}"),
            SlotOp::Sync { data_only: true } => f.write_str("fdatasync of the records"),
            SlotOp::Sync { data_only: false } => f.write_str("fsync of the records"),
        }
    }
}

/// Writes, and a sync after some of them.
pub fn ops(seed: u64, first_tag: u32, op_count: usize) -> Vec<SlotOp> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tag = first_tag;
    let mut next = || {
        if rng.u8(..4) == 0 {
            return SlotOp::Sync { data_only: rng.bool() };
        }
        tag += 1;
        SlotOp::Write { place: rng.usize(..PLACE_COUNT), tag }
    };
    (0..op_count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_all_actors_lie_apart_in_the_file_and_share_pages() {
        let actor_count = 3;
        let mut spans = Vec::new();
        for index in 0..actor_count {
            let places = Places { index, actor_count };
            for place in 0..PLACE_COUNT {
                let start = places.offset(place);
                spans.push((start, start + RECORD_BYTES as u64));
                assert!(start + RECORD_BYTES as u64 <= places.file_bytes() as u64);
            }
        }
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn records_are_found_where_they_were_written() {
        let places = Places { index: 1, actor_count: 2 };
        let mut file = vec![0; places.file_bytes()];
        let start = usize::try_from(places.offset(2)).unwrap();
        file[start..start + RECORD_BYTES].copy_from_slice(&places.record(2, 9));
        let found = places.cut_out(&file);
        assert_eq!(found[2 * RECORD_BYTES..3 * RECORD_BYTES], places.record(2, 9));
        assert!(found[..2 * RECORD_BYTES].iter().all(|byte| *byte == 0));
        assert_ne!(places.record(2, 9), places.record(2, 10));
        assert_ne!(Places { index: 0, actor_count: 2 }.record(2, 9), places.record(2, 9));
    }

    #[test]
    fn only_a_write_that_begins_inside_of_a_page_and_leaves_it_has_parts() {
        assert_eq!(first_part(4095, 2), Some(1));
        assert_eq!(first_part(4096, 9000), None);
        assert_eq!(first_part(100, 3996), None);
        assert_eq!(first_part(100, 3997), Some(3996));
    }
}
