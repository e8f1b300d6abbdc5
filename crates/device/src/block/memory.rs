//! A device in ordinary memory, for tests and for measurements without a medium.

use crate::sync::RwLock;

use crate::block::block_device::{BlockDevice, check_span};
use crate::durability::Durability;
use crate::error::{Operation, Result};

/// A block device whose bytes are in this process's memory.
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    size_bytes: u64,
    sector_bytes: usize,
}

impl MemoryDevice {
    /// A device of zeros. `size_bytes` must be a multiple of `sector_bytes`.
    pub fn new(size_bytes: usize, sector_bytes: usize) -> Self {
        Self::from_bytes(vec![0; size_bytes], sector_bytes)
    }

    /// A device that holds `bytes`.
    pub fn from_bytes(bytes: Vec<u8>, sector_bytes: usize) -> Self {
        assert!(sector_bytes.is_power_of_two() && bytes.len().is_multiple_of(sector_bytes));
        let size_bytes = bytes.len() as u64;
        MemoryDevice { bytes: RwLock::new(bytes), size_bytes, sector_bytes }
    }

    /// A copy of what the device holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl BlockDevice for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_bytes(&self) -> usize {
        self.sector_bytes
    }

    fn durability(&self) -> Durability {
        Durability::Process
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_span(Operation::Read, offset, buf.len(), self.sector_bytes, self.size_bytes)?;
        let start = offset as usize;
        buf.copy_from_slice(&self.bytes.read()[start..start + buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_span(Operation::Write, offset, data.len(), self.sector_bytes, self.size_bytes)?;
        let start = offset as usize;
        self.bytes.write()[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write(offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        Some(self.write_durable(offset, data))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
