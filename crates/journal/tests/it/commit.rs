//! Handles and commits: what is published, what is undone, and what a sync costs.

use crate::common;

use common::{Rig, commit, filled, put, quiet};
use device::Counters;
use onejournal_journal::{DeltaCodec, Form, HomeBlock, JournalError, Options, Space};
use onejournal_testing::Survival;

const NONE: Counters = Counters {
    read_count: 0,
    read_bytes: 0,
    write_count: 0,
    write_bytes: 0,
    durable_write_count: 0,
    durable_write_bytes: 0,
    flush_count: 0,
};

#[test]
fn a_sync_is_one_durable_write_of_the_record_and_nothing_else() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let mut handle = journal.begin(3).unwrap();
    for block in [5, 9, 6] {
        handle.put(HomeBlock(block), filled(1), Form::Block).unwrap();
    }
    let tid = handle.stop();
    let before = rig.counters();
    journal.sync(tid).unwrap();
    let after = rig.counters();
    assert_eq!(after.0 - before.0, NONE, "home");
    // Descriptor 52, three tags of 24, three blocks, commit record 16, padded to 512.
    let bytes = (52 + 3 * 24 + 3 * 4096 + 16u64).next_multiple_of(512);
    let one = Counters {
        write_count: 1,
        write_bytes: bytes,
        durable_write_count: 1,
        durable_write_bytes: bytes,
        flush_count: 1,
        ..NONE
    };
    assert_eq!(after.1 - before.1, one, "journal");
    assert_eq!(journal.stats().journal_bytes, bytes);
}

#[test]
fn a_sync_with_nothing_new_does_no_io() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let tid = commit(&journal, 5, 1);
    let before = rig.counters();
    journal.sync(tid).unwrap();
    journal.sync(journal.running_tid()).unwrap();
    drop(journal.begin(4).unwrap());
    journal.begin(4).unwrap().stop();
    journal.sync(journal.running_tid()).unwrap();
    assert_eq!(rig.counters(), before);
    assert_eq!(journal.stats().commits, 1);
    assert_eq!(journal.stats().syncs_without_io, 3);
}

#[test]
fn a_dropped_handle_changes_nothing() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let mut handle = journal.begin(4).unwrap();
    handle.write(HomeBlock(5)).unwrap()[0] = 9;
    handle.create(HomeBlock(6)).unwrap()[0] = 9;
    handle.put_ordered(HomeBlock(7), filled(9)).unwrap();
    handle.forget(HomeBlock(5), 1);
    drop(handle);
    let before = rig.counters();
    journal.sync(journal.running_tid()).unwrap();
    assert_eq!(rig.counters(), before, "nothing is left to commit");
    let seen = [5, 6, 7].map(|block| journal.read(HomeBlock(block)).unwrap()[0]);
    assert_eq!(seen, [1, 0, 0]);
}

#[test]
fn changes_are_private_until_stop_and_visible_at_once_after_it() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(5)).unwrap()[1] = 2;
    assert_eq!(handle.read(HomeBlock(5)).unwrap()[..3], [1, 2, 1]);
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[..3], [1, 1, 1]);
    handle.stop();
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[..3], [1, 2, 1]);
    let mut data = vec![0xff; 3 * 4096];
    journal.read_data(HomeBlock(4), &mut data).unwrap();
    assert_eq!([data[0], data[4096], data[4097], data[8192]], [0, 1, 2, 0]);
}

#[test]
fn a_reader_keeps_its_version() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let old = journal.read(HomeBlock(5)).unwrap();
    let mut handle = journal.begin(1).unwrap();
    handle.write(HomeBlock(5)).unwrap()[0] = 2;
    handle.write(HomeBlock(5)).unwrap()[1] = 3;
    handle.stop();
    assert_eq!(old[..2], [1, 1]);
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[..2], [2, 3]);
}

#[test]
fn a_record_that_crosses_from_extent_to_extent_is_durable() {
    let rig = Rig::new();
    let size = rig.log_sim().image().size_bytes();
    let cut = 8192 + 4 * 4096;
    // The space is the device with its halves exchanged, so they never join.
    let space = Space::new(rig.log.clone(), vec![size - cut..size, 0..size - cut]).unwrap();
    let journal =
        onejournal_journal::Journal::open(rig.home.clone(), space.clone(), common::UUID, quiet())
            .unwrap();
    for block in 0..10 {
        commit(&journal, block, 3);
    }
    drop(journal);
    let after = rig.crash(onejournal_testing::Survival::Nothing);
    let space = Space::new(after.log.clone(), vec![size - cut..size, 0..size - cut]).unwrap();
    let home: std::sync::Arc<dyn device::BlockDevice> = after.home.clone();
    let found =
        onejournal_journal::recover(&home, &space, &common::UUID, &Default::default()).unwrap();
    assert_eq!((found.transaction_count, found.replayed_blocks), (10, 10));
    assert_eq!(after.first_bytes([0, 9, 10]), [3, 3, 0]);
}

