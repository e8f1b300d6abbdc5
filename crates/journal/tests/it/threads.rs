//! Many threads: exclusive handles, group commit, readers, the commit timer.

use crate::common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Scope;
use std::time::Duration;

use common::{Gate, Rig, commit, put, quiet, wait_until};
use device::Operation;
use onejournal_journal::{
    Fault, Form, HomeBlock, Journal, JournalError, MemoryLimits, Options, Synced, Tid, WhenDurable,
};
use onejournal_testing::{SimDevice, Survival};

fn busy(region_count: u32) -> Options {
    Options { background: true, region_count, ..quiet() }
}

fn number(journal: &Journal, block: u64) -> u64 {
    let bytes = journal.read(HomeBlock(block)).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn increment(journal: &Journal, block: u64) -> Tid {
    let mut handle = journal.begin(1).unwrap();
    let bytes = handle.write(HomeBlock(block)).unwrap();
    let count = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    bytes[..8].copy_from_slice(&(count + 1).to_le_bytes());
    handle.stop()
}

#[test]
fn no_increment_is_lost_between_handles() {
    let rig = Rig::new();
    let journal = rig.open(busy(2));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| _ = increment(&journal, 3)));
        }
    });
    assert_eq!(number(&journal, 3), 2000);
}

/// Another thread commits the block, and is held back at the gate.
fn begin_commit<'scope>(
    scope: &'scope Scope<'scope, '_>,
    journal: &'scope Journal,
    gate: &Gate,
    block: u64,
) {
    gate.close();
    scope.spawn(move || commit(journal, block, 1));
    gate.wait_for(1);
}

#[test]
fn everyone_who_waits_is_served_by_the_next_commit() {
    let rig = Rig::new();
    let journal = rig.open(busy(2));
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 0);
        for block in 1..32 {
            let journal = &journal;
            scope.spawn(move || {
                commit(journal, block, 1);
            });
        }
        // All have published their change while the first commit is still being written.
        wait_until("32 syncs", || journal.stats().syncs == 32);
        gate.open();
    });
    assert_eq!(journal.stats().commits, 2);
    assert_eq!(journal.stats().logged_blocks, 32);
    let (latency, group) = journal.distributions();
    assert_eq!(group.buckets, [(1, 1), (31, 1)]);
    assert_eq!(latency.count, 2);
    assert!(latency.sum > 0 && latency.p50 <= latency.max);
    drop(journal);
    let after = rig.crash(Survival::Nothing);
    assert_eq!(after.recover().unwrap().transaction_count, 2);
    assert!((0..32).all(|block| after.at_home(block)[0] == 1));
}

#[test]
fn a_sync_of_an_older_transaction_does_not_wait_for_the_one_in_flight() {
    let rig = Rig::new();
    let journal = rig.open(busy(2));
    let old = commit(&journal, 1, 1);
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 2);
        journal.sync(old).unwrap();
        // New operations go on while a commit is being written.
        put(&journal, 2, 2);
        assert_eq!(journal.read(HomeBlock(2)).unwrap()[0], 2);
        gate.open();
    });
    assert_eq!(journal.stats().commits, 2);
    drop(journal);
    let after = rig.crash(Survival::Nothing);
    after.recover().unwrap();
    assert_eq!(after.at_home(2)[0], 1, "the version that was committed, not the one after it");
}

/// Leaves a sync of `tid` with the commit in flight, and returns where its end will be told.
fn leave(journal: &Journal, tid: Tid) -> Receiver<Result<(), JournalError>> {
    let (told, end) = channel();
    let when: WhenDurable = Box::new(move |durable| _ = told.send(durable));
    assert_eq!(journal.sync_or_leave(tid, || Some(when)).unwrap(), Synced::Left);
    end
}

/// Leaves a sync with a commit, and cuts the power before that is durable. Returns whether the sync
/// was told to have succeeded, and whether its change survived.
fn cut_after_leaving() -> (bool, bool) {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 1);
        let end = leave(&journal, journal.committed_tid().next());
        let was_told = end.try_recv().is_ok();
        let after = rig.crash(Survival::Nothing);
        after.recover().unwrap();
        let survived = after.at_home(1)[0] == 1;
        gate.open();
        (was_told, survived)
    })
}

#[test]
fn a_sync_that_was_left_is_told_once_the_commit_is_durable() {
    assert_eq!(cut_after_leaving(), (false, false));
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    let left = std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 1);
        let left = [(); 3].map(|()| leave(&journal, journal.committed_tid().next()));
        assert!(left.iter().all(|end| end.try_recv().is_err()));
        gate.open();
        left
    });
    assert!(left.iter().all(|end| matches!(end.try_recv(), Ok(Ok(())))));
    let (_, group) = journal.distributions();
    assert_eq!((journal.stats().commits, journal.stats().syncs, group.sum), (1, 4, 4));
    let when = || -> Option<WhenDurable> { panic!("it is durable, or not begun") };
    let committed = journal.committed_tid();
    assert_eq!(journal.sync_or_leave(committed, when).unwrap(), Synced::Durable);
    let tid = put(&journal, 2, 2);
    assert_eq!(journal.sync_or_leave(tid, when).unwrap(), Synced::Durable);
}

