//! Simulated NVRAM with a volatile processor cache before it, for cutting the power at every event.
//!
//! Used like [`SimDevice`](crate::SimDevice), with the same images and kinds of survival.
//! `power_cut::cache` says what a crash leaves. A durable write is two events, a store and a fence.
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
//! [`Traces`](crate::Traces).

use std::ops::Deref;

use device::{Durability, Nvram, Operation, Result, check_span};

use crate::power_cut::{Image, SimClock, SimMedium, Unit};

/// NVRAM that loses in a power cut everything that a real one may lose.
pub struct SimNvram {
    medium: SimMedium,
}

impl SimNvram {
    /// Memory of zeros.
    pub fn new(len_bytes: u64) -> Self {
        Self::from_image(Image::zeroed(len_bytes))
    }

    /// Memory that durably holds `image`. Copies nothing until it is stored to.
    pub fn from_image(image: Image) -> Self {
        SimNvram { medium: SimMedium::new(image, Unit::Word) }
    }

    /// Takes the time of its events from `clock`, which other media may share.
    pub fn with_clock(self, clock: &SimClock) -> Self {
        self.set_clock(clock);
        self
    }

    /// Makes loads of the line of `offset` fail, even after stores to it.
    pub fn poison(&self, offset: u64) {
        self.lock().faults.poison(offset);
    }

    fn check(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<()> {
        check_span(operation, offset, len_bytes, 1, self.size_bytes())
    }
}

impl Deref for SimNvram {
    type Target = SimMedium;

    fn deref(&self) -> &SimMedium {
        &self.medium
    }
}

impl Nvram for SimNvram {
    fn len_bytes(&self) -> u64 {
        self.size_bytes()
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buf.len())?;
        self.lock().read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(Operation::Write, offset, data.len())?;
        let mut state = self.lock();
        let thread = state.thread();
        state.write(offset, data, Some(thread))
    }

    fn persist(&self) -> Result<()> {
        let mut state = self.lock();
        let thread = state.thread();
        state.flush(thread)
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let data = pieces.concat();
        self.check(Operation::Write, offset, data.len())?;
        let mut state = self.lock();
        let thread = state.thread();
        state.write(offset, &data, Some(thread))?;
        state.flush(thread)
    }
}
