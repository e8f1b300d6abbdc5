//! The volatile cache of a simulated device, and what of it survives a power cut.
//!
//! The durable image holds what was flushed and what was written durably. The cache holds the other
//! writes, in the order in which they were issued. A crash applies a subset of them, sector by
//! sector, to the durable image. So after several writes to one sector, any of them may be found,
//! and every order in which a real device may work is covered.
//!
//! A sector is [`TORN_SECTOR_BYTES`] here, whatever logical sector the device reports. A device
//! with sectors of 4096 bytes may be a file, or an image that another device holds.

use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use super::event::Event;
use crate::power_cut::{
    CursorOf, Image, Piece, Survival, TraceOf, Volatile, flip_bit, write_pieces,
};

/// The trace of a [`SimDevice`](crate::SimDevice).
pub type Trace = TraceOf<Cache>;

/// Walks over a [`Trace`].
pub type Cursor<'a> = CursorOf<'a, Cache>;

/// Bytes that a power cut writes whole or not at all: the smallest logical sector there is.
const TORN_SECTOR_BYTES: usize = 512;

impl Piece {
    /// Runs of sectors that survive by chance: mostly all or none, otherwise torn.
    fn torn(&self, rng: &mut Rng) -> Vec<Piece> {
        let count = self.bytes().len() / TORN_SECTOR_BYTES;
        let sectors = |range: Range<usize>| {
            self.part(range.start * TORN_SECTOR_BYTES..range.end * TORN_SECTOR_BYTES)
        };
        match rng.u8(..8) {
            0..2 => Vec::new(),
            2..4 => vec![self.clone()],
            4 => vec![sectors(0..rng.usize(..=count))],
            5 => vec![sectors(rng.usize(..=count)..count)],
            6 if count > 0 => {
                let hole = rng.usize(..count);
                vec![sectors(0..hole), sectors(hole + 1..count)]
            }
            _ => (0..count).filter(|_| rng.bool()).map(|i| sectors(i..i + 1)).collect(),
        }
    }
}

/// The probability that an unflushed write is lost as a whole, before tearing is considered.
#[derive(Clone, Copy)]
struct Mood {
    lost_eighths: u8,
}

impl Mood {
    fn choose(rng: &mut Rng) -> Self {
        Mood { lost_eighths: [0, 3, 7][rng.usize(..3)] }
    }

    fn torn(self, piece: &Piece, rng: &mut Rng) -> Vec<Piece> {
        if rng.u8(..8) < self.lost_eighths {
            return Vec::new();
        }
        piece.torn(rng)
    }
}

/// A durable image and the unflushed writes on top of it.
#[derive(Debug, Clone)]
pub struct Cache {
    durable: Image,
    unflushed: Vec<Piece>,
}

impl Cache {
    pub(super) fn new(durable: Image) -> Self {
        Cache { durable, unflushed: Vec::new() }
    }

    /// The start of a trace: the durable image, and the unflushed writes as events.
    pub(super) fn start_trace(&self) -> Trace {
        let start = Cache::new(self.durable.clone());
        let event =
            |piece: &Piece| Event::Write { offset: piece.offset(), data: piece.bytes().into() };
        Trace::new(start, self.unflushed.iter().map(event).collect())
    }
}