#[test]
fn canary_a_sync_that_is_told_at_once_loses_its_change() {
    fault::with(Fault::LeftToldAtOnce, || {
        assert_eq!(cut_after_leaving(), (true, false));
    });
}

#[test]
fn a_sync_is_left_with_the_next_commit_if_a_thread_waits_for_that() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    let left = std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 1);
        let tid = put(&journal, 2, 2);
        let journal = &journal;
        let waiting = scope.spawn(move || journal.sync(tid));
        wait_until("its sync", || journal.stats().syncs == 2);
        let left = [(); 3].map(|()| leave(journal, tid));
        assert!(left.iter().all(|end| end.try_recv().is_err()));
        gate.open();
        waiting.join().unwrap().unwrap();
        left
    });
    assert!(left.iter().all(|end| matches!(end.try_recv(), Ok(Ok(())))));
    let (_, group) = journal.distributions();
    assert_eq!((journal.stats().commits, group.sum), (2, 5));
}

#[test]
fn a_sync_cannot_be_left_with_a_commit_that_does_not_serve_it() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 1);
        let tid = put(&journal, 2, 2);
        let journal = &journal;
        let when = || -> Option<WhenDurable> { panic!("the commit in flight does not serve it") };
        let later = scope.spawn(move || journal.sync_or_leave(tid, when).unwrap());
        wait_until("its sync", || journal.stats().syncs == 2);
        gate.open();
        assert_eq!(later.join().unwrap(), Synced::Durable);
    });
    assert_eq!(journal.stats().commits, 2);
}

#[test]
fn a_sync_that_was_left_with_a_commit_that_fails_is_told() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    let end = std::thread::scope(|scope| {
        gate.close();
        let tid = put(&journal, 1, 1);
        let journal = &journal;
        let failing = scope.spawn(move || journal.sync(tid));
        gate.wait_for(1);
        rig.log_sim().inject(onejournal_testing::Fault::once(Operation::Write, 0));
        let end = leave(journal, tid);
        gate.open();
        assert!(matches!(failing.join().unwrap(), Err(JournalError::Io(_))));
        end
    });
    assert!(matches!(end.try_recv(), Ok(Err(JournalError::Aborted(_)))));
}

/// The thread that commits may hang in its device.
#[test]
fn a_sync_that_was_left_is_told_of_an_abort_at_once() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        gate.close();
        let tid = put(&journal, 1, 1);
        let journal = &journal;
        let hanging = scope.spawn(move || journal.sync(tid));
        gate.wait_for(1);
        let end = leave(journal, tid);
        journal.aborter().abort(&"the disk hangs");
        assert!(matches!(end.try_recv(), Ok(Err(JournalError::Aborted(_)))));
        gate.open();
        assert!(hanging.join().unwrap().is_err());
    });
}

#[test]
fn threads_around_the_ring_lose_nothing() {
    for region_count in [2, 3, 4] {
        let rig = Rig::with_regions(u64::from(region_count));
        let journal = rig.open(busy(region_count));
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let journal = &journal;
            let each = |block: u64| {
                move || {
                    for round in 0..400 {
                        let tid = increment(journal, block);
                        if round % 3 == 0 {
                            journal.sync(tid).unwrap();
                        }
                    }
                    journal.sync(journal.running_tid()).unwrap();
                    number(journal, block)
                }
            };
            let threads: Vec<_> = (0..4).map(|block| scope.spawn(each(block))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(acknowledged, [400; 4]);
        drop(journal);
        let after = rig.crash(Survival::Nothing);
        after.recover().unwrap();
        for block in 0..4 {
            assert_eq!(after.at_home(block)[..8], 400u64.to_le_bytes(), "{region_count} regions");
        }
    }
}

#[test]
fn a_checkpoint_on_request_waits_for_the_commit_in_flight() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 1, 1);
    let gate = &rig.log_gates().durable_writes;
    std::thread::scope(|scope| {
        begin_commit(scope, &journal, gate, 2);
        let checkpoint = scope.spawn(|| journal.checkpoint().unwrap());
        wait_until("the checkpoint's own sync", || journal.stats().syncs == 3);
        gate.open();
        checkpoint.join().unwrap();
    });
    commit(&journal, 3, 1);
    drop(journal);
    let after = rig.crash(Survival::Nothing);
    after.recover().unwrap();
    assert_eq!(after.first_bytes([1, 2, 3]), [1, 1, 1]);
}

/// A checkpoint on request used to free the region in which a commit in flight had its place.
#[test]
fn regression_checkpoints_on_request_amid_commits_lose_nothing() {
    let rig = Rig::with_regions(3);
    let journal = rig.open(busy(3));
    rig.log_gates().is_slow.store(true, Ordering::Relaxed);
    let acknowledged: [AtomicU64; 3] = Default::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (journal, acknowledged) = (&journal, &acknowledged);
        let writer = |block: u64| {
            move || {
                for count in 1..=200 {
                    journal.sync(increment(journal, block)).unwrap();
                    acknowledged[block as usize].store(count, Ordering::SeqCst);
                }
            }
        };
        let writers: Vec<_> = (0..3).map(|block| scope.spawn(writer(block))).collect();
        let checkpoints = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                journal.checkpoint().unwrap();
                assert_survives_a_crash(&rig, acknowledged);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        checkpoints.join().unwrap();
    });
    assert_survives_a_crash(&rig, &acknowledged);
}

