//! Makes crash images from a trace.
//!
//! A write is *durable* at a cut in two cases: it had ended when a flush of its disk began, and
//! that flush ended before the cut; or it has FUA and has ended. For all other writes that began
//! before the cut, each sector of 512 bytes survives by chance. A later write may survive without
//! an earlier one. A disk that breaks these rules has a [`Fault`].
//!
//! A journal on NVRAM is recorded by the list of assumptions in crate `device`. A flush is a fence,
//! and covers the stores of its own thread. What survives is a word of 8 bytes, or a single byte if
//! a store covers a word only in part.
//!
//! The superblock of the kernel's ext4 is not torn ([`Trace::has_kernel_ext4`]).

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use fastrand::Rng;
use onejournal_testing::drive::record::Event;
use onejournal_testing::{Image, Pending, Piece, Unit};

use crate::memory::FIRST_THREAD;

/// The unit of a disk that survives whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// What the disks were asked to do, and what they held before.
#[derive(Clone)]
pub struct Trace {
    /// What each disk held at first. All of it is durable.
    pub bases: Vec<Image>,
    /// All events, in order.
    pub events: Vec<Event>,
    /// Whether the second medium is NVRAM. The disks from `FIRST_THREAD` on are then its threads.
    pub has_nvram: bool,
    /// Whether the first disk has the kernel's ext4. It writes its superblock in place when it is
    /// mounted and unmounted, and cannot be mounted if that write is torn. So the two sectors of
    /// the superblock survive together.
    pub has_kernel_ext4: bool,
}

impl Trace {
    fn is_nvram(&self, disk: u8) -> bool {
        self.has_nvram && disk >= FIRST_THREAD
    }

    /// The index of the image for a disk of the record.
    fn medium(&self, disk: u8) -> usize {
        if self.is_nvram(disk) { 1 } else { usize::from(disk) }
    }

    /// The parts of a write to this disk that survive whole or not at all.
    fn units(&self, piece: &Piece, disk: u8) -> Vec<Piece> {
        if self.is_nvram(disk) {
            return Unit::Word.split(piece);
        }
        if !self.has_kernel_ext4 || disk != 0 {
            return Unit::Sector.split(piece);
        }
        let [before, superblock, after] = piece.around(SUPERBLOCK);
        let superblock = Some(superblock).filter(|piece| !piece.bytes().is_empty());
        let before = Unit::Sector.split(&before).into_iter().chain(superblock);
        before.chain(Unit::Sector.split(&after)).collect()
    }
}

/// The place of the superblock of the kernel's ext4.
const SUPERBLOCK: Range<u64> = 1024..2048;

/// The ways in which a disk breaks its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Honest,
    /// It ignores a third of its flushes.
    DropsFlushes,
    /// Only for NVRAM: it ignores a third of its fences.
    DropsFences,
    /// A quarter of its durable writes lack their last sectors.
    TearsDurable,
}

/// Which of the writes that are not durable survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survival {
    /// Chance, in percent.
    pub percent: u8,
    /// Whether each sector has its own chance, or each write as a whole.
    pub by_sector: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Survival {
    /// Chooses one of many kinds.
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
struct Write {
    request: u64,
    disk: u8,
    is_durable: bool,
    has_ended: bool,
    /// When it is durable, the bytes after this place of the disk are lost.
    kept_end: u64,
}

/// Replays a trace, forwards only.
pub struct Cursor<'t> {
    trace: &'t Trace,
    fault: Fault,
    place: usize,
    durable: Vec<Image>,
    pending: Pending<Write>,
    /// For each flush that is under way, the writes that it covers.
    flushes: HashMap<u64, Vec<u64>>,
}

impl<'t> Cursor<'t> {
    /// At the beginning.
    pub fn new(trace: &'t Trace, fault: Fault) -> Cursor<'t> {
        let (durable, pending, flushes) = (trace.bases.clone(), Pending::default(), HashMap::new());
        Cursor { trace, fault, place: 0, durable, pending, flushes }
    }

    /// Continues until `cut` events have happened.
    pub fn advance_to(&mut self, cut: usize) {
        assert!(self.place <= cut, "a cursor goes forwards only");
        for event in &self.trace.events[self.place..cut] {
            self.step(event);
        }
        self.place = cut;
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Write { request, disk, offset, data, is_durable } => {
                let kept_end = offset + self.kept_bytes(*request, data.len_bytes());
                let write = Write {
                    request: *request,
                    disk: *disk,
                    is_durable: *is_durable,
                    has_ended: false,
                    kept_end,
                };
                self.pending.push(Piece::new(*offset, data.bytes()), write);
            }
            Event::Flush { request, disk } => {
                let writes = self.pending.iter().map(|(_, write)| write);
                let covered = writes.filter(|write| write.has_ended && write.disk == *disk);
                let covered = covered.map(|write| write.request).collect();
                let drops = match self.fault {
                    Fault::DropsFlushes => true,
                    Fault::DropsFences => self.trace.is_nvram(*disk),
                    Fault::Honest | Fault::TearsDurable => false,
                };
                let is_dropped = drops && Rng::with_seed(*request ^ 0xf1u64).u8(..3) == 0;
                self.flushes.insert(*request, if is_dropped { Vec::new() } else { covered });
            }
            Event::End(request) => match self.flushes.remove(request) {
                Some(covered) => self.settle(|write| covered.binary_search(&write.request).is_ok()),
                None => {
                    let writes = self.pending.iter_mut().map(|(_, write)| write);
                    let mut ended = writes.filter(|write| write.request == *request);
                    let first = ended.next().expect("only what began ends");
                    first.has_ended = true;
                    let is_durable = first.is_durable;
                    ended.for_each(|write| write.has_ended = true);
                    if is_durable {
                        self.settle(|write| write.request == *request);
                    }
                }
            },
            Event::Mark(_) => {}
        }
    }

    /// Makes these writes durable. Bytes in NVRAM that a durable store has replaced do not come
    /// back.
    fn settle(&mut self, is_settled: impl Fn(&Write) -> bool) {
        let trace = self.trace;
        let gives_way =
            |older: &Write, newer: &Write| trace.is_nvram(older.disk) && trace.is_nvram(newer.disk);
        for (piece, write) in self.pending.take(is_settled, gives_way) {
            let [kept, ..] = piece.around(write.kept_end..u64::MAX);
            kept.write_to(&mut self.durable[trace.medium(write.disk)]);
        }
    }

    /// How many bytes of a write are kept when it is durable.
    fn kept_bytes(&self, request: u64, len_bytes: u64) -> u64 {
        let is_torn = self.fault == Fault::TearsDurable
            && len_bytes > SECTOR_BYTES
            && Rng::with_seed(request).u8(..4) == 0;
        if is_torn { len_bytes / 2 / SECTOR_BYTES * SECTOR_BYTES } else { len_bytes }
    }

    /// Number of writes that are not durable now.
    pub fn pending_count(&self) -> usize {
        self.pending.iter().count()
    }

    /// The content of the disks after a power cut at this moment.
    pub fn crash(&self, survival: Survival) -> Vec<Image> {
        let mut images = self.durable.clone();
        let mut rng = Rng::with_seed(survival.seed);
        for (piece, Write { disk, .. }) in self.pending.iter() {
            let units = match survival.by_sector {
                true => self.trace.units(piece, *disk),
                false => vec![piece.clone()],
            };
            let survivors = units.iter().filter(|_| rng.u8(..100) < survival.percent);
            survivors.for_each(|unit| unit.write_to(&mut images[self.trace.medium(*disk)]));
        }
        images
    }
}

#[cfg(test)]
mod tests;
