//! The newest published version of home blocks.
//!
//! A block with a version that is not home yet is *pinned*. The others are clean. When there are
//! too many, the ones go first that have been clean for the longest time.
//!
//! A reader that finds nothing here reads the device and fills the cache. Between its read and its
//! insert, the block may have been changed, committed, brought home and dropped again. So each
//! shard counts its changes, in stripes of blocks. A fill is accepted only if the count of the
//! block's stripe has not changed. Dropping a clean block is not a change.
//!
//! Lock: one mutex for each shard, taken last of all locks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use device::sync::Mutex;

use crate::block_map::BlockMap;
use crate::types::{BlockRef, HomeBlock};

const SHARD_COUNT: usize = 16;
const STRIPE_COUNT: usize = 64;

struct Entry {
    block: BlockRef,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Pinned,
    /// With the number of its listing.
    Clean(u64),
}

struct Shard {
    entries: BlockMap<Entry>,
    /// Blocks in the order in which they became clean. A listing stays when its block changes or
    /// goes; a block that becomes clean again has another one.
    listings: VecDeque<HomeBlock>,
    /// The number of the first listing; they count up.
    first_listing: u64,
    change_counts: [u64; STRIPE_COUNT],
}

impl Shard {
    fn new() -> Shard {
        Shard {
            entries: BlockMap::default(),
            listings: VecDeque::new(),
            first_listing: 0,
            change_counts: [0; STRIPE_COUNT],
        }
    }

    /// The state of a block that becomes clean and is listed next.
    fn next_clean(&self) -> State {
        State::Clean(self.first_listing + self.listings.len() as u64)
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
        let state = shard.next_clean();
        let older = shard.entries.insert(block, Entry { block: bytes, state });
        let is_clean = older.is_none_or(|older| older.state != State::Pinned);
        assert!(is_clean, "{block} is filled over a newer version");
        self.list(&mut shard, block);
        true
    }

    /// Publishes a new version that is not home yet. Returns the version that was the newest until
    /// now, if the cache has it.
    pub(crate) fn publish(&self, block: HomeBlock, bytes: BlockRef) -> Option<BlockRef> {
        let mut shard = self.shard(block).lock();
        *shard.change_count(block) += 1;
        let older = shard.entries.insert(block, Entry { block: bytes, state: State::Pinned });
        older.map(|entry| entry.block)
    }

    /// `version` has reached its home location. Unpins it, unless a newer version was published.
    pub(crate) fn unpin(&self, block: HomeBlock, version: &BlockRef) {
        let mut shard = self.shard(block).lock();
        let clean = shard.next_clean();
        let Some(entry) = shard.entries.get_mut(&block) else { return };
        if entry.state == State::Pinned && Arc::ptr_eq(&entry.block, version) {
            entry.state = clean;
            *shard.change_count(block) += 1;
            self.list(&mut shard, block);
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

    /// Lists a block that became clean, and drops the oldest clean ones if there are too many.
    fn list(&self, shard: &mut Shard, block: HomeBlock) {
        shard.listings.push_back(block);
        while shard.listings.len() > self.clean_limit_per_shard {
            let Some(oldest) = shard.listings.pop_front() else { break };
            let listing = State::Clean(shard.first_listing);
            shard.first_listing += 1;
            if shard.entries.get(&oldest).is_some_and(|entry| entry.state == listing) {
                shard.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BLOCK_BYTES;

    const LIMIT: usize = 3 * SHARD_COUNT;

    /// Blocks of one shard.
    fn block(index: u64) -> HomeBlock {
        HomeBlock(index * SHARD_COUNT as u64)
    }

    fn change_and_bring_home(cache: &Cache, index: u64) {
        let version: BlockRef = Arc::new([1; BLOCK_BYTES]);
        cache.publish(block(index), version.clone());
        cache.unpin(block(index), &version);
    }

    fn kept(cache: &Cache) -> Vec<u64> {
        (0..10).filter(|index| cache.get(block(*index)).is_some()).collect()
    }

    #[test]
    fn clean_blocks_are_dropped_in_the_order_in_which_they_became_clean() {
        let cache = Cache::new(LIMIT);
        (0..5).for_each(|index| change_and_bring_home(&cache, index));
        assert_eq!(kept(&cache), [2, 3, 4]);
        change_and_bring_home(&cache, 2);
        change_and_bring_home(&cache, 5);
        assert_eq!(kept(&cache), [2, 4, 5]);
    }

    #[test]
    fn regression_a_block_is_kept_from_the_last_time_that_it_became_clean() {
        let cache = Cache::new(LIMIT);
        for _ in 0..10 {
            change_and_bring_home(&cache, 0);
            change_and_bring_home(&cache, 1);
            assert_eq!(kept(&cache).last(), Some(&1));
            assert!(cache.get(block(0)).is_some(), "a later change of another block drops it");
        }
    }

    #[test]
    fn pinned_blocks_stay() {
        let cache = Cache::new(LIMIT);
        let version: BlockRef = Arc::new([1; BLOCK_BYTES]);
        cache.publish(block(0), version);
        (1..9).for_each(|index| change_and_bring_home(&cache, index));
        assert_eq!(kept(&cache), [0, 6, 7, 8]);
    }
}
