//! A simulated device with a volatile cache, for cutting the power at every event.
//!
//! Its behaviour depends only on its calls and its seed. It breaks every promise that is not on the
//! list of assumptions. `cache` says what survives a crash; [`Fault`] says what fails before a
//! crash.
//!
//! ```text
//! let device = SimDevice::new(8 << 20, 512);
//! device.start_trace();
//! ... a workload, with device.mark(n) when operation n was acknowledged ...
//! let trace = device.take_trace();
//! let mut cursor = trace.cursor();
//! for cut in trace.cuts() {
//!     cursor.advance_to(cut);
//!     let crashed = SimDevice::from_image(cursor.crash(Survival::Random(seed)), 512);
//!     ... recover, compare with trace.marks_before(cut) ...
//! }
//! ```
//!
//! Calls are serialised: one thread at a time uses the device, and the events are in the order of
//! the calls.

use device::sync::Mutex;
use device::{BlockDevice, DeviceError, Durability, Operation, Result, check_span};
use fastrand::Rng;
use rustix::io::Errno;

use super::cache::{self, Cache, Trace};
use super::event::Event;
use crate::power_cut::{
    Fault, Faults, Image, SimClock, Survival, Volatile, flip_bit, write_pieces,
};

struct DeviceState {
    /// What reads see.
    current: Image,
    cache: Cache,
    event_count: u64,
    trace: Option<Trace>,
    clock: SimClock,
    faults: Faults,
    rng: Rng,
    /// Writes that end after this offset find no space.
    capacity_bytes: u64,
}

/// A block device that loses in a power cut everything that a real one may lose.
pub struct SimDevice {
    state: Mutex<DeviceState>,
    size_bytes: u64,
    sector_bytes: usize,
}

impl SimDevice {
    /// A device of zeros. `size_bytes` must be a multiple of `sector_bytes`.
    pub fn new(size_bytes: u64, sector_bytes: usize) -> Self {
        Self::from_image(Image::zeroed(size_bytes), sector_bytes)
    }

    /// A device that durably holds `bytes`.
    pub fn from_bytes(bytes: &[u8], sector_bytes: usize) -> Self {
        Self::from_image(Image::from_bytes(bytes), sector_bytes)
    }

    /// A device that durably holds `image`. Copies nothing until it is written to.
    pub fn from_image(image: Image, sector_bytes: usize) -> Self {
        let size_bytes = image.size_bytes();
        assert!(sector_bytes.is_power_of_two() && size_bytes.is_multiple_of(sector_bytes as u64));
        let state = DeviceState {
            current: image.clone(),
            cache: Cache::new(image),
            event_count: 0,
            trace: None,
            clock: SimClock::default(),
            faults: Faults::default(),
            rng: Rng::with_seed(0),
            capacity_bytes: size_bytes,
        };
        SimDevice { state: Mutex::new(state), size_bytes, sector_bytes }
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

    /// How many writes, durable writes and flushes were tried so far.
    pub fn event_count(&self) -> u64 {
        self.state.lock().event_count
    }

    /// Drops the present trace, if there is one, and begins a new one.
    pub fn start_trace(&self) {
        let mut state = self.state.lock();
        state.trace = Some(state.cache.start_trace());
    }

    /// Ends the trace and returns it. Panics if none was started.
    pub fn take_trace(&self) -> Trace {
        self.state.lock().trace.take().expect("a trace was started")
    }

    /// Puts a mark into the trace, if there is one.
    pub fn mark(&self, label: u64) {
        self.state.lock().trace(Event::Mark(label));
    }

    /// What reads see.
    pub fn image(&self) -> Image {
        self.state.lock().current.clone()
    }

    /// The content after a power cut between two operations.
    pub fn crash(&self, survival: Survival) -> Image {
        self.state.lock().cache.crash(survival, None)
    }

    /// Makes an operation fail. Several faults may be injected; each counts operations for itself.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.capacity_bytes = self.size_bytes;
    }

    /// Makes writes that end after `capacity_bytes` fail with ENOSPC and write nothing.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.state.lock().capacity_bytes = capacity_bytes;
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, in the cache and on the medium.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7");
        let mut state = self.state.lock();
        flip_bit(&mut state.current, offset, bit);
        state.record(Event::BitFlip { offset, bit });
    }

    fn write_any(&self, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        let failed =
            |errno: Errno| DeviceError::new(Operation::Write, offset, data.len(), errno.into());
        check_span(Operation::Write, offset, data.len(), self.sector_bytes, self.size_bytes)?;
        let mut state = self.state.lock();
        state.event_count += 1;
        if offset + data.len() as u64 > state.capacity_bytes {
            return Err(failed(Errno::NOSPC));
        }
        let fails = state.faults.strike(Operation::Write);
        let data = data.into();
        if fails {
            let seed = state.rng.u64(..);
            let written = cache::failed_write(offset, &data, seed);
            write_pieces(&mut state.current, written);
            state.record(Event::FailedWrite { offset, data, seed });
            return Err(failed(Errno::IO));
        }
        state.current.write(offset, &data);
        state.record(match durable {
            true => Event::DurableWrite { offset, data },
            false => Event::Write { offset, data },
        });
        Ok(())
    }
}

impl DeviceState {
    fn record(&mut self, event: Event) {
        self.cache.apply(&event);
        self.trace(event);
    }

    fn trace(&mut self, event: Event) {
        if let Some(trace) = &mut self.trace {
            trace.push(event, self.clock.tick());
        }
    }
}

impl BlockDevice for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_bytes(&self) -> usize {
        self.sector_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_span(Operation::Read, offset, buf.len(), self.sector_bytes, self.size_bytes)?;
        let mut state = self.state.lock();
        if state.faults.strike(Operation::Read) {
            return Err(DeviceError::new(Operation::Read, offset, buf.len(), Errno::IO.into()));
        }
        state.current.read(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_any(offset, data, false)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_any(offset, data, true)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        Some(self.write_durable(offset, data))
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.event_count += 1;
        if state.faults.strike(Operation::Flush) {
            let seed = state.rng.u64(..);
            state.record(Event::FailedFlush { seed });
            return Err(DeviceError::new(Operation::Flush, 0, 0, Errno::IO.into()));
        }
        state.record(Event::Flush);
        Ok(())
    }
}