impl Volatile for Cache {
    type Event = Event;

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { offset, data } => {
                self.unflushed.push(Piece::new(*offset, data.clone()));
            }
            Event::DurableWrite { offset, data } => self.write_durable(*offset, data),
            Event::Flush => write_pieces(&mut self.durable, self.unflushed.drain(..)),
            Event::FailedWrite { offset, data, seed } => {
                let written = failed_write(*offset, data, *seed);
                self.unflushed.extend(written);
            }
            Event::FailedFlush { seed } => self.fail_flush(*seed),
            Event::BitFlip { offset, bit } => self.flip_bit(*offset, *bit),
            Event::Mark(_) => {}
        }
    }

    fn crash(&self, survival: Survival, in_flight: Option<&Event>) -> Image {
        let (issued, completed) = match survival {
            Survival::Nothing => (false, false),
            Survival::Issued => (true, false),
            Survival::InFlight => (false, true),
            Survival::Everything => (true, true),
            Survival::Random(seed) => return self.crash_randomly(seed, in_flight),
        };
        let mut image = self.durable.clone();
        if issued || (completed && matches!(in_flight, Some(Event::Flush))) {
            write_pieces(&mut image, self.unflushed.iter().cloned());
        }
        if completed {
            write_pieces(&mut image, in_flight.and_then(in_flight_piece));
        }
        image
    }

    fn mark_of(event: &Event) -> Option<u64> {
        if let Event::Mark(label) = event { Some(*label) } else { None }
    }
}

impl Cache {
    fn crash_randomly(&self, seed: u64, in_flight: Option<&Event>) -> Image {
        let mut rng = Rng::with_seed(seed);
        let mood = Mood::choose(&mut rng);
        let mut image = self.durable.clone();
        for piece in &self.unflushed {
            write_pieces(&mut image, mood.torn(piece, &mut rng));
        }
        if let Some(piece) = in_flight.and_then(in_flight_piece) {
            write_pieces(&mut image, piece.torn(&mut rng));
        }
        image
    }

    /// Writes durably. The bytes replace older unflushed ones, which must not come back later.
    fn write_durable(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let older = std::mem::take(&mut self.unflushed);
        self.unflushed = older.into_iter().flat_map(|piece| piece.outside(offset, end)).collect();
        self.durable.write(offset, data);
    }

    /// Makes some of the unflushed writes durable, and drops the others for good: a device that has
    /// failed a flush does not repeat what it dropped.
    fn fail_flush(&mut self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        for piece in std::mem::take(&mut self.unflushed) {
            write_pieces(&mut self.durable, piece.torn(&mut rng));
        }
    }

    fn flip_bit(&mut self, offset: u64, bit: u8) {
        flip_bit(&mut self.durable, offset, bit);
        self.unflushed.iter_mut().for_each(|piece| piece.flip_bit(offset, bit));
    }
}

/// The sectors that a failed write has written.
pub(super) fn failed_write(offset: u64, data: &Arc<[u8]>, seed: u64) -> Vec<Piece> {
    Piece::new(offset, data.clone()).torn(&mut Rng::with_seed(seed))
}

