//! How many writers a checkpoint has: one beside commits, all when a thread waits for it.

use crate::common;

use std::sync::Arc;

use common::{HOME_BLOCKS, UUID, filled, quiet, wait_until};
use device::BlockDevice;
use device::sync::{Condvar, Mutex};
use onejournal_journal::{
    BLOCK_BYTES, Form, HomeBlock, Journal, MemoryLimits, Options, RecoverOptions, Space,
};
use onejournal_testing::{Layer, Layered, SimDevice, Survival};

const HOME_BYTES: u64 = HOME_BLOCKS * BLOCK_BYTES as u64;
const ALL: usize = 8;
/// A free region of this size is room for a burst and more.
const REGION_BYTES: u64 = 24 << 20;

/// Notes how many writers each list of writes may have, and can hold lists.
#[derive(Default)]
struct Lists {
    /// The number of writers and of writes of each list.
    noted: Mutex<Vec<(usize, usize)>>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Lists {
    fn hold(&self) {
        *self.is_held.lock() = true;
    }

    fn release(&self) {
        *self.is_held.lock() = false;
        self.released.notify_all();
    }

    /// Returns when a checkpoint has begun to write.
    fn wait_for_checkpoint(&self) {
        wait_until("a checkpoint", || !self.noted.lock().is_empty());
    }

    /// How many writers each list of the first checkpoint had, which writes this many blocks.
    fn writer_counts(&self, block_count: usize) -> Vec<usize> {
        let mut left_count = block_count;
        let mut is_of_first = |write_count: usize| {
            let is_of_first = left_count > 0;
            left_count = left_count.saturating_sub(write_count);
            is_of_first
        };
        let lists = self.noted.lock().clone();
        let first = lists.iter().take_while(|(_, write_count)| is_of_first(*write_count));
        first.map(|(writer_count, _)| *writer_count).collect()
    }
}

impl Layer for Lists {
    fn write_spans(
        &self,
        device: &dyn BlockDevice,
        spans: &[(u64, &[u8])],
        at_a_time: usize,
    ) -> device::Result<()> {
        self.noted.lock().push((at_a_time, spans.len()));
        let mut is_held = self.is_held.lock();
        while *is_held {
            is_held = self.released.wait(is_held);
        }
        drop(is_held);
        device.write_spans(spans, at_a_time)
    }
}

type Disk = Layered<SimDevice, Lists>;

/// Room for the home blocks and for two regions.
fn disk() -> Arc<Disk> {
    let sim = SimDevice::new(HOME_BYTES + 8192 + 2 * REGION_BYTES, 512);
    Arc::new(Layered::new(Arc::new(sim), Lists::default()))
}

fn open(disk: &Arc<Disk>, memory: MemoryLimits) -> Journal {
    let options = Options { background: true, memory, ..quiet() };
    Journal::open(disk.clone(), space(disk.clone()), UUID, options).expect("it opens")
}

/// The journal after the home blocks.
fn space(disk: Arc<dyn BlockDevice>) -> Space {
    let extent = HOME_BYTES..disk.size_bytes();
    Space::new(disk, std::iter::once(extent).collect()).expect("the device is large enough")
}

/// Commits 100 blocks until the next such commit enters another region.
fn fill_region(journal: &Journal, first: u64) {
    for _ in 0..REGION_BYTES / (100 * BLOCK_BYTES as u64) {
        commit(journal, first, 100);
    }
}

/// Commits every second block, so that no two are one write.
fn commit(journal: &Journal, first: u64, count: u64) {
    let mut handle = journal.begin(count as usize).expect("a handle");
    for block in first..first + count {
        handle.put(HomeBlock(2 * block), filled(7), Form::Block).expect("within the credits");
    }
    journal.sync(handle.stop()).expect("it commits");
}

fn is_home(disk: &Disk, blocks: std::ops::Range<u64>) -> bool {
    let after: Arc<dyn BlockDevice> =
        Arc::new(SimDevice::from_image(disk.device.crash(Survival::Nothing), 512));
    let space = space(after.clone());
    onejournal_journal::recover(&after, &space, &UUID, &RecoverOptions::default()).expect("whole");
    let mut bytes = [0; BLOCK_BYTES];
    blocks.map(|block| 2 * block * BLOCK_BYTES as u64).all(|offset| {
        after.read(offset, &mut bytes).expect("it is readable");
        bytes == [7; BLOCK_BYTES]
    })
}

/// A region of 100 blocks goes home, and its first list of writes is held.
fn with_a_held_checkpoint() -> (Arc<Disk>, Journal) {
    let disk = disk();
    let journal = open(&disk, MemoryLimits::default());
    disk.layer.hold();
    fill_region(&journal, 0);
    commit(&journal, 100, 100);
    disk.layer.wait_for_checkpoint();
    (disk, journal)
}

#[test]
fn commits_that_come_leave_a_checkpoint_one_writer() {
    let (disk, journal) = with_a_held_checkpoint();
    assert_eq!(*disk.layer.noted.lock(), [(1, 32)]);
    disk.layer.release();
    drop(journal);
    assert!(is_home(&disk, 0..200));
}

#[test]
fn a_commit_that_waits_for_a_free_region_has_all_writers() {
    let (disk, journal) = with_a_held_checkpoint();
    std::thread::scope(|scope| {
        scope.spawn(|| fill_region(&journal, 100));
        wait_until("a stall", || journal.stats().stalls == 1);
        disk.layer.release();
    });
    assert_eq!(disk.layer.writer_counts(100), [1, ALL]);
    drop(journal);
    assert!(is_home(&disk, 0..200));
}

#[test]
fn a_commit_that_waits_for_memory_has_all_writers() {
    let disk = disk();
    let memory = MemoryLimits { dirty_blocks: 150, ..MemoryLimits::default() };
    let journal = open(&disk, memory);
    disk.layer.hold();
    commit(&journal, 0, 70);
    std::thread::scope(|scope| {
        scope.spawn(|| commit(&journal, 70, 100));
        wait_until("a stall", || journal.stats().stalls == 1);
        disk.layer.wait_for_checkpoint();
        disk.layer.release();
    });
    let counts = disk.layer.writer_counts(70);
    // The first list may have begun before the commit waited.
    assert!(counts[1..].iter().all(|count| *count == ALL), "{counts:?}");
    drop(journal);
    assert!(is_home(&disk, 0..170));
}

#[test]
fn a_caller_that_waits_until_all_is_home_has_all_writers() {
    let disk = disk();
    let journal = open(&disk, MemoryLimits::default());
    commit(&journal, 0, 100);
    journal.checkpoint().expect("it goes home");
    assert_eq!(disk.layer.writer_counts(100), [ALL]);
    drop(journal);
    assert!(is_home(&disk, 0..100));
}

#[test]
fn a_journal_on_another_disk_leaves_a_checkpoint_all_writers() {
    let (disk, log) = (disk(), disk());
    let options = Options { background: true, ..quiet() };
    let journal = Journal::open(disk.clone(), space(log), UUID, options).expect("it opens");
    fill_region(&journal, 0);
    commit(&journal, 100, 100);
    disk.layer.wait_for_checkpoint();
    assert_eq!(disk.layer.writer_counts(100), [ALL]);
}
