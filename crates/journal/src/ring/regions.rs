//! The ring of regions and the records in it, in memory: without I/O, locks or waiting.
//!
//! ```text
//!   free --reserve--> active --fill_active--> filled --free_tail--> free
//!                                |
//!                                +-- enter_next: the next, free region is active from now on
//! ```
//!
//! The region at `active` takes the next record. The tail is the oldest region with records,
//! `tail_region` of the header.
//!
//! Invariants, asserted after each change of a region's use:
//! 1. The regions from the tail up to the active one are filled. All regions after the active one
//!    are free. The active one is free (it has no record yet), active, or filled (a commit has to
//!    enter the next one).
//! 2. A free region has no bytes, no blocks and no live record. Any other region has bytes.
//! 3. First transactions ascend from the tail on, and the header names the tail's.
//! 4. At most one record has a place and is not committed (`placed`). Its region is not filled
//!    meanwhile.
//! 5. A header replaces only an older one of the same incarnation and shape.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::header::Header;
use super::live::{LiveRecords, NewRecord};
use crate::options::CheckpointPolicy;
use crate::record::{Committing, form};
use crate::types::{BlockRef, HomeBlock, Tid};

/// What a region is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionUse {
    /// It has no records.
    Free,
    /// It has records, and takes more.
    Active,
    /// It has records, and waits to be brought home.
    Filled,
}

/// With more bytes in filled regions the tail is brought home, even if commits do not need its
/// space.
const FILLED_BYTES_MAX: u64 = 64 << 20;

/// One region of the ring.
struct Region {
    usage: RegionUse,
    /// Its first transaction, unless it is free.
    first_tid: Tid,
    /// Bytes of the records in it.
    head_bytes: u64,
    /// Home blocks logged in it, once for each record of a block.
    blocks: Vec<HomeBlock>,
}

/// What commits can still use before they have to wait for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Free bytes of the active region and of the free ones.
    pub bytes: u64,
    /// More blocks may become dirty.
    pub block_count: usize,
}

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// The first transaction of its region, which tells the region from all others.
    pub region_tid: Tid,
    /// In the space.
    pub offset: u64,
    /// Where the record ends.
    pub end_offset: u64,
    /// Whether the durable header's reach covers the record.
    pub is_reached: bool,
}

/// The ring of regions, and the records in it.
pub(crate) struct Regions {
    /// The header as it is durable in the newest slot.
    header: Header,
    ring: Vec<Region>,
    active: u32,
    live: LiveRecords,
    /// The newest committed transaction.
    newest: Tid,
    /// The transaction that is being committed.
    committing: Option<Arc<Committing>>,
    /// The transaction whose record has a place and is not committed.
    placed: Option<Tid>,
}

impl Regions {
    /// An empty ring.
    pub(crate) fn new(header: Header) -> Regions {
        let region = |_| Region {
            usage: RegionUse::Free,
            first_tid: header.tail_tid,
            head_bytes: 0,
            blocks: Vec::new(),
        };
        assert!(header.tail_region == 0 && !header.clean, "an incarnation begins in region 0");
        Regions {
            ring: (0..header.region_count).map(region).collect(),
            active: 0,
            live: LiveRecords::new(header.region_count),
            newest: Tid(header.tail_tid.0 - 1),
            committing: None,
            placed: None,
            header,
        }
    }

    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// Whether nothing in the journal has to be brought home, and nothing has to be revoked.
    pub(crate) fn has_no_records(&self) -> bool {
        self.live.is_empty()
    }

    fn active_use(&self) -> RegionUse {
        self.region(self.active).usage
    }

    /// Whether the region after the active one is free.
    pub(crate) fn is_next_free(&self) -> bool {
        self.region(self.next_of(self.active)).usage == RegionUse::Free
    }

    /// Whether the tail, which is filled, is to be brought home now. With
    /// [`CheckpointPolicy::Late`] it is if commits will soon need its space, or what waits to go
    /// home takes much memory, or recovery would have much to read.
    pub(crate) fn is_checkpoint_due(
        &self,
        policy: CheckpointPolicy,
        dirty_block_limit: usize,
    ) -> bool {
        let is_filled = |region: &&Region| region.usage == RegionUse::Filled;
        let filled_bytes: u64 = self.ring.iter().filter(is_filled).map(|one| one.head_bytes).sum();
        policy == CheckpointPolicy::Early
            || !self.is_next_free()
            || filled_bytes > FILLED_BYTES_MAX
            || self.live.dirty_block_count() >= dirty_block_limit / 2
            || self.exceeds(dirty_block_limit)
    }

