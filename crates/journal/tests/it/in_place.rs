//! Data in place: home before the commit, and never overwritten by a record of the journal.

use crate::common;

use std::sync::{Arc, Barrier};

use common::{Rig, commit, filled, forget, put, put_ordered, put_ordered_of, quiet};
use onejournal_journal::codec::extent::Ranges;
use onejournal_journal::{BlockOwner, Form, HomeBlock, Journal};
use onejournal_testing::{Event, Fault, Survival, standstill};

const ONE: BlockOwner = BlockOwner(1);
const OTHER: BlockOwner = BlockOwner(2);

/// Cuts the power, recovers, and gives the first bytes of the blocks.
fn after_crash<const N: usize>(rig: &Rig, blocks: [u64; N]) -> [u8; N] {
    let after = rig.crash(Survival::Nothing);
    after.recover().unwrap();
    after.first_bytes(blocks)
}

fn free_durably(journal: &Journal, block: u64) {
    let tid = forget(journal, block);
    journal.sync(tid).unwrap();
}

#[test]
fn a_freed_block_that_is_reused_in_place_is_not_brought_back() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    free_durably(&journal, 5);
    check_reuse(&rig, &journal);
}

/// Block 5, which was freed, is reused in place. Neither recovery nor a checkpoint overwrites it.
fn check_reuse(rig: &Rig, journal: &Journal) {
    assert_eq!(journal.stats().revokes, 1);
    journal.write_in_place(HomeBlock(5), filled(9).as_ref()).unwrap();
    journal.flush_in_place().unwrap();
    assert_eq!(after_crash(rig, [5]), [9]);
    journal.checkpoint().unwrap();
    assert_eq!(rig.at_home(5)[0], 9);
}

#[test]
fn a_block_freed_while_its_version_is_being_committed_is_revoked() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    gate.close();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| commit(&journal, 5, 1));
        gate.wait_for(1);
        let tid = forget(&journal, 5);
        gate.open();
        first.join().unwrap();
        journal.sync(tid).unwrap();
    });
    check_reuse(&rig, &journal);
}

#[test]
fn a_freed_block_that_is_journaled_again_keeps_its_new_version() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    commit(&journal, 6, 1);
    forget(&journal, 5);
    put(&journal, 5, 2);
    let mut handle = journal.begin(1).unwrap();
    handle.forget(HomeBlock(6), 1);
    handle.create(HomeBlock(6)).unwrap()[0] = 3;
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    assert_eq!(after_crash(&rig, [5, 6]), [2, 3]);
    journal.checkpoint().unwrap();
    assert_eq!(rig.first_bytes([5, 6]), [2, 3]);
}

#[test]
fn a_block_that_was_never_committed_needs_no_revoke() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    put(&journal, 5, 1);
    forget(&journal, 5);
    put(&journal, 6, 1);
    journal.sync(journal.running_tid()).unwrap();
    assert_eq!((journal.stats().revokes, journal.stats().logged_blocks), (0, 1));
}

#[test]
fn freeing_a_large_range_revokes_what_is_logged_of_it() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    [10, 600, 900].into_iter().for_each(|block| _ = commit(&journal, block, 1));
    let mut handle = journal.begin(0).unwrap();
    handle.forget(HomeBlock(100), 700);
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    assert_eq!(journal.stats().revokes, 1);
    journal.write_in_place(HomeBlock(600), filled(9).as_ref()).unwrap();
    journal.flush_in_place().unwrap();
    assert_eq!(after_crash(&rig, [10, 600, 900]), [1, 9, 1]);
}

#[test]
fn ordered_data_is_home_and_flushed_before_the_record_is_written() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    rig.home_sim().start_trace();
    put_ordered(&journal, 5, 1);
    put_ordered(&journal, 6, 1);
    let tid = put(&journal, 7, 1);
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[0], 1, "visible at once");
    let gate = &rig.log_gates().durable_writes;
    gate.close();
    std::thread::scope(|scope| {
        scope.spawn(|| journal.sync(tid).unwrap());
        gate.wait_for(1);
        let events = rig.home_sim().take_trace().events;
        let [Event::Write { data, .. }, Event::Flush { .. }] = &events[..] else {
            panic!("not a write and a flush: {events:?}")
        };
        assert_eq!(data.len(), 8192);
        gate.open();
    });
    assert_eq!(journal.stats().logged_blocks, 1);
    assert_eq!(journal.stats().in_place_bytes, 8192);
    assert_eq!(after_crash(&rig, [5, 6, 7]), [1, 1, 1]);
}

