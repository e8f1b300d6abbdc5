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
use onejournal_testing::Image;
use onejournal_testing::drive::record::{Data, Event};

use crate::memory::{FIRST_THREAD, WORD_BYTES};

/// The unit that survives whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

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
struct Pending<'t> {
    request: u64,
    disk: u8,
    offset: u64,
    data: &'t Data,
    /// The places in `data` that later durable stores have not replaced.
    parts: Vec<Range<u64>>,
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
    /// For each flush that is under way, the writes that it covers.
    flushes: HashMap<u64, Vec<u64>>,
}

impl<'t> Cursor<'t> {
    /// At the beginning.
    pub fn new(trace: &'t Trace, fault: Fault) -> Cursor<'t> {
        let (durable, pending, flushes) = (trace.bases.clone(), Vec::new(), HashMap::new());
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

    fn step(&mut self, event: &'t Event) {
        match event {
            Event::Write { request, disk, offset, data, is_durable } => {
                self.pending.push(Pending {
                    request: *request,
                    disk: *disk,
                    offset: *offset,
                    data,
                    parts: std::iter::once(0..data.len_bytes()).collect(),
                    is_durable: *is_durable,
                    has_ended: false,
                });
            }
            Event::Flush { request, disk } => {
                let covered =
                    self.pending.iter().filter(|write| write.has_ended && write.disk == *disk);
                let covered = covered.map(|write| write.request).collect();
                let drops = match self.fault {
                    Fault::DropsFlushes => true,
                    Fault::DropsFences => self.is_nvram(*disk),
                    Fault::Honest | Fault::TearsDurable => false,
                };
                let is_dropped = drops && Rng::with_seed(*request ^ 0xf1u64).u8(..3) == 0;
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

    fn is_nvram(&self, disk: u8) -> bool {
        self.trace.has_nvram && disk >= FIRST_THREAD
    }

    /// The index of the image for a disk of the record.
    fn medium(&self, disk: u8) -> usize {
        if self.is_nvram(disk) { 1 } else { usize::from(disk) }
    }

    /// Makes these writes durable. Bytes in NVRAM that a durable store has replaced do not come
    /// back.
    fn settle(&mut self, is_settled: impl Fn(&Pending<'_>) -> bool) {
        let mut others: Vec<Pending<'t>> = Vec::new();
        for write in std::mem::take(&mut self.pending) {
            if !is_settled(&write) {
                others.push(write);
                continue;
            }
            let kept_bytes = self.kept_bytes(&write);
            let (medium, is_nvram) = (self.medium(write.disk), self.is_nvram(write.disk));
            for part in &write.parts {
                let end = part.end.min(kept_bytes).max(part.start);
                put(&mut self.durable[medium], write.offset, write.data, part.start, end);
            }
            if is_nvram {
                let older = others.iter_mut().filter(|older| self.is_nvram(older.disk));
                older.for_each(|older| older.give_way(&write));
            }
        }
        self.pending = others;
    }

    /// How many bytes of a durable write are kept.
    fn kept_bytes(&self, write: &Pending<'_>) -> u64 {
        let len_bytes = write.data.len_bytes();
        let is_torn = self.fault == Fault::TearsDurable
            && len_bytes > SECTOR_BYTES
            && Rng::with_seed(write.request).u8(..4) == 0;
        if is_torn { len_bytes / 2 / SECTOR_BYTES * SECTOR_BYTES } else { len_bytes }
    }

    /// Writes that are not durable now.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The content of the disks after a power cut at this moment.
    pub fn crash(&self, survival: Survival) -> Vec<Image> {
        let mut images = self.durable.clone();
        let mut rng = Rng::with_seed(survival.seed);
        for write in &self.pending {
            let is_nvram = self.is_nvram(write.disk);
            let whole = (self.trace.has_kernel_ext4 && write.disk == 0).then_some(SUPERBLOCK);
            for unit in write.units(survival.by_sector, is_nvram, whole) {
                if rng.u8(..100) < survival.percent {
                    let medium = self.medium(write.disk);
                    put(&mut images[medium], write.offset, write.data, unit.start, unit.end);
                }
            }
        }
        images
    }
}

impl Pending<'_> {
    /// Removes the bytes that a newer, durable store has replaced.
    fn give_way(&mut self, newer: &Pending<'_>) {
        for taken in &newer.parts {
            let place = |at: u64| (newer.offset + at).saturating_sub(self.offset);
            let taken = place(taken.start)..place(taken.end);
            let outside = |part: Range<u64>| {
                let before = part.start..part.end.min(taken.start);
                let after = part.start.max(taken.end)..part.end;
                [before, after].into_iter().filter(|rest| !rest.is_empty())
            };
            self.parts = std::mem::take(&mut self.parts).into_iter().flat_map(outside).collect();
        }
    }

    /// The units that survive whole or not at all, as places in the data. `whole` is a range of the
    /// disk that is not torn.
    fn units(&self, by_sector: bool, is_nvram: bool, whole: Option<Range<u64>>) -> Vec<Range<u64>> {
        if !by_sector {
            return self.parts.clone();
        }
        let mut units = Vec::new();
        for part in &self.parts {
            let mut start = part.start;
            while start < part.end {
                let place = self.offset + start;
                let unit_bytes = if let Some(whole) = whole.as_ref().filter(|w| w.contains(&place))
                {
                    whole.end - place
                } else if !is_nvram {
                    SECTOR_BYTES
                } else if place.is_multiple_of(WORD_BYTES) && part.end - start >= WORD_BYTES {
                    WORD_BYTES
                } else {
                    1
                };
                let end = (start + unit_bytes).min(part.end);
                units.push(start..end);
                start = end;
            }
        }
        units
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
mod tests;
