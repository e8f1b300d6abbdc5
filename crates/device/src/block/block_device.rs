//! The interface of a block device.

use crate::durability::Durability;
use crate::error::{DeviceError, Operation, Result};

/// A medium of logical sectors. Offsets and lengths are in bytes, and are multiples of
/// [`BlockDevice::sector_bytes`]. If they are not, an implementation panics, because that is a bug
/// of the caller. If they are outside of the device, it returns an error.
///
/// Buffers need no alignment. An unaligned buffer costs a copy; an
/// [`AlignedBuf`](crate::AlignedBuf) does not.
pub trait BlockDevice: Send + Sync {
    /// Size of the device in bytes.
    fn size_bytes(&self) -> u64;

    /// Size of a logical sector in bytes: a power of two, 512 to 4096.
    fn sector_bytes(&self) -> usize;

    /// What a durable write survives.
    fn durability(&self) -> Durability;

    /// Numbers of the devices whose volatile caches hold writes to this device until a flush, as
    /// far as they are known. A failed flush loses writes to every device that shares one of these
    /// caches.
    fn caches(&self) -> &[u64] {
        &[]
    }

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`. The data are durable after the next [`BlockDevice::flush`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes each of `spans`, in any order, as [`BlockDevice::write`] does, at most `at_a_time` of
    /// them at a time. The spans do not overlap. After an error any of them may have been written.
    fn write_spans(&self, spans: &[(u64, &[u8])], _at_a_time: usize) -> Result<()> {
        spans.iter().try_for_each(|(offset, data)| self.write(*offset, data))
    }

    /// Writes `data` at `offset` and returns when it is durable. Not atomic beyond 512 bytes.
    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// [`BlockDevice::write_durable`] without a flush. So the failed flush of another user, before
    /// this write or during it, cannot have lost data that this call reports as durable. `None`:
    /// the device cannot do that, and nothing is known to be written.
    fn write_fua(&self, _offset: u64, _data: &[u8]) -> Option<Result<()>> {
        None
    }

    /// Returns when every write that returned before this call is durable.
    fn flush(&self) -> Result<()>;
}

/// The check of a span that every implementation of a medium makes first. Panics unless the span
/// consists of whole sectors (for NVRAM a sector is 1 byte). Returns an error unless the span is on
/// the device.
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
