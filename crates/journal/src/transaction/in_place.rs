//! Data in place: written to their home location without passing through the journal.
//!
//! Data that a caller writes directly and data that were buffered go home in parallel, including
//! the data of several syncs. Three orders are kept:
//!
//! 1. Writes of one block reach the device in the order in which they were made (`UnderWay`).
//! 2. A transaction commits after all its data in place are home (`InPlaceGuard`) and flushed,
//!    whichever thread writes them. So a block that the transaction freed is not reused before
//!    that.
//! 3. A sync waits for the data of its file that another thread is writing, before it flushes.
//!
//! Lock: that of `under_way`, taken while the running transaction is locked.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::data_checks::Way;
use super::parts::Parts;
use super::running::{InPlaceGuard, Ordered, Running, remove_range};
use super::under_way::{InPlaceWrite, Source, UnderWay};
use crate::error::Result;
use crate::faults::{self, Fault};
use crate::home::{WRITER_COUNT_MAX, runs_of};
use crate::observer::{BlockOwner, WrittenAs};
use crate::record::{DataCheck, Logged};
use crate::stats::Counters;
use crate::types::{BLOCK_BYTES, HomeBlock, Tid};

/// Writes data in place.
pub(crate) struct InPlace {
    parts: Arc<Parts>,
    /// Writes that have not ended.
    under_way: UnderWay,
}

/// Buffered data on their way home, taken out of the running transaction.
pub(crate) struct WriteOut<'a> {
    data: BTreeMap<HomeBlock, Ordered>,
    write: InPlaceWrite<'a>,
    /// The transaction whose record may have checks of them.
    checked: Option<Tid>,
    /// Belongs to the transaction of these data, which commits after they are home. `None` if the
    /// commit itself writes them.
    _guard: Option<InPlaceGuard>,
}

impl InPlace {
    pub(crate) fn new(parts: Arc<Parts>) -> InPlace {
        InPlace { parts, under_way: UnderWay::default() }
    }

    /// [`InPlace::write`] of blocks that no file had before, by the transaction of `guard`. Its
    /// record may get a check of them.
    pub(crate) fn write_fresh(
        &self,
        guard: &InPlaceGuard,
        start: HomeBlock,
        data: &[u8],
    ) -> Result<()> {
        let tid = guard.fresh_of.expect("the guard is one for fresh blocks");
        let is_checked = self.parts.checks.may_add(tid, (data.len() / BLOCK_BYTES) as u64);
        let check = is_checked.then(|| (tid, DataCheck::of(start, data)));
        self.write_with(start, data, check)
    }

    /// Writes whole blocks home now. Buffered ordered versions of them are dropped. The data are
    /// durable after a flush or a commit.
    ///
    /// Panics if the journal holds a record of one of the blocks that is not revoked, or will get
    /// one: a checkpoint or recovery would write that record over the data.
    pub(crate) fn write(&self, start: HomeBlock, data: &[u8]) -> Result<()> {
        self.write_with(start, data, None)
    }

    fn write_with(
        &self,
        start: HomeBlock,
        data: &[u8],
        check: Option<(Tid, DataCheck)>,
    ) -> Result<()> {
        assert!(data.len().is_multiple_of(BLOCK_BYTES), "data in place comes in whole blocks");
        self.parts.context.abort.check()?;
        let range = start.0..start.0 + (data.len() / BLOCK_BYTES) as u64;
        let mut running = self.parts.running.lock();
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let journaled = running.blocks.range(blocks.clone()).next().map(|(block, _)| *block);
        remove_range(&mut running.ordered, &blocks);
        let write = self.under_way.announce(Source::Caller, vec![range.clone()]);
        check.iter().for_each(|(tid, check)| self.parts.checks.add(*tid, *check));
        drop(running);
        let journaled = journaled.or_else(|| self.parts.ring.lock().first_logged_block_in(&range));
        assert!(journaled.is_none(), "{journaled:?} is written in place, but it is in the journal");
        self.wait_for_earlier(&write);
        self.clear_way(&range, check.map(|(tid, _)| tid))?;
        self.parts.checkpointer.wait_until_not_writing(range.clone().map(HomeBlock));
        self.parts.context.abort.on_failure(self.parts.home.write(start, data))?;
        self.parts.blocks.cache.forget(range);
        Counters::add(&self.parts.context.counters.in_place_bytes, data.len());
        self.parts.home.note_written_in_place();
        Ok(())
    }

    /// Writes the buffered data of this owner home (`None`: those of all owners). Other threads may
    /// still be writing data of the owner that they have taken. A commit waits for them, and a
    /// flush has to wait for them.
    pub(crate) fn write_buffered(&self, owner: Option<BlockOwner>) -> Result<()> {
        self.parts.context.abort.check()?;
        let mut running = self.parts.running.lock();
        let data = match owner {
            None => std::mem::take(&mut running.ordered),
            Some(owner) => take_of(&mut running.ordered, owner),
        };
        let source = owner.map_or(Source::Buffered, Source::BufferedOf);
        let out = self.take_out(data, source, Some(&mut running));
        drop(running);
        self.write_out(out)
    }

