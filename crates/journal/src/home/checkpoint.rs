//! Group checkpoint: all blocks of a filled region are brought home together.
//!
//! The newest committed versions of the blocks logged in the region are written in home order,
//! merged into large writes, and followed by one flush. Then one header, durable in both slots,
//! frees the region. A block is not written at all (it is *cancelled*) if a later region holds all
//! of its bytes, or if it was revoked. A block of which later regions hold only deltas is written,
//! because replay begins with the version at home.
//!
//! A checkpoint refers to the versions of one batch only. So versions that are replaced while it
//! runs are freed, and the limit of blocks that are not home bounds the memory.
//!
//! Lock: `progress`. It protects which thread is bringing a region home, and which blocks are being
//! written. It is taken before `regions`. Both are held together while the blocks that still have
//! to go home are chosen and added to `writing_home`. A block that is written in place is revoked
//! first, so it is not chosen; after that, its writer looks at `writing_home`. So either the block
//! is not chosen, or the writer sees it in `writing_home` and waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use device::sync::{Condvar, Mutex};

use super::blocks::Blocks;
use super::home_device::Home;
use super::pace::{Look, Pace};
use crate::context::Context;
use crate::error::Result;
use crate::faults::{self, Fault};
use crate::observer::WrittenAs;
use crate::ring::Ring;
use crate::stats::Counters;
use crate::types::{BLOCK_BYTES, BlockRef, HomeBlock, Tid};

/// A part of a region's blocks on their way home, announced together. Writers in place may wait for
/// them.
struct Batch {
    /// By home location.
    versions: Vec<(HomeBlock, BlockRef)>,
    /// The transactions that committed them, in the same order.
    tids: Vec<Tid>,
}

/// Brings regions home, one at a time.
pub(crate) struct Checkpointer {
    context: Arc<Context>,
    blocks: Arc<Blocks>,
    home: Arc<Home>,
    ring: Arc<Ring>,
    /// Whether commits and home writes use one disk.
    shares_disk: bool,
    progress: Mutex<Progress>,
    /// Signalled when a checkpoint or one of its batches has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Progress {
    is_running: bool,
    /// Blocks whose write home is under way.
    writing_home: BTreeSet<HomeBlock>,
}

/// What happened to the tail region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TailOutcome {
    /// It was brought home and freed.
    Freed,
    /// It is not filled, so nothing was done.
    NotFilled,
}

impl Checkpointer {
    pub(crate) fn new(
        context: Arc<Context>,
        blocks: Arc<Blocks>,
        home: Arc<Home>,
        ring: Arc<Ring>,
        shares_disk: bool,
    ) -> Checkpointer {
        let progress = Mutex::new(Progress::default());
        Checkpointer { context, blocks, home, ring, shares_disk, progress, ended: Condvar::new() }
    }

    /// Brings the tail region home and frees it, if it is filled. Waits for a checkpoint that is
    /// under way.
    pub(crate) fn bring_tail_home(&self) -> Result<TailOutcome> {
        let mut progress = self.progress.lock();
        while progress.is_running {
            progress = self.ended.wait(progress);
        }
        self.context.abort.check()?;
        let regions = self.ring.lock();
        let Some(tail) = regions.filled_tail() else { return Ok(TailOutcome::NotFilled) };
        let blocks = regions.blocks_to_bring_home(tail);
        drop(regions);
        progress.is_running = true;
        drop(progress);
        let _running = self.context.abort.awaited(|| self.end());
        self.context.abort.on_failure(self.bring_home(tail, &blocks))?;
        Ok(TailOutcome::Freed)
    }

    /// [`Checkpointer::bring_tail_home`] until no region is filled, at full speed.
    pub(crate) fn bring_filled_home(&self) -> Result<()> {
        let _awaiting = self.ring.await_checkpoint();
        while self.bring_tail_home()? == TailOutcome::Freed {}
        Ok(())
    }

