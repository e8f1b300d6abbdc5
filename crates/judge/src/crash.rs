//! Crash images from a trace.
//!
//! A write is *durable* at a cut if it had ended when a flush of its disk began, and that flush ended before the cut; one
//! with FUA is when it has ended. Of all other writes that began before the cut each sector of 512 bytes survives by
//! chance, later ones also without earlier ones. What a disk does that is not honest is a [`Fault`].

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use device::Image;
use drive::record::{Data, Event};
use fastrand::Rng;

/// The unit that survives whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// What disks were asked to do, from what they held before.
#[derive(Clone)]
pub struct Trace {
    /// What each disk held, all of it durable.
    pub bases: Vec<Image>,
    /// Everything, in order.
    pub events: Vec<Event>,
}

/// A disk that breaks its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not.
    Honest,
    /// It answers a third of its flushes and does nothing.
    DropsFlushes,
    /// Of a quarter of the writes that it called durable the last sectors are missing.
    TearsDurable,
}

/// Which of the writes that are not durable survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survival {
    /// Chance, in percent.
    pub percent: u8,
    /// Whether each sector has its own chance, or each write.
    pub by_sector: bool,
    /// Of the random numbers.
    pub seed: u64,
}

impl Survival {
    /// One of many kinds.
    pub fn random(rng: &mut Rng) -> Survival {
        let percent = [0, 100, 50, 50, 20, 80, 3, 97][rng.usize(..8)];
        Survival { percent, by_sector: rng.u8(..3) > 0, seed: rng.u64(..1 << 32) }
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.by_sector { 's' } else { 'w' };
        write!(f, "{unit}{}-{}", self.percent, self.seed)
    }
}

impl FromStr for Survival {
    type Err = String;

    fn from_str(text: &str) -> Result<Survival, String> {
        let read = || {
            let by_sector = match text.chars().next()? {
                's' => true,
                'w' => false,
                _ => return None,
            };
            let (percent, seed) = text[1..].split_once('-')?;
            Some(Survival { percent: percent.parse().ok()?, by_sector, seed: seed.parse().ok()? })
        };
        read().ok_or_else(|| format!("{text:?} is not what survives: s50-7 or w50-7"))
    }
}

/// A write that is not durable yet.
#[derive(Clone)]
struct Pending<'t> {
    request: u64,
    disk: usize,
    offset: u64,
    data: &'t Data,
    is_durable: bool,
    has_ended: bool,
}

/// Replays a trace, forwards only.
pub struct Cursor<'t> {
    trace: &'t Trace,
    fault: Fault,
    place: usize,
    durable: Vec<Image>,
    pending: Vec<Pending<'t>>,
    /// The writes that each flush under way covers.
    flushes: HashMap<u64, Vec<u64>>,
}

