//! Makes memory slower, to measure what a slower medium would cost.

use std::hint;
use std::time::{Duration, Instant};

use super::interface::{Nvram, total_bytes};
use super::line::line_count;
use crate::durability::Durability;
use crate::error::Result;

/// NVRAM that takes longer for each cache line that is written back. DJFS' evaluation (§VI.3) has
/// NVRAM of different write latencies; it does not say of which unit.
///
/// The processor waits busily where the write-back begins, in [`Nvram::store`] and
/// [`Nvram::write_durable`]. Loads and [`Nvram::persist`] are not slowed down.
pub struct AddedLatency<N> {
    inner: N,
    ns_per_line: u64,
}

impl<N> AddedLatency<N> {
    /// `inner`, with `ns_per_line` more nanoseconds for each line. 0 adds nothing.
    pub fn new(inner: N, ns_per_line: u64) -> Self {
        AddedLatency { inner, ns_per_line }
    }

    /// The NVRAM inside.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    /// Waits as long as the lines of the span take.
    fn wait(&self, offset: u64, len_bytes: usize) {
        if self.ns_per_line == 0 {
            return;
        }
        let start = Instant::now();
        let wait_ns = self.ns_per_line.saturating_mul(line_count(offset, len_bytes));
        let wait = Duration::from_nanos(wait_ns);
        while start.elapsed() < wait {
            hint::spin_loop();
        }
    }
}

impl<N: Nvram> Nvram for AddedLatency<N> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.store(offset, data)?;
        self.wait(offset, data.len());
        Ok(())
    }

    fn persist(&self) -> Result<()> {
        self.inner.persist()
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        self.inner.write_durable(offset, pieces)?;
        self.wait(offset, total_bytes(pieces));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvram::mapped::MappedNvram;

    #[test]
    fn every_line_takes_its_time_and_the_bytes_are_the_same() {
        let nvram = MappedNvram::in_memory(4096).expect("memory");
        let slow = AddedLatency::new(nvram, 1_000_000);
        let start = Instant::now();
        slow.write_durable(60, &[&[1; 4], &[2; 64]]).expect("durable write");
        assert!(start.elapsed() >= Duration::from_millis(2), "two lines");
        slow.store(0, &[3; 64]).expect("store");
        assert!(start.elapsed() >= Duration::from_millis(3), "one more");
        slow.persist().expect("persist");
        let mut found = [0; 128];
        slow.read(0, &mut found).expect("read");
        assert_eq!(found[..], [&[3; 64][..], &[2; 64]].concat());
    }
}
