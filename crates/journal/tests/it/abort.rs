//! A failure: the error is reported, it is permanent, and nothing that was acknowledged is lost.

use crate::common;

use common::{Rig, commit, filled, put, put_ordered, quiet};
use device::Operation;
use onejournal_journal::{Form, HomeBlock, Journal, JournalError, Options};
use onejournal_testing::{Fault, Survival};

/// Asserts that nothing is accepted any more, although the device works again.
fn assert_aborted(rig: &Rig, journal: Journal) {
    let is_aborted = |error: Option<JournalError>| matches!(error, Some(JournalError::Aborted(_)));
    let before = rig.counters();
    for _ in 0..2 {
        assert!(is_aborted(journal.sync(journal.running_tid()).err()));
        assert!(is_aborted(journal.sync(journal.committed_tid()).err()));
        assert!(is_aborted(journal.begin(1).err()));
        assert!(is_aborted(journal.flush_in_place().err()));
        assert!(is_aborted(journal.write_in_place(HomeBlock(900), &[0; 4096]).err()));
        assert!(is_aborted(journal.checkpoint().err()));
    }
    assert!(journal.abort_reason().is_some());
    assert!(is_aborted(journal.close().err()));
    let after = rig.counters();
    assert_eq!(
        (after.0.write_count, after.1.write_count),
        (before.0.write_count, before.1.write_count)
    );
}

#[test]
fn a_failed_commit_is_never_followed_by_a_success() {
    for seed in 0..20 {
        let rig = Rig::new();
        let journal = rig.open(quiet());
        commit(&journal, 1, 1);
        rig.log_sim().set_seed(seed);
        rig.log_sim().inject(Fault::once(Operation::Write, 0));
        let tid = put(&journal, 2, 2);
        assert!(matches!(journal.sync(tid), Err(JournalError::Io(_))));
        assert_eq!(journal.read(HomeBlock(2)).unwrap()[0], 2, "reading goes on");
        assert_aborted(&rig, journal);
        let after = rig.crash(Survival::Random(seed));
        after.recover().unwrap();
        let found = after.first_bytes([1, 2]);
        assert!([[1, 0], [1, 2]].contains(&found), "{found:?}");
    }
}

#[test]
fn after_a_failed_flush_of_the_data_the_record_is_not_written() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 1, 1);
    rig.home_sim().inject(Fault::once(Operation::Flush, 0));
    put_ordered(&journal, 2, 2);
    let tid = put(&journal, 3, 3);
    let before = rig.log.counters();
    assert!(matches!(journal.sync(tid), Err(JournalError::Io(_))));
    assert_eq!(rig.log.counters(), before);
    assert_aborted(&rig, journal);
}

#[test]
fn after_a_failed_write_in_place_its_transaction_is_not_committed() {
    for buffered in [false, true] {
        let rig = Rig::new();
        let journal = rig.open(quiet());
        commit(&journal, 1, 1);
        let mut handle = journal.begin(2).unwrap();
        handle.put(HomeBlock(3), filled(3), Form::Block).unwrap();
        let guard = handle.begin_in_place();
        if buffered {
            handle.put_ordered(HomeBlock(2), filled(2)).unwrap();
        }
        let tid = handle.stop();
        rig.home_sim().inject(Fault::once(Operation::Write, 0));
        let before = rig.log.counters();
        if buffered {
            drop(guard);
            assert!(matches!(journal.sync(tid), Err(JournalError::Io(_))));
        } else {
            std::thread::scope(|scope| {
                let sync = scope.spawn(|| journal.sync(tid));
                common::wait_until("it to close", || journal.running_tid() > tid);
                let written = journal.write_in_place(HomeBlock(2), &[2; 4096]);
                assert!(matches!(written, Err(JournalError::Io(_))));
                drop(guard);
                assert!(sync.join().unwrap().is_err());
            });
        }
        assert_eq!(rig.log.counters(), before, "no record");
        assert_aborted(&rig, journal);
    }
}