    /// Returns when no checkpoint is writing any of these blocks. Otherwise an old version on its
    /// way home could overwrite the data that are written in place now.
    pub(crate) fn wait_until_not_writing(&self, blocks: impl Iterator<Item = HomeBlock>) {
        let mut progress = self.progress.lock();
        for block in blocks {
            while progress.writing_home.contains(&block) {
                progress = self.ended.wait(progress);
            }
        }
    }

    fn end(&self) {
        let mut progress = self.progress.lock();
        progress.is_running = false;
        progress.writing_home.clear();
        self.ended.notify_all();
        drop(progress);
        self.ring.signal_freed();
    }

    fn bring_home(&self, region_index: u32, blocks: &[HomeBlock]) -> Result<()> {
        let written = self.write_home(region_index, blocks)?;
        if !faults::is(Fault::CheckpointNotFlushed) {
            self.home.flush()?;
        }
        let turn = self.ring.header_turn();
        let mut regions = self.ring.lock();
        let mut owners = Vec::with_capacity(written.len());
        for (block, tid) in written {
            owners.push(regions.live().owner_of(block));
            if let Some(version) = regions.note_home(block, tid) {
                self.blocks.cache.unpin(block, &version);
            }
        }
        let header = regions.header_without_tail();
        drop(regions);
        let len_bytes = BLOCK_BYTES as u64;
        self.context.observe(owners.into_iter().map(|owner| (owner, WrittenAs::Home, len_bytes)));
        self.ring.free_tail(turn, header)
    }

    /// What the pace depends on when so many blocks are home.
    fn look(&self, home_count: usize) -> Look {
        let is_alone = !self.shares_disk || self.ring.is_checkpoint_awaited();
        let room = self.ring.lock().room(self.context.options.memory.dirty_blocks);
        Look { room, home_count, is_alone }
    }

    /// Writes the blocks that still have to go home, in batches, at the pace that commits leave.
    /// Returns the blocks that were written, with the transactions that committed the versions.
    fn write_home(&self, region_index: u32, blocks: &[HomeBlock]) -> Result<Vec<(HomeBlock, Tid)>> {
        let mut written = Vec::with_capacity(blocks.len());
        let mut pace = Pace::new(blocks.len(), self.look(0).room, Instant::now());
        let mut left = blocks;
        while !left.is_empty() {
            let look = self.look(blocks.len() - left.len());
            let writer_count = pace.writer_count(&look, Instant::now());
            let block_count = left.len().min(Pace::block_count(writer_count));
            let going;
            (going, left) = left.split_at(block_count);
            let Batch { versions, tids } = self.announce(region_index, going);
            let result = self.home.write_blocks(&versions, writer_count);
            self.progress.lock().writing_home.clear();
            self.ended.notify_all();
            Counters::add(&self.context.counters.home_bytes, result?);
            written.extend(versions.iter().map(|(block, _)| *block).zip(tids));
        }
        Ok(written)
    }

    /// The newest committed versions of those blocks that still have to go home. Announces them as
    /// being written.
    fn announce(&self, region_index: u32, blocks: &[HomeBlock]) -> Batch {
        let mut progress = self.progress.lock();
        assert!(progress.is_running, "blocks go home in a checkpoint");
        assert!(progress.writing_home.is_empty(), "one batch goes home at a time");
        let regions = self.ring.lock();
        let is_left = |block: &&HomeBlock| {
            faults::is(Fault::DeltaWithoutBase)
                && regions.live().is_logged_outside(**block, region_index)
        };
        let going = blocks.iter().filter(|block| !is_left(block)).filter_map(|block| {
            let (version, tid) = regions.version_to_bring_home(*block, region_index)?;
            Some(((*block, version.clone()), tid))
        });
        let (versions, tids): (Vec<_>, Vec<_>) = going.unzip();
        drop(regions);
        progress.writing_home = versions.iter().map(|(block, _)| *block).collect();
        Batch { versions, tids }
    }
}
