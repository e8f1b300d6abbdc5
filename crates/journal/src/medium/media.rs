//! The media that can hold a journal: a block device, or NVRAM.

use std::fmt;
use std::sync::Arc;

use device::{AlignedBuf, BlockDevice, Durability, LINE_BYTES, Nvram};

use crate::error::Result;
use crate::record::codec::DeltaCodec;

/// Records on NVRAM begin at multiples of this many bytes: a cache line. So a record is stored in
/// whole lines, past the cache. A line that is stored in part would first be read, which takes a
/// third of the time of a durable write of 1 KiB.
pub const NVRAM_STEP_BYTES: usize = LINE_BYTES;

/// A medium that holds a journal.
#[derive(Clone)]
pub enum Medium {
    /// Logical sectors; a transaction is one durable write.
    Block(Arc<dyn BlockDevice>),
    /// Bytes; a transaction is stored as long as it is, with one fence.
    Nvram(Arc<dyn Nvram>),
}

impl Medium {
    /// How a journal on it usually encodes deltas. To store bytes in NVRAM takes less time than to
    /// search for copies of them.
    pub fn usual_codec(&self) -> DeltaCodec {
        match self {
            Medium::Block(_) => DeltaCodec::Copies,
            Medium::Nvram(_) => DeltaCodec::Runs,
        }
    }

    /// Size in bytes.
    pub fn len_bytes(&self) -> u64 {
        match self {
            Medium::Block(device) => device.size_bytes(),
            Medium::Nvram(nvram) => nvram.len_bytes(),
        }
    }

    /// What a durable write survives.
    pub fn durability(&self) -> Durability {
        match self {
            Medium::Block(device) => device.durability(),
            Medium::Nvram(nvram) => nvram.durability(),
        }
    }

    /// Offsets and lengths of writes are multiples of so many bytes: the logical sector of a
    /// block device, [`NVRAM_STEP_BYTES`] on NVRAM.
    pub fn step_bytes(&self) -> usize {
        match self {
            Medium::Block(device) => device.sector_bytes(),
            Medium::Nvram(_) => NVRAM_STEP_BYTES,
        }
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let done = match self {
            Medium::Block(device) => device.read(offset, buf),
            Medium::Nvram(nvram) => nvram.read(offset, buf),
        };
        Ok(done?)
    }

    /// A write of `len_bytes` at `offset` consists of whole steps. A bug otherwise.
    pub(crate) fn assert_whole_steps(&self, offset: u64, len_bytes: usize) {
        let step_bytes = self.step_bytes();
        assert!(len_bytes > 0 && len_bytes.is_multiple_of(step_bytes), "{len_bytes} bytes");
        assert!(offset.is_multiple_of(step_bytes as u64), "a write begins at {offset}");
    }

    /// Writes `data` at `offset`; durable after [`Medium::flush`] of the same thread.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.assert_whole_steps(offset, data.len());
        let done = match self {
            Medium::Block(device) => device.write(offset, data),
            Medium::Nvram(nvram) => nvram.store(offset, data),
        };
        Ok(done?)
    }

    /// Writes `data` at `offset` and returns when it is durable: one write, or one fence.
    pub(crate) fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        let done = match self {
            Medium::Block(device) => device.write_durable(offset, data),
            Medium::Nvram(nvram) => nvram.write_durable(offset, &[data]),
        };
        Ok(done?)
    }

    /// Returns when all that this thread has written is durable.
    pub(crate) fn flush(&self) -> Result<()> {
        let done = match self {
            Medium::Block(device) => device.flush(),
            Medium::Nvram(nvram) => nvram.persist(),
        };
        Ok(done?)
    }

    /// Writes zeros from `offset` up to `end`, durably.
    pub(crate) fn write_zeros(&self, mut offset: u64, end: u64) -> Result<()> {
        assert!(offset <= end && end <= self.len_bytes(), "zeros are written within the medium");
        let zeros = AlignedBuf::zeroed(1 << 20);
        while offset < end {
            let count = (end - offset).min(zeros.len() as u64);
            self.write(offset, &zeros[..count as usize])?;
            offset += count;
        }
        self.flush()
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Medium::Block(_) => "Block",
            Medium::Nvram(_) => "Nvram",
        };
        write!(f, "{kind}({} bytes)", self.len_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use device::{MappedNvram, MemoryDevice};

    #[test]
    fn a_write_of_anything_but_whole_steps_is_a_bug() {
        let nvram = Medium::Nvram(Arc::new(MappedNvram::in_memory(8192).unwrap()));
        let device = Medium::Block(Arc::new(MemoryDevice::new(8192, 512)));
        for (medium, step) in [(nvram, 64), (device, 512)] {
            let cases = [(0, step, true), (step, 2 * step, true), (0, 0, false)];
            let odd = [(step / 2, step, false), (0, step / 2, false), (0, step + 4, false)];
            for (offset, len_bytes, is_allowed) in cases.into_iter().chain(odd) {
                let data = AlignedBuf::zeroed(len_bytes);
                let write = || medium.write(offset as u64, &data);
                let result = catch_unwind(AssertUnwindSafe(write));
                assert_eq!(result.is_ok(), is_allowed, "{len_bytes} bytes at {offset}");
            }
        }
    }
}