#[test]
fn a_commit_waits_for_the_data_that_its_operation_writes_in_place() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let mut handle = journal.begin(1).unwrap();
    handle.put(HomeBlock(7), filled(1), Form::Block).unwrap();
    let guard = handle.begin_in_place();
    let tid = handle.stop();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| journal.sync(tid).unwrap());
        common::wait_until("the transaction to close", || journal.running_tid() > tid);
        let before = rig.log.counters();
        journal.write_in_place(HomeBlock(5), filled(1).as_ref()).unwrap();
        assert_eq!(rig.log.counters(), before, "not committed");
        drop(guard);
        sync.join().unwrap();
    });
    assert_eq!(after_crash(&rig, [5, 7]), [1, 1]);
}

#[test]
fn flush_in_place_makes_buffered_and_written_data_durable_with_one_flush() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    put_ordered(&journal, 5, 1);
    journal.write_in_place(HomeBlock(6), filled(2).as_ref()).unwrap();
    let before = rig.counters();
    journal.flush_in_place().unwrap();
    journal.flush_in_place().unwrap();
    let after = rig.counters();
    let home = after.0 - before.0;
    assert_eq!((home.write_count, home.flush_count), (1, 1));
    assert_eq!(after.1, before.1, "the journal is not touched");
    assert_eq!(after_crash(&rig, [5, 6]), [1, 2]);
}

#[test]
fn threads_that_wait_for_a_flush_share_the_next() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let write = |block: u64| journal.write_in_place(HomeBlock(block), filled(1).as_ref()).unwrap();
    let before = rig.counters().0.flush_count;
    let gate = &rig.home_gates().flushes;
    gate.close();
    let waiting = Barrier::new(9);
    std::thread::scope(|scope| {
        write(5);
        scope.spawn(|| journal.flush_in_place().unwrap());
        gate.wait_for(1);
        // Too late for the flush that is under way.
        (6..14).for_each(write);
        for _ in 6..14 {
            scope.spawn(|| {
                waiting.wait();
                journal.flush_in_place().unwrap();
            });
        }
        waiting.wait();
        gate.open();
    });
    assert_eq!(rig.counters().0.flush_count - before, 2);
    assert_eq!(after_crash(&rig, [5, 6, 13]), [1; 3]);
}

#[test]
fn a_sync_covers_data_whose_transaction_has_nothing_to_commit() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let mut handle = journal.begin(0).unwrap();
    let guard = handle.begin_in_place();
    let tid = handle.stop();
    journal.write_in_place(HomeBlock(6), filled(2).as_ref()).unwrap();
    drop(guard);
    journal.sync(tid).unwrap();
    assert_eq!(after_crash(&rig, [6]), [2]);
}

#[test]
fn the_last_of_buffered_and_direct_writes_of_a_block_counts() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    put_ordered(&journal, 5, 1);
    journal.write_in_place(HomeBlock(5), filled(2).as_ref()).unwrap();
    assert_eq!(journal.read(HomeBlock(5)).unwrap()[0], 2);
    journal.write_in_place(HomeBlock(6), filled(1).as_ref()).unwrap();
    put_ordered(&journal, 6, 2);
    put_ordered(&journal, 7, 1);
    put(&journal, 7, 2);
    put(&journal, 8, 1);
    put_ordered(&journal, 8, 2);
    let seen = [5, 6, 7, 8].map(|block| journal.read(HomeBlock(block)).unwrap()[0]);
    assert_eq!(seen, [2; 4]);
    journal.sync(journal.running_tid()).unwrap();
    assert_eq!(after_crash(&rig, [5, 6, 7, 8]), [2; 4]);
    journal.close().unwrap();
    assert_eq!(rig.first_bytes([5, 6, 7, 8]), [2; 4]);
}

/// Ordered data of a block with a record in the journal used to be overtaken by that record.
#[test]
fn regression_ordered_data_of_a_logged_block_is_not_overtaken_by_the_record() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    assert!(journal.begin(0).unwrap().is_logged(HomeBlock(5)));
    let tid = put_ordered(&journal, 5, 2);
    journal.sync(tid).unwrap();
    assert_eq!(after_crash(&rig, [5]), [2]);
    journal.checkpoint().unwrap();
    assert_eq!(rig.at_home(5)[0], 2);
    // The region is free: nothing stands in the way of going in place now.
    assert!(!journal.begin(0).unwrap().is_logged(HomeBlock(5)));
    let logged = journal.stats().logged_blocks;
    let tid = put_ordered(&journal, 5, 3);
    journal.sync(tid).unwrap();
    assert_eq!(journal.stats().logged_blocks, logged);
    assert_eq!(after_crash(&rig, [5]), [3]);
}

#[test]
#[should_panic(expected = "it is in the journal")]
fn writing_a_logged_block_in_place_is_a_bug_of_the_caller() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let _ = journal.write_in_place(HomeBlock(4), &[0; 8192]);
}

