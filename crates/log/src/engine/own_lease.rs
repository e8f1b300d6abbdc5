//! Leases of this process: its writers, and the repair of a lane whose last writer died.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::OTHERS_LIMIT;
use crate::engine::writer::{ChunkAllocator, Writer};
use crate::format::chunk::{DATA_OFFSET, LaneChunk, write_zeros};
use crate::words::Client;
use crate::{LogError, Result};

impl Service {
    /// Runs `f` with the writer of the stream. Takes the stream's lease for this process if it does
    /// not have it.
    pub(crate) fn with_writer<T>(
        &self,
        lane: &Arc<Lane>,
        f: impl FnOnce(&mut Writer, &dyn ChunkAllocator) -> Result<T>,
    ) -> Result<T> {
        let mut writer = lane.writer.lock();
        lane.check()?;
        if writer.is_none() {
            *writer = Some(self.lease(lane)?);
        }
        let allocator = LaneAllocator { service: self, lane };
        let done = f(writer.as_mut().expect("leased"), &allocator)?;
        // No other process finds records that were appended to lost words.
        lane.words.check()?;
        Ok(done)
    }

    fn lease(&self, lane: &Lane) -> Result<Writer> {
        self.end_remote(lane)?;
        let before = self.claim_lessee(lane)?;
        self.take_over(lane, before).inspect_err(|_| {
            // The next lessee has to look at the chunks that this one could not.
            lane.words.set_suspect(true);
            lane.words.release_lessee();
        })
    }

    /// Makes a writer of the lane, whose lease this process took from `before`.
    fn take_over(&self, lane: &Lane, before: Client) -> Result<Writer> {
        let words = &lane.words;
        lane.check_words(self.control.usn_limit())?;
        if self.has_left_something(lane, before) {
            self.adopt(lane)?;
        }
        self.refresh_usn(words);
        let position = words.appended();
        let first = position / self.host.settings().chunk_bytes;
        let mut chunks = Vec::new();
        while let Some(index) = words.chunk(first + chunks.len() as u64) {
            let ordinal = first + chunks.len() as u64;
            chunks.push(LaneChunk { ordinal, memory: lane.chunk_memory(index)? });
        }
        let is_nvram = self.host.nvram().is_some();
        let sizes = self.sizes();
        // Before anything is stored at that position.
        words.check()?;
        Ok(Writer::new(lane.identity(), words.clone(), sizes, is_nvram, position, chunks))
    }

    /// Takes the lease. Returns the process that had it before.
    pub(crate) fn claim_lessee(&self, lane: &Lane) -> Result<Client> {
        let words = &lane.words;
        let mut busy_since = None;
        loop {
            let claimed = words.claim_lessee(self.host.client(), |held| self.is_dead(held));
            if let Some(before) = claimed {
                return Ok(before);
            }
            let held = words.lessee();
            let is_brief = held == Client::NOBODY || held.is_for_a_moment();
            let waited = busy_since.get_or_insert_with(Instant::now).elapsed();
            if !is_brief || waited >= OTHERS_LIMIT {
                return Err(LogError::Busy(lane.name.to_string()));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether an operation on the lane was interrupted, because `before`, the previous lessee, or
    /// a drainer died.
    pub(crate) fn has_left_something(&self, lane: &Lane, before: Client) -> bool {
        before != Client::NOBODY || lane.words.is_suspect()
    }

    /// Takes over the lane of a process that died.
    pub(crate) fn adopt(&self, lane: &Lane) -> Result<()> {
        let _drainer = self.wait_for_drainer(lane, self.stall_limit())?;
        self.tidy(lane)
    }

    /// Repairs the lane. Bytes that a dead writer stored after its last published record become
    /// zeros again. A chunk that was being allocated or freed becomes free. The caller has the
    /// lease and is the drainer.
    pub(crate) fn tidy(&self, lane: &Lane) -> Result<()> {
        // Kept until all is done: who does it may die too, or fail.
        lane.words.set_suspect(true);
        self.free_lost_chunks(lane)?;
        self.zero_behind_end(lane)?;
        lane.words.set_suspect(false);
        Ok(())
    }

    fn zero_behind_end(&self, lane: &Lane) -> Result<()> {
        let chunk_bytes = self.host.settings().chunk_bytes;
        let appended = lane.words.appended();
        let chunks = lane.chunks();
        lane.words.check()?;
        for (ordinal, index) in chunks {
            let begin = appended.saturating_sub(ordinal * chunk_bytes).min(chunk_bytes);
            write_zeros(&*lane.chunk_memory(index)?, DATA_OFFSET + begin)?;
        }
        Ok(())
    }

    /// Releases the stream's lease, if this process has it.
    pub(crate) fn release(&self, lane: &Lane) {
        let mut writer = lane.writer.lock();
        if writer.take().is_some() {
            let given = lane.words.release_lessee_of(self.host.client());
            let is_ours = given.is_ok() || lane.words.check().is_err();
            debug_assert!(is_ours, "the lease was ours, not {given:?}");
        }
    }
}

/// Where a writer of this process gets its chunks.
struct LaneAllocator<'a> {
    service: &'a Service,
    lane: &'a Lane,
}

impl ChunkAllocator for LaneAllocator<'_> {
    fn allocate(&self, ordinal: u64) -> Result<LaneChunk> {
        self.service.allocate(self.lane, ordinal)
    }

    fn extend_usn(&self) -> Result<()> {
        self.service.extend_usn()?;
        self.service.refresh_usn(&self.lane.words);
        Ok(())
    }
}