    /// Whether more blocks than `dirty_block_limit` would not be home after the commit under way.
    pub(crate) fn exceeds(&self, dirty_block_limit: usize) -> bool {
        let Some(committing) = &self.committing else { return false };
        let dirty_count = self.live.dirty_block_count();
        if dirty_count + committing.blocks.len() <= dirty_block_limit {
            return false;
        }
        let is_new = |block: &&HomeBlock| !self.live.is_dirty(**block);
        dirty_count + committing.blocks.keys().filter(is_new).count() > dirty_block_limit
    }

    /// What commits can use, with at most this many dirty blocks.
    pub(crate) fn room(&self, dirty_block_limit: usize) -> Room {
        let bytes_of = |region: &Region| match region.usage {
            RegionUse::Filled => 0,
            RegionUse::Active | RegionUse::Free => self.header.region_bytes - region.head_bytes,
        };
        let bytes = self.ring.iter().map(bytes_of).sum();
        let block_count = dirty_block_limit.saturating_sub(self.live.dirty_block_count());
        Room { bytes, block_count }
    }

    /// Whether at least half of the regions are filled.
    pub(crate) fn is_half_filled(&self) -> bool {
        let is_filled = |region: &&Region| region.usage == RegionUse::Filled;
        self.ring.iter().filter(is_filled).count() * 2 >= self.ring.len()
    }

    /// Where the next record would go: the active region, and its bytes.
    pub(crate) fn head(&self) -> (u32, u64) {
        (self.active, self.region(self.active).head_bytes)
    }

    /// The tail region, if it is filled.
    pub(crate) fn filled_tail(&self) -> Option<u32> {
        let tail = self.header.tail_region;
        (self.region(tail).usage == RegionUse::Filled).then_some(tail)
    }

    // Transitions of a transaction.

    /// A transaction was closed and will be written.
    pub(crate) fn begin_commit(&mut self, transaction: Arc<Committing>) {
        let tid = transaction.tid;
        assert!(self.committing.is_none(), "two transactions are committed at once");
        assert!(tid == self.newest.next(), "{tid} is committed after {}", self.newest);
        self.committing = Some(transaction);
    }

    /// The committing transaction is durable, so its versions are the newest. `changes`: form and
    /// bytes of each block's change, in order. Returns how many earlier versions will never have to
    /// be written home.
    pub(crate) fn end_commit(&mut self, changes: &[(u8, usize)]) -> usize {
        let transaction = self.committing.take().expect("a transaction is being committed");
        let tid = transaction.tid;
        assert!(self.placed.take() == Some(tid), "{tid} is committed without a place");
        assert!(self.active_use() == RegionUse::Active, "the region of {tid} was left");
        assert!(changes.len() == transaction.blocks.len(), "each block of {tid} has one change");
        let is_cancelled = |block: &&HomeBlock| self.live.revoke(**block);
        let mut cancelled = transaction.revokes.iter().filter(is_cancelled).count();
        let region_index = self.active;
        for ((block, logged), (form_number, _)) in transaction.blocks.iter().zip(changes) {
            cancelled += usize::from(self.live.commit(&NewRecord {
                block: *block,
                version: &logged.version,
                owner: logged.owner,
                tid,
                region_index,
                is_whole: form::is_whole(*form_number),
            }));
        }
        self.region_mut(region_index).blocks.extend(transaction.blocks.keys());
        self.newest = tid;
        cancelled
    }

    // Transitions of regions.

