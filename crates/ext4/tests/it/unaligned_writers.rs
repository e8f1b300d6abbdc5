//! After a crash each write is there as a whole or not at all, wherever it begins and ends, while
//! other threads write and sync. The records carry their number at both ends.

use crate::common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Image, make, open_in};
use onejournal_ext4::{DataMode, InodeNo, RootVolume};
use onejournal_testing::{SimDevice, Survival, test_name, tier};

const WRITER_COUNT: usize = 3;
const SLOT_COUNT: usize = 30;
/// Crashes of a run, in full.
const CRASH_COUNT: usize = 40;
/// Records that are written between two crashes, at least. One of the writers writes each of its
/// slots twice before the fifth crash.
const RECORDS_BETWEEN: u64 = 15;
/// Where the first record begins: its second byte is in the next block.
const START: u64 = 4095;

/// Records are of one size, a little more than one block or than two.
fn record(number: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len_bytes];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[len_bytes - 8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Writes records into its own slots, which lie between those of the others, until it is told to
/// stop.
fn write_records(volume: &RootVolume, ino: InodeNo, writer: usize, how: &How, run: &Run) {
    let mut number = 1;
    while !run.is_over.load(Ordering::Relaxed) {
        for slot in (writer..SLOT_COUNT).step_by(WRITER_COUNT) {
            let bytes = record(number, how.len_bytes);
            let offset = START + (slot * how.len_bytes) as u64;
            let (first, rest) = bytes.split_at(how.first_bytes);
            volume.write(ino, offset, first).unwrap();
            if !rest.is_empty() {
                run.wait_for_crash();
                volume.write(ino, offset + first.len() as u64, rest).unwrap();
            }
            run.record_count.fetch_add(1, Ordering::SeqCst);
        }
        number += 1;
    }
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    record_count: AtomicU64,
    crash_count: AtomicU64,
    /// Writers between the two writes of a record.
    between_count: AtomicU64,
}

impl Run {
    /// Between the two writes of a record: returns after a crash that found the first one alone.
    fn wait_for_crash(&self) {
        let before = self.crash_count.load(Ordering::SeqCst);
        self.between_count.fetch_add(1, Ordering::SeqCst);
        let is_over = || self.is_over.load(Ordering::SeqCst);
        while self.crash_count.load(Ordering::SeqCst) == before && !is_over() {
            std::thread::yield_now();
        }
        self.between_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the next crash may come.
    fn is_due(&self, how: &How) -> bool {
        if how.first_bytes < how.len_bytes {
            return self.between_count.load(Ordering::SeqCst) > 0;
        }
        let crash_count = self.crash_count.load(Ordering::SeqCst);
        self.record_count.load(Ordering::SeqCst) >= crash_count * RECORDS_BETWEEN
    }
}

struct How {
    len_bytes: usize,
    /// What one write writes; less than `len_bytes`: another one writes the rest.
    first_bytes: usize,
}

/// How many records were found torn in all crashes of a run, and the newest number that was found.
fn torn_count(data_mode: DataMode, how: &How, seeds: Range<u64>) -> (usize, u64) {
    let device = Image::new(&[], "64M").sim_device();
    let volume = open_in(device.clone(), data_mode);
    let (records, other) = (make(&volume, "records"), make(&volume, "other"));
    volume.sync().unwrap();
    let run = Run::default();
    let images = std::thread::scope(|scope| {
        for writer in 0..WRITER_COUNT {
            let (volume, run) = (&volume, &run);
            scope.spawn(move || write_records(volume, records, writer, how, run));
        }
        let mut images = Vec::new();
        for (nth, seed) in seeds.enumerate() {
            while !run.is_due(how) {
                std::thread::yield_now();
            }
            // The `fsync` of another file commits the running transaction, which has the records.
            volume.write(other, nth as u64, b"x").unwrap();
            volume.fsync(other, false).unwrap();
            let survivals = [Survival::Nothing, Survival::Random(seed), Survival::Issued];
            images.extend(survivals.map(|survival| device.crash(survival)));
            run.crash_count.fetch_add(1, Ordering::SeqCst);
        }
        run.is_over.store(true, Ordering::Relaxed);
        images
    });
    let (mut torn, mut newest) = (0, 0);
    for image in images {
        let crashed = open_in(Arc::new(SimDevice::from_image(image, 512)), data_mode);
        let mut bytes = vec![0; usize::try_from(START).unwrap() + SLOT_COUNT * how.len_bytes];
        crashed.read(records, 0, &mut bytes).unwrap();
        for found in bytes[usize::try_from(START).unwrap()..].chunks(how.len_bytes) {
            let number = u64::from_le_bytes(found[..8].try_into().unwrap());
            let whole = match number {
                0 => vec![0; how.len_bytes],
                _ => record(number, how.len_bytes),
            };
            torn += usize::from(found != whole);
            newest = newest.max(number);
        }
    }
    (torn, newest)
}

#[test]
fn unaligned_records_of_several_writers_are_never_torn() {
    let seeds = tier::seeds(test_name!(), CRASH_COUNT);
    for data_mode in DataMode::ALL.into_iter().filter(|mode| mode.is_atomic()) {
        for len_bytes in [600, 5000, 9000] {
            let how = How { len_bytes, first_bytes: len_bytes };
            let (torn, newest) = torn_count(data_mode, &how, seeds.clone());
            assert_eq!(torn, 0, "{data_mode:?}, records of {len_bytes} bytes");
            assert!(newest > 1, "{data_mode:?}: no record was ever overwritten");
        }
    }
}

/// The kernel splits a write at a page that it holds only partly. The first crash comes while a
/// writer waits between the parts.
#[test]
fn canary_records_in_two_writes_are_found_torn() {
    let how = How { len_bytes: 5000, first_bytes: 1 };
    let (torn, _) = torn_count(DataMode::Auto, &how, 0..3);
    assert!(torn > 0, "the test sees no torn record");
}