    /// Makes the in-place data of this owner (`None`: all) that were written or buffered before
    /// this call durable.
    pub(crate) fn flush(&self, owner: Option<BlockOwner>) -> Result<()> {
        self.write_buffered(owner)?;
        if !faults::is(Fault::TakenByOthersNotAwaited) {
            self.under_way.wait_for_others(owner);
        }
        self.parts.context.abort.on_failure(self.parts.home.flush_if_written())
    }

    /// Takes buffered data out of the running transaction. The transaction in `guarding` commits
    /// only after they are home. The caller holds the handle lock.
    pub(crate) fn take_out(
        &self,
        data: BTreeMap<HomeBlock, Ordered>,
        source: Source,
        guarding: Option<&mut Running>,
    ) -> Option<WriteOut<'_>> {
        if data.is_empty() {
            return None;
        }
        let write = self.under_way.announce(source, runs_of(data.keys()));
        let guarding = guarding.filter(|_| !faults::is(Fault::WriteOutNotAwaited));
        let _guard = guarding.map(|running| {
            self.parts.checks.add_unchecked(running.tid);
            running.guard(None, data.len())
        });
        Some(WriteOut { data, write, checked: None, _guard })
    }

    /// Takes long runs of fresh blocks out of what a transaction logs. Its record may get checks of
    /// them. The caller holds the handle lock, and has closed the transaction.
    pub(crate) fn take_fresh_runs(&self, closing: &mut Running) -> Option<WriteOut<'_>> {
        if !self.parts.checks.is_possible {
            return None;
        }
        let is_fresh = |logged: &Logged| logged.is_fresh || faults::is(Fault::HeldRunsInPlace);
        let fresh = closing.blocks.iter().filter(|(_, logged)| is_fresh(logged));
        let mut runs = runs_of(fresh.map(|(block, _)| block));
        runs.retain(|run| run.end - run.start >= self.parts.context.options.in_place_run_blocks);
        if !runs.is_empty() {
            let ring = self.parts.ring.lock();
            runs.retain(|run| ring.first_logged_block_in(run).is_none());
        }
        if runs.is_empty() {
            return None;
        }
        let mut data = BTreeMap::new();
        for run in &runs {
            let block_count = u32::try_from(run.end - run.start).expect("a transaction is smaller");
            // The checksum is computed when the handle lock is free again.
            let check = DataCheck { home: HomeBlock(run.start), block_count, checksum: 0 };
            self.parts.checks.add(closing.tid, check);
            for block in run.clone().map(HomeBlock) {
                let Logged { version, owner, .. } =
                    closing.blocks.remove(&block).expect("the run is of these blocks");
                data.insert(block, Ordered { version, owner });
            }
        }
        let write = self.under_way.announce(Source::Buffered, runs);
        Some(WriteOut { data, write, checked: Some(closing.tid), _guard: None })
    }

    /// Writes buffered data home, in parallel with those of other blocks. A failure aborts the
    /// journal before any thread that waits for them can continue.
    pub(crate) fn write_out(&self, out: Option<WriteOut<'_>>) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        self.wait_for_earlier(&out.write);
        for run in runs_of(out.data.keys()) {
            if let Some(tid) = out.checked {
                let blocks = out.data.range(HomeBlock(run.start)..HomeBlock(run.end));
                let checksum = blocks.fold(0, |checksum, (_, data)| {
                    crc32c::crc32c_append(checksum, data.version.as_ref())
                });
                self.parts.checks.complete(tid, HomeBlock(run.start), checksum);
            }
            self.clear_way(&run, out.checked)?;
        }
        self.parts.checkpointer.wait_until_not_writing(out.data.keys().copied());
        let blocks: Vec<_> = out.data.iter().map(|(b, data)| (*b, data.version.clone())).collect();
        let written_bytes = self
            .parts
            .context
            .abort
            .on_failure(self.parts.home.write_blocks(&blocks, WRITER_COUNT_MAX))?;
        Counters::add(&self.parts.context.counters.in_place_bytes, written_bytes);
        self.parts.home.note_written_in_place();
        let len_bytes = BLOCK_BYTES as u64;
        self.parts
            .context
            .observe(out.data.values().map(|data| (data.owner, WrittenAs::InPlace, len_bytes)));
        for (block, version) in &blocks {
            self.parts.blocks.cache.unpin(*block, version);
        }
        Ok(())
    }

    /// Returns when these blocks may be written: see [`super::data_checks`].
    fn clear_way(&self, blocks: &Range<u64>, checked: Option<Tid>) -> Result<()> {
        while let Way::AfterSettling(tid) = self.parts.checks.clear_way(blocks, checked)? {
            self.parts.context.abort.on_failure(self.parts.ring.settle(tid))?;
            self.parts.checks.note_settled(tid);
        }
        Ok(())
    }

    fn wait_for_earlier(&self, write: &InPlaceWrite<'_>) {
        if !faults::is(Fault::InPlaceOvertaken) {
            write.wait_for_earlier();
        }
    }
}

/// Takes the data that belong to the owner.
fn take_of(
    ordered: &mut BTreeMap<HomeBlock, Ordered>,
    owner: BlockOwner,
) -> BTreeMap<HomeBlock, Ordered> {
    let owned = ordered.iter().filter(|(_, data)| data.owner == owner);
    let blocks: Vec<HomeBlock> = owned.map(|(block, _)| *block).collect();
    blocks.into_iter().filter_map(|block| ordered.remove_entry(&block)).collect()
}
