//! Data in place: written to its home without passing through the journal.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use crate::engine::Engine;
use crate::stats::Counters;
use crate::{BLOCK_BYTES, HomeBlock, Result};

impl Engine {
    /// Writes whole blocks home now. Buffered ordered versions of them are dropped. Durable after a
    /// flush or a commit.
    ///
    /// Panics when the journal holds a record of one of them that is not revoked, or is getting
    /// one: a checkpoint or recovery would put it on top of what is written here.
    pub(crate) fn write_in_place(&self, start: HomeBlock, data: &[u8]) -> Result<()> {
        assert!(data.len().is_multiple_of(BLOCK_BYTES), "data in place comes in whole blocks");
        self.check_aborted()?;
        let range = start.0..start.0 + (data.len() / BLOCK_BYTES) as u64;
        let _shared = self.in_place.read();
        let mut running = self.running.lock();
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let journaled = running.blocks.range(blocks.clone()).next().map(|(block, _)| *block);
        let buffered: Vec<HomeBlock> = running.ordered.range(blocks).map(|(b, _)| *b).collect();
        buffered.iter().for_each(|block| drop(running.ordered.remove(block)));
        drop(running);
        let journaled = journaled.or_else(|| self.state.lock().first_logged_block_in(&range));
        assert!(journaled.is_none(), "{journaled:?} is written in place, but it is in the journal");
        self.wait_until_not_writing_home(range.clone().map(HomeBlock));
        let written = self.home.write(start.offset_bytes(), data).map_err(Into::into);
        self.or_abort(written)?;
        self.cache.forget(range);
        Counters::add(&self.counters.in_place_bytes, data.len());
        self.in_place_written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Makes all in-place data that was written or buffered before this call durable.
    pub(crate) fn flush_in_place(&self) -> Result<()> {
        self.check_aborted()?;
        let exclusive = self.in_place.write();
        let ordered = std::mem::take(&mut self.running.lock().ordered);
        self.or_abort(self.write_ordered(&ordered))?;
        drop(exclusive);
        self.or_abort(self.flush_home_if_written())
    }

    /// Returns when in-place data that was written before is flushed. One flush does for everybody who
    /// waited for the one before it.
    pub(crate) fn flush_home_if_written(&self) -> Result<()> {
        let written = self.in_place_written.load(Ordering::SeqCst);
        let is_flushed = || self.in_place_flushed.load(Ordering::SeqCst) >= written;
        if is_flushed() {
            return Ok(());
        }
        let one_at_a_time = self.flushing.lock();
        if is_flushed() {
            return self.check_aborted();
        }
        self.flush_home_alone(&one_at_a_time)
    }

    /// Flushes the home device.
    pub(crate) fn flush_home(&self) -> Result<()> {
        self.flush_home_alone(&self.flushing.lock())
    }

    /// One flush at a time, and the abort is latched before the next can begin: a flush that
    /// follows a failed one may succeed without making durable what the failed one lost.
    fn flush_home_alone(&self, _one_at_a_time: &MutexGuard<'_, ()>) -> Result<()> {
        self.check_aborted()?;
        let written = self.in_place_written.load(Ordering::SeqCst);
        self.or_abort(self.home.flush().map_err(Into::into))?;
        self.in_place_flushed.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    /// Returns when no checkpoint is writing any of these blocks. Without this, an old version
    /// on its way home could land on top of what is written in place now.
    pub(crate) fn wait_until_not_writing_home(&self, blocks: impl Iterator<Item = HomeBlock>) {
        let mut state = self.state.lock();
        for block in blocks {
            while state.writing_home.contains(&block) {
                self.changed.wait(&mut state);
            }
        }
    }
}
