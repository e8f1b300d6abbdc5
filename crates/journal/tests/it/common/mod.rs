//! A journal on simulated devices, with gates that a test opens and closes.

#![allow(dead_code, missing_docs, reason = "each test file uses a part of it")]

pub mod media;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::{Condvar, Mutex};
use device::{BlockDevice, Counters, Metered};
use onejournal_journal::format::FORM_COPY;
use onejournal_journal::{
    BLOCK_BYTES, BlockBytes, BlockOwner, BlockRef, Form, HomeBlock, Journal, Options,
    RecoverOptions, Recovery, Result, Space, Tid,
};
use onejournal_testing::{Layer, Layered, SimDevice, Survival};

pub const UUID: [u8; 16] = *b"a volume's uuid.";
pub const HOME_BLOCKS: u64 = 1024;
/// A little more than the smallest region that is accepted.
pub const REGION_BYTES: u64 = 140 * 4096;

/// Lets operations pass, or holds them back until it is opened.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    /// How many operations may still be held back. Further ones pass.
    hold_count: usize,
    waiting_count: usize,
}

impl Gate {
    pub fn close(&self) {
        self.close_for(usize::MAX);
    }

    /// Holds back only the next `hold_count` operations.
    pub fn close_for(&self, hold_count: usize) {
        let mut state = self.state.lock();
        state.closed = true;
        state.hold_count = hold_count;
    }

    pub fn open(&self) {
        self.state.lock().closed = false;
        self.changed.notify_all();
    }

    /// Whether this many operations are held back.
    pub fn holds(&self, count: usize) -> bool {
        self.state.lock().waiting_count >= count
    }

    /// Returns when this many operations are held back.
    pub fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.waiting_count < count {
            state = self.changed.wait(state);
        }
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        if !state.closed || state.hold_count == 0 {
            return;
        }
        state.hold_count -= 1;
        state.waiting_count += 1;
        self.changed.notify_all();
        while state.closed {
            state = self.changed.wait(state);
        }
        state.waiting_count -= 1;
    }
}

/// A simulated device whose operations pass a gate before they begin.
pub type Gated = Layered<SimDevice, Gates>;

/// The gates of a device.
#[derive(Default)]
pub struct Gates {
    pub writes: Gate,
    pub durable_writes: Gate,
    pub flushes: Gate,
    /// Passed when the bytes have been read.
    pub reads_done: Gate,
    /// Durable writes let other threads run meanwhile.
    pub is_slow: AtomicBool,
    /// A durable write is a write and then a flush.
    pub has_no_fua: AtomicBool,
    /// Passed between these two.
    pub between: Gate,
    /// Passed by a flush that has failed, before its caller learns of it.
    pub flush_failed: Gate,
}

/// The device with its gates open.
pub fn gated(sim: SimDevice) -> Gated {
    Layered::new(Arc::new(sim), Gates::default())
}

impl Layer for Gates {
    fn read(&self, sim: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        let read = sim.read(offset, buf);
        self.reads_done.pass();
        read
    }

    fn write(&self, sim: &dyn BlockDevice, offset: u64, data: &[u8]) -> device::Result<()> {
        self.writes.pass();
        sim.write(offset, data)
    }

    fn write_durable(&self, sim: &dyn BlockDevice, offset: u64, data: &[u8]) -> device::Result<()> {
        self.durable_writes.pass();
        if self.is_slow.load(Ordering::Relaxed) {
            (0..20).for_each(|_| std::thread::yield_now());
        }
        if !self.has_no_fua.load(Ordering::Relaxed) {
            return sim.write_durable(offset, data);
        }
        sim.write(offset, data)?;
        self.between.pass();
        self.flush(sim)
    }

    fn write_fua(
        &self,
        sim: &dyn BlockDevice,
        offset: u64,
        data: &[u8],
    ) -> Option<device::Result<()>> {
        let has_fua = !self.has_no_fua.load(Ordering::Relaxed);
        has_fua.then(|| self.write_durable(sim, offset, data))
    }

    fn flush(&self, sim: &dyn BlockDevice) -> device::Result<()> {
        self.flushes.pass();
        sim.flush().inspect_err(|_| self.flush_failed.pass())
    }
}

/// A home device and a journal device.
pub struct Rig {
    pub home: Arc<Metered<Gated>>,
    pub log: Arc<Metered<Gated>>,
}

impl Rig {
    /// Room for two regions.
    pub fn new() -> Rig {
        Rig::with_regions(2)
    }

