//! Journal and home on one device without FUA, or on two partitions of one device. A durable write
//! is then a write and a flush after it. A failed flush of one thread loses the writes of others,
//! and no thread may trust the next flush.

use crate::common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};

use common::{Gated, Gates, HOME_BLOCKS, REGION_BYTES, UUID, filled, gated, put, quiet};
use device::{BlockDevice, Durability, Operation};
use onejournal_journal::{BLOCK_BYTES, HomeBlock, Journal, JournalError, Result, Space};
use onejournal_testing::{Fault, SimDevice, Survival, standstill};

const HOME_BYTES: u64 = HOME_BLOCKS * BLOCK_BYTES as u64;
/// Number of the disk that partitions are of.
const DISK: u64 = 8;

/// Home blocks, and the journal after them.
struct Machine {
    disk: Arc<Gated>,
    home: Arc<dyn BlockDevice>,
    space: Space,
}

/// A part of a disk that is a device of its own.
struct Partition {
    disk: Arc<Gated>,
    range: Range<u64>,
}

impl BlockDevice for Partition {
    fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn sector_bytes(&self) -> usize {
        self.disk.sector_bytes()
    }

    fn durability(&self) -> Durability {
        self.disk.durability()
    }

    fn caches(&self) -> &[u64] {
        &[DISK]
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.disk.read(self.range.start + offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> device::Result<()> {
        self.disk.write(self.range.start + offset, data)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> device::Result<()> {
        self.disk.write_durable(self.range.start + offset, data)
    }

    fn flush(&self) -> device::Result<()> {
        self.disk.flush()
    }
}

#[derive(Debug, Clone, Copy)]
enum Layout {
    OneDevice,
    TwoPartitions,
}

const LAYOUTS: [Layout; 2] = [Layout::OneDevice, Layout::TwoPartitions];

impl Machine {
    fn new(layout: Layout, seed: u64) -> Machine {
        let sim = SimDevice::new(HOME_BYTES + 8192 + 2 * REGION_BYTES, 512);
        sim.set_seed(seed);
        let disk = gated(sim);
        disk.layer.has_no_fua.store(true, Ordering::Relaxed);
        Machine::on(layout, Arc::new(disk))
    }

    fn on(layout: Layout, disk: Arc<Gated>) -> Machine {
        let end = disk.size_bytes();
        let part = |range: Range<u64>| Arc::new(Partition { disk: disk.clone(), range });
        let (home, space): (Arc<dyn BlockDevice>, _) = match layout {
            Layout::OneDevice => {
                let extents = std::iter::once(HOME_BYTES..end).collect();
                (disk.clone(), Space::new(disk.clone(), extents))
            }
            Layout::TwoPartitions => {
                let extents = std::iter::once(0..end - HOME_BYTES).collect();
                (part(0..HOME_BYTES), Space::new(part(HOME_BYTES..end), extents))
            }
        };
        Machine { disk, home, space: space.expect("it fits") }
    }

    fn open(&self) -> Journal {
        Journal::open(self.home.clone(), self.space.clone(), UUID, quiet()).expect("it opens")
    }

    fn gates(&self) -> &Gates {
        &self.disk.layer
    }

    /// Block 6 is being committed: its record is written, and the flush after the record is held
    /// back. Meanwhile block 7 was written in place. The next flush fails, and is held back before
    /// its caller learns of the failure.
    fn begin_commit<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        journal: &'scope Journal,
    ) -> ScopedJoinHandle<'scope, Result<()>> {
        self.gates().between.close_for(1);
        self.gates().flush_failed.close();
        let commit = scope.spawn(|| journal.sync(put(journal, 6, 1)));
        self.gates().between.wait_for(1);
        journal.write_in_place(HomeBlock(7), filled(1).as_ref()).unwrap();
        let operation = Operation::Flush;
        self.disk.device.inject(Fault::once(operation, 0));
        commit
    }

    /// First byte of the block after a power cut now and recovery.
    fn after_a_crash(&self, layout: Layout, block: u64) -> u8 {
        let image = self.disk.device.crash(Survival::Nothing);
        let disk = Arc::new(gated(SimDevice::from_image(image, 512)));
        let Machine { home, space, .. } = Machine::on(layout, disk);
        onejournal_journal::recover(&home, &space, &UUID, &Default::default())
            .expect("it recovers");
        let mut bytes = [0; BLOCK_BYTES];
        home.read(block * BLOCK_BYTES as u64, &mut bytes).expect("it is readable");
        bytes[0]
    }
}

/// The record is written. Then another thread's flush fails and loses it. Then the commit's own
/// flush runs, before the caller of the other flush has learnt of the failure.
#[test]
fn a_commit_does_not_believe_its_flush_after_another_one_has_failed() {
    for (layout, seed) in
        LAYOUTS.into_iter().flat_map(|layout| (0..8).map(move |seed| (layout, seed)))
    {
        let machine = Machine::new(layout, seed);
        let (journal, gates) = (machine.open(), machine.gates());
        std::thread::scope(|scope| {
            let sync = machine.begin_commit(scope, &journal);
            let flush = scope.spawn(|| journal.flush_in_place());
            standstill::run_until(|| gates.flush_failed.holds(1));
            if !gates.flush_failed.holds(1) {
                // It waits for the commit, so it is the commit's flush that would fail.
                machine.disk.device.clear_faults();
            }
            gates.between.open();
            let is_acknowledged = sync.join().unwrap().is_ok();
            let found = machine.after_a_crash(layout, 6);
            gates.flush_failed.open();
            let _ = flush.join().unwrap();
            assert!(
                !is_acknowledged || found == 1,
                "acknowledged and lost, {layout:?}, seed {seed}"
            );
        });
    }
}

/// The commit's own flush fails and loses what another thread wrote in place. Then that thread's
/// flush runs, before the commit has learnt of the failure.
#[test]
fn a_sync_does_not_believe_its_flush_after_that_of_a_commit_has_failed() {
    LAYOUTS.into_iter().for_each(check_flush_after_a_failed_commit);
}

fn check_flush_after_a_failed_commit(layout: Layout) {
    let machine = Machine::new(layout, 1);
    let (journal, gates) = (machine.open(), machine.gates());
    std::thread::scope(|scope| {
        let sync = machine.begin_commit(scope, &journal);
        gates.between.open();
        gates.flush_failed.wait_for(1);
        let flush = scope.spawn(|| journal.flush_in_place());
        standstill::run_until(|| flush.is_finished());
        gates.flush_failed.open();
        assert!(matches!(flush.join().unwrap(), Err(JournalError::Aborted(_))));
        assert!(matches!(sync.join().unwrap(), Err(JournalError::Io(_))));
    });
}
