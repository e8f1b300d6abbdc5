//! What every simulated medium does: it keeps bytes, and records what is done to them.

use std::thread::{self, ThreadId};

use device::sync::{Mutex, MutexGuard};
use device::{DeviceError, Operation, Result};
use fastrand::Rng;
use rustix::io::Errno;

use super::cache::Cache;
use super::clock::SimClock;
use super::event::Event;
use super::faults::{Fault, Faults};
use super::image::Image;
use super::survival::Survival;
use super::trace::Trace;
use super::unit::Unit;

/// A simulated medium. Its behaviour depends only on its calls and its seed. Calls are serialised:
/// one thread at a time uses the medium, and the events are in the order of the calls.
pub struct SimMedium {
    state: Mutex<State>,
    size_bytes: u64,
}

pub(crate) struct State {
    /// What reads see.
    current: Image,
    cache: Cache,
    event_count: u64,
    trace: Option<Trace>,
    clock: SimClock,
    pub(crate) faults: Faults,
    rng: Rng,
    /// The threads that have written or flushed. A thread's number is its index here.
    threads: Vec<ThreadId>,
}

impl SimMedium {
    /// A medium that durably holds `image`. Copies nothing until it is written to.
    pub(crate) fn new(image: Image, unit: Unit) -> Self {
        let size_bytes = image.size_bytes();
        let state = State {
            current: image.clone(),
            cache: Cache::new(image, unit),
            event_count: 0,
            trace: None,
            clock: SimClock::default(),
            faults: Faults::default(),
            rng: Rng::with_seed(0),
            threads: Vec::new(),
        };
        SimMedium { state: Mutex::new(state), size_bytes }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn set_clock(&self, clock: &SimClock) {
        self.lock().clock = clock.clone();
    }

    /// Sets the seed of the random effects of failing operations.
    pub fn set_seed(&self, seed: u64) {
        self.lock().rng = Rng::with_seed(seed);
    }

    /// Number of writes, durable writes, stores, flushes and fences that were tried so far. A
    /// durable write to NVRAM is a store and a fence.
    pub fn event_count(&self) -> u64 {
        self.lock().event_count
    }

    /// Drops the present trace, if there is one, and begins a new one.
    pub fn start_trace(&self) {
        let mut state = self.lock();
        let (start, events) = state.cache.as_events();
        state.trace = Some(Trace::new(start, events));
    }

    /// Ends the trace and returns it. Panics if none was started.
    pub fn take_trace(&self) -> Trace {
        self.lock().trace.take().expect("a trace was started")
    }

    /// Puts a mark into the trace, if there is one.
    pub fn mark(&self, label: u64) {
        self.lock().trace(Event::Mark(label));
    }

    /// What reads see.
    pub fn image(&self) -> Image {
        self.lock().current.clone()
    }

    /// The content after a power cut between two operations.
    pub fn crash(&self, survival: Survival) -> Image {
        self.lock().cache.crash(survival, None)
    }

    /// Makes an operation fail. Several faults may be injected; each counts operations for itself.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.lock().faults = Faults::default();
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, in the cache and on the medium.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7");
        let mut state = self.lock();
        state.current.flip_bit(offset, bit);
        state.record(Event::BitFlip { offset, bit });
    }
}

impl State {
    /// The number of the calling thread.
    pub(crate) fn thread(&mut self) -> usize {
        let id = thread::current().id();
        self.threads.iter().position(|&known| known == id).unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        })
    }

    pub(crate) fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.faults.strike(Operation::Read) || self.faults.is_poisoned(offset, buf.len()) {
            return Err(DeviceError::new(Operation::Read, offset, buf.len(), Errno::IO.into()));
        }
        self.current.read(offset, buf);
        Ok(())
    }

    /// A write by `thread`; `None`: it is durable.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], thread: Option<usize>) -> Result<()> {
        let failed =
            |errno: Errno| DeviceError::new(Operation::Write, offset, data.len(), errno.into());
        self.event_count += 1;
        if offset + data.len() as u64 > self.faults.capacity_bytes {
            return Err(failed(Errno::NOSPC));
        }
        if self.faults.strike(Operation::Write) {
            let (seed, thread) = (self.rng.u64(..), thread.unwrap_or(0));
            let event = Event::FailedWrite { offset, data: data.into(), thread, seed };
            for piece in self.cache.failed_write(&event) {
                piece.write_to(&mut self.current);
            }
            self.record(event);
            return Err(failed(Errno::IO));
        }
        self.current.write(offset, data);
        let data = data.into();
        self.record(match thread {
            Some(thread) => Event::Write { offset, data, thread },
            None => Event::DurableWrite { offset, data },
        });
        Ok(())
    }

    /// A flush by `thread`.
    pub(crate) fn flush(&mut self, thread: usize) -> Result<()> {
        self.event_count += 1;
        if self.faults.strike(Operation::Flush) {
            if self.cache.unit() == Unit::Sector {
                let seed = self.rng.u64(..);
                self.record(Event::FailedFlush { seed });
            }
            return Err(DeviceError::new(Operation::Flush, 0, 0, Errno::IO.into()));
        }
        self.record(Event::Flush { thread });
        Ok(())
    }

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
