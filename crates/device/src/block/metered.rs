//! Counts what reaches a device.

use crate::block::block_device::BlockDevice;
use crate::durability::Durability;
use crate::error::Result;
use crate::meter::{Meter, counters};

counters! {
    /// Operations and bytes that a device was asked for, including failed ones.
    Counters {
        /// Reads.
        read_count,
        /// Bytes read.
        read_bytes,
        /// Writes, including durable ones.
        write_count,
        /// Bytes written, including durable writes.
        write_bytes,
        /// Durable writes.
        durable_write_count,
        /// Bytes written durably.
        durable_write_bytes,
        /// Flushes, including the one of each durable write.
        flush_count,
    }
}

/// Counts the operations that it passes to the device inside.
pub struct Metered<D> {
    inner: D,
    reads: Meter,
    plain_writes: Meter,
    durable_writes: Meter,
    plain_flushes: Meter,
}

impl<D> Metered<D> {
    /// `inner` with all counters at zero.
    pub fn new(inner: D) -> Self {
        Metered {
            inner,
            reads: Meter::default(),
            plain_writes: Meter::default(),
            durable_writes: Meter::default(),
            plain_flushes: Meter::default(),
        }
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The counters now. Each is exact. An operation that is under way may be in some of them and
    /// not in others.
    pub fn counters(&self) -> Counters {
        let (read_count, read_bytes) = self.reads.get();
        let (plain_count, plain_bytes) = self.plain_writes.get();
        let (durable_write_count, durable_write_bytes) = self.durable_writes.get();
        let (plain_flush_count, _) = self.plain_flushes.get();
        Counters {
            read_count,
            read_bytes,
            write_count: plain_count + durable_write_count,
            write_bytes: plain_bytes + durable_write_bytes,
            durable_write_count,
            durable_write_bytes,
            flush_count: plain_flush_count + durable_write_count,
        }
    }
}

impl<D: BlockDevice> BlockDevice for Metered<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn sector_bytes(&self) -> usize {
        self.inner.sector_bytes()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn caches(&self) -> &[u64] {
        self.inner.caches()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.add(buf.len());
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.plain_writes.add(data.len());
        self.inner.write(offset, data)
    }

    fn write_spans(&self, spans: &[(u64, &[u8])], at_a_time: usize) -> Result<()> {
        spans.iter().for_each(|(_, data)| self.plain_writes.add(data.len()));
        self.inner.write_spans(spans, at_a_time)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.durable_writes.add(data.len());
        self.inner.write_durable(offset, data)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        let written = self.inner.write_fua(offset, data)?;
        self.durable_writes.add(data.len());
        Some(written)
    }

    fn flush(&self) -> Result<()> {
        self.plain_flushes.add(0);
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::memory::MemoryDevice;

    #[test]
    fn counts_each_operation_and_a_durable_write_as_write_and_flush() {
        let device = Metered::new(MemoryDevice::new(8192, 512));
        device.write(0, &[1; 1024]).expect("write");
        let before = device.counters();
        device.write_durable(512, &[2; 512]).expect("durable write");
        device.flush().expect("flush");
        device.read(0, &mut [0; 1536]).expect("read");
        let expected = Counters {
            read_count: 1,
            read_bytes: 1536,
            write_count: 1,
            write_bytes: 512,
            durable_write_count: 1,
            durable_write_bytes: 512,
            flush_count: 2,
        };
        assert_eq!(device.counters() - before, expected);
        assert_eq!(device.counters().write_bytes, 1536);
    }

    #[test]
    fn counts_each_span() {
        let device = Metered::new(MemoryDevice::new(8192, 512));
        device.write_spans(&[(0, &[1; 512]), (2048, &[2; 1024])], 8).expect("both");
        let counters = device.counters();
        assert_eq!((counters.write_count, counters.write_bytes), (2, 1536));
        let mut found = [0; 512];
        device.read(2560, &mut found).expect("read");
        assert_eq!(found, [2; 512]);
    }

    #[test]
    fn counts_what_failed_too() {
        let device = Metered::new(MemoryDevice::new(512, 512));
        device.write(512, &[0; 512]).expect_err("outside of the device");
        assert_eq!(device.counters().write_count, 1);
    }
}
