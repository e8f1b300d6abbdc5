//! What commit, checkpoint and waiters share: regions, live records, progress.
//!
//! Invariants (regions form a ring; `tail` is `header.tail_region`):
//! 1. From `tail` to `active` every region is `Filled`, and `active` is `Active`, or `Filled` while
//!    a commit waits for the next one. All others are `Free`.
//! 2. `live` names every home block of which recovery would replay a record: the newest committed
//!    one. A block that is not in it may be written in place without a revoke.
//! 3. A version in `live` is durable in the journal. Only such versions are written home (no-steal).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::form;
use crate::header::Header;
use crate::running::Logged;
use crate::{BlockOwner, BlockRef, HomeBlock, Tid};

/// What a region is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionUse {
    Free,
    Active,
    Filled,
}

/// One region of the ring.
pub(crate) struct Region {
    pub usage: RegionUse,
    /// Its first transaction, or the one that will be.
    pub first_tid: Tid,
    /// Bytes written so far.
    pub head_bytes: u64,
    /// Home blocks logged in it.
    pub blocks: Vec<HomeBlock>,
}

/// The newest committed record of a home block.
pub(crate) struct Live {
    pub region_index: u32,
    /// Region of the newest record that holds all of the block, if it is still in the journal:
    /// replay starts there. Otherwise it starts from what is home.
    pub whole_region: Option<u32>,
    /// The version, until it is home.
    pub version: Option<BlockRef>,
    pub owner: BlockOwner,
}

/// The transaction that is being written.
pub(crate) struct Committing {
    pub tid: Tid,
    pub blocks: BTreeMap<HomeBlock, Logged>,
    pub revokes: BTreeSet<HomeBlock>,
}

pub(crate) struct State {
    pub header: Header,
    pub regions: Vec<Region>,
    pub active: u32,
    pub live: BTreeMap<HomeBlock, Live>,
    /// Entries of `live` that have a version.
    pub dirty_block_count: usize,
    pub committed: Tid,
    pub commit_in_flight: bool,
    /// Calls of `sync` that wait for each transaction: the running and the committing one.
    pub waiting: Vec<(Tid, u64)>,
    pub committing: Option<Arc<Committing>>,
    pub checkpointing: bool,
    /// Blocks whose write home is under way.
    pub writing_home: BTreeSet<HomeBlock>,
    pub stopping: bool,
}

impl State {
    pub(crate) fn new(header: Header) -> State {
        let first_tid = header.tail_tid;
        let region = |index| Region {
            usage: if index == 0 { RegionUse::Active } else { RegionUse::Free },
            first_tid,
            head_bytes: 0,
            blocks: Vec::new(),
        };
        State {
            regions: (0..header.region_count).map(region).collect(),
            active: 0,
            live: BTreeMap::new(),
            dirty_block_count: 0,
            committed: Tid(first_tid.0 - 1),
            commit_in_flight: false,
            waiting: Vec::new(),
            committing: None,
            checkpointing: false,
            writing_home: BTreeSet::new(),
            stopping: false,
            header,
        }
    }

    pub(crate) fn next_region(&self, index: u32) -> u32 {
        (index + 1) % self.header.region_count
    }

    pub(crate) fn region(&mut self, index: u32) -> &mut Region {
        &mut self.regions[index as usize]
    }

    /// Index of the tail region if it waits to be brought home.
    pub(crate) fn filled_tail(&self) -> Option<u32> {
        let tail = self.header.tail_region;
        (self.regions[tail as usize].usage == RegionUse::Filled).then_some(tail)
    }

    /// Adds the blocks in `range` of which the journal holds a record, or is getting one.
    pub(crate) fn logged_blocks_in(&self, range: &Range<u64>, out: &mut BTreeSet<HomeBlock>) {
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        out.extend(self.live.range(blocks.clone()).map(|(block, _)| *block));
        if let Some(committing) = &self.committing {
            out.extend(committing.blocks.range(blocks).map(|(block, _)| *block));
        }
    }

    /// The journal holds a record of the block, or is getting one.
    pub(crate) fn is_logged(&self, block: HomeBlock) -> bool {
        self.first_logged_block_in(&(block.0..block.0 + 1)).is_some()
    }

    pub(crate) fn first_logged_block_in(&self, range: &Range<u64>) -> Option<HomeBlock> {
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let live = self.live.range(blocks.clone()).next().map(|(block, _)| *block);
        let committing = self.committing.as_ref();
        live.or_else(|| committing?.blocks.range(blocks).next().map(|(block, _)| *block))
    }

    /// The committing transaction is durable in the active region: its versions are the newest.
    /// `changes`: form and bytes of each block's change, in order. Returns how many earlier versions
    /// will never have to be written home.
    pub(crate) fn note_committed(
        &mut self,
        transaction: &Committing,
        changes: &[(u8, usize)],
    ) -> usize {
        let mut cancelled = 0;
        for block in &transaction.revokes {
            if let Some(live) = self.live.remove(block)
                && live.version.is_some()
            {
                self.dirty_block_count -= 1;
                cancelled += 1;
            }
        }
        let region_index = self.active;
        for ((block, logged), (form_number, _)) in transaction.blocks.iter().zip(changes) {
            let live = self.live.entry(*block).or_insert_with(|| Live {
                region_index,
                whole_region: None,
                version: None,
                owner: logged.owner,
            });
            live.region_index = region_index;
            if form::is_whole(*form_number) {
                live.whole_region = Some(region_index);
            }
            live.owner = logged.owner;
            match live.version.replace(logged.version.clone()) {
                Some(_) => cancelled += 1,
                None => self.dirty_block_count += 1,
            }
        }
        self.region(region_index).blocks.extend(transaction.blocks.keys());
        self.committed = transaction.tid;
        cancelled
    }

