//! Counts what reaches NVRAM.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

use super::interface::{Nvram, total_bytes};
use super::line::line_count;
use crate::durability::Durability;
use crate::error::Result;

/// Operations that an NVRAM was asked for, including failed ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NvramCounters {
    /// Reads.
    pub read_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Stores and durable writes.
    pub store_count: u64,
    /// Bytes stored.
    pub store_bytes: u64,
    /// Cache lines written back. If two stores share a line, it counts twice.
    pub line_count: u64,
    /// Fences, including the one of each durable write.
    pub fence_count: u64,
}

impl Sub for NvramCounters {
    type Output = NvramCounters;

    /// The difference between `earlier` and `self`.
    fn sub(self, earlier: NvramCounters) -> NvramCounters {
        NvramCounters {
            read_count: self.read_count - earlier.read_count,
            read_bytes: self.read_bytes - earlier.read_bytes,
            store_count: self.store_count - earlier.store_count,
            store_bytes: self.store_bytes - earlier.store_bytes,
            line_count: self.line_count - earlier.line_count,
            fence_count: self.fence_count - earlier.fence_count,
        }
    }
}

/// Counts the operations that it passes to the NVRAM inside.
pub struct MeteredNvram<N> {
    inner: N,
    read_count: AtomicU64,
    read_bytes: AtomicU64,
    store_count: AtomicU64,
    store_bytes: AtomicU64,
    line_count: AtomicU64,
    fence_count: AtomicU64,
}

impl<N> MeteredNvram<N> {
    /// `inner` with all counters at zero.
    pub fn new(inner: N) -> Self {
        let zero = || AtomicU64::new(0);
        MeteredNvram {
            inner,
            read_count: zero(),
            read_bytes: zero(),
            store_count: zero(),
            store_bytes: zero(),
            line_count: zero(),
            fence_count: zero(),
        }
    }

    /// The NVRAM inside.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    /// The counters now. Each is exact. An operation that is under way may be in some of them and
    /// not in others.
    pub fn counters(&self) -> NvramCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NvramCounters {
            read_count: get(&self.read_count),
            read_bytes: get(&self.read_bytes),
            store_count: get(&self.store_count),
            store_bytes: get(&self.store_bytes),
            line_count: get(&self.line_count),
            fence_count: get(&self.fence_count),
        }
    }

    fn count_store(&self, offset: u64, len_bytes: usize) {
        add(&self.store_count, 1);
        add(&self.store_bytes, len_bytes as u64);
        add(&self.line_count, line_count(offset, len_bytes));
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl<N: Nvram> Nvram for MeteredNvram<N> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        add(&self.read_count, 1);
        add(&self.read_bytes, buf.len() as u64);
        self.inner.read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.count_store(offset, data.len());
        self.inner.store(offset, data)
    }

    fn persist(&self) -> Result<()> {
        add(&self.fence_count, 1);
        self.inner.persist()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        self.count_store(offset, total_bytes(pieces));
        add(&self.fence_count, 1);
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
    fn a_span_behind_everything_is_an_error_and_counts() {
        let nvram = MeteredNvram::new(MappedNvram::in_memory(4096).expect("memory"));
        nvram.write_durable(u64::MAX, &[&[0; 9]]).expect_err("outside");
        assert_eq!(nvram.counters().store_count, 1);
    }
}
