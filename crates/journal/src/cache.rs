//! The newest published version of home blocks.
//!
//! A block with a version that is not home yet is *pinned*; the others are clean and are
//! dropped, least recently inserted first, when there are too many.
//!
//! A reader that finds nothing here reads the device and fills the cache. Between its read and its
//! insert, the block may have been changed, committed, brought home and dropped again. So each
//! shard counts its changes, in stripes of blocks. A fill is accepted only if the count of the
//! block's stripe has not changed. Dropping a clean block is not a change.
//!
//! Lock: one mutex for each shard, taken last of all locks.

use std::collections::VecDeque;
use std::ops::Range;

use device::sync::Mutex;

use crate::block_map::BlockMap;
use crate::{BlockRef, HomeBlock};

const SHARD_COUNT: usize = 16;
const STRIPE_COUNT: usize = 64;

struct Entry {
    block: BlockRef,
    pinned: bool,
}

struct Shard {
    entries: BlockMap<Entry>,
    /// Clean blocks in the order in which they became clean. A block may still be listed here after
    /// it has changed.
    clean: VecDeque<HomeBlock>,
    change_counts: [u64; STRIPE_COUNT],
}

impl Shard {
    fn new() -> Shard {
        Shard {
            entries: BlockMap::default(),
            clean: VecDeque::new(),
            change_counts: [0; STRIPE_COUNT],
        }
    }

    fn change_count(&mut self, block: HomeBlock) -> &mut u64 {
        &mut self.change_counts[(block.0 as usize) / SHARD_COUNT % STRIPE_COUNT]
    }
}

/// A cache of block versions.
pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    clean_limit_per_shard: usize,
}

/// What the cache knows of a block.
pub(crate) enum Cached {
    /// The newest version.
    Version(BlockRef),
    /// No version. The ticket permits a fill after the device was read.
    Nothing(FillTicket),
}

/// Permission to fill the cache with a block that was read from the device.
#[derive(Clone, Copy)]
pub(crate) struct FillTicket(u64);

impl Cache {
    /// A cache that keeps about `clean_limit` clean blocks.
    pub(crate) fn new(clean_limit: usize) -> Self {
        Cache {
            shards: (0..SHARD_COUNT).map(|_| Mutex::new(Shard::new())).collect(),
            clean_limit_per_shard: clean_limit.div_ceil(SHARD_COUNT).max(1),
        }
    }

    fn shard(&self, block: HomeBlock) -> &Mutex<Shard> {
        &self.shards[(block.0 as usize) % SHARD_COUNT]
    }

    /// The newest version, if it is here.
    pub(crate) fn get(&self, block: HomeBlock) -> Option<BlockRef> {
        let shard = self.shard(block).lock();
        shard.entries.get(&block).map(|entry| entry.block.clone())
    }

    /// What is known of the block.
    pub(crate) fn find(&self, block: HomeBlock) -> Cached {
        let mut shard = self.shard(block).lock();
        match shard.entries.get(&block) {
            Some(entry) => Cached::Version(entry.block.clone()),
            None => Cached::Nothing(FillTicket(*shard.change_count(block))),
        }
    }

    /// Inserts bytes that were read from the device. `false`: the block has changed meanwhile, and
    /// must be read again.
    pub(crate) fn fill(&self, block: HomeBlock, bytes: BlockRef, ticket: FillTicket) -> bool {
        let mut shard = self.shard(block).lock();
        if *shard.change_count(block) != ticket.0 {
            return false;
        }
        let older = shard.entries.insert(block, Entry { block: bytes, pinned: false });
        assert!(older.is_none_or(|older| !older.pinned), "{block} is filled over a newer version");
        self.push_clean(&mut shard, block);
        true
    }

    /// Publishes a new version that is not home yet. Returns the version that was the newest until
    /// now, if the cache has it.
    pub(crate) fn publish(&self, block: HomeBlock, bytes: BlockRef) -> Option<BlockRef> {
        let mut shard = self.shard(block).lock();
        *shard.change_count(block) += 1;
        let older = shard.entries.insert(block, Entry { block: bytes, pinned: true });
        older.map(|entry| entry.block)
    }

    /// `version` has reached its home location. Unpins it, unless a newer version was published.
    pub(crate) fn unpin(&self, block: HomeBlock, version: &BlockRef) {
        let mut shard = self.shard(block).lock();
        let Some(entry) = shard.entries.get_mut(&block) else { return };
        if entry.pinned && std::sync::Arc::ptr_eq(&entry.block, version) {
            entry.pinned = false;
            *shard.change_count(block) += 1;
            self.push_clean(&mut shard, block);
        }
    }

    /// Drops all versions of the blocks (they were freed, or written in place).
    pub(crate) fn forget(&self, range: Range<u64>) {
        if range.end - range.start <= SHARD_COUNT as u64 * 16 {
            for block in range.map(HomeBlock) {
                let mut shard = self.shard(block).lock();
                *shard.change_count(block) += 1;
                shard.entries.remove(&block);
            }
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.change_counts.iter_mut().for_each(|count| *count += 1);
            shard.entries.retain(|block, _| !range.contains(&block.0));
        }
    }

    fn push_clean(&self, shard: &mut Shard, block: HomeBlock) {
        shard.clean.push_back(block);
        while shard.clean.len() > self.clean_limit_per_shard {
            let Some(oldest) = shard.clean.pop_front() else { break };
            if shard.entries.get(&oldest).is_some_and(|entry| !entry.pinned) {
                shard.entries.remove(&oldest);
            }
        }
    }
}