fn in_flight_piece(event: &Event) -> Option<Piece> {
    match event {
        Event::Write { offset, data }
        | Event::DurableWrite { offset, data }
        | Event::FailedWrite { offset, data, .. } => Some(Piece::new(*offset, data.clone())),
        Event::Flush | Event::FailedFlush { .. } | Event::BitFlip { .. } | Event::Mark(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = TORN_SECTOR_BYTES;

    fn write(offset: u64, byte: u8, sector_count: usize) -> Event {
        Event::Write { offset, data: vec![byte; sector_count * SECTOR].into() }
    }

    fn durable(offset: u64, byte: u8, sector_count: usize) -> Event {
        Event::DurableWrite { offset, data: vec![byte; sector_count * SECTOR].into() }
    }

    fn cache_after(events: &[Event]) -> Cache {
        let mut cache = Cache::new(Image::zeroed(8 * SECTOR as u64));
        events.iter().for_each(|event| cache.apply(event));
        cache
    }

    /// The byte each sector is filled with; panics on a sector of more than one.
    fn sectors(image: &Image) -> Vec<u8> {
        let bytes = image.to_bytes();
        let uniform = |sector: &[u8]| sector.iter().all(|&byte| byte == sector[0]);
        assert!(bytes.chunks(SECTOR).all(uniform), "torn inside of a sector");
        bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    #[test]
    fn an_unflushed_write_survives_whole_torn_or_not_at_all() {
        let cache = cache_after(&[write(512, 1, 3)]);
        let mut found: Vec<_> =
            (0..500).map(|seed| sectors(&cache.crash(Survival::Random(seed), None))).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 8, "every subset of three sectors");
    }

    #[test]
    fn a_flushed_write_is_never_lost() {
        let cache = cache_after(&[write(0, 1, 2), Event::Flush, write(512, 2, 1)]);
        for seed in 0..200 {
            let found = sectors(&cache.crash(Survival::Random(seed), None));
            assert!(found[0] == 1 && (found[1] == 1 || found[1] == 2), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn two_unflushed_writes_to_a_sector_leave_either_or_none() {
        let cache = cache_after(&[write(0, 1, 1), write(0, 2, 1)]);
        let mut found: Vec<_> =
            (0..100).map(|seed| sectors(&cache.crash(Survival::Random(seed), None))[0]).collect();
        found.sort();
        found.dedup();
        assert_eq!(found, [0, 1, 2]);
    }

    #[test]
    fn a_durable_write_keeps_its_own_sectors_and_nothing_else() {
        let cache = cache_after(&[write(0, 1, 4), durable(512, 2, 2)]);
        assert_eq!(sectors(&cache.crash(Survival::Nothing, None)), [0, 2, 2, 0, 0, 0, 0, 0]);
        assert_eq!(sectors(&cache.crash(Survival::Everything, None)), [1, 2, 2, 1, 0, 0, 0, 0]);
        for seed in 0..200 {
            assert_eq!(sectors(&cache.crash(Survival::Random(seed), None))[1..3], [2, 2]);
        }
    }

    #[test]
    fn a_write_after_a_durable_one_may_replace_it() {
        let cache = cache_after(&[durable(0, 1, 1), write(0, 2, 1)]);
        assert_eq!(sectors(&cache.crash(Survival::Nothing, None))[0], 1);
        assert_eq!(sectors(&cache.crash(Survival::Issued, None))[0], 2);
    }

    #[test]
    fn the_extremes_tell_the_event_in_flight_from_those_before() {
        let cache = cache_after(&[write(0, 1, 1)]);
        for in_flight in [write(512, 2, 1), durable(512, 2, 1)] {
            let found = Survival::EXTREMES
                .map(|survival| sectors(&cache.crash(survival, Some(&in_flight)))[..2].to_vec());
            assert_eq!(found, [[0, 0], [1, 0], [0, 2], [1, 2]]);
        }
        let flushed = cache.crash(Survival::InFlight, Some(&Event::Flush));
        assert_eq!(sectors(&flushed)[0], 1);
    }

    #[test]
    fn a_durable_write_in_flight_may_be_torn() {
        let cache = cache_after(&[]);
        let in_flight = durable(0, 1, 2);
        let crash = |seed| sectors(&cache.crash(Survival::Random(seed), Some(&in_flight)));
        assert!((0..100).map(crash).any(|found| found[0] != found[1]));
    }

    #[test]
    fn a_flush_that_failed_is_not_made_good_by_the_next() {
        let lost = |seed| {
            let events = [write(0, 1, 1), Event::FailedFlush { seed }, Event::Flush];
            sectors(&cache_after(&events).crash(Survival::Everything, None))[0] == 0
        };
        assert!((0..20).any(lost) && !(0..20).all(lost));
    }

    #[test]
    fn a_flipped_bit_is_in_the_medium_and_in_the_cache() {
        let cache = cache_after(&[write(0, 1, 1), Event::BitFlip { offset: 5, bit: 1 }]);
        assert_eq!(cache.crash(Survival::Nothing, None).to_bytes()[5], 2);
        assert_eq!(cache.crash(Survival::Issued, None).to_bytes()[5], 3);
    }

    #[test]
    fn one_seed_gives_one_image() {
        let cache = cache_after(&[write(0, 1, 8), write(1024, 2, 3)]);
        for seed in 0..50 {
            let crash = || cache.crash(Survival::Random(seed), Some(&write(0, 3, 2)));
            assert_eq!(crash(), crash());
        }
    }
}