#[test]
fn an_old_version_on_its_way_home_does_not_land_on_data_in_place() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let gate = &rig.home_gates().writes;
    gate.close_for(1);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| journal.checkpoint().unwrap());
        gate.wait_for(1);
        // The checkpoint is writing block 5; it is freed, and reused in place.
        free_durably(&journal, 5);
        let reuse = scope.spawn(|| {
            journal.write_in_place(HomeBlock(5), filled(9).as_ref()).unwrap();
            journal.flush_in_place().unwrap();
        });
        // Only the engine holds the write in place back.
        standstill::run_until(|| reuse.is_finished());
        let waits = !reuse.is_finished();
        gate.open();
        reuse.join().unwrap();
        assert!(waits, "it waits for the checkpoint's write");
        checkpoint.join().unwrap();
    });
    assert_eq!(rig.at_home(5)[0], 9);
    assert_eq!(after_crash(&rig, [5]), [9]);
    journal.close().unwrap();
    assert_eq!(rig.at_home(5)[0], 9);
}

/// The orders that data in place keep, each as a scenario that a fault in the engine breaks.
mod orders {
    use super::*;
    use onejournal_journal::Options;

    /// While `first` is held back in its write home, `second` runs; whether that waits for the
    /// former.
    fn waits(rig: &Rig, first: impl FnOnce() + Send, second: impl FnOnce() + Send) -> bool {
        let gate = &rig.home_gates().writes;
        gate.close_for(1);
        std::thread::scope(|scope| {
            scope.spawn(fault::carry(first));
            gate.wait_for(1);
            let second = scope.spawn(fault::carry(second));
            // Only the engine holds the second back.
            standstill::run_until(|| second.is_finished());
            let waits = !second.is_finished();
            gate.open();
            waits
        })
    }

    /// A sync takes a transaction's data out and is held back; the transaction is committed.
    fn a_commit_waits_for_what_a_sync_writes(options: Options) -> bool {
        let rig = Rig::new();
        let journal = rig.open(options);
        put_ordered_of(&journal, ONE, 5, 1);
        let tid = put(&journal, 7, 1);
        waits(&rig, || journal.flush_in_place_of(ONE).unwrap(), || journal.sync(tid).unwrap())
    }

    /// Another thread takes out the buffered data of two owners and is held back. One owner syncs.
    fn a_sync_waits_for_what_others_write_of_its_own(options: Options) -> bool {
        let rig = Rig::new();
        let journal = rig.open(options);
        put_ordered_of(&journal, ONE, 5, 1);
        put_ordered_of(&journal, OTHER, 6, 1);
        waits(
            &rig,
            || journal.flush_in_place().unwrap(),
            || journal.flush_in_place_of(ONE).unwrap(),
        )
    }

    /// A caller's direct write is held back; everything is to be made durable.
    fn a_flush_of_all_waits_for_direct_writes(options: Options) -> bool {
        let rig = Rig::new();
        let journal = rig.open(options);
        waits(
            &rig,
            || journal.write_in_place(HomeBlock(5), filled(1).as_ref()).unwrap(),
            || journal.flush_in_place().unwrap(),
        )
    }

    /// A version on its way home is held back; the block is written again.
    fn the_later_write_of_a_block_is_the_last(options: Options, is_direct: bool) -> bool {
        let rig = Rig::new();
        let journal = rig.open(options);
        put_ordered_of(&journal, ONE, 5, 1);
        let write_again = || {
            if is_direct {
                journal.write_in_place(HomeBlock(5), filled(2).as_ref()).unwrap();
            } else {
                put_ordered_of(&journal, ONE, 5, 2);
                journal.write_buffered_of(ONE).unwrap();
            }
        };
        waits(&rig, || journal.write_buffered_of(ONE).unwrap(), write_again);
        rig.at_home(5)[0] == 2
    }

    #[test]
    fn a_commit_is_ordered_after_the_writes_of_a_sync() {
        assert!(a_commit_waits_for_what_a_sync_writes(quiet()));
    }

    #[test]
    fn a_sync_is_ordered_after_writes_of_its_data_by_others() {
        assert!(a_sync_waits_for_what_others_write_of_its_own(quiet()));
    }

    #[test]
    fn a_flush_of_all_is_ordered_after_direct_writes() {
        assert!(a_flush_of_all_waits_for_direct_writes(quiet()));
    }

    #[test]
    fn writes_of_one_block_are_in_their_order() {
        assert!(the_later_write_of_a_block_is_the_last(quiet(), true));
        assert!(the_later_write_of_a_block_is_the_last(quiet(), false));
    }