#[test]
fn an_operation_larger_than_a_transaction_is_refused_before_it_begins() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let max = journal.max_credit_count();
    assert!(max >= 128);
    assert!(matches!(journal.begin(max + 1), Err(JournalError::TooSmall(_))));
    let mut handle = journal.begin(max).unwrap();
    for block in 0..max as u64 {
        handle.put(HomeBlock(block), filled(4), Form::Block).unwrap();
    }
    handle.stop();
    // The next handle does not fit into the same transaction: it waits for a commit.
    put(&journal, 1000, 1);
    assert_eq!(journal.stats().commits, 1);
    journal.close().unwrap();
    assert_eq!(rig.first_bytes([0, max as u64 - 1, 1000]), [4, 4, 1]);
}

#[test]
fn the_largest_transaction_that_revokes_all_there_is_still_fits() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let max = journal.max_credit_count() as u64;
    for round in 0..2 {
        let mut handle = journal.begin(max as usize).unwrap();
        (0..max)
            .for_each(|n| handle.put(HomeBlock(round * max + n), filled(1), Form::Block).unwrap());
        let tid = handle.stop();
        journal.sync(tid).unwrap();
    }
    let mut handle = journal.begin(max as usize).unwrap();
    handle.forget(HomeBlock(0), 2 * max);
    (0..max).for_each(|n| handle.put(HomeBlock(2 * max + n), filled(2), Form::Block).unwrap());
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    assert_eq!(journal.stats().revokes, 2 * max);
}

#[test]
fn impossible_options_and_spaces_are_refused() {
    let rig = Rig::new();
    for region_count in [0, 1, 17] {
        let options = Options { region_count, ..quiet() };
        let opened =
            onejournal_journal::Journal::open(rig.home.clone(), rig.space(), common::UUID, options);
        assert!(matches!(opened.err(), Some(JournalError::Option(_))));
    }
    let small = Rig::with_regions(1);
    let opened =
        onejournal_journal::Journal::open(small.home.clone(), small.space(), common::UUID, quiet());
    assert!(matches!(opened.err(), Some(JournalError::TooSmall(_))));
}

/// Each region holds a transaction that any operation fits into.
#[test]
fn a_small_journal_gets_fewer_regions() {
    for (room, asked_for, expected) in [(2, 4, 2), (3, 4, 3), (4, 4, 4), (5, 16, 5), (16, 3, 3)] {
        let rig = Rig::with_regions(room);
        let journal = rig.open(Options { region_count: asked_for, ..quiet() });
        assert_eq!(
            journal.header().region_count,
            expected,
            "room for {room}, {asked_for} asked for"
        );
        assert!(journal.max_credit_count() >= 128);
        put(&journal, 7, 3);
        let committed = journal.running_tid();
        journal.sync(committed).unwrap();
    }
}

/// Whole blocks, for measurements: a delta is the block, and a record fills whole blocks.
#[test]
fn without_deltas_a_record_is_made_of_whole_blocks() {
    for (delta_codec, expected_bytes) in [(DeltaCodec::Runs, 512), (DeltaCodec::Whole, 8192)] {
        let rig = Rig::new();
        let journal = rig.open(Options { delta_codec, pack: true, ..quiet() });
        let mut bytes = Vec::new();
        for byte in 1..=3 {
            let before = journal.stats().journal_bytes;
            let mut handle = journal.begin(1).unwrap();
            handle.put(HomeBlock(7), filled(byte), Form::Delta).unwrap();
            journal.sync(handle.stop()).unwrap();
            bytes.push(journal.stats().journal_bytes - before);
        }
        assert_eq!(bytes, [expected_bytes; 3], "{delta_codec:?}");
        let crashed = rig.crash(Survival::Nothing);
        crashed.recover().unwrap();
        assert_eq!(crashed.first_bytes([7]), [3]);
    }
}
