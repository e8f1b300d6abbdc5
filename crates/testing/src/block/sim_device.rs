//! A simulated device with a volatile cache, for cutting the power at every event.
//!
//! Its behaviour depends only on its calls and its seed. It breaks every promise that is not on the
//! list of assumptions. `power_cut::cache` says what survives a crash; [`Fault`](crate::Fault) says
//! what fails before a crash.
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

use std::ops::Deref;

use device::{BlockDevice, Durability, Operation, Result, check_span};

use crate::power_cut::{Image, SimClock, SimMedium, Unit};

/// A block device that loses in a power cut everything that a real one may lose.
pub struct SimDevice {
    medium: SimMedium,
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
        assert!(sector_bytes.is_power_of_two());
        assert!(image.size_bytes().is_multiple_of(sector_bytes as u64));
        SimDevice { medium: SimMedium::new(image, Unit::Sector), sector_bytes }
    }

    /// Takes the time of its events from `clock`, which other media may share.
    pub fn with_clock(self, clock: &SimClock) -> Self {
        self.set_clock(clock);
        self
    }

    /// Makes writes that end after `capacity_bytes` fail with ENOSPC and write nothing.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.lock().faults.capacity_bytes = capacity_bytes;
    }

    fn check(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<()> {
        check_span(operation, offset, len_bytes, self.sector_bytes, self.size_bytes())
    }
}

impl Deref for SimDevice {
    type Target = SimMedium;

    fn deref(&self) -> &SimMedium {
        &self.medium
    }
}

impl BlockDevice for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.medium.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.sector_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buf.len())?;
        self.lock().read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(Operation::Write, offset, data.len())?;
        self.lock().write(offset, data, Some(0))
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(Operation::Write, offset, data.len())?;
        self.lock().write(offset, data, None)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        Some(self.write_durable(offset, data))
    }

    fn flush(&self) -> Result<()> {
        self.lock().flush(0)
    }
}