    /// Free or active → active: gives the committing transaction's record of `record_bytes` a place
    /// after the last record.
    pub(crate) fn reserve(&mut self, record_bytes: u64) -> RecordSpan {
        let tid = self.committing.as_ref().expect("a transaction is being committed").tid;
        let (step_bytes, region_bytes) = (self.header.step_bytes as u64, self.header.region_bytes);
        assert!(self.placed.is_none(), "{tid} has a place already, or the one before is not done");
        assert!(record_bytes > 0, "a record has bytes");
        assert!(record_bytes.is_multiple_of(step_bytes), "{record_bytes} bytes are no whole steps");
        let start = self.header.region_offset(self.active);
        let region = self.region_mut(self.active);
        assert!(region.usage != RegionUse::Filled, "a filled region takes no record");
        let head_bytes = region.head_bytes;
        assert!(head_bytes + record_bytes <= region_bytes, "the record of {tid} does not fit");
        if region.usage == RegionUse::Free {
            assert!(head_bytes == 0 && region.blocks.is_empty(), "a free region is empty");
            region.usage = RegionUse::Active;
            region.first_tid = tid;
        }
        region.head_bytes += record_bytes;
        let region_tid = region.first_tid;
        self.placed = Some(tid);
        let (offset, end_offset) = (start + head_bytes, start + head_bytes + record_bytes);
        let is_reached = self.is_reached(end_offset);
        RecordSpan { region_tid, offset, end_offset, is_reached }
    }

    /// Whether a record of this many bytes must not go to the active region: the region is filled
    /// or has no room; or it has records, and must be brought home to keep `dirty_block_limit`.
    /// Half of the limit is for one region, so that commits go on while a checkpoint brings the
    /// other half home.
    pub(crate) fn must_leave_active(&self, record_bytes: u64, dirty_block_limit: usize) -> bool {
        let (active, region_bytes) = (self.region(self.active), self.header.region_bytes);
        assert!(record_bytes <= region_bytes, "a transaction is bounded by the region");
        active.usage == RegionUse::Filled
            || active.head_bytes + record_bytes > region_bytes
            || active.head_bytes > 0
                && (self.live.count_in(self.active) >= dirty_block_limit / 2
                    || self.exceeds(dirty_block_limit))
    }

    /// Active → filled, if the active region has records.
    pub(crate) fn close_active(&mut self) {
        if self.active_use() == RegionUse::Active {
            self.fill_active();
        }
    }

    /// Active → filled.
    fn fill_active(&mut self) {
        assert!(self.placed.is_none(), "a region is filled while a record is written to it");
        let region = self.region_mut(self.active);
        assert!(region.usage == RegionUse::Active, "a {:?} region cannot be filled", region.usage);
        region.usage = RegionUse::Filled;
        self.assert_ring();
    }

    /// Makes the free region after `left` the active one. `left` was filled. If it was the last
    /// filled region and has been freed since, its successor is already active.
    pub(crate) fn enter_next(&mut self, left: u32) {
        let next = self.next_of(left);
        assert!(self.region(left).usage != RegionUse::Active, "an active region is left");
        assert!(self.region(next).usage == RegionUse::Free, "the next region has records");
        assert!([left, next].contains(&self.active), "region {left} is not the one that was left");
        self.active = next;
        self.assert_ring();
    }

    /// The first transaction of the active region. `None`: the region has no record.
    pub(crate) fn first_tid_of_active(&self) -> Option<Tid> {
        let active = self.region(self.active);
        (active.usage != RegionUse::Free).then_some(active.first_tid)
    }

    /// Index of the active region.
    pub(crate) fn active(&self) -> u32 {
        self.active
    }

    /// Filled → free. `header`, from [`Regions::header_without_tail`], is durable in both slots.
    /// Forgets the region's records.
    pub(crate) fn free_tail(&mut self, header: Header) {
        let freed = self.header.tail_region;
        assert!(header.tail_region == self.next_of(freed), "regions are freed in their order");
        let region = self.region_mut(freed);
        assert!(region.usage == RegionUse::Filled, "a {:?} region cannot be freed", region.usage);
        region.usage = RegionUse::Free;
        region.head_bytes = 0;
        let blocks = std::mem::take(&mut region.blocks);
        self.live.free_region(freed, blocks);
        if freed == self.active {
            self.active = header.tail_region;
        }
        self.replace_header(header);
        self.assert_ring();
    }

    // Headers.