/// Block n holds at least the n-th number after a power cut now.
fn assert_survives_a_crash(rig: &Rig, acknowledged: &[AtomicU64]) {
    let counts: Vec<u64> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    // The journal first: what goes home between the two is in it or was home before.
    let log = SimDevice::from_image(rig.log_sim().crash(Survival::Nothing), 512);
    let home = SimDevice::from_image(rig.home_sim().crash(Survival::Nothing), 512);
    let after = Rig::on(home, log);
    after.recover().unwrap();
    for (block, count) in counts.into_iter().enumerate() {
        let found = u64::from_le_bytes(after.at_home(block as u64)[..8].try_into().unwrap());
        assert!(found >= count, "block {block}: {found}, acknowledged {count}");
    }
}

/// One of the blocks that share a shard of the cache.
fn one_clean_block() -> MemoryLimits {
    MemoryLimits { clean_blocks: 1, ..MemoryLimits::default() }
}

#[test]
fn a_slow_reader_does_not_fill_the_cache_with_an_old_version() {
    let rig = Rig::new();
    let journal = rig.open(Options { memory: one_clean_block(), ..quiet() });
    let gate = &rig.home_gates().reads_done;
    gate.close_for(1);
    std::thread::scope(|scope| {
        scope.spawn(|| journal.read(HomeBlock(16)).unwrap());
        gate.wait_for(1);
        // It has read the old bytes. The block changes, goes home, and is dropped from the cache,
        // which keeps one clean block per shard. Block 32 is in the same shard.
        commit(&journal, 16, 2);
        journal.checkpoint().unwrap();
        commit(&journal, 32, 2);
        journal.checkpoint().unwrap();
        gate.open();
    });
    assert_eq!(journal.read(HomeBlock(16)).unwrap()[0], 2);
}

#[test]
fn readers_never_see_a_version_go_back() {
    let rig = Rig::new();
    let journal = rig.open(Options { memory: one_clean_block(), ..busy(2) });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let now = number(&journal, 16);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
        }
        for round in 0..600 {
            let tid = increment(&journal, 16);
            // The same shard of the cache, so that block 16 is dropped from it when it is clean.
            let other = increment(&journal, 32 + round % 20 * 16);
            journal.sync(tid.max(other)).unwrap();
            if round % 50 == 0 {
                journal.checkpoint().unwrap();
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(number(&journal, 16), 600);
}

#[test]
fn the_timer_commits_without_being_asked() {
    let rig = Rig::new();
    let interval = Some(Duration::from_millis(1));
    let journal = rig.open(Options { commit_interval: interval, ..busy(2) });
    for round in 1..=3 {
        let tid = put(&journal, 5, 1);
        wait_until("a commit by the timer", || journal.committed_tid() >= tid);
        assert_eq!(journal.stats().commits, round);
    }
}

#[test]
fn dropping_it_in_the_middle_of_a_stalled_timer_commit_does_not_hang() {
    let rig = Rig::new();
    let interval = Some(Duration::from_millis(1));
    let journal = rig.open(Options { commit_interval: interval, ..busy(2) });
    let gate = &rig.home_gates().writes;
    gate.close();
    let mut round = 0;
    while journal.stats().stalls == 0 {
        let mut handle = journal.begin(1).unwrap();
        handle.put(HomeBlock(round % 1000), common::filled(1), Form::Block).unwrap();
        let tid = handle.stop();
        wait_until("a commit or a stall", || {
            journal.committed_tid() >= tid || journal.stats().stalls > 0
        });
        round += 1;
    }
    std::thread::scope(|scope| {
        scope.spawn(move || drop(journal));
        gate.open();
    });
}

/// Other threads began the next transaction each time before it looked.
#[test]
fn regression_an_operation_that_needs_all_the_room_gets_its_turn() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    let is_done = AtomicBool::new(false);
    let mut commit_count = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let mut handle = journal.begin(1).expect("a handle");
                handle.put(HomeBlock(3), common::filled(1), Form::Block).expect("a credit");
                handle.stop();
            }
        });
        wait_until("something to commit", || journal.stats().handles > 0);
        gate.close();
        let large = scope.spawn(|| {
            journal.begin(journal.max_credit_count()).expect("a handle").stop();
        });
        while !large.is_finished() && commit_count < 10 {
            if gate.holds(1) {
                // Meanwhile the other one begins the next transaction.
                std::thread::sleep(Duration::from_millis(20));
                commit_count += 1;
                gate.open();
                wait_until("it passes", || !gate.holds(1));
                gate.close();
            }
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
        gate.open();
    });
    assert!(commit_count <= 5, "{commit_count} commits");
}
