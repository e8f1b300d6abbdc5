//! Data in place and the record that commits them share one flush, and recovery takes the record
//! only with its data.

use crate::common;

use std::sync::Arc;

use common::{Gated, HOME_BLOCKS, REGION_BYTES, Rig, UUID, filled, gated, put, quiet};
use device::{BlockDevice, Counters, Metered};
use onejournal_journal::{
    BLOCK_BYTES, Form, HomeBlock, Journal, JournalError, RecoverOptions, Recovery, Result, Space,
    Tid, scan,
};
use onejournal_testing::{Layer, Layered, SimDevice, Survival};

const HOME_BYTES: u64 = HOME_BLOCKS * BLOCK_BYTES as u64;
/// A block of metadata, which goes through the journal.
const METADATA: u64 = 7;

/// A device that holds home and journal.
struct OneDevice(Arc<Metered<Gated>>);

impl OneDevice {
    fn new() -> OneDevice {
        OneDevice::on(SimDevice::new(HOME_BYTES + 8192 + 2 * REGION_BYTES, 512))
    }

    fn on(sim: SimDevice) -> OneDevice {
        OneDevice(Arc::new(Metered::new(gated(sim))))
    }

    fn space(&self) -> Space {
        let range = HOME_BYTES..self.0.size_bytes();
        Space::new(self.0.clone(), std::iter::once(range).collect()).unwrap()
    }

    fn open(&self) -> Journal {
        Journal::open(self.0.clone(), self.space(), UUID, quiet()).unwrap()
    }

    fn sim(&self) -> &SimDevice {
        &self.0.inner().device
    }

    fn crash(&self, survival: Survival) -> OneDevice {
        OneDevice::on(SimDevice::from_image(self.sim().crash(survival), 512))
    }

    fn recover(&self) -> Result<Recovery> {
        let home: Arc<dyn BlockDevice> = self.0.clone();
        onejournal_journal::recover(&home, &self.space(), &UUID, &RecoverOptions::default())
    }

