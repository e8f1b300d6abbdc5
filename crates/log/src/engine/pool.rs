//! The pool: chunks are allocated to lanes, waited for, and freed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Nvram;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::{is_stall, others_limit};
use crate::format::chunk::{Allocation, LaneChunk};
use crate::words::{ChunkState, ORDINAL_MAX, before_writes};
use crate::{LogError, Result, StreamId};

/// This many chunks in one lane wake the flush worker.
pub(crate) const LANE_CHUNKS_HIGH: usize = 8;

impl Service {
    /// Allocates a chunk for span `ordinal` of the stream. If there is none, chunks without content
    /// are freed: see [`ChunkAllocator::allocate`].
    pub(crate) fn allocate(&self, lane: &Lane, ordinal: u64) -> Result<LaneChunk> {
        self.allocate_or_wait(lane, ordinal).inspect_err(|_| self.free_unused(lane))
    }

    pub(crate) fn allocate_or_wait(&self, lane: &Lane, ordinal: u64) -> Result<LaneChunk> {
        let begin = Instant::now();
        let mut has_waited = false;
        loop {
            let freed = self.control.freed();
            if let Some(index) = self.take_free_chunk(lane) {
                let memory = self.assign_chunk(lane, ordinal, index).inspect_err(|_| {
                    self.control.free_chunk(index);
                })?;
                if ordinal.is_multiple_of(LANE_CHUNKS_HIGH as u64) {
                    self.wakeup().wake();
                }
                if has_waited {
                    let waited_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.control.count_wait_ns(waited_ns);
                }
                return Ok(LaneChunk { ordinal, memory });
            }
            if !has_waited {
                self.control.count_wait();
                has_waited = true;
            }
            if begin.elapsed() >= self.full_wait {
                return Err(LogError::Full {
                    pool_bytes: self.host.settings().pool_bytes(),
                    waited_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
                });
            }
            if !self.reclaim(lane)? {
                self.control.wait_freed(freed, Duration::from_millis(20));
            }
        }
    }

    /// Gives a chunk that was taken to the lane.
    fn assign_chunk(&self, lane: &Lane, ordinal: u64, index: usize) -> Result<Arc<dyn Nvram>> {
        if ordinal >= ORDINAL_MAX - 1 {
            let text = format!("stream {}: no lane has a span {ordinal}", lane.name);
            return Err(LogError::Incompatible(text));
        }
        let holder = lane.words.remote().unwrap_or(0);
        let appended = lane.words.appended();
        // If words are lost, the chunk may belong to another stream, or the span may be drained.
        self.control.check()?;
        lane.words.check()?;
        self.renew_chunk(index, holder)?;
        let memory = lane.chunk_memory(index)?;
        let first = appended.max(ordinal.saturating_mul(self.host.settings().chunk_bytes));
        lane.identity().allocation(ordinal, first).write(&*memory)?;
        lane.words.set_chunk(ordinal, index);
        before_writes(&lane.words);
        Ok(memory)
    }

    /// Makes sure that only `holder` (see `Control::chunk_holder`) sees the chunk's new content:
    /// other processes may still map its old file.
    fn renew_chunk(&self, index: usize, holder: u64) -> Result<()> {
        if self.control.chunk_holder(index) == holder {
            return Ok(());
        }
        // A process that dies here leaves a file whose name may be gone after a power cut. No table
        // names it.
        self.control.begin_replacing(index);
        self.host.replace_chunk(index)?;
        self.control.set_chunk_holder(index, holder);
        Ok(())
    }

    /// Takes a free chunk. Prefers one that the lessee had before, because its file need not be
    /// replaced.
    fn take_free_chunk(&self, lane: &Lane) -> Option<usize> {
        let stream = lane.identity().stream;
        let holder = lane.words.remote().unwrap_or(0);
        let count = self.host.settings().chunk_count as usize;
        let take = |index: &usize| self.control.take_chunk(*index, stream);
        let is_held = |index: &usize| self.control.chunk_holder(*index) == holder;
        (0..count).filter(is_held).find(take).or_else(|| (0..count).find(take))
    }