    /// The header that frees the tail region.
    pub(crate) fn header_without_tail(&self) -> Header {
        let tail = self.region(self.header.tail_region).usage;
        assert!(tail == RegionUse::Filled, "a {tail:?} region cannot be freed");
        let next = self.next_of(self.header.tail_region);
        let (tail_tid, reach_offset) = match self.region(next).usage {
            RegionUse::Free => (self.newest.next(), self.header.reach_for(next, 0)),
            RegionUse::Active | RegionUse::Filled => {
                (self.region(next).first_tid, self.header.reach_offset)
            }
        };
        let sequence = self.header.sequence + 1;
        Header { sequence, tail_region: next, tail_tid, reach_offset, ..self.header }
    }

    /// Whether a record in the active region that ends at `end_offset` of the space is within the
    /// reach of the durable header.
    pub(crate) fn is_reached(&self, end_offset: u64) -> bool {
        let start = self.header.region_offset(self.active);
        (start..self.header.reach_offset).contains(&(end_offset - 1))
            && self.header.reach_offset <= start + self.header.region_bytes
    }

    /// The header with a reach that covers a record in the active region that ends at `end_offset`.
    pub(crate) fn header_that_reaches(&self, end_offset: u64) -> Header {
        let used_bytes = end_offset - self.header.region_offset(self.active);
        let reach_offset = self.header.reach_for(self.active, used_bytes);
        Header { sequence: self.header.sequence + 1, reach_offset, ..self.header }
    }

    /// `header` is durable.
    pub(crate) fn replace_header(&mut self, header: Header) {
        header.assert_replaces(&self.header);
        self.header = header;
    }

    // Records.

    pub(crate) fn live(&self) -> &LiveRecords {
        &self.live
    }

    /// Whether the journal holds a record of the block, or will get one.
    pub(crate) fn is_logged(&self, block: HomeBlock) -> bool {
        self.first_logged_block_in(&(block.0..block.0 + 1)).is_some()
    }

    /// The first block in `range` of which the journal holds a record, or is getting one.
    pub(crate) fn first_logged_block_in(&self, range: &Range<u64>) -> Option<HomeBlock> {
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let live = self.live.blocks_in(blocks.clone()).next();
        let committing = self.committing.as_ref();
        live.or_else(|| committing?.blocks.range(blocks).next().map(|(block, _)| *block))
    }

    /// Adds the blocks in `range` of which the journal holds a record, or is getting one.
    pub(crate) fn logged_blocks_in(&self, range: &Range<u64>, out: &mut BTreeSet<HomeBlock>) {
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        out.extend(self.live.blocks_in(blocks.clone()));
        if let Some(committing) = &self.committing {
            out.extend(committing.blocks.range(blocks).map(|(block, _)| *block));
        }
    }

    /// Whether the active region holds all of the block, in its newest record or an earlier one.
    pub(crate) fn is_whole_in_active(&self, block: HomeBlock) -> bool {
        self.live.is_whole_in(block, self.active)
    }

