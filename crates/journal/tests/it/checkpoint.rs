//! Regions and checkpoints: around the ring, merged writes, cancelled versions, stalls, closing.

use crate::common;

use common::{Rig, commit, filled, forget, put, quiet, wait_until};
use onejournal_journal::{CheckpointPolicy, Form, HomeBlock, Journal, MemoryLimits, Options, scan};
use onejournal_testing::Survival;

/// Commits until around the ring `lap_count` times; returns the last byte of each of 8 blocks.
fn go_around(journal: &Journal, lap_count: u64) -> [u8; 8] {
    let mut random = fastrand::Rng::with_seed(4);
    let mut model = [0; 8];
    while journal.stats().checkpoints < lap_count * 2 {
        let block = random.u64(0..8);
        let byte = random.u8(1..);
        let mut handle = journal.begin(10).unwrap();
        handle.put(HomeBlock(block * 3), filled(byte), Form::Block).unwrap();
        (100..109).for_each(|n| handle.put(HomeBlock(n), filled(byte), Form::Block).unwrap());
        let tid = handle.stop();
        journal.sync(tid).unwrap();
        model[block as usize] = byte;
        assert_eq!(journal.read(HomeBlock(block * 3)).unwrap()[0], byte);
    }
    model
}

const BLOCKS: [u64; 8] = [0, 3, 6, 9, 12, 15, 18, 21];

#[test]
fn many_laps_in_the_callers_thread() {
    for region_count in [2, 3, 5] {
        let rig = Rig::with_regions(u64::from(region_count));
        let journal = rig.open(Options { region_count, ..quiet() });
        let model = go_around(&journal, 10);
        let stats = journal.stats();
        assert_eq!(stats.checkpoints, stats.stalls, "each was done by a commit that had to wait");
        let crashed = rig.crash(Survival::Nothing);
        journal.close().unwrap();
        assert_eq!(rig.first_bytes(BLOCKS), model);
        crashed.recover().unwrap();
        assert_eq!(crashed.first_bytes(BLOCKS), model);
    }
}

#[test]
fn many_laps_with_a_checkpoint_thread() {
    let rig = Rig::with_regions(4);
    let journal = rig.open(Options { region_count: 4, background: true, ..quiet() });
    let model = go_around(&journal, 10);
    drop(journal);
    let crashed = rig.crash(Survival::Nothing);
    crashed.recover().unwrap();
    assert_eq!(crashed.first_bytes(BLOCKS), model);
}

/// With the early policy a region goes home when it was left, so no commit waits for room.
#[test]
fn a_region_that_was_left_goes_home_early() {
    for region_count in [2, 3, 5] {
        let rig = Rig::with_regions(u64::from(region_count));
        let checkpoint = CheckpointPolicy::Early;
        let journal = rig.open(Options { region_count, checkpoint, ..quiet() });
        let model = go_around(&journal, 10);
        let stats = journal.stats();
        assert!(stats.checkpoints > 10, "{}", stats.checkpoints);
        assert_eq!(stats.stalls, 0, "{region_count} regions");
        let crashed = rig.crash(Survival::Nothing);
        crashed.recover().unwrap();
        assert_eq!(crashed.first_bytes(BLOCKS), model);
        journal.close().unwrap();
        assert_eq!(rig.first_bytes(BLOCKS), model);
    }
}

/// The thread brings a region home although three others are free.
#[test]
fn the_checkpoint_thread_brings_a_region_home_early() {
    let rig = Rig::with_regions(5);
    let checkpoint = CheckpointPolicy::Early;
    let options = Options { region_count: 5, background: true, checkpoint, ..quiet() };
    let journal = rig.open(options);
    for start in [0, 100, 200] {
        let mut handle = journal.begin(60).unwrap();
        (start..start + 60).for_each(|n| handle.put(HomeBlock(n), filled(1), Form::Block).unwrap());
        journal.sync(handle.stop()).unwrap();
    }
    wait_until("the region that was left is free", || journal.stats().checkpoints == 1);
    assert_eq!(rig.first_bytes([0, 100]), [1, 1]);
}

/// A region holds two of these transactions. Each comes again before the ring needs the region.
#[test]
fn blocks_that_are_logged_again_in_time_do_not_go_home() {
    let rig = Rig::with_regions(4);
    let journal = rig.open(Options { region_count: 4, background: true, ..quiet() });
    for round in 1..=20 {
        for start in [0, 100, 200, 300] {
            let mut handle = journal.begin(60).unwrap();
            (start..start + 60)
                .for_each(|n| handle.put(HomeBlock(n), filled(round), Form::Block).unwrap());
            journal.sync(handle.stop()).unwrap();
        }
    }
    let stats = journal.stats();
    assert!(stats.checkpoints > 20, "{}", stats.checkpoints);
    assert_eq!(stats.home_bytes, 0);
    drop(journal);
    let crashed = rig.crash(Survival::Nothing);
    crashed.recover().unwrap();
    assert_eq!(crashed.first_bytes([0, 159, 359]), [20; 3]);
}