    fn first_byte(&self, block: u64) -> u8 {
        let mut bytes = [0; BLOCK_BYTES];
        self.0.read(block * BLOCK_BYTES as u64, &mut bytes).unwrap();
        bytes[0]
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// An operation that appends: fresh blocks in place, and metadata that refer to them.
fn append(journal: &Journal, start: u64, count: usize, byte: u8) -> Tid {
    let mut handle = journal.begin(1).unwrap();
    handle.put(HomeBlock(METADATA), filled(byte), Form::Block).unwrap();
    let guard = handle.begin_fresh_in_place();
    let tid = handle.stop();
    let data = vec![byte; count * BLOCK_BYTES];
    journal.write_fresh_in_place(&guard, HomeBlock(start), &data).unwrap();
    tid
}

/// Flushes, and durable writes, of a commit of `tid`. A durable write counts as a flush, too.
fn cost_of_sync(device: &OneDevice, journal: &Journal, tid: Tid) -> (u64, u64) {
    let before = device.counters();
    journal.sync(tid).unwrap();
    let after = device.counters();
    let durable = after.durable_write_count - before.durable_write_count;
    (after.flush_count - before.flush_count, durable)
}

/// The cost of a record with checks.
const CHECKED: (u64, u64) = (1, 0);
/// The cost of a record after a flush of its data.
const FLUSHED: (u64, u64) = (2, 1);

#[test]
fn data_and_record_share_one_flush() {
    let device = OneDevice::new();
    let journal = device.open();
    let tid = append(&journal, 100, 20, 1);
    let before = device.counters().write_count;
    assert_eq!(cost_of_sync(&device, &journal, tid), CHECKED);
    assert_eq!(device.counters().write_count - before, 1, "the record");
    let after = device.crash(Survival::Nothing);
    assert_eq!(after.recover().unwrap().last_tid, Some(tid));
    assert_eq!([100, 119, METADATA].map(|block| after.first_byte(block)), [1; 3]);
}

/// Fresh blocks that are written one by one.
fn put_fresh(journal: &Journal, blocks: impl Iterator<Item = u64>, byte: u8) -> Tid {
    for block in blocks {
        let mut handle = journal.begin(1).unwrap();
        handle.put_fresh(HomeBlock(block), filled(byte), Form::Delta).unwrap();
        handle.stop();
    }
    put(journal, METADATA, byte)
}

/// Blocks that the newest record holds, and blocks that it has checks of.
fn newest_record(device: &OneDevice) -> (usize, u64) {
    let found = scan(&device.space(), &UUID).unwrap();
    let record = found.records.last().unwrap();
    let checked_count = record.checks.iter().map(|check| u64::from(check.block_count)).sum();
    (record.tags.len(), checked_count)
}

#[test]
fn a_long_run_of_fresh_blocks_is_written_once() {
    for (count, found, writes) in [(15, (16, 0), 1), (16, (1, 16), 2)] {
        let device = OneDevice::new();
        let journal = device.open();
        let tid = put_fresh(&journal, 100..100 + count, 1);
        let before = device.counters();
        let cost = cost_of_sync(&device, &journal, tid);
        assert_eq!(cost.0, 1, "one flush, {count} blocks");
        assert_eq!(device.counters().write_count - before.write_count, writes);
        assert_eq!(newest_record(&device), found, "{count} blocks");
        for survival in [Survival::Nothing, Survival::Everything] {
            let after = device.crash(survival);
            assert_eq!(after.recover().unwrap().last_tid, Some(tid));
            let last = 99 + count;
            assert_eq!([100, last, METADATA].map(|block| after.first_byte(block)), [1; 3]);
        }
    }
}

#[test]
fn a_run_is_of_blocks_that_are_fresh_at_the_commit() {
    let device = OneDevice::new();
    let journal = device.open();
    // A block in the middle is freed again; one is changed twice.
    put_fresh(&journal, 100..131, 1);
    common::forget(&journal, 115);
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(101)).unwrap().fill(2);
    journal.sync(handle.stop()).unwrap();
    assert_eq!(newest_record(&device), (31, 0), "two runs of 15");
    assert_eq!(device.crash(Survival::Everything).recover().unwrap().last_tid, Some(Tid(1)));

    put_fresh(&journal, 200..220, 3);
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(201)).unwrap().fill(4);
    journal.sync(handle.stop()).unwrap();
    assert_eq!(newest_record(&device), (1, 20));
    let after = device.crash(Survival::Nothing);
    after.recover().unwrap();
    assert_eq!([200, 201, 219].map(|block| after.first_byte(block)), [3, 4, 3]);
}

#[test]
fn a_run_with_a_block_that_held_something_goes_through_the_record() {
    let device = OneDevice::new();
    let journal = device.open();
    common::commit(&journal, 105, 9);
    put_fresh(&journal, (100..120).filter(|block| *block != 105), 1);
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(105)).unwrap().fill(1);
    journal.sync(handle.stop()).unwrap();
    assert_eq!(newest_record(&device), (21, 0));
}

/// The next transaction's record holds a difference from data that the record before only checks.
#[test]
fn a_block_changed_after_its_run_went_home_is_recovered() {
    let device = OneDevice::new();
    let journal = device.open();
    journal.sync(put_fresh(&journal, 100..120, 1)).unwrap();
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(105)).unwrap()[4000] = 7;
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    assert_eq!(newest_record(&device), (1, 0));
    let after = device.crash(Survival::Nothing);
    assert_eq!(after.recover().unwrap().last_tid, Some(tid));
    let mut bytes = [0; BLOCK_BYTES];
    after.0.read(105 * BLOCK_BYTES as u64, &mut bytes).unwrap();
    assert_eq!([bytes[0], bytes[3999], bytes[4000], bytes[4001]], [1, 1, 7, 1]);
}