/// A checkpoint fails at its write home, its flush or its header.
#[test]
fn a_failed_checkpoint_loses_nothing_that_was_acknowledged() {
    for (on_home, operation) in
        [(true, Operation::Write), (true, Operation::Flush), (false, Operation::Write)]
    {
        for seed in 0..10 {
            let rig = Rig::new();
            let journal = rig.open(quiet());
            (0..100).for_each(|n| _ = commit(&journal, n % 10, n as u8));
            let sim = if on_home { rig.home_sim() } else { rig.log_sim() };
            sim.set_seed(seed);
            sim.inject(Fault::once(operation, 0));
            assert!(matches!(journal.checkpoint(), Err(JournalError::Io(_))));
            assert_aborted(&rig, journal);
            let after = rig.crash(Survival::Random(seed));
            after.recover().unwrap();
            let expected = std::array::from_fn::<u8, 10, _>(|n| 90 + n as u8);
            assert_eq!(after.first_bytes(std::array::from_fn(|n| n as u64)), expected);
        }
    }
}

#[test]
fn waiting_for_a_free_region_ends_when_the_checkpoint_fails() {
    let rig = Rig::new();
    let journal = rig.open(Options { background: true, ..quiet() });
    let gate = &rig.home_gates().writes;
    gate.close();
    let acknowledged = std::thread::scope(|scope| {
        let writer = scope
            .spawn(|| (0..1000).take_while(|n| journal.sync(put(&journal, *n, 1)).is_ok()).count());
        gate.wait_for(1);
        common::wait_until("a stall", || journal.stats().stalls == 1);
        rig.home_sim().inject(Fault::once(Operation::Write, 0));
        gate.open();
        writer.join().unwrap()
    });
    assert_aborted(&rig, journal);
    let after = rig.crash(Survival::Nothing);
    assert!(after.recover().unwrap().transaction_count >= acknowledged);
    assert!((0..acknowledged as u64).all(|n| after.at_home(n)[0] == 1));
}

#[test]
fn waiting_for_a_free_region_ends_when_a_write_in_place_fails() {
    let rig = Rig::new();
    let journal = rig.open(Options { background: true, ..quiet() });
    let gate = &rig.home_gates().flushes;
    gate.close();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..1000).all(|n| journal.sync(put(&journal, n, 1)).is_ok()));
        gate.wait_for(1);
        common::wait_until("a stall", || journal.stats().stalls == 1);
        rig.home_sim().inject(Fault::once(Operation::Write, 0));
        assert!(journal.write_in_place(HomeBlock(1001), &[1; 4096]).is_err());
        assert!(!writer.join().unwrap(), "it returns while the checkpoint is still held back");
        gate.open();
    });
}

#[test]
fn everyone_who_waits_for_a_failed_commit_gets_an_error() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let gate = &rig.log_gates().durable_writes;
    gate.close();
    let sync = |block| journal.sync(put(&journal, block, 1));
    let sync = &sync;
    std::thread::scope(|scope| {
        let mut threads = vec![scope.spawn(move || sync(0))];
        gate.wait_for(1);
        threads.extend((1..8).map(|block| scope.spawn(move || sync(block))));
        common::wait_until("8 syncs", || journal.stats().syncs == 8);
        rig.log_sim().inject(Fault::once(Operation::Write, 0));
        gate.open();
        for thread in threads {
            assert!(thread.join().unwrap().is_err());
        }
    });
    assert_aborted(&rig, journal);
}

#[test]
fn a_failed_read_is_no_reason_to_abort() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    rig.home_sim().inject(Fault::once(Operation::Read, 0));
    let mut handle = journal.begin(1).unwrap();
    assert!(matches!(handle.write(HomeBlock(5)), Err(JournalError::Io(_))));
    drop(handle);
    commit(&journal, 5, 1);
    journal.close().unwrap();
    assert_eq!(rig.at_home(5)[0], 1);
}

#[test]
fn a_full_device_is_an_error_like_any_other() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    commit(&journal, 1, 1);
    rig.log_sim().set_capacity_bytes(8192);
    let tid = put(&journal, 2, 1);
    assert!(matches!(journal.sync(tid), Err(JournalError::Io(_))));
    rig.log_sim().clear_faults();
    assert_aborted(&rig, journal);
}