/// A burst finds room: half of the regions are freed when nothing is committed for a while.
#[test]
fn an_idle_journal_makes_room() {
    let rig = Rig::with_regions(4);
    let journal = rig.open(Options { region_count: 4, background: true, ..quiet() });
    // Two regions are filled, the third is active, the fourth is free.
    for start in [0, 100, 200, 300, 400] {
        let mut handle = journal.begin(60).unwrap();
        (start..start + 60).for_each(|n| handle.put(HomeBlock(n), filled(1), Form::Block).unwrap());
        journal.sync(handle.stop()).unwrap();
    }
    wait_until("a region is freed", || journal.stats().checkpoints > 0);
    assert_eq!(journal.stats().stalls, 0);
}

#[test]
fn blocks_go_home_sorted_in_large_writes_with_one_flush_and_the_header_in_both_slots() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    for start in [200, 100] {
        let mut handle = journal.begin(100).unwrap();
        (start..start + 100)
            .rev()
            .for_each(|n| handle.put(HomeBlock(n), filled(1), Form::Block).unwrap());
        handle.stop();
        if start == 200 {
            journal.sync(journal.running_tid()).unwrap();
        }
    }
    // The second transaction is in another region: each region is one checkpoint.
    journal.sync(journal.running_tid()).unwrap();
    let before = rig.counters();
    journal.checkpoint().unwrap();
    let (home, log) = rig.counters();
    let (home, log) = (home - before.0, log - before.1);
    assert_eq!((home.write_count, home.write_bytes, home.flush_count), (2, 200 * 4096, 2));
    assert_eq!((log.write_count, log.durable_write_count, log.write_bytes), (4, 4, 4 * 4096));
    assert_eq!(journal.stats().checkpoints, 2);
    assert_eq!(rig.first_bytes([99, 100, 299, 300]), [0, 1, 1, 0]);
}

#[test]
fn one_region_of_neighbours_written_apart_is_one_write() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    for block in [7, 5, 8, 6, 40, 4] {
        commit(&journal, block, block as u8);
    }
    let before = rig.home.counters();
    journal.checkpoint().unwrap();
    let home = rig.home.counters() - before;
    assert_eq!((home.write_count, home.flush_count), (2, 1));
    assert_eq!(rig.first_bytes([4, 5, 6, 7, 8, 40]), [4, 5, 6, 7, 8, 40]);
}

#[test]
fn overwritten_and_forgotten_versions_are_not_written_home() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    (1..=3).for_each(|byte| _ = commit(&journal, 5, byte));
    commit(&journal, 6, 1);
    let tid = forget(&journal, 6);
    journal.sync(tid).unwrap();
    assert_eq!(journal.stats().cancelled_blocks, 3);
    journal.checkpoint().unwrap();
    assert_eq!(journal.stats().home_bytes, 4096);
    assert_eq!(rig.first_bytes([5, 6]), [3, 0]);
}

#[test]
fn a_version_that_is_overwritten_in_the_next_region_is_not_written_home() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let mut byte = 1;
    while journal.stats().checkpoints == 0 {
        byte = byte % 200 + 1;
        commit(&journal, 6, byte);
        commit(&journal, 5, byte);
    }
    // The first region was freed; everything in it has a newer version in the second.
    assert_eq!(journal.stats().home_bytes, 0);
    drop(journal);
    let after = rig.crash(Survival::Nothing);
    after.recover().unwrap();
    assert_eq!(after.at_home(6)[0], byte);
}

#[test]
fn a_commit_stalls_when_all_regions_are_full_and_goes_on_when_one_is_free() {
    let rig = Rig::new();
    let journal = rig.open(Options { background: true, ..quiet() });
    let gate = &rig.home_gates().writes;
    gate.close();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300 {
                commit(&journal, n, 7);
            }
        });
        gate.wait_for(1);
        wait_until("a stall", || journal.stats().stalls == 1);
        // Both regions are full of records of 4184 bytes, padded to 4608.
        let per_region = common::REGION_BYTES / 4608;
        assert_eq!(journal.stats().commits, 2 * per_region);
        gate.open();
    });
    assert!(journal.stats().stall_ns > 0);
    journal.close().unwrap();
    assert!((0..300).all(|n| rig.at_home(n)[0] == 7));
}

