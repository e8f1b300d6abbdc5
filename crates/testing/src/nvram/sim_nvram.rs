//! Simulated NVRAM with a volatile processor cache before it, for cutting the power at every event.
//!
//! Used like [`SimDevice`](crate::SimDevice), with the same images and kinds of survival. `cache`
//! says what a crash leaves. A durable write is two events, a store and a fence.
//!
//! ```text
//! let nvram = SimNvram::new(1 << 20);
//! nvram.start_trace();
//! ... a workload, with nvram.mark(n) when operation n was acknowledged ...
//! let trace = nvram.take_trace();
//! let mut cursor = trace.cursor();
//! for cut in trace.cuts() {
//!     cursor.advance_to(cut);
//!     for image in cursor.crashes(1000) {
//!         ... recover SimNvram::from_image(image), compare with trace.marks_before(cut) ...
//!     }
//! }
//! ```
//!
//! If the machine also has a block device, it is cut at the moments of both traces: see
//! [`SimClock`] and [`CursorOf::advance_to_moment`](crate::CursorOf::advance_to_moment).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use device::sync::Mutex;
use device::{
    DeviceError, Durability, LINE_BYTES, Nvram, Operation, Result, check_span, line_count,
};
use fastrand::Rng;
use rustix::io::Errno;

use super::cache::{self, Cache, NvramTrace};
use super::event::NvramEvent;
use crate::power_cut::{
    Fault, Faults, Image, SimClock, Survival, Volatile, flip_bit, write_pieces,
};

struct NvramState {
    /// What loads see.
    current: Image,
    cache: Cache,
    event_count: u64,
    trace: Option<NvramTrace>,
    clock: SimClock,
    faults: Faults,
    /// Lines that cannot be loaded.
    poisoned: BTreeSet<u64>,
    rng: Rng,
    /// The threads that have stored or fenced. A thread's number is its index here.
    threads: Vec<ThreadId>,
}

/// NVRAM that loses in a power cut everything that a real one may lose.
pub struct SimNvram {
    state: Mutex<NvramState>,
    len_bytes: u64,
}

impl SimNvram {
    /// Memory of zeros.
    pub fn new(len_bytes: u64) -> Self {
        Self::from_image(Image::zeroed(len_bytes))
    }

    /// Memory that durably holds `image`. Copies nothing until it is stored to.
    pub fn from_image(image: Image) -> Self {
        let len_bytes = image.size_bytes();
        let state = NvramState {
            current: image.clone(),
            cache: Cache::new(image),
            event_count: 0,
            trace: None,
            clock: SimClock::default(),
            faults: Faults::default(),
            poisoned: BTreeSet::new(),
            rng: Rng::with_seed(0),
            threads: Vec::new(),
        };
        SimNvram { state: Mutex::new(state), len_bytes }
    }

    /// Takes the time of its events from `clock`, which other media may share.
    pub fn with_clock(self, clock: &SimClock) -> Self {
        self.state.lock().clock = clock.clone();
        self
    }

    /// Sets the seed of the random effects of failing operations.
    pub fn set_seed(&self, seed: u64) {
        self.state.lock().rng = Rng::with_seed(seed);
    }

    /// Number of stores and fences that were tried so far.
    pub fn event_count(&self) -> u64 {
        self.state.lock().event_count
    }

    /// Drops the present trace, if there is one, and begins a new one.
    pub fn start_trace(&self) {
        let mut state = self.state.lock();
        state.trace = Some(state.cache.start_trace());
    }

    /// Ends the trace and returns it. Panics if none was started.
    pub fn take_trace(&self) -> NvramTrace {
        self.state.lock().trace.take().expect("a trace was started")
    }

    /// Puts a mark into the trace, if there is one.
    pub fn mark(&self, label: u64) {
        self.state.lock().trace(NvramEvent::Mark(label));
    }

    /// What loads see.
    pub fn image(&self) -> Image {
        self.state.lock().current.clone()
    }

    /// The content after a power cut between two operations.
    pub fn crash(&self, survival: Survival) -> Image {
        self.state.lock().cache.crash(survival, None)
    }

    /// Makes an operation fail with EIO: a read, a write (a store, or that of a durable write), or
    /// a flush (a fence, or that of a durable write). A failed store has stored any subset of its
    /// words. A failed fence has made nothing more durable.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Makes loads of the line of `offset` fail, even after stores to it.
    pub fn poison(&self, offset: u64) {
        self.state.lock().poisoned.insert(offset / LINE_BYTES as u64);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.poisoned.clear();
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, in the cache and in memory.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7");
        let mut state = self.state.lock();
        flip_bit(&mut state.current, offset, bit);
        state.record(NvramEvent::BitFlip { offset, bit });
    }
}

impl NvramState {
    /// The number of the calling thread.
    fn thread(&mut self) -> usize {
        let id = thread::current().id();
        self.threads.iter().position(|&known| known == id).unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        })
    }

    fn is_poisoned(&self, offset: u64, len_bytes: usize) -> bool {
        let line = LINE_BYTES as u64;
        let first = offset / line;
        self.poisoned.range(first..first + line_count(offset, len_bytes)).next().is_some()
    }

    fn store(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.event_count += 1;
        let thread = self.thread();
        let data: Arc<[u8]> = data.into();
        if self.faults.strike(Operation::Write) {
            let error = DeviceError::new(Operation::Write, offset, data.len(), Errno::IO.into());
            let seed = self.rng.u64(..);
            write_pieces(&mut self.current, cache::failed_store(offset, &data, seed));
            self.record(NvramEvent::FailedStore { offset, data, thread, seed });
            return Err(error);
        }
        self.current.write(offset, &data);
        self.record(NvramEvent::Store { offset, data, thread });
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.event_count += 1;
        if self.faults.strike(Operation::Flush) {
            return Err(DeviceError::new(Operation::Flush, 0, 0, Errno::IO.into()));
        }
        let thread = self.thread();
        self.record(NvramEvent::Fence { thread });
        Ok(())
    }

    fn record(&mut self, event: NvramEvent) {
        self.cache.apply(&event);
        self.trace(event);
    }

    fn trace(&mut self, event: NvramEvent) {
        if let Some(trace) = &mut self.trace {
            trace.push(event, self.clock.tick());
        }
    }
}

impl Nvram for SimNvram {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_span(Operation::Read, offset, buf.len(), 1, self.len_bytes)?;
        let mut state = self.state.lock();
        if state.faults.strike(Operation::Read) || state.is_poisoned(offset, buf.len()) {
            return Err(DeviceError::new(Operation::Read, offset, buf.len(), Errno::IO.into()));
        }
        state.current.read(offset, buf);
        Ok(())
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_span(Operation::Write, offset, data.len(), 1, self.len_bytes)?;
        self.state.lock().store(offset, data)
    }

    fn persist(&self) -> Result<()> {
        self.state.lock().fence()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let data = pieces.concat();
        check_span(Operation::Write, offset, data.len(), 1, self.len_bytes)?;
        let mut state = self.state.lock();
        state.store(offset, &data)?;
        state.fence()
    }
}
