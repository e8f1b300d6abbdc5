//! Counts what reaches NVRAM.

use std::sync::atomic::{AtomicU64, Ordering};

use super::interface::{Nvram, total_bytes};
use super::line::line_count;
use crate::durability::Durability;
use crate::error::Result;
use crate::meter::{Meter, counters};

counters! {
    /// Operations that an NVRAM was asked for, including failed ones.
    NvramCounters {
        /// Reads.
        read_count,
        /// Bytes read.
        read_bytes,
        /// Stores and durable writes.
        store_count,
        /// Bytes stored.
        store_bytes,
        /// Cache lines written back. If two stores share a line, it counts twice.
        line_count,
        /// Fences, including the one of each durable write.
        fence_count,
    }
}

/// Counts the operations that it passes to the NVRAM inside.
pub struct MeteredNvram<N> {
    inner: N,
    reads: Meter,
    stores: Meter,
    line_count: AtomicU64,
    fences: Meter,
}

impl<N> MeteredNvram<N> {
    /// `inner` with all counters at zero.
    pub fn new(inner: N) -> Self {
        MeteredNvram {
            inner,
            reads: Meter::default(),
            stores: Meter::default(),
            line_count: AtomicU64::new(0),
            fences: Meter::default(),
        }
    }

    /// The NVRAM inside.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    /// The counters now. Each is exact. An operation that is under way may be in some of them and
    /// not in others.
    pub fn counters(&self) -> NvramCounters {
        let (read_count, read_bytes) = self.reads.get();
        let (store_count, store_bytes) = self.stores.get();
        let (fence_count, _) = self.fences.get();
        let line_count = self.line_count.load(Ordering::Relaxed);
        NvramCounters { read_count, read_bytes, store_count, store_bytes, line_count, fence_count }
    }

    fn count_store(&self, offset: u64, len_bytes: usize) {
        self.stores.add(len_bytes);
        self.line_count.fetch_add(line_count(offset, len_bytes), Ordering::Relaxed);
    }
}

impl<N: Nvram> Nvram for MeteredNvram<N> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.add(buf.len());
        self.inner.read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.count_store(offset, data.len());
        self.inner.store(offset, data)
    }

    fn persist(&self) -> Result<()> {
        self.fences.add(0);
        self.inner.persist()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        self.count_store(offset, total_bytes(pieces));
        self.fences.add(0);
        self.inner.write_durable(offset, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvram::mapped::MappedNvram;

    #[test]
    fn counts_lines_and_one_fence_for_each_durable_write() {
        let nvram = MeteredNvram::new(MappedNvram::in_memory(4096).expect("memory"));
        nvram.store(60, &[1; 8]).expect("store");
        nvram.persist().expect("persist");
        let before = nvram.counters();
        nvram.write_durable(0, &[&[1; 24], &[2; 100], &[3; 4]]).expect("durable write");
        nvram.read(0, &mut [0; 10]).expect("read");
        let expected = NvramCounters {
            read_count: 1,
            read_bytes: 10,
            store_count: 1,
            store_bytes: 128,
            line_count: 2,
            fence_count: 1,
        };
        assert_eq!(nvram.counters() - before, expected);
        assert_eq!((before.line_count, before.fence_count), (2, 1));
    }

    #[test]
    fn a_span_outside_is_an_error_and_counts() {
        let nvram = MeteredNvram::new(MappedNvram::in_memory(4096).expect("memory"));
        nvram.write_durable(u64::MAX, &[&[0; 9]]).expect_err("outside");
        assert_eq!(nvram.counters().store_count, 1);
    }
}
