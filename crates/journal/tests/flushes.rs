//! Journal and home on one device without FUA: a durable write is a write and a flush behind it, and
//! a failed flush of one thread loses what others have written. Nobody may believe the next one.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Gated, HOME_BLOCKS, REGION_BYTES, UUID, filled, put, quiet};
use device::{BlockDevice, Fault, Operation, SimDevice, Survival};
use journal::{BLOCK_BYTES, HomeBlock, Journal, JournalError, Space};

const HOME_BYTES: u64 = HOME_BLOCKS * BLOCK_BYTES as u64;

/// Home blocks, and the journal behind them.
struct Machine(Arc<Gated>);

impl Machine {
    fn new(seed: u64) -> Machine {
        let sim = SimDevice::new(HOME_BYTES + 8192 + 2 * REGION_BYTES, 512);
        sim.set_seed(seed);
        let device = Gated::new(sim);
        device.has_no_fua.store(true, Ordering::Relaxed);
        Machine(Arc::new(device))
    }

    fn space(&self) -> Space {
        let end = self.0.size_bytes();
        Space::new(self.0.clone(), std::iter::once(HOME_BYTES..end).collect()).expect("it fits")
    }

    fn open(&self) -> Journal {
        Journal::open(self.0.clone(), self.space(), UUID, quiet()).expect("it opens")
    }

    fn fail_the_next_flush(&self) {
        let operation = Operation::Flush;
        self.0.sim.inject(Fault { operation, skip_count: 0, forever: false });
    }

    /// First byte of the block after a power cut now and recovery.
    fn after_a_crash(&self, block: u64) -> u8 {
        let image = self.0.sim.crash(Survival::Nothing);
        let after = Machine(Arc::new(Gated::new(SimDevice::from_image(image, 512))));
        let home: Arc<dyn BlockDevice> = after.0.clone();
        journal::recover(&home, &after.space(), &UUID, &Default::default()).expect("it recovers");
        let mut bytes = [0; BLOCK_BYTES];
        after.0.read(block * BLOCK_BYTES as u64, &mut bytes).expect("it is readable");
        bytes[0]
    }
}

/// Lets others run until `condition` holds, but not for ever: they may have to wait for the caller,
/// and then it never does.
fn let_run_until(condition: impl Fn() -> bool) {
    (0..20_000).take_while(|_| !condition()).for_each(|_| std::thread::yield_now());
}

/// The record is written; then somebody else's flush fails and loses it; then the commit's own flush
/// comes, before the other one's caller has heard of the failure.
#[test]
fn a_commit_does_not_believe_its_flush_after_another_one_has_failed() {
    for seed in 0..8 {
        let machine = Machine::new(seed);
        let journal = machine.open();
        let device = &machine.0;
        device.between.close_for(1);
        device.flush_failed.close();
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| journal.sync(put(&journal, 6, 1)));
            device.between.wait_for(1);
            journal.write_in_place(HomeBlock(7), filled(1).as_ref()).unwrap();
            machine.fail_the_next_flush();
            let flush = scope.spawn(|| journal.flush_in_place());
            let_run_until(|| device.flush_failed.holds(1));
            if !device.flush_failed.holds(1) {
                // It waits for the commit, so it is the commit's flush that would fail.
                device.sim.clear_faults();
            }
            device.between.open();
            let is_acknowledged = sync.join().unwrap().is_ok();
            let found = machine.after_a_crash(6);
            device.flush_failed.open();
            let _ = flush.join().unwrap();
            assert!(!is_acknowledged || found == 1, "acknowledged and lost, seed {seed}");
        });
    }
}

/// The commit's own flush fails and loses what somebody else wrote in place; then that one's flush
/// comes, before the commit has heard of the failure.
#[test]
fn a_sync_does_not_believe_its_flush_after_that_of_a_commit_has_failed() {
    let machine = Machine::new(1);
    let journal = machine.open();
    let device = &machine.0;
    device.between.close_for(1);
    device.flush_failed.close();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| journal.sync(put(&journal, 6, 1)));
        device.between.wait_for(1);
        journal.write_in_place(HomeBlock(7), filled(1).as_ref()).unwrap();
        machine.fail_the_next_flush();
        device.between.open();
        device.flush_failed.wait_for(1);
        let flush = scope.spawn(|| journal.flush_in_place());
        let_run_until(|| flush.is_finished());
        device.flush_failed.open();
        assert!(matches!(flush.join().unwrap(), Err(JournalError::Aborted(_))));
        assert!(matches!(sync.join().unwrap(), Err(JournalError::Io(_))));
    });
}