#[test]
fn a_record_that_survives_without_its_data_is_not_taken() {
    let device = OneDevice::new();
    let journal = device.open();
    let first = put(&journal, METADATA, 9);
    journal.sync(first).unwrap();
    let tid = append(&journal, 100, 3, 1);
    let gate = &device.0.inner().layer.flushes;
    gate.close();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| journal.sync(tid));
        gate.wait_for(1);
        let (mut dropped_count, mut whole_count) = (0, 0);
        for seed in 0..400 {
            let after = device.crash(Survival::Random(seed));
            let found = scan(&after.space(), &UUID).unwrap().records.last().map(|last| last.tid);
            let recovered = after.recover().unwrap().last_tid;
            if recovered == Some(tid) {
                whole_count += 1;
                assert_eq!([100, 101, 102, METADATA].map(|n| after.first_byte(n)), [1; 4]);
            } else {
                dropped_count += usize::from(found == Some(tid));
                assert_eq!((recovered, after.first_byte(METADATA)), (Some(first), 9));
            }
            assert_eq!(after.recover().unwrap().transaction_count, 0, "once is enough");
        }
        assert!(dropped_count > 20, "{dropped_count} records without data");
        let everything = device.crash(Survival::Everything);
        assert_eq!(everything.recover().unwrap().last_tid, Some(tid));
        assert!(whole_count < 400);
        gate.open();
        sync.join().unwrap().unwrap();
    });
}

#[test]
fn a_write_over_checked_data_settles_their_record_first() {
    for buffered in [false, true] {
        let device = OneDevice::new();
        let journal = device.open();
        let tid = append(&journal, 100, 20, 1);
        journal.sync(tid).unwrap();
        if buffered {
            common::put_ordered(&journal, 105, 2);
            journal.write_buffered_of(onejournal_journal::BlockOwner::NOBODY).unwrap();
        } else {
            journal.write_in_place(HomeBlock(105), filled(2).as_ref()).unwrap();
        }
        assert_eq!(scan(&device.space(), &UUID).unwrap().header.settled_tid, tid);
        for survival in [Survival::Nothing, Survival::Everything] {
            let after = device.crash(survival);
            assert_eq!(after.recover().unwrap().last_tid, Some(tid), "it was acknowledged");
            assert_eq!([100, METADATA].map(|block| after.first_byte(block)), [1; 2]);
        }
        // Only once.
        let before = device.counters();
        journal.write_in_place(HomeBlock(106), filled(2).as_ref()).unwrap();
        let after = device.counters();
        assert_eq!(after.write_count - before.write_count, 1);
        assert_eq!(after.durable_write_count, before.durable_write_count);
    }
}

#[test]
fn a_later_commit_settles_the_record() {
    let device = OneDevice::new();
    let journal = device.open();
    journal.sync(append(&journal, 100, 20, 1)).unwrap();
    let later = common::commit(&journal, 8, 3);
    let before = device.counters();
    journal.write_in_place(HomeBlock(105), filled(2).as_ref()).unwrap();
    assert_eq!(device.counters().durable_write_count, before.durable_write_count, "no header");
    let after = device.crash(Survival::Everything);
    assert_eq!(after.recover().unwrap().last_tid, Some(later));
    assert_eq!([100, 105, METADATA, 8].map(|block| after.first_byte(block)), [1, 2, 1, 3]);
}

#[test]
fn a_write_over_checked_data_waits_for_the_record_that_is_being_written() {
    let device = OneDevice::new();
    let journal = device.open();
    let tid = append(&journal, 100, 20, 1);
    let gate = &device.0.inner().layer.flushes;
    gate.close_for(1);
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| journal.sync(tid));
        gate.wait_for(1);
        let before = device.counters().write_count;
        let over = scope.spawn(|| journal.write_in_place(HomeBlock(105), filled(2).as_ref()));
        onejournal_testing::standstill::wait();
        assert_eq!(device.counters().write_count, before, "it waits");
        gate.open();
        sync.join().unwrap().unwrap();
        over.join().unwrap().unwrap();
    });
    let after = device.crash(Survival::Everything);
    assert_eq!(after.recover().unwrap().last_tid, Some(tid));
    assert_eq!([100, 105].map(|block| after.first_byte(block)), [1, 2]);
}

#[test]
fn a_write_over_data_of_the_running_transaction_has_them_flushed_before_the_record() {
    let device = OneDevice::new();
    let journal = device.open();
    let tid = append(&journal, 100, 20, 1);
    journal.write_in_place(HomeBlock(105), filled(2).as_ref()).unwrap();
    assert_eq!(cost_of_sync(&device, &journal, tid), FLUSHED);
    assert!(scan(&device.space(), &UUID).unwrap().records[0].checks.is_empty());
}

