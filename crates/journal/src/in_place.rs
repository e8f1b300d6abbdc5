//! Data in place: written to its home without passing through the journal.
//!
//! What a caller writes directly and what was buffered go home side by side, also several syncs' data.
//! Three things keep their order:
//!
//! 1. Writes of one block reach the device in the order in which they were made (`UnderWay`).
//! 2. A transaction commits when all its data in place are home, whoever writes them
//!    (`InPlaceGuard`), and flushed. So a block that it freed is reused after that, too.
//! 3. A sync waits for the data of its file that somebody else is writing, before it flushes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::options::Broken;
use crate::running::{InPlaceGuard, Ordered, Running};
use crate::stats::Counters;
use crate::under_way::{InPlaceWrite, Source, runs_of};
use crate::{BLOCK_BYTES, BlockOwner, HomeBlock, Result, WrittenAs};

/// Buffered data on their way home, out of the running transaction.
pub(crate) struct WriteOut<'a> {
    data: BTreeMap<HomeBlock, Ordered>,
    write: InPlaceWrite<'a>,
    /// Of the transaction whose data they are: it commits when they are home. None when it is the
    /// commit that writes them.
    _guard: Option<InPlaceGuard>,
}

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
        let mut running = self.running.lock();
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let journaled = running.blocks.range(blocks.clone()).next().map(|(block, _)| *block);
        let buffered: Vec<HomeBlock> = running.ordered.range(blocks).map(|(b, _)| *b).collect();
        buffered.iter().for_each(|block| drop(running.ordered.remove(block)));
        let write = self.under_way.announce(Source::Caller, vec![range.clone()]);
        drop(running);
        let journaled = journaled.or_else(|| self.state.lock().first_logged_block_in(&range));
        assert!(journaled.is_none(), "{journaled:?} is written in place, but it is in the journal");
        self.wait_for_earlier(&write);
        self.wait_until_not_writing_home(range.clone().map(HomeBlock));
        let written = self.home.write(start.offset_bytes(), data).map_err(Into::into);
        self.or_abort(written)?;
        self.cache.forget(range);
        Counters::add(&self.counters.in_place_bytes, data.len());
        self.in_place_written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Writes home what is buffered of this owner's data (`None`: whoever's). Others may still be writing
    /// what they have taken of it: a commit waits for them, a flush has to.
    pub(crate) fn write_buffered(&self, owner: Option<BlockOwner>) -> Result<()> {
        self.check_aborted()?;
        let mut running = self.running.lock();
        let data = match owner {
            None => std::mem::take(&mut running.ordered),
            Some(owner) => take_of(&mut running.ordered, owner),
        };
        let source = owner.map_or(Source::Buffered, Source::BufferedOf);
        let out = self.take_out(data, source, Some(&running));
        drop(running);
        self.write_out(out)
    }

    /// Makes the in-place data of this owner (`None`: all) that were written or buffered before this
    /// call durable.
    pub(crate) fn flush_in_place(&self, owner: Option<BlockOwner>) -> Result<()> {
        self.write_buffered(owner)?;
        if !self.is_broken(Broken::TakenByOthersNotAwaited) {
            self.under_way.wait_for_others(owner);
        }
        self.or_abort(self.flush_home_if_written())
    }

    /// Buffered data begin their way home. The transaction in `guarding` does not commit before they
    /// are there. The caller holds the handle lock.
    pub(crate) fn take_out(
        &self,
        data: BTreeMap<HomeBlock, Ordered>,
        source: Source,
        guarding: Option<&Running>,
    ) -> Option<WriteOut<'_>> {
        if data.is_empty() {
            return None;
        }
        let write = self.under_way.announce(source, runs_of(data.keys()));
        let guarding = guarding.filter(|_| !self.is_broken(Broken::WriteOutNotAwaited));
        let _guard = guarding.map(|running| InPlaceGuard::new(&running.in_place));
        Some(WriteOut { data, write, _guard })
    }

    /// Writes buffered data home, side by side with those of other blocks. A failure aborts the
    /// journal before anybody who waits for them can go on.
    pub(crate) fn write_out(&self, out: Option<WriteOut<'_>>) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        self.wait_for_earlier(&out.write);
        self.wait_until_not_writing_home(out.data.keys().copied());
        let blocks: Vec<_> = out.data.iter().map(|(b, data)| (*b, data.version.clone())).collect();
        let written_bytes = self.or_abort(self.write_home(&blocks))?;
        Counters::add(&self.counters.in_place_bytes, written_bytes);
        self.in_place_written.fetch_add(1, Ordering::SeqCst);
        let len_bytes = BLOCK_BYTES as u64;
        self.observe(out.data.values().map(|data| (data.owner, WrittenAs::InPlace, len_bytes)));
        for (block, version) in &blocks {
            self.cache.unpin(*block, version);
        }
        Ok(())
    }

    fn wait_for_earlier(&self, write: &InPlaceWrite<'_>) {
        if !self.is_broken(Broken::InPlaceOvertaken) {
            write.wait_for_earlier();
        }
    }

    /// Returns when in-place data that was written before is flushed. One flush does for everybody who
    /// waited for the one before it.
    pub(crate) fn flush_home_if_written(&self) -> Result<()> {
        let written = self.in_place_written.load(Ordering::SeqCst);
        let is_flushed = || self.in_place_flushed.load(Ordering::SeqCst) >= written;
        if is_flushed() {
            // What was not written because somebody else's write failed was not counted.
            return self.check_aborted();
        }
        self.flushes.alone(|| if is_flushed() { self.check_aborted() } else { self.flush_alone() })
    }

    /// Flushes the home device.
    pub(crate) fn flush_home(&self) -> Result<()> {
        self.flushes.alone(|| self.flush_alone())
    }

    /// The abort is latched before the next flush can begin.
    fn flush_alone(&self) -> Result<()> {
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
                state = self.changed.wait(state);
            }
        }
    }
}

/// Takes what belongs to the owner.
fn take_of(
    ordered: &mut BTreeMap<HomeBlock, Ordered>,
    owner: BlockOwner,
) -> BTreeMap<HomeBlock, Ordered> {
    let owned = ordered.iter().filter(|(_, data)| data.owner == owner);
    let blocks: Vec<HomeBlock> = owned.map(|(block, _)| *block).collect();
    blocks.into_iter().filter_map(|block| ordered.remove_entry(&block)).collect()
}
