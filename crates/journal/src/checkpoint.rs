//! Group checkpoint: a filled region is brought home as a whole.
//!
//! Newest committed version of each block logged in the region, sorted, merged into large writes,
//! one flush, one header, durable in both slots, that frees the region. A block of which a later region holds all
//! bytes, or that was revoked, is not written at all (cancelled). One of which later regions hold
//! deltas only is: replay begins with what is home.

use device::sync::MutexGuard;
use device::{AlignedBuf, BlockDevice};

use crate::engine::Engine;
use crate::options::Broken;
use crate::state::{Live, RegionUse, State};
use crate::stats::Counters;
use crate::under_way::runs_of;
use crate::{BLOCK_BYTES, BlockRef, HomeBlock, Result, WrittenAs};

/// Blocks that are copied and written home at a time, and the largest write: 1 MiB.
const GROUP_LIMIT: usize = 256;
/// Blocks that are announced as being written home at a time; in-place writers may wait for them.
const BATCH_LIMIT: usize = 1024;

impl Engine {
    /// Brings the tail region home and frees it. `false` if it is not filled.
    pub(crate) fn checkpoint_tail(&self) -> Result<bool> {
        let mut state = self.state.lock();
        while state.checkpointing {
            state = self.changed.wait(state);
        }
        self.check_aborted()?;
        let Some(tail) = state.filled_tail() else { return Ok(false) };
        let versions = state.versions_to_bring_home(tail);
        state.checkpointing = true;
        drop(state);
        let _checkpointing = self.awaited(|state| {
            state.checkpointing = false;
            state.writing_home.clear();
        });
        self.or_abort(self.bring_home(tail, &versions))?;
        Ok(true)
    }

    fn bring_home(&self, region_index: u32, versions: &[(HomeBlock, BlockRef)]) -> Result<()> {
        let mut written = Vec::with_capacity(versions.len());
        for batch in versions.chunks(BATCH_LIMIT) {
            let batch = self.announce(region_index, batch);
            let result = self.write_home(&batch);
            self.state.lock().writing_home.clear();
            self.changed.notify_all();
            Counters::add(&self.counters.home_bytes, result?);
            written.extend(batch);
        }
        if !self.is_broken(Broken::CheckpointNotFlushed) {
            self.flush_home()?;
        }
        let _writing = self.header_writing.lock();
        let mut state = self.state.lock();
        let mut owners = Vec::with_capacity(written.len());
        for (block, version) in &written {
            owners.push(state.owner_of(*block));
            if state.note_home(*block, version) {
                self.cache.unpin(*block, version);
            }
        }
        let header = state.header_without_tail();
        drop(state);
        let len_bytes = BLOCK_BYTES as u64;
        self.observe(owners.into_iter().map(|owner| (owner, WrittenAs::Home, len_bytes)));
        // In both slots before a block may be reused without a revoke: losing one to damage never
        // brings the region back.
        let header = if self.is_broken(Broken::TailInOneSlot) {
            header.write(&self.space).map(|()| header)?
        } else {
            header.write_both(&self.space)?
        };
        Counters::add(&self.counters.checkpoints, 1);
        self.state.lock().free_tail(header);
        Ok(())
    }

    /// The part of the batch that still has to go home, announced as under way.
    fn announce(
        &self,
        region_index: u32,
        batch: &[(HomeBlock, BlockRef)],
    ) -> Vec<(HomeBlock, BlockRef)> {
        let mut state = self.state.lock();
        let batch: Vec<_> = batch
            .iter()
            .filter(|(block, _)| self.must_go_home(&state, *block, region_index))
            .cloned()
            .collect();
        state.writing_home = batch.iter().map(|(block, _)| *block).collect();
        batch
    }

    fn must_go_home(&self, state: &State, block: HomeBlock, region_index: u32) -> bool {
        let is_later = |live: &Live| live.region_index != region_index;
        if self.is_broken(Broken::DeltaWithoutBase) && state.live.get(&block).is_some_and(is_later)
        {
            return false;
        }
        state.version_to_bring_home(block, region_index).is_some()
    }

    pub(crate) fn write_home(&self, blocks: &[(HomeBlock, BlockRef)]) -> Result<usize> {
        write_home(self.home.as_ref(), blocks)
    }

    /// Closes the active region, whatever it holds, and brings everything home. Waits for the
    /// commit in flight first: its record has a place in the active region but is not in `live`.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        let mut state = self.state.lock();
        while state.commit_in_flight {
            state = self.changed.wait(state);
        }
        self.bring_all_home(state)
    }

    /// [`Engine::checkpoint_all`] for the commit in flight itself, before its record has a place.
    pub(crate) fn bring_all_home(&self, mut state: MutexGuard<'_, State>) -> Result<()> {
        let active = state.active;
        if state.region(active).head_bytes > 0 {
            state.region(active).usage = RegionUse::Filled;
        }
        drop(state);
        while self.checkpoint_tail()? {}
        Ok(())
    }
}

/// Writes sorted blocks home, those that follow each other in one write, and several writes at a time.
/// Returns the bytes.
pub(crate) fn write_home(
    home: &dyn BlockDevice,
    blocks: &[(HomeBlock, BlockRef)],
) -> Result<usize> {
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
        home.write_spans(&spans)?;
    }
    Ok(blocks.len() * BLOCK_BYTES)
}