    /// The blocks that must go home before the region can be freed, by home location.
    pub(crate) fn blocks_to_bring_home(&self, region_index: u32) -> Vec<HomeBlock> {
        assert!(self.filled_tail() == Some(region_index), "the filled tail is brought home");
        let must_go =
            |block: &&HomeBlock| self.version_to_bring_home(**block, region_index).is_some();
        let mut blocks: Vec<HomeBlock> =
            self.region(region_index).blocks.iter().filter(must_go).copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// See [`LiveRecords::version_to_bring_home`].
    pub(crate) fn version_to_bring_home(
        &self,
        block: HomeBlock,
        region_index: u32,
    ) -> Option<(&BlockRef, Tid)> {
        self.live.version_to_bring_home(block, region_index, self.newest)
    }

    /// See [`LiveRecords::note_home`].
    pub(crate) fn note_home(&mut self, block: HomeBlock, tid: Tid) -> Option<BlockRef> {
        self.live.note_home(block, tid)
    }

    fn next_of(&self, index: u32) -> u32 {
        (index + 1) % self.header.region_count
    }

    fn region(&self, index: u32) -> &Region {
        &self.ring[index as usize]
    }

    fn region_mut(&mut self, index: u32) -> &mut Region {
        &mut self.ring[index as usize]
    }

    /// Asserts invariants 1 to 3. That is cheap: a ring has at most 16 regions, and their use
    /// seldom changes.
    fn assert_ring(&self) {
        let (mut index, mut is_past_active, mut last_tid) = (self.header.tail_region, false, None);
        for _ in 0..self.header.region_count {
            let region = self.region(index);
            let (usage, is_active) = (region.usage, index == self.active);
            let is_free = usage == RegionUse::Free;
            assert!(is_active || is_past_active == is_free, "region {index} is {usage:?}");
            assert!(is_active || usage != RegionUse::Active, "region {index} is active, too");
            assert!(is_free == (region.head_bytes == 0), "region {index}: {usage:?}, with bytes");
            assert!(region.head_bytes <= self.header.region_bytes, "region {index} overflows");
            if is_free {
                let live_count = self.live.count_in(index);
                assert!(region.blocks.is_empty() && live_count == 0, "region {index} has records");
            } else {
                assert!(last_tid < Some(region.first_tid), "region {index} begins too early");
                last_tid = Some(region.first_tid);
            }
            is_past_active |= is_active;
            index = self.next_of(index);
        }
        let tail = self.region(self.header.tail_region);
        let next = self.newest.next();
        let first = if tail.usage == RegionUse::Free { next } else { tail.first_tid };
        assert!(self.header.tail_tid == first, "the header does not name the tail's transaction");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::format::{FORM_BLOCK, FORM_DELTA};
    use crate::observer::BlockOwner;
    use crate::record::{Form, Logged};
    use crate::types::BLOCK_BYTES;

    const REGION_BYTES: u64 = 65536;
    const STEP: u64 = 512;

    fn header(region_count: u32) -> Header {
        let header = Header {
            uuid: [7; 16],
            incarnation: 99,
            sequence: 4,
            clean: false,
            region_count,
            region_bytes: REGION_BYTES,
            tail_region: 0,
            tail_tid: Tid(5),
            reach_offset: 0,
            step_bytes: STEP as usize,
            layout_checksum: 17,
            window_blocks: 0,
            space_bytes: 1 << 20,
            settled_tid: Tid(0),
        };
        Header { reach_offset: header.reach_for(0, 0), ..header }
    }

    fn closed(tid: Tid, blocks: &[u64], revokes: &[u64]) -> Arc<Committing> {
        let logged = |_| Logged {
            version: Arc::new([0; BLOCK_BYTES]),
            base: None,
            form: Form::Block,
            owner: BlockOwner::NOBODY,
            is_fresh: false,
        };
        Arc::new(Committing {
            tid,
            blocks: blocks.iter().map(|block| (HomeBlock(*block), logged(()))).collect(),
            revokes: revokes.iter().copied().map(HomeBlock).collect(),
            new_owners: Vec::new(),
        })
    }

    /// Commits these blocks to the active region, which must have room.
    fn commit_as(regions: &mut Regions, blocks: &[u64], revokes: &[u64], form: u8) -> usize {
        regions.begin_commit(closed(regions.newest.next(), blocks, revokes));
        let place = regions.reserve(STEP);
        if !place.is_reached {
            let header = regions.header_that_reaches(place.end_offset);
            regions.replace_header(header);
        }
        regions.end_commit(&vec![(form, 100); blocks.len()])
    }

    fn commit(regions: &mut Regions, blocks: &[u64]) -> usize {
        commit_as(regions, blocks, &[], FORM_BLOCK)
    }

    fn leave(regions: &mut Regions) {
        regions.fill_active();
        regions.enter_next(regions.active());
    }

    /// Brings all of the tail home.
    fn bring_home(regions: &mut Regions) {
        let tail = regions.filled_tail().expect("the tail is filled");
        for block in regions.blocks_to_bring_home(tail) {
            let (_, tid) = regions.version_to_bring_home(block, tail).expect("it must go");
            assert!(regions.note_home(block, tid).is_some());
        }
    }

    fn uses(regions: &Regions) -> Vec<RegionUse> {
        regions.ring.iter().map(|region| region.usage).collect()
    }

    #[test]
    fn a_checkpoint_waits_until_space_or_memory_is_short() {
        use CheckpointPolicy::{Early, Late};
        for (name, regions) in states() {
            let is_full = name.starts_with("full");
            let has_dirty = regions.live.dirty_block_count() > 0;
            assert_eq!(regions.is_checkpoint_due(Late, 100), is_full, "{name}");
            assert_eq!(regions.is_checkpoint_due(Late, 2), is_full || has_dirty);
            assert!(regions.is_checkpoint_due(Early, 100), "{name}");
        }
    }

    /// The states that a ring of three regions can be in, by name.
    fn states() -> Vec<(&'static str, Regions)> {
        let fresh = || Regions::new(header(3));
        let closing = || {
            let mut regions = fresh();
            regions.begin_commit(closed(Tid(5), &[1], &[]));
            regions
        };
        let placed = || {
            let mut regions = closing();
            regions.reserve(STEP);
            regions
        };
        let active = || {
            let mut regions = fresh();
            commit(&mut regions, &[1]);
            regions
        };
        let filled = || {
            let mut regions = active();
            regions.fill_active();
            regions
        };
        let entered = || {
            let mut regions = active();
            leave(&mut regions);
            regions
        };
        let two = || {
            let mut regions = entered();
            commit(&mut regions, &[2]);
            regions
        };
        let full = || {
            let mut regions = two();
            leave(&mut regions);
            commit(&mut regions, &[3]);
            regions.fill_active();
            regions
        };
        let home = |mut regions: Regions| {
            bring_home(&mut regions);
            regions
        };
        let freed = || {
            let mut regions = home(filled());
            regions.free_tail(regions.header_without_tail());
            regions
        };
        vec![
            ("free", fresh()),
            ("closing", closing()),
            ("placed", placed()),
            ("active", active()),
            ("filled", filled()),
            ("filled, home", home(filled())),
            ("entered", entered()),
            ("entered, home", home(entered())),
            ("two, the tail home", home(two())),
            ("full", full()),
            ("full, the tail home", home(full())),
            ("freed", freed()),
        ]
    }

    type Transition = fn(&mut Regions);

    /// Every transition from every state: the allowed ones succeed, the others panic.
    #[test]
    fn every_transition_from_every_state() {
        let transitions: [(&str, Transition, &[&str]); 6] = [
            (
                "begin_commit",
                |regions| regions.begin_commit(closed(regions.newest.next(), &[9], &[])),
                &[
                    "free",
                    "active",
                    "filled",
                    "filled, home",
                    "entered",
                    "entered, home",
                    "two, the tail home",
                    "full",
                    "full, the tail home",
                    "freed",
                ],
            ),
            ("reserve", |regions| _ = regions.reserve(STEP), &["closing"]),
            ("end_commit", |regions| _ = regions.end_commit(&[(FORM_BLOCK, 9)]), &["placed"]),
            ("fill_active", Regions::fill_active, &["active", "two, the tail home"]),
            (
                "enter_next",
                |regions| regions.enter_next(regions.active),
                &["filled", "filled, home"],
            ),
            (
                "free_tail",
                |regions| regions.free_tail(regions.header_without_tail()),
                &["filled, home", "entered, home", "two, the tail home", "full, the tail home"],
            ),
        ];
        for (name, transition, allowed) in transitions {
            for (state, mut regions) in states() {
                let result = catch_unwind(AssertUnwindSafe(|| transition(&mut regions)));
                assert_eq!(result.is_ok(), allowed.contains(&state), "{name} of a ring: {state}");
            }
        }
    }

    #[test]
    fn a_lap_around_the_ring() {
        use RegionUse::{Active, Filled, Free};
        let mut regions = Regions::new(header(3));
        assert_eq!(uses(&regions), [Free; 3]);
        for lap in 0..7 {
            let order = |uses: [RegionUse; 3]| {
                let mut uses = uses.to_vec();
                uses.rotate_right(lap % 3);
                uses
            };
            commit(&mut regions, &[1, 2]);
            assert_eq!(uses(&regions), order([Active, Free, Free]), "lap {lap}");
            leave(&mut regions);
            assert_eq!(uses(&regions), order([Filled, Free, Free]));
            commit(&mut regions, &[2]);
            assert_eq!(uses(&regions), order([Filled, Active, Free]));
            // Block 2 is whole in the later region.
            let tail = regions.filled_tail().unwrap();
            assert_eq!(regions.blocks_to_bring_home(tail), [HomeBlock(1)]);
            bring_home(&mut regions);
            let header = regions.header_without_tail();
            regions.free_tail(header);
            assert_eq!(uses(&regions), order([Free, Active, Free]));
            assert_eq!(regions.header().tail_tid, regions.newest);
            assert_eq!(regions.header().tail_region, (lap as u32 + 1) % 3);
        }
    }

    #[test]
    fn the_active_region_may_be_freed_before_the_next_is_entered() {
        let mut regions = Regions::new(header(2));
        commit(&mut regions, &[1]);
        regions.fill_active();
        let left = regions.active();
        bring_home(&mut regions);
        regions.free_tail(regions.header_without_tail());
        assert_eq!((regions.active(), regions.header().tail_tid), (1, Tid(6)));
        regions.enter_next(left);
        assert_eq!(regions.active(), 1);
        commit(&mut regions, &[1]);
        assert_eq!(uses(&regions), [RegionUse::Free, RegionUse::Active]);
    }

    #[test]
    fn live_records_are_counted_by_region() {
        let mut regions = Regions::new(header(3));
        assert_eq!(commit(&mut regions, &[1, 2, 3]), 0);
        assert_eq!(commit(&mut regions, &[1]), 1);
        leave(&mut regions);
        assert_eq!(commit_as(&mut regions, &[2], &[3], FORM_DELTA), 2);
        assert_eq!([0, 1, 2].map(|region| regions.live.count_in(region)), [1, 1, 0]);
        assert_eq!(regions.live.dirty_block_count(), 2);
        assert!(regions.is_logged(HomeBlock(2)) && !regions.is_logged(HomeBlock(3)));
        // A delta does not spare block 2 the way home with the first region.
        assert_eq!(regions.blocks_to_bring_home(0), [1, 2].map(HomeBlock));
        bring_home(&mut regions);
        regions.free_tail(regions.header_without_tail());
        assert_eq!([0, 1, 2].map(|region| regions.live.count_in(region)), [0, 1, 0]);
        assert_eq!(regions.live.dirty_block_count(), 0);
    }

    #[test]
    #[should_panic(expected = "not home")]
    fn a_region_is_not_freed_before_its_blocks_are_home() {
        let mut regions = Regions::new(header(3));
        commit(&mut regions, &[1]);
        leave(&mut regions);
        regions.free_tail(regions.header_without_tail());
    }

    #[test]
    fn a_record_is_refused_that_is_no_whole_steps_or_does_not_fit() {
        for (record_bytes, is_allowed) in
            [(0, false), (STEP + 8, false), (REGION_BYTES, true), (REGION_BYTES + STEP, false)]
        {
            let mut regions = Regions::new(header(3));
            regions.begin_commit(closed(Tid(5), &[1], &[]));
            let result = catch_unwind(AssertUnwindSafe(|| regions.reserve(record_bytes)));
            assert_eq!(result.is_ok(), is_allowed, "{record_bytes} bytes");
        }
    }

    #[test]
    fn a_transaction_is_refused_that_is_not_the_next() {
        for (tid, is_next) in [(4, false), (5, true), (6, false)] {
            let mut regions = Regions::new(header(3));
            let transaction = closed(Tid(tid), &[1], &[]);
            let result = catch_unwind(AssertUnwindSafe(|| regions.begin_commit(transaction)));
            assert_eq!(result.is_ok(), is_next, "transaction {tid}");
        }
    }

    #[test]
    fn a_header_is_replaced_by_a_newer_one_of_its_kind_only() {
        let old = header(3);
        let newer = Header { sequence: old.sequence + 1, ..old };
        for (new, is_allowed) in [
            (newer, true),
            (Header { reach_offset: old.reach_offset + 4096, ..newer }, true),
            (Header { tail_region: 1, tail_tid: Tid(6), ..newer }, true),
            (old, false),
            (Header { sequence: old.sequence - 1, ..old }, false),
            (Header { tail_tid: Tid(4), ..newer }, false),
            (Header { incarnation: 98, ..newer }, false),
            (Header { uuid: [8; 16], ..newer }, false),
            (Header { region_count: 4, ..newer }, false),
            (Header { clean: true, ..newer }, false),
        ] {
            let result = catch_unwind(|| new.assert_replaces(&old));
            assert_eq!(result.is_ok(), is_allowed, "{new:?}");
        }
    }
}