    /// A call of `sync` waits for `tid`.
    pub(crate) fn add_waiting(&mut self, tid: Tid) {
        match self.waiting.iter_mut().find(|(waited_for, _)| *waited_for == tid) {
            Some((_, count)) => *count += 1,
            None => self.waiting.push((tid, 1)),
        }
    }

    /// `tid` and all before it are durable: how many calls waited for that.
    pub(crate) fn take_waiting(&mut self, tid: Tid) -> u64 {
        let mut count = 0;
        self.waiting.retain(|(waited_for, calls)| {
            let is_later = *waited_for > tid;
            count += if is_later { 0 } else { *calls };
            is_later
        });
        count
    }

    /// What must go home before the region can be freed, by home location.
    pub(crate) fn versions_to_bring_home(&self, region_index: u32) -> Vec<(HomeBlock, BlockRef)> {
        let mut versions: Vec<(HomeBlock, BlockRef)> = self.regions[region_index as usize]
            .blocks
            .iter()
            .filter_map(|block| Some((*block, self.version_to_bring_home(*block, region_index)?)))
            .collect();
        versions.sort_unstable_by_key(|(block, _)| *block);
        versions.dedup_by_key(|(block, _)| *block);
        versions
    }

    /// The active region holds all of the block in the newest record or one before it.
    pub(crate) fn is_whole_in_active(&self, block: HomeBlock) -> bool {
        self.live.get(&block).is_some_and(|live| live.whole_region == Some(self.active))
    }

    /// The newest committed version of a block logged in that region, if it must go home before
    /// the region, the oldest one, can be freed: not when it is home, is revoked, or a later region
    /// holds all of the block.
    pub(crate) fn version_to_bring_home(
        &self,
        block: HomeBlock,
        region_index: u32,
    ) -> Option<BlockRef> {
        let live = self.live.get(&block)?;
        let starts_later = live.whole_region.is_some_and(|whole| whole != region_index);
        if starts_later { None } else { live.version.clone() }
    }

    /// `version` of the block is durable at home. `true` if it was the newest committed one.
    pub(crate) fn note_home(&mut self, block: HomeBlock, version: &BlockRef) -> bool {
        let Some(live) = self.live.get_mut(&block) else { return false };
        if !live.version.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, version)) {
            return false;
        }
        live.version = None;
        self.dirty_block_count -= 1;
        true
    }

    /// Whose data the block holds by its newest committed record.
    pub(crate) fn owner_of(&self, block: HomeBlock) -> BlockOwner {
        self.live.get(&block).map_or(BlockOwner::NOBODY, |live| live.owner)
    }

    /// The header that frees the tail region.
    pub(crate) fn header_without_tail(&self) -> Header {
        let next = self.next_region(self.header.tail_region);
        let (tail_tid, reach_offset) = match self.regions[next as usize].usage {
            RegionUse::Free => (self.committed.next(), self.header.reach_for(next, 0)),
            RegionUse::Active | RegionUse::Filled => {
                (self.regions[next as usize].first_tid, self.header.reach_offset)
            }
        };
        let sequence = self.header.sequence + 1;
        Header { sequence, tail_region: next, tail_tid, reach_offset, ..self.header }
    }

    /// A record in the active region that ends at `end_offset` of the space is within the reach that the
    /// header says durably.
    pub(crate) fn is_reached(&self, end_offset: u64) -> bool {
        let start = self.header.region_offset(self.active);
        (start..self.header.reach_offset).contains(&(end_offset - 1))
            && self.header.reach_offset <= start + self.header.region_bytes
    }

    /// The header with a reach for a record in the active region that ends at `end_offset`.
    pub(crate) fn header_that_reaches(&self, end_offset: u64) -> Header {
        let used_bytes = end_offset - self.header.region_offset(self.active);
        let reach_offset = self.header.reach_for(self.active, used_bytes);
        Header { sequence: self.header.sequence + 1, reach_offset, ..self.header }
    }

    /// The header without the tail region is durable in both slots: forget the region's records.
    pub(crate) fn free_tail(&mut self, header: Header) {
        let freed = self.header.tail_region;
        let blocks = std::mem::take(&mut self.region(freed).blocks);
        for block in blocks {
            let Some(live) = self.live.get_mut(&block) else { continue };
            if live.whole_region == Some(freed) {
                live.whole_region = None;
            }
            if live.region_index == freed {
                assert!(live.version.is_none(), "{block} was freed with its region, not home");
                self.live.remove(&block);
            }
        }
        let region = self.region(freed);
        region.usage = RegionUse::Free;
        region.head_bytes = 0;
        if freed == self.active {
            self.active = header.tail_region;
        }
        self.header = header;
    }
}