    #[test]
    fn canary_faults_in_them_are_found() {
        use onejournal_journal::Fault::{
            InPlaceOvertaken, TakenByOthersNotAwaited, WriteOutNotAwaited,
        };
        fault::with(WriteOutNotAwaited, || {
            assert!(!a_commit_waits_for_what_a_sync_writes(quiet()));
        });
        fault::with(TakenByOthersNotAwaited, || {
            assert!(!a_sync_waits_for_what_others_write_of_its_own(quiet()));
            assert!(!a_flush_of_all_waits_for_direct_writes(quiet()));
        });
        fault::with(InPlaceOvertaken, || {
            assert!(!the_later_write_of_a_block_is_the_last(quiet(), true));
            assert!(!the_later_write_of_a_block_is_the_last(quiet(), false));
        });
    }
}

#[test]
fn data_of_different_owners_go_home_side_by_side() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.home_gates().writes;
    gate.close();
    std::thread::scope(|scope| {
        for owner in 1..9 {
            put_ordered_of(&journal, BlockOwner(owner), 10 * owner, 1);
            let journal = &journal;
            scope.spawn(move || journal.flush_in_place_of(BlockOwner(owner)).unwrap());
        }
        // All are under way at once.
        gate.wait_for(8);
        gate.open();
    });
    assert_eq!(rig.counters().0.write_count, 8);
    assert_eq!(after_crash(&rig, [10, 40, 80]), [1; 3]);
}

#[test]
fn a_sync_of_one_owner_leaves_the_data_of_others_buffered() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    put_ordered_of(&journal, ONE, 5, 1);
    put_ordered_of(&journal, OTHER, 6, 1);
    journal.flush_in_place_of(ONE).unwrap();
    assert_eq!(rig.first_bytes([5, 6]), [1, 0]);
    assert_eq!(after_crash(&rig, [5]), [1]);
    journal.sync(journal.running_tid()).unwrap();
    assert_eq!(after_crash(&rig, [5, 6]), [1, 1]);
}

/// If another sync had taken a sync's data and its write failed, the sync used to succeed.
#[test]
fn regression_a_sync_fails_when_the_write_of_its_data_by_another_has_failed() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    // Everything before is flushed: no flush has to tell.
    journal.write_in_place(HomeBlock(4), filled(1).as_ref()).unwrap();
    journal.flush_in_place().unwrap();
    put_ordered_of(&journal, ONE, 5, 1);
    put_ordered_of(&journal, OTHER, 6, 1);
    let gate = &rig.home_gates().writes;
    gate.close_for(1);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| journal.flush_in_place());
        gate.wait_for(1);
        let sync = scope.spawn(|| journal.flush_in_place_of(ONE));
        // It waits for the other by then, or finds the journal aborted.
        standstill::wait();
        let operation = device::Operation::Write;
        rig.home_sim().inject(Fault::once(operation, 0));
        gate.open();
        taker.join().unwrap().unwrap_err();
        sync.join().unwrap().unwrap_err();
    });
}

/// Otherwise its version of the first operation would be home before the transaction commits,
/// without the operation's other changes.
#[test]
fn ordered_data_of_a_block_that_the_running_transaction_journals_is_journaled() {
    for in_one_operation in [false, true] {
        let rig = Rig::new();
        let journal = rig.open(quiet());
        let mut handle = journal.begin(2).unwrap();
        handle.put(HomeBlock(5), filled(1), Form::Block).unwrap();
        handle.put(HomeBlock(6), filled(1), Form::Block).unwrap();
        let tid = if in_one_operation {
            handle.put_ordered(HomeBlock(5), filled(2)).unwrap();
            handle.stop()
        } else {
            handle.stop();
            put_ordered(&journal, 5, 2)
        };
        journal.flush_in_place().unwrap();
        let crashed = rig.crash(Survival::Everything);
        crashed.recover().unwrap();
        assert_eq!(crashed.first_bytes([5, 6]), [0, 0], "the transaction as a whole");
        journal.sync(tid).unwrap();
        let crashed = rig.crash(Survival::Nothing);
        crashed.recover().unwrap();
        assert_eq!(crashed.first_bytes([5, 6]), [2, 1]);
    }
}

/// The record had only the bytes of the second change, and the first one was nowhere.
#[test]
fn regression_data_that_an_operation_put_in_place_and_then_changed_in_part_are_logged() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 5, 1);
    let mut handle = journal.begin(1).unwrap();
    handle.put_ordered(HomeBlock(5), filled(2)).unwrap();
    let mut written = Ranges::new();
    written.insert(512, 512);
    let mut bytes = filled(2);
    Arc::make_mut(&mut bytes)[512..1024].fill(3);
    handle.put(HomeBlock(5), bytes, Form::Extent(written)).unwrap();
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    let crashed = rig.crash(Survival::Nothing);
    crashed.recover().unwrap();
    let block = crashed.at_home(5);
    assert_eq!([0, 511, 512, 1023, 1024, 4095].map(|at| block[at]), [2, 2, 3, 3, 2, 2]);
}
