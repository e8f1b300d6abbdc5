//! Non-volatile memory: bytes that are durable without a block, a flush or a system call.
//!
//! ```text
//! store: processor's cache --write-back--> memory controller --fence: it is there--> memory
//! ```
//!
//! A transaction is laid out in pieces and stored by one [`Nvram::write_durable`], which ends with
//! the only fence. Until that fence, *any* part of the transaction may be in memory, in any order.
//! So the transaction must certify itself by a checksum over all of it. Bytes that are left from an
//! earlier use of the region must not pass this checksum.
//!
//! The head of the crate lists what is assumed of the medium.

use crate::block::block_device;
use crate::durability::Durability;
use crate::error::{DeviceError, Operation, Result};

/// A medium of bytes. Offsets and lengths are in bytes, with any alignment. A span outside of the
/// memory is an error.
///
/// Any number of threads may load and store at once. If a load meets a store of the same bytes, it
/// finds old or new bytes, each byte by itself. Stores to other bytes do not disturb it.
pub trait Nvram: Send + Sync {
    /// Size in bytes.
    fn len_bytes(&self) -> u64;

    /// What a durable write survives.
    fn durability(&self) -> Durability;

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Stores `data` at `offset`. The data are durable after the next [`Nvram::persist`] of this
    /// thread.
    fn store(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Returns when everything that this thread has stored is durable. Issues one fence.
    fn persist(&self) -> Result<()>;

    /// Stores `pieces` one after the other from `offset`, and returns when they are durable. Issues
    /// one fence for all of them. Not atomic beyond a word.
    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()>;
}

impl<N: Nvram + ?Sized> Nvram for &N {
    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }

    fn durability(&self) -> Durability {
        (**self).durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        (**self).store(offset, data)
    }

    fn persist(&self) -> Result<()> {
        (**self).persist()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        (**self).write_durable(offset, pieces)
    }
}

/// Bytes of all pieces together.
pub(super) fn total_bytes(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// An error unless the span is in the memory.
pub(super) fn check_span(
    operation: Operation,
    offset: u64,
    len_bytes: usize,
    size_bytes: u64,
) -> Result<()> {
    block_device::check_span(operation, offset, len_bytes, 1, size_bytes)
}

/// An error of `operation` that has no span.
pub(super) fn failed(operation: Operation, source: std::io::Error) -> DeviceError {
    DeviceError::new(operation, 0, 0, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_any_alignment_lies_inside_or_is_refused() {
        assert!(check_span(Operation::Write, 3, 5, 8).is_ok());
        let error = check_span(Operation::Write, 4, 5, 8).expect_err("one byte too many");
        assert!(error.to_string().contains("outside of the device"), "{error}");
        check_span(Operation::Read, u64::MAX, 2, 8).expect_err("behind all numbers");
    }
}