#[test]
fn many_committed_blocks_start_a_checkpoint_before_the_region_is_full() {
    let rig = Rig::new();
    let memory = MemoryLimits { dirty_blocks: 10, ..MemoryLimits::default() };
    let journal = rig.open(Options { background: true, memory, ..quiet() });
    (0..60).for_each(|n| _ = commit(&journal, n, 2));
    wait_until("a checkpoint", || journal.stats().checkpoints > 0);
    journal.close().unwrap();
    assert!((0..60).all(|n| rig.at_home(n)[0] == 2));
}

#[test]
fn a_block_changed_while_its_old_version_goes_home_keeps_the_new_one() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let gate = &rig.home_gates().writes;
    gate.close();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| journal.checkpoint().unwrap());
        gate.wait_for(1);
        commit(&journal, 5, 2);
        commit(&journal, 6, 2);
        gate.open();
        checkpoint.join().unwrap();
    });
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[0], 2);
    let after = rig.crash(Survival::Nothing);
    after.recover().unwrap();
    assert_eq!(after.first_bytes([5, 6]), [2, 2]);
    journal.close().unwrap();
    assert_eq!(rig.first_bytes([5, 6]), [2, 2]);
}

#[test]
fn close_leaves_everything_home_and_a_clean_header() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    put(&journal, 6, 2);
    common::put_ordered(&journal, 7, 3);
    journal.write_in_place(HomeBlock(8), filled(4).as_ref()).unwrap();
    journal.close().unwrap();
    let after = rig.crash(Survival::Nothing);
    assert_eq!(after.first_bytes([5, 6, 7, 8]), [1, 2, 3, 4]);
    let before = after.counters();
    assert!(scan(&after.space(), &common::UUID).unwrap().header.clean);
    assert_eq!(after.recover().unwrap().transaction_count, 0);
    let changed = after.counters();
    assert_eq!(changed.0.write_count - before.0.write_count, 0);
    assert_eq!(changed.1.write_count - before.1.write_count, 0, "a clean journal is left alone");
}

#[test]
fn transactions_go_on_counting_in_the_next_incarnation() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    assert_eq!(commit(&journal, 5, 1).0, 1);
    assert_eq!(commit(&journal, 5, 2).0, 2);
    journal.close().unwrap();
    let journal = rig.open(Options { incarnation: 7002, ..quiet() });
    assert_eq!(commit(&journal, 5, 3).0, 3);
    drop(journal);
    let after = rig.crash(Survival::Nothing);
    assert_eq!(after.recover().unwrap().last_tid.map(|tid| tid.0), Some(3));
    let journal = after.open(Options { incarnation: 7003, ..quiet() });
    assert_eq!(commit(&journal, 5, 4).0, 4);
    journal.close().unwrap();
    assert_eq!(after.at_home(5)[0], 4);
}

#[test]
fn losing_either_header_slot_after_opening_never_hides_what_was_committed() {
    for slot in [0, 4096] {
        let rig = Rig::new();
        rig.open(quiet()).close().unwrap();
        let journal = rig.open(Options { incarnation: 7002, ..quiet() });
        commit(&journal, 5, 1);
        drop(journal);
        let after = rig.crash(Survival::Nothing);
        after.log_sim().flip_bit(slot + 20, 3);
        after.recover().unwrap();
        assert_eq!(after.at_home(5)[0], 1, "slot at {slot}");
    }
}

/// A block of a freed region may be reused in place without a revoke: no header may bring the
/// region back.
#[test]
fn losing_either_header_slot_after_a_region_was_freed_never_brings_it_back() {
    for slot in [0, 4096] {
        for lap_count in 1..4 {
            let rig = Rig::new();
            let journal = rig.open(quiet());
            for byte in 1..=lap_count {
                commit(&journal, 5, byte);
                journal.checkpoint().unwrap();
            }
            forget(&journal, 5);
            commit(&journal, 6, 1);
            assert_eq!(journal.stats().revokes, 0, "nothing of it is in the journal");
            journal.write_in_place(HomeBlock(5), filled(9).as_ref()).unwrap();
            journal.flush_in_place().unwrap();
            drop(journal);
            let after = rig.crash(Survival::Nothing);
            after.log_sim().flip_bit(slot + 20, 3);
            after.recover().unwrap();
            assert_eq!(after.first_bytes([5, 6]), [9, 1], "slot at {slot}, {lap_count} regions");
        }
    }
}
