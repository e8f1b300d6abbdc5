//! The interface of a block device.

use crate::durability::Durability;
use crate::error::{DeviceError, Operation, Result};

/// A medium of logical sectors. Offsets and lengths are in bytes and multiples of
/// [`BlockDevice::sector_bytes`]; an implementation panics when they are not (a bug of the
/// caller) and returns an error when they lie outside of the device.
///
/// Buffers need no alignment; an [`AlignedBuf`](crate::AlignedBuf) saves the copy that an unaligned one costs.
pub trait BlockDevice: Send + Sync {
    /// Size of the device in bytes.
    fn size_bytes(&self) -> u64;

    /// Size of a logical sector in bytes: a power of two, 512 to 4096.
    fn sector_bytes(&self) -> usize;

    /// What a durable write survives.
    fn durability(&self) -> Durability;

    /// Numbers of the devices whose volatile caches its writes are in until they are flushed, as far as they
    /// are known. A failed flush loses writes to every device that has one of them in common.
    fn caches(&self) -> &[u64] {
        &[]
    }

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`; durable after the next [`BlockDevice::flush`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes each of `spans`, which do not overlap, as [`BlockDevice::write`] does, in any order. After an error
    /// any of them may have been written.
    fn write_spans(&self, spans: &[(u64, &[u8])]) -> Result<()> {
        spans.iter().try_for_each(|(offset, data)| self.write(*offset, data))
    }

    /// Writes `data` at `offset` and returns when it is durable. Not atomic beyond 512 bytes.
    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// [`BlockDevice::write_durable`] without a flush: no failed flush of somebody else's, before or
    /// meanwhile, can have lost what this reports done. `None`: that cannot be had, and nothing is
    /// known to be written.
    fn write_fua(&self, _offset: u64, _data: &[u8]) -> Option<Result<()>> {
        None
    }

    /// Returns when every write that returned before this call is durable.
    fn flush(&self) -> Result<()>;
}

/// The check of a span that every implementation of a medium makes first. Panics unless the span is made of
/// whole sectors (of 1 byte for NVRAM); returns an error unless it is on the device.
pub fn check_span(
    operation: Operation,
    offset: u64,
    len_bytes: usize,
    sector_bytes: usize,
    size_bytes: u64,
) -> Result<()> {
    let sector = sector_bytes as u64;
    assert!(
        offset.is_multiple_of(sector) && (len_bytes as u64).is_multiple_of(sector),
        "{operation} of {len_bytes} bytes at {offset} is not made of {sector_bytes}-byte sectors"
    );
    match offset.checked_add(len_bytes as u64) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(DeviceError::outside(operation, offset, len_bytes, size_bytes)),
    }
}