impl<'t> Cursor<'t> {
    /// At the beginning.
    pub fn new(trace: &'t Trace, fault: Fault) -> Cursor<'t> {
        let (durable, pending, flushes) = (trace.bases.clone(), Vec::new(), HashMap::new());
        Cursor { trace, fault, place: 0, durable, pending, flushes }
    }

    /// Goes on until `cut` events have happened.
    pub fn advance_to(&mut self, cut: usize) {
        assert!(self.place <= cut, "a cursor goes forwards only");
        for event in &self.trace.events[self.place..cut] {
            self.step(event);
        }
        self.place = cut;
    }

    fn step(&mut self, event: &'t Event) {
        match event {
            Event::Write { request, disk, offset, data, is_durable } => {
                self.pending.push(Pending {
                    request: *request,
                    disk: usize::from(*disk),
                    offset: *offset,
                    data,
                    is_durable: *is_durable,
                    has_ended: false,
                });
            }
            Event::Flush { request, disk } => {
                let covered = self
                    .pending
                    .iter()
                    .filter(|write| write.has_ended && write.disk == usize::from(*disk));
                let covered = covered.map(|write| write.request).collect();
                let is_dropped = self.fault == Fault::DropsFlushes
                    && Rng::with_seed(*request ^ 0xf1u64).u8(..3) == 0;
                self.flushes.insert(*request, if is_dropped { Vec::new() } else { covered });
            }
            Event::End(request) => match self.flushes.remove(request) {
                Some(covered) => self.settle(|write| covered.binary_search(&write.request).is_ok()),
                None => {
                    let ended = self.pending.iter_mut().find(|write| write.request == *request);
                    let ended = ended.expect("only what began ends");
                    ended.has_ended = true;
                    if ended.is_durable {
                        self.settle(|write| write.request == *request);
                    }
                }
            },
            Event::Mark(_) => {}
        }
    }

    /// These writes are durable from now on.
    fn settle(&mut self, is_settled: impl Fn(&Pending<'_>) -> bool) {
        let (durable, fault) = (&mut self.durable, self.fault);
        self.pending.retain(|write| {
            let settled = is_settled(write);
            if settled {
                let len_bytes = write.data.len_bytes();
                let is_torn = fault == Fault::TearsDurable
                    && len_bytes > SECTOR_BYTES
                    && Rng::with_seed(write.request).u8(..4) == 0;
                let kept =
                    if is_torn { len_bytes / 2 / SECTOR_BYTES * SECTOR_BYTES } else { len_bytes };
                put(&mut durable[write.disk], write.offset, write.data, 0, kept);
            }
            !settled
        });
    }

    /// Writes that are not durable now.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// What the disks hold after a power cut now.
    pub fn crash(&self, survival: Survival) -> Vec<Image> {
        let mut images = self.durable.clone();
        let mut rng = Rng::with_seed(survival.seed);
        for write in &self.pending {
            let len_bytes = write.data.len_bytes();
            let unit = if survival.by_sector { SECTOR_BYTES } else { len_bytes.max(1) };
            let mut start = 0;
            while start < len_bytes {
                let end = (start + unit).min(len_bytes);
                if rng.u8(..100) < survival.percent {
                    put(&mut images[write.disk], write.offset, write.data, start, end);
                }
                start = end;
            }
        }
        images
    }
}

/// Writes the bytes `start..end` of `data`, which begins at `offset`.
fn put(image: &mut Image, offset: u64, data: &Data, start: u64, end: u64) {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    let index = |at: u64| usize::try_from(at).expect("the data of a write are in memory");
    match data {
        Data::Bytes(bytes) => image.write(offset + start, &bytes[index(start)..index(end)]),
        Data::Zeros(_) => {
            let mut at = start;
            while at < end {
                let len_bytes = (end - at).min(ZEROS.len() as u64);
                image.write(offset + at, &ZEROS[..index(len_bytes)]);
                at += len_bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drive::Recorder;

    const NOTHING: Survival = Survival { percent: 0, by_sector: true, seed: 1 };
    const EVERYTHING: Survival = Survival { percent: 100, ..NOTHING };

    fn bytes(byte: u8, len_bytes: usize) -> Data {
        Data::Bytes(vec![byte; len_bytes].into())
    }

    fn trace(work: impl FnOnce(&Recorder)) -> Trace {
        let recorder = Recorder::default();
        work(&recorder);
        Trace { bases: vec![Image::zeroed(1 << 16); 2], events: recorder.take() }
    }

    fn after(trace: &Trace, cut: usize, survival: Survival, fault: Fault) -> Vec<Image> {
        let mut cursor = Cursor::new(trace, fault);
        cursor.advance_to(cut);
        cursor.crash(survival)
    }

    fn sectors(image: &Image, count: usize) -> Vec<u8> {
        let all = image.to_bytes();
        all.chunks(512).take(count).map(|sector| sector[0]).collect()
    }

    #[test]
    fn a_flush_covers_what_had_ended_when_it_began_once_it_has_ended() {
        let trace = trace(|disk| {
            let early = disk.write(0, 0, bytes(1, 512)); // 0
            disk.end(early); // 1
            let late = disk.write(0, 512, bytes(2, 512)); // 2
            let flush = disk.flush(0); // 3
            disk.end(late); // 4
            disk.end(flush); // 5
        });
        let left = |cut| sectors(&after(&trace, cut, NOTHING, Fault::Honest)[0], 2);
        assert_eq!([3, 5, 6].map(left), [[0, 0], [0, 0], [1, 0]]);
        let all = |cut| sectors(&after(&trace, cut, EVERYTHING, Fault::Honest)[0], 2);
        assert_eq!([0, 1, 3].map(all), [[0, 0], [1, 0], [1, 2]]);
    }

    #[test]
    fn a_flush_is_of_one_disk_and_fua_of_one_write() {
        let trace = trace(|disk| {
            disk.end(disk.write(0, 0, bytes(1, 512)));
            disk.end(disk.write(1, 0, bytes(2, 512)));
            disk.end(disk.write_durable(0, 512, bytes(3, 512)));
            disk.end(disk.flush(1));
        });
        let images = after(&trace, trace.events.len(), NOTHING, Fault::Honest);
        assert_eq!(sectors(&images[0], 2), [0, 3]);
        assert_eq!(sectors(&images[1], 2), [2, 0]);
    }

    #[test]
    fn later_sectors_survive_without_earlier_ones_and_writes_whole_if_asked() {
        let trace = trace(|disk| {
            disk.end(disk.write(0, 0, bytes(1, 4096)));
            disk.end(disk.write(0, 4096, bytes(2, 4096)));
        });
        let of = |by_sector, seed| {
            let survival = Survival { percent: 50, by_sector, seed };
            sectors(&after(&trace, 4, survival, Fault::Honest)[0], 16)
        };
        let found: Vec<_> = (0..64).map(|seed| of(true, seed)).collect();
        assert!(found.iter().any(|left| left[0] == 0 && left[15] == 2));
        assert!(found.iter().any(|left| left[..8].contains(&0) && left[..8].contains(&1)));
        assert_eq!(of(true, 5), of(true, 5));
        let whole: std::collections::BTreeSet<_> = (0..64).map(|seed| of(false, seed)).collect();
        assert_eq!(whole.len(), 4, "two writes, each there or not");
    }

    #[test]
    fn zeros_are_written_too() {
        let mut trace = trace(|disk| {
            disk.end(disk.write(0, 512, Data::Zeros(40_960)));
            disk.end(disk.flush(0));
        });
        trace.bases[0] = Image::from_bytes(&[9; 1 << 16]);
        let image = &after(&trace, 4, NOTHING, Fault::Honest)[0];
        let found = image.to_bytes();
        assert!(found[512..41_472].iter().all(|byte| *byte == 0));
        assert!(found[..512].iter().chain(&found[41_472..]).all(|byte| *byte == 9));
    }

    #[test]
    fn a_liar_loses_what_was_flushed_and_one_that_tears_a_part_of_it() {
        let trace = trace(|disk| {
            for place in 0..60 {
                disk.end(disk.write(0, place * 1024, bytes(1, 1024)));
                disk.end(disk.flush(0));
            }
        });
        let missing = |fault| {
            let image = after(&trace, trace.events.len(), NOTHING, fault).remove(0);
            sectors(&image, 120).into_iter().filter(|byte| *byte == 0).count()
        };
        assert_eq!(missing(Fault::Honest), 0);
        // A dropped flush is made good by the next one that is not.
        assert!(missing(Fault::TearsDurable) > 5);
        let mut lost = 0;
        for cut in (0..trace.events.len()).step_by(4) {
            let mut cursor = Cursor::new(&trace, Fault::DropsFlushes);
            cursor.advance_to(cut);
            lost += cursor.pending_count();
        }
        assert!((10..40).contains(&lost), "{lost} of 60 moments");
    }

    #[test]
    fn what_survives_is_written_and_read() {
        for text in ["s50-7", "w3-99"] {
            assert_eq!(text.parse::<Survival>().unwrap().to_string(), text);
        }
        assert!("x50-7".parse::<Survival>().is_err() && "s50".parse::<Survival>().is_err());
    }
}