    pub fn with_regions(region_count: u64) -> Rig {
        let log_bytes = 8192 + region_count * REGION_BYTES;
        let home = SimDevice::new(HOME_BLOCKS * BLOCK_BYTES as u64, 512);
        Rig::on(home, SimDevice::new(log_bytes, 512))
    }

    pub fn on(home: SimDevice, log: SimDevice) -> Rig {
        let wrap = |sim| Arc::new(Metered::new(gated(sim)));
        Rig { home: wrap(home), log: wrap(log) }
    }

    pub fn home_sim(&self) -> &SimDevice {
        &self.home.inner().device
    }

    pub fn log_sim(&self) -> &SimDevice {
        &self.log.inner().device
    }

    pub fn home_gates(&self) -> &Gates {
        &self.home.inner().layer
    }

    pub fn log_gates(&self) -> &Gates {
        &self.log.inner().layer
    }

    pub fn space(&self) -> Space {
        let size = self.log.size_bytes();
        Space::new(self.log.clone(), std::iter::once(0..size).collect())
            .expect("the device is large enough")
    }

    pub fn open(&self, options: Options) -> Journal {
        Journal::open(self.home.clone(), self.space(), UUID, options).expect("it opens")
    }

    /// What a power cut leaves, on new devices.
    pub fn crash(&self, survival: Survival) -> Rig {
        let after = |sim: &SimDevice| SimDevice::from_image(sim.crash(survival), 512);
        Rig::on(after(self.home_sim()), after(self.log_sim()))
    }

    pub fn recover(&self) -> Result<Recovery> {
        self.recover_with(&RecoverOptions::default())
    }

    pub fn recover_with(&self, options: &RecoverOptions) -> Result<Recovery> {
        let home: Arc<dyn BlockDevice> = self.home.clone();
        onejournal_journal::recover(&home, &self.space(), &UUID, options)
    }

    /// The block as it is at home.
    pub fn at_home(&self, block: u64) -> BlockBytes {
        let mut bytes = [0; BLOCK_BYTES];
        self.home.read(block * BLOCK_BYTES as u64, &mut bytes).expect("it is readable");
        bytes
    }

    /// The first byte of each of these blocks at home.
    pub fn first_bytes<const N: usize>(&self, blocks: [u64; N]) -> [u8; N] {
        blocks.map(|block| self.at_home(block)[0])
    }

    pub fn counters(&self) -> (Counters, Counters) {
        (self.home.counters(), self.log.counters())
    }
}

/// Options with which everything happens in the caller's thread. Two regions.
pub fn quiet() -> Options {
    Options {
        region_count: 2,
        commit_interval: None,
        background: false,
        incarnation: 7001,
        now_ns: || 5,
        pack: false,
        ..Options::default()
    }
}

pub fn filled(byte: u8) -> BlockRef {
    Arc::new([byte; BLOCK_BYTES])
}

/// Journals the block, filled with `byte`, in an operation of its own.
pub fn put(journal: &Journal, block: u64, byte: u8) -> Tid {
    let mut handle = journal.begin(1).expect("a handle");
    handle.put(HomeBlock(block), filled(byte), Form::Block).expect("within the credits");
    handle.stop()
}

/// [`put`], durably.
pub fn commit(journal: &Journal, block: u64, byte: u8) -> Tid {
    let tid = put(journal, block, byte);
    journal.sync(tid).expect("it commits");
    tid
}

/// Frees the block in an operation of its own.
pub fn forget(journal: &Journal, block: u64) -> Tid {
    let mut handle = journal.begin(0).expect("a handle");
    handle.forget(HomeBlock(block), 1);
    handle.stop()
}

pub fn put_ordered(journal: &Journal, block: u64, byte: u8) -> Tid {
    put_ordered_of(journal, BlockOwner::NOBODY, block, byte)
}

pub fn put_ordered_of(journal: &Journal, owner: BlockOwner, block: u64, byte: u8) -> Tid {
    let mut handle = journal.begin(1).expect("a handle");
    handle.set_owner(owner);
    handle.put_ordered(HomeBlock(block), filled(byte)).expect("within the credits");
    handle.stop()
}

/// How many blocks were logged as copies.
pub fn copied_blocks(journal: &Journal) -> u64 {
    journal.stats().blocks_by_form[usize::from(FORM_COPY - 1)]
}

/// Returns when `condition` holds; panics when that takes absurdly long.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited too long: {what}");
        std::thread::yield_now();
    }
}
