//! A bug in a thread that others wait for: they get an error, and none waits for ever.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use common::{Rig, filled, quiet, wait_until};
use onejournal_journal::{
    BlockOwner, Form, HomeBlock, Journal, JournalError, Observer, Options, Tid, Written, WrittenAs,
};

/// Panics when it hears of a write of this kind.
#[derive(Debug)]
struct Panics(fn(WrittenAs) -> bool);

impl Observer for Panics {
    fn written(&self, written: &[Written]) {
        assert!(!written.iter().any(|one| (self.0)(one.how)), "a bug, on purpose");
    }
}

fn in_commit() -> Option<Arc<dyn Observer>> {
    Some(Arc::new(Panics(|how| matches!(how, WrittenAs::Logged { .. }))))
}

fn in_checkpoint() -> Option<Arc<dyn Observer>> {
    Some(Arc::new(Panics(|how| matches!(how, WrittenAs::Home))))
}

fn put_owned(journal: &Journal, block: u64) -> Tid {
    let mut handle = journal.begin(1).expect("a handle");
    handle.set_owner(BlockOwner(7));
    handle.put(HomeBlock(block), filled(1), Form::Block).expect("within the credits");
    handle.stop()
}

fn assert_aborted(journal: Journal) {
    let is_aborted = |error: Option<JournalError>| matches!(error, Some(JournalError::Aborted(_)));
    assert!(is_aborted(journal.sync(journal.running_tid()).err()));
    assert!(is_aborted(journal.begin(1).err()));
    assert!(is_aborted(journal.checkpoint().err()));
    assert!(journal.abort_reason().is_some_and(|why| why.contains("panic")));
    assert!(is_aborted(journal.close().err()));
}

#[test]
fn a_panic_of_the_commit_timer_aborts() {
    let rig = Rig::new();
    let commit_interval = Some(Duration::from_millis(1));
    let options = Options { background: true, commit_interval, observer: in_commit(), ..quiet() };
    let journal = rig.open(options);
    put_owned(&journal, 5);
    wait_until("the timer to commit", || journal.abort_reason().is_some());
    assert_aborted(journal);
}

#[test]
fn waiting_for_a_commit_ends_when_it_panics() {
    let rig = Rig::new();
    let journal = rig.open(Options { observer: in_commit(), ..quiet() });
    let gate = &rig.log_gates().durable_writes;
    gate.close();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| journal.sync(put_owned(&journal, 5)));
        gate.wait_for(1);
        let waiting = scope.spawn(|| journal.sync(put_owned(&journal, 6)));
        let checkpoint = scope.spawn(|| journal.checkpoint());
        wait_until("three syncs", || journal.stats().syncs == 3);
        gate.open();
        assert!(leader.join().is_err(), "the bug is not hidden");
        assert!(waiting.join().expect("it does not panic").is_err());
        assert!(checkpoint.join().expect("it does not panic").is_err());
    });
    assert_aborted(journal);
}

#[test]
fn waiting_for_a_region_ends_when_the_checkpoint_panics() {
    let rig = Rig::new();
    let options = Options { background: true, observer: in_checkpoint(), ..quiet() };
    let journal = rig.open(options);
    let gate = &rig.home_gates().writes;
    gate.close();
    std::thread::scope(|scope| {
        let sync = |block| journal.sync(put_owned(&journal, block % 1000));
        let writer = scope.spawn(move || (0u64..).find_map(|block| sync(block).err()));
        gate.wait_for(1);
        wait_until("a stall", || journal.stats().stalls == 1);
        gate.open();
        assert!(matches!(writer.join().unwrap(), Some(JournalError::Aborted(_))));
    });
    assert_aborted(journal);
}

#[test]
fn a_panic_during_a_write_in_place_aborts() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut handle = journal.begin(1).expect("a handle");
            let _guard = handle.begin_in_place();
            handle.put(HomeBlock(5), filled(1), Form::Block).expect("within the credits");
            handle.stop();
            panic!("a bug, on purpose");
        });
        assert!(writer.join().is_err());
    });
    assert_aborted(journal);
}