#[test]
fn blocks_that_are_written_twice_or_logged_as_well_are_not_checked() {
    for logged in [false, true] {
        let device = OneDevice::new();
        let journal = device.open();
        let mut tid = append(&journal, 100, 20, 1);
        if logged {
            put(&journal, 119, 4);
        } else {
            tid = append(&journal, 119, 1, 4);
        }
        assert_eq!(cost_of_sync(&device, &journal, tid), FLUSHED, "{logged}");
        let after = device.crash(Survival::Nothing);
        after.recover().unwrap();
        assert_eq!([100, 118, 119].map(|block| after.first_byte(block)), [1, 1, 4]);
    }
}

#[test]
fn a_transaction_has_a_limited_number_of_checks() {
    for (count, cost) in [(64, CHECKED), (65, FLUSHED)] {
        let device = OneDevice::new();
        let journal = device.open();
        (0..count).for_each(|n| _ = append(&journal, 100 + 2 * n, 1, 5));
        let tid = journal.running_tid();
        assert_eq!(cost_of_sync(&device, &journal, tid), cost, "{count} checks");
        let records = scan(&device.space(), &UUID).unwrap().records;
        assert_eq!(records[0].checks.len() as u64, if cost == CHECKED { count } else { 0 });
        let after = device.crash(Survival::Nothing);
        after.recover().unwrap();
        assert_eq!([100, 100 + 2 * count - 2].map(|block| after.first_byte(block)), [5; 2]);
    }
}

#[test]
fn a_journal_on_another_device_is_flushed_after_the_data() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let tid = append(&journal, 100, 20, 1);
    put_fresh(&journal, 200..220, 2);
    let before = rig.counters();
    journal.sync(tid).unwrap();
    let after = rig.counters();
    assert_eq!(after.0.flush_count - before.0.flush_count, 1);
    assert_eq!(after.0.write_count, before.0.write_count, "fresh blocks are in the record");
    assert_eq!(after.1.durable_write_count - before.1.durable_write_count, 1);
    assert!(scan(&rig.space(), &UUID).unwrap().records[0].checks.is_empty());
}

#[test]
fn a_check_outside_of_the_volume_is_damage() {
    let device = OneDevice::new();
    let journal = device.open();
    let tid = append(&journal, HOME_BLOCKS - 20, 20, 1);
    journal.sync(tid).unwrap();
    let short: Arc<dyn BlockDevice> =
        Arc::new(SimDevice::new((HOME_BLOCKS - 1) * BLOCK_BYTES as u64, 512));
    let error =
        onejournal_journal::recover(&short, &device.space(), &UUID, &RecoverOptions::default())
            .unwrap_err();
    assert!(matches!(&error, JournalError::Damaged(text) if text.contains("check")), "{error}");
}

/// They may have been acknowledged, so it is the user's decision to go on without them.
#[test]
fn data_that_cannot_be_read_are_refused_or_given_up() {
    let device = OneDevice::new();
    let journal = device.open();
    let first = common::commit(&journal, METADATA, 9);
    journal.sync(append(&journal, 100, 3, 1)).unwrap();
    for discard_damaged in [false, true] {
        let after = device.crash(Survival::Everything);
        let home: Arc<dyn BlockDevice> = Arc::new(Layered::new(after.0.clone(), Unreadable(101)));
        let options = RecoverOptions { discard_damaged, ..Default::default() };
        let found = onejournal_journal::recover(&home, &after.space(), &UUID, &options);
        match found {
            Ok(recovery) => {
                assert!(discard_damaged);
                assert_eq!((recovery.last_tid, after.first_byte(METADATA)), (Some(first), 9));
            }
            Err(error) => {
                assert!(!discard_damaged, "{error}");
                assert!(
                    matches!(&error, JournalError::Damaged(text) if text.contains("cannot be read"))
                );
            }
        }
    }
}

/// A block that cannot be read.
struct Unreadable(u64);

impl Layer for Unreadable {
    fn read(&self, device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        let bad = self.0 * BLOCK_BYTES as u64;
        if (offset..offset + buf.len() as u64).contains(&bad) {
            let error = std::io::Error::other("a bad sector");
            let read = device::Operation::Read;
            return Err(device::DeviceError::new(read, offset, buf.len(), error));
        }
        device.read(offset, buf)
    }
}
