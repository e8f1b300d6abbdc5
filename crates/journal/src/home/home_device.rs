//! The home device: reads, writes of whole blocks, and the flush that makes data in place durable.
//!
//! Lock: `flushes`, held during a flush of the device. `written` counts the writes in place that
//! have completed, and `flushed` the writes that a flush has covered. `written` is read before a
//! flush begins, so `flushed` never counts a write that the flush may have missed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{AlignedBuf, BlockDevice};

use crate::context::Context;
use crate::error::{JournalError, Result};
use crate::medium::Flushes;
use crate::types::{BLOCK_BYTES, BlockRef, HomeBlock};

/// Blocks that are copied and written home at a time, and the largest write: 1 MiB.
const GROUP_LIMIT: usize = 256;

/// The most writes home at a time.
pub(crate) const WRITER_COUNT_MAX: usize = 8;

/// The device that holds the volume's blocks.
pub(crate) struct Home {
    context: Arc<Context>,
    device: Arc<dyn BlockDevice>,
    flushes: Arc<Flushes>,
    written: AtomicU64,
    flushed: AtomicU64,
}

impl Home {
    pub(crate) fn new(
        context: Arc<Context>,
        device: Arc<dyn BlockDevice>,
        flushes: Arc<Flushes>,
    ) -> Home {
        let (written, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
        Home { context, device, flushes, written, flushed }
    }

    /// Fills `buf` with whole blocks. If the device has become shorter, data that were written to
    /// it are lost, so the journal is aborted.
    pub(crate) fn read(&self, start: HomeBlock, buf: &mut [u8]) -> Result<()> {
        assert!(buf.len().is_multiple_of(BLOCK_BYTES), "home is read in whole blocks");
        self.device.read(start.offset_bytes(), buf).map_err(|error| {
            let is_shrunk = error.is_shrunk();
            let error = JournalError::from(error);
            if is_shrunk && self.context.abort.check().is_ok() {
                self.context.abort.latch(&error);
            }
            error
        })
    }

    /// Writes whole blocks. Durable after a flush.
    pub(crate) fn write(&self, start: HomeBlock, data: &[u8]) -> Result<()> {
        assert!(data.len().is_multiple_of(BLOCK_BYTES), "home is written in whole blocks");
        Ok(self.device.write(start.offset_bytes(), data)?)
    }

    /// [`write_blocks`] to this device.
    pub(crate) fn write_blocks(
        &self,
        blocks: &[(HomeBlock, BlockRef)],
        writer_count: usize,
    ) -> Result<usize> {
        write_blocks(self.device.as_ref(), blocks, writer_count)
    }

    /// Counts a write in place that has completed.
    pub(crate) fn note_written_in_place(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns when data in place that were written before this call are flushed. One flush serves
    /// all callers that waited for the previous one.
    pub(crate) fn flush_if_written(&self) -> Result<()> {
        let written = self.written.load(Ordering::SeqCst);
        let is_flushed = || self.flushed.load(Ordering::SeqCst) >= written;
        if is_flushed() {
            // A write of another thread that failed was not counted.
            return self.context.abort.check();
        }
        self.flushes
            .alone(|| if is_flushed() { self.context.abort.check() } else { self.flush_alone() })
    }

    /// Runs `write`, then flushes the device. No other flush comes between the two.
    pub(crate) fn flush_after(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        self.flushes.alone(|| {
            self.context.abort.check()?;
            write()?;
            self.flush_alone()
        })
    }

    /// Flushes the device.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flushes.alone(|| self.flush_alone())
    }

    /// Sets the abort latch before the next flush can begin.
    fn flush_alone(&self) -> Result<()> {
        let abort = &self.context.abort;
        abort.check()?;
        let written = self.written.load(Ordering::SeqCst);
        abort.on_failure(self.device.flush().map_err(Into::into))?;
        self.flushed.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }
}

/// Writes ascending blocks, at most `writer_count` writes at a time. Adjacent blocks are one write.
/// Returns the number of bytes.
pub(crate) fn write_blocks(
    device: &dyn BlockDevice,
    blocks: &[(HomeBlock, BlockRef)],
    writer_count: usize,
) -> Result<usize> {
    assert!(blocks.is_sorted_by(|one, next| one.0 < next.0), "blocks go home in ascending order");
    for group in blocks.chunks(GROUP_LIMIT) {
        let mut buf = AlignedBuf::zeroed(group.len() * BLOCK_BYTES);
        for (slot, (_, version)) in buf.chunks_exact_mut(BLOCK_BYTES).zip(group) {
            slot.copy_from_slice(version.as_ref());
        }
        let (mut spans, mut bytes) = (Vec::new(), &buf[..]);
        for run in runs_of(group.iter().map(|(block, _)| block)) {
            let data;
            (data, bytes) = bytes.split_at(run.clone().count() * BLOCK_BYTES);
            spans.push((HomeBlock(run.start).offset_bytes(), data));
        }
        assert!(bytes.is_empty(), "the runs are all of the group");
        device.write_spans(&spans, writer_count)?;
    }
    Ok(blocks.len() * BLOCK_BYTES)
}

/// The runs of ascending blocks.
pub(crate) fn runs_of<'a>(blocks: impl Iterator<Item = &'a HomeBlock>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block.0 => run.end += 1,
            _ => runs.push(block.0..block.0 + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemoryDevice;

    fn write(blocks: &[u64]) -> Vec<u8> {
        let device = MemoryDevice::new(8 * BLOCK_BYTES, 512);
        let version = |block: &u64| -> BlockRef { Arc::new([*block as u8; BLOCK_BYTES]) };
        let blocks: Vec<_> = blocks.iter().map(|b| (HomeBlock(*b), version(b))).collect();
        write_blocks(&device, &blocks, WRITER_COUNT_MAX).unwrap();
        device.to_bytes().chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }

    #[test]
    fn blocks_go_to_their_places() {
        assert_eq!(write(&[1, 2, 3, 6, 7]), [0, 1, 2, 3, 0, 0, 6, 7]);
        assert_eq!(write(&[]), [0; 8]);
    }

    #[test]
    #[should_panic(expected = "ascending")]
    fn one_block_twice_is_a_bug() {
        write(&[1, 1]);
    }
}
