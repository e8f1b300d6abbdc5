//! The newest committed record of each home block that recovery would replay.
//!
//! Invariants:
//! 1. A block without an entry may be written in place without a revoke: recovery replays nothing
//!    over it.
//! 2. `dirty_block_count` counts the entries with a version, `counts` the entries of each region.
//! 3. An entry's version is durable in the journal. Only such versions are written home (no-steal).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use crate::observer::BlockOwner;
use crate::types::{BlockRef, HomeBlock, Tid};

/// The newest committed record of a home block.
struct Live {
    region_index: u32,
    /// Region of the newest record that holds all of the block, if it is still in the journal.
    /// Replay starts there. Otherwise it starts from the block at home.
    whole_region: Option<u32>,
    /// The version, until it is home.
    version: Option<BlockRef>,
    owner: BlockOwner,
    tid: Tid,
}

/// A record of a block that has become durable.
pub(crate) struct NewRecord<'a> {
    pub block: HomeBlock,
    pub version: &'a BlockRef,
    pub owner: BlockOwner,
    pub tid: Tid,
    pub region_index: u32,
    /// The record holds all of the block.
    pub is_whole: bool,
}

/// The newest committed record of each home block.
pub(crate) struct LiveRecords {
    by_block: BTreeMap<HomeBlock, Live>,
    dirty_block_count: usize,
    /// Entries by region.
    counts: Vec<usize>,
}

impl LiveRecords {
    pub(crate) fn new(region_count: u32) -> LiveRecords {
        let counts = vec![0; region_count as usize];
        LiveRecords { by_block: BTreeMap::new(), dirty_block_count: 0, counts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// Blocks whose newest committed version is not home.
    pub(crate) fn dirty_block_count(&self) -> usize {
        self.dirty_block_count
    }

    /// Whether the newest committed version of the block is not home.
    pub(crate) fn is_dirty(&self, block: HomeBlock) -> bool {
        self.by_block.get(&block).is_some_and(|live| live.version.is_some())
    }

    /// Blocks whose newest record is in the region.
    pub(crate) fn count_in(&self, region_index: u32) -> usize {
        self.counts[region_index as usize]
    }

    pub(crate) fn blocks_in(&self, blocks: Range<HomeBlock>) -> impl Iterator<Item = HomeBlock> {
        self.by_block.range(blocks).map(|(block, _)| *block)
    }

    /// Adds a record. `true`: the previous version will never have to be written home.
    pub(crate) fn commit(&mut self, record: &NewRecord<'_>) -> bool {
        let region_index = record.region_index;
        let live = match self.by_block.entry(record.block) {
            Entry::Vacant(entry) => entry.insert(Live {
                region_index,
                whole_region: None,
                version: None,
                owner: record.owner,
                tid: record.tid,
            }),
            Entry::Occupied(entry) => {
                let live = entry.into_mut();
                assert!(live.tid < record.tid, "{} is in {} already", record.block, live.tid);
                self.counts[live.region_index as usize] -= 1;
                live
            }
        };
        self.counts[region_index as usize] += 1;
        live.region_index = region_index;
        live.owner = record.owner;
        live.tid = record.tid;
        if record.is_whole {
            live.whole_region = Some(region_index);
        }
        let is_cancelled = live.version.replace(record.version.clone()).is_some();
        self.dirty_block_count += usize::from(!is_cancelled);
        is_cancelled
    }

    /// The block is revoked. `true`: its version will never have to be written home.
    pub(crate) fn revoke(&mut self, block: HomeBlock) -> bool {
        let Some(live) = self.by_block.remove(&block) else { return false };
        self.counts[live.region_index as usize] -= 1;
        self.dirty_block_count -= usize::from(live.version.is_some());
        live.version.is_some()
    }

    /// A record in this region holds all of the block, and no later region has such a record.
    pub(crate) fn is_whole_in(&self, block: HomeBlock, region_index: u32) -> bool {
        self.by_block.get(&block).is_some_and(|live| live.whole_region == Some(region_index))
    }

    /// The newest record of the block is in another region.
    pub(crate) fn is_logged_outside(&self, block: HomeBlock, region_index: u32) -> bool {
        self.by_block.get(&block).is_some_and(|live| live.region_index != region_index)
    }

    /// The newest committed version of a block that is logged in this region, and its transaction,
    /// if it must go home before the region, the oldest one, can be freed. `None` if it is home
    /// already, was revoked, or a later region holds all of the block. `newest`: the newest
    /// committed transaction.
    pub(crate) fn version_to_bring_home(
        &self,
        block: HomeBlock,
        region_index: u32,
        newest: Tid,
    ) -> Option<(&BlockRef, Tid)> {
        let live = self.by_block.get(&block)?;
        assert!(live.tid <= newest, "{block} would go home before {} is committed", live.tid);
        let starts_later = live.whole_region.is_some_and(|whole| whole != region_index);
        live.version.as_ref().filter(|_| !starts_later).map(|version| (version, live.tid))
    }

    /// The version of the block that `tid` committed is durable at home. Returns it if it is the
    /// newest committed one.
    pub(crate) fn note_home(&mut self, block: HomeBlock, tid: Tid) -> Option<BlockRef> {
        let live = self.by_block.get_mut(&block).filter(|live| live.tid == tid)?;
        let version = live.version.take()?;
        self.dirty_block_count -= 1;
        Some(version)
    }

    /// The owner of the data that the block holds by its newest committed record.
    pub(crate) fn owner_of(&self, block: HomeBlock) -> BlockOwner {
        self.by_block.get(&block).map_or(BlockOwner::NOBODY, |live| live.owner)
    }

    /// The region's records, which are of these blocks, are not replayed any more.
    pub(crate) fn free_region(&mut self, region_index: u32, blocks: Vec<HomeBlock>) {
        for block in blocks {
            let Some(live) = self.by_block.get_mut(&block) else { continue };
            if live.whole_region == Some(region_index) {
                live.whole_region = None;
            }
            if live.region_index == region_index {
                assert!(live.version.is_none(), "{block} was freed with its region, not home");
                self.by_block.remove(&block);
                self.counts[region_index as usize] -= 1;
            }
        }
        let left = self.counts[region_index as usize];
        assert!(left == 0, "region {region_index} was freed with {left} live records");
    }
}