    /// Drains the stream itself and, if that frees nothing, every other stream that has chunks.
    /// Returns whether a chunk became free.
    fn reclaim(&self, lane: &Lane) -> Result<bool> {
        let before = self.control.freed();
        match self.drain_within(lane, self.full_wait) {
            // Chunks of other streams may become free.
            Err(e) if is_stall(&e) => {}
            drained => drained?,
        }
        if self.control.freed() != before {
            return Ok(true);
        }
        for stream in self.owners() {
            // One that cannot be opened is damaged, which is its own trouble, too.
            if stream != lane.identity().stream
                && let Ok(Some(other)) = self.lane_of(stream)
            {
                // Its failure is its own: it is latched there and reported to its writer.
                let _ = self.drain_within(&other, others_limit(&other));
            }
        }
        Ok(self.control.freed() != before)
    }

    /// Streams that hold chunks.
    pub(crate) fn owners(&self) -> Vec<StreamId> {
        let count = self.host.settings().chunk_count as usize;
        let owner = |index| self.control.chunk_owner(index);
        let mut owners: Vec<StreamId> = (0..count).filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Chunks that are allocated.
    pub(crate) fn allocated_count(&self) -> usize {
        let count = self.host.settings().chunk_count as usize;
        let is_allocated = |&index: &usize| !self.control.seems_free(index);
        (0..count).filter(is_allocated).count()
    }

    /// Frees chunks that were allocated for an append that then found no further chunk. Call this
    /// only while the stream's writer waits for that, because otherwise the writer may have stored
    /// records that this process does not know yet.
    pub(crate) fn free_unused(&self, lane: &Lane) {
        let appended = lane.words.appended();
        let last = appended / self.host.settings().chunk_bytes;
        for (ordinal, index) in lane.chunks().into_iter().filter(|(ordinal, _)| *ordinal > last) {
            if let Err(e) = self.free_chunk(lane, ordinal, index) {
                lane.abort_after(&e);
            }
        }
    }

    /// Frees a chunk. Removes it from the lane's table before others may have it, and only once,
    /// whatever the table says.
    pub(crate) fn free_chunk(&self, lane: &Lane, ordinal: u64, index: usize) -> Result<()> {
        let stream = lane.identity().stream;
        if !self.control.begin_freeing(index, stream) {
            return Ok(());
        }
        // After an error it can be tried again.
        let memory = self.host.chunk(index);
        let memory = memory.inspect_err(|_| self.control.cancel_freeing(index, stream))?;
        Allocation::end(&*memory)?;
        lane.words.clear_chunk(ordinal);
        self.control.free_chunk(index);
        Ok(())
    }

    /// Frees the chunks that the stream owns and its table does not name. Only while no process
    /// allocates or frees.
    pub(crate) fn free_lost_chunks(&self, lane: &Lane) -> Result<()> {
        let chunks = lane.chunks();
        // If the words are lost, the table seems empty, and chunks that it named would be freed.
        lane.words.check()?;
        for index in 0..self.host.settings().chunk_count as usize {
            let named = chunks.iter().find(|(_, named)| *named == index);
            match (named, self.control.chunk_state(index)) {
                // A process that died was freeing it.
                (Some((ordinal, _)), ChunkState::Freeing(_)) => lane.words.clear_chunk(*ordinal),
                (None, ChunkState::Allocated(owner) | ChunkState::Freeing(owner))
                    if owner == lane.identity().stream => {}
                _ => continue,
            }
            self.free_unnamed_chunk(lane, index)?;
        }
        Ok(())
    }

    /// Frees a chunk of the lane that its table does not name.
    fn free_unnamed_chunk(&self, lane: &Lane, index: usize) -> Result<()> {
        Allocation::end(&*lane.chunk_memory(index)?)?;
        self.control.free_chunk(index);
        Ok(())
    }

    /// Frees all chunks of a stream that was removed. The caller holds the service's lock.
    pub(crate) fn free_all_chunks(&self, stream: StreamId) -> Result<()> {
        for index in 0..self.host.settings().chunk_count as usize {
            // A process that was freeing it already is dead: no other does with a stream that is no
            // more.
            if self.control.chunk_owner(index) == Some(stream) {
                Allocation::end(&*self.host.chunk(index)?)?;
                self.control.free_chunk(index);
            }
        }
        Ok(())
    }
}
