//! A handle: one operation's changes, published all at once or not at all.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use device::sync::MutexGuard;

use super::parts::Parts;
use super::running::{Change, InPlaceGuard, Ordered, Route, Running, remove_range};
use crate::block_map::BlockMap;
use crate::error::{JournalError, Result};
use crate::observer::BlockOwner;
use crate::record::{Form, Logged};
use crate::stats::Counters;
use crate::types::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock, Tid};

/// A map of changes with room for more is not reused.
const SPARE_CHANGES_MAX: usize = 64;

/// An open handle on the running transaction. Only one is open at a time.
///
/// Changes are private until [`Handle::stop`]; dropping the handle instead undoes them.
pub struct Handle<'a> {
    parts: &'a Parts,
    running: MutexGuard<'a, Running>,
    changes: BlockMap<Change>,
    freed: Vec<Range<u64>>,
    credit_count: usize,
    owner: BlockOwner,
}

/// Adds a change to the running transaction. `before`: the newest version published so far.
fn log(running: &mut Running, block: HomeBlock, change: Change, before: Option<BlockRef>) {
    let (version, form, owner) = (change.block, change.form, change.owner);
    let logged = match running.blocks.remove(&block) {
        Some(earlier) => {
            let form = earlier.form.then(&form);
            Logged { version, base: earlier.base, form, owner, is_fresh: earlier.is_fresh }
        }
        // What was on its way to its place never gets there, or belongs to the block's former
        // owner: neither is what a crash leaves behind.
        None if running.ordered.remove(&block).is_some() || running.revokes.contains(&block) => {
            Logged { version, base: None, form, owner, is_fresh: false }
        }
        None => Logged { version, base: before, form, owner, is_fresh: change.is_fresh },
    };
    running.blocks.insert(block, logged);
}

impl<'a> Handle<'a> {
    pub(crate) fn new(
        parts: &'a Parts,
        mut running: MutexGuard<'a, Running>,
        credit_count: usize,
    ) -> Handle<'a> {
        let changes = std::mem::take(&mut running.spare_changes);
        Handle {
            parts,
            running,
            changes,
            freed: Vec::new(),
            credit_count,
            owner: BlockOwner::NOBODY,
        }
    }

    /// The number of further blocks that this handle may change.
    pub fn credits_left(&self) -> usize {
        self.credit_count.saturating_sub(self.changes.len())
    }

    /// The transaction this handle belongs to.
    pub fn tid(&self) -> Tid {
        self.running.tid
    }

    /// Sets the owner of the data in blocks that are given to [`Handle::put`] and
    /// [`Handle::put_ordered`] from now on. Blocks of [`Handle::write`] and [`Handle::create`] have
    /// no owner. Returns the previous owner.
    pub fn set_owner(&mut self, owner: BlockOwner) -> BlockOwner {
        std::mem::replace(&mut self.owner, owner)
    }

    /// The number of this owner, which an earlier one may have had, belongs to a new file.
    pub fn begin_owner(&mut self, owner: BlockOwner) {
        self.running.new_owners.push(owner);
    }

    /// The block as this handle sees it: its own change, or the newest published version.
    pub fn read(&self, block: HomeBlock) -> Result<BlockRef> {
        match self.changes.get(&block) {
            Some(change) => Ok(change.block.clone()),
            None => self.parts.blocks.read(block),
        }
    }

    /// Write access to the block: a private copy of what [`Handle::read`] returns. Logged as a
    /// delta.
    pub fn write(&mut self, block: HomeBlock) -> Result<&mut BlockBytes> {
        self.spend_credit(block)?;
        let change = match self.changes.entry(block) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let newest = self.parts.blocks.read(block)?;
                entry.insert(Change {
                    block: newest,
                    route: Route::Journal,
                    form: Form::Delta,
                    owner: BlockOwner::NOBODY,
                    is_fresh: false,
                })
            }
        };
        change.route = Route::Journal;
        change.form = Form::Delta;
        change.owner = BlockOwner::NOBODY;
        Ok(self.running.spare_blocks.make_mut(&mut change.block))
    }

    /// Write access to the block as zeros, without reading it. Logged as a delta.
    pub fn create(&mut self, block: HomeBlock) -> Result<&mut BlockBytes> {
        self.put(block, Arc::new([0; BLOCK_BYTES]), Form::Delta)?;
        let change = self.changes.get_mut(&block).expect("it was just put there");
        change.owner = BlockOwner::NOBODY;
        Ok(Arc::make_mut(&mut change.block))
    }

    /// Replaces the whole block, to be logged in `form`.
    pub fn put(&mut self, block: HomeBlock, bytes: BlockRef, form: Form) -> Result<()> {
        self.spend_credit(block)?;
        let is_fresh = self.changes.get(&block).is_some_and(|change| change.is_fresh);
        let form = match self.changes.get(&block).map(|change| (change.route, &change.form)) {
            Some((Route::Journal, earlier)) => earlier.then(&form),
            // The earlier change does not go in place any more, so the record must have it, too.
            Some((Route::InPlace, _)) => Form::Delta.then(&form),
            None => form,
        };
        let owner = self.owner;
        let change = Change { block: bytes, route: Route::Journal, form, owner, is_fresh };
        self.changes.insert(block, change);
        Ok(())
    }

    /// [`Handle::put`] of a block that no file had before this transaction. If the transaction has
    /// a long run of such blocks when it commits, they are written home and not into the record,
    /// which has a check of them: so they are written once. See `Options::in_place_run_blocks`.
    pub fn put_fresh(&mut self, block: HomeBlock, bytes: BlockRef, form: Form) -> Result<()> {
        self.put(block, bytes, form)?;
        self.changes.get_mut(&block).expect("it was just put there").is_fresh = true;
        Ok(())
    }

    /// Replaces the whole block with data that goes home in place before this transaction
    /// commits. Readers see it as soon as the handle stops. A block that [`Handle::is_logged`] is
    /// journaled instead.
    pub fn put_ordered(&mut self, block: HomeBlock, bytes: BlockRef) -> Result<()> {
        if self.changes.get(&block).is_some_and(|change| change.route == Route::Journal) {
            return self.put(block, bytes, Form::Delta);
        }
        self.spend_credit(block)?;
        let (form, owner) = (Form::Delta, self.owner);
        let change = Change { block: bytes, route: Route::InPlace, form, owner, is_fresh: false };
        self.changes.insert(block, change);
        Ok(())
    }

    /// Whether the journal holds a record of the block that is not revoked, or will get one. Such a
    /// block must not be written with `Journal::write_in_place`.
    pub fn is_logged(&self, block: HomeBlock) -> bool {
        self.changes.get(&block).is_some_and(|change| change.route == Route::Journal)
            || self.running.blocks.contains_key(&block)
            || self.parts.ring.lock().is_logged(block)
    }

    /// [`Handle::is_logged`] for any of `count` blocks.
    pub fn is_any_logged(&self, start: HomeBlock, count: u64) -> bool {
        let range = start.0..start.0 + count;
        let blocks = start..HomeBlock(range.end);
        let is_changed = |(block, change): (&HomeBlock, &Change)| {
            blocks.contains(block) && change.route == Route::Journal
        };
        self.running.blocks.range(blocks.clone()).next().is_some()
            || self.changes.iter().any(is_changed)
            || self.parts.ring.lock().first_logged_block_in(&range).is_some()
    }

    /// Whether data of the block are buffered. They go home before this transaction commits.
    pub fn is_buffered_in_place(&self, block: HomeBlock) -> bool {
        self.changes.get(&block).is_some_and(|change| change.route == Route::InPlace)
            || self.running.ordered.contains_key(&block)
    }

    /// Makes the commit of this transaction wait until the guard is dropped. For data that are
    /// written with `Journal::write_in_place` after the handle has stopped.
    pub fn begin_in_place(&mut self) -> InPlaceGuard {
        self.parts.checks.add_unchecked(self.running.tid);
        self.running.guard(None, 0)
    }

    /// [`Handle::begin_in_place`] for blocks that no file had before this transaction, which are
    /// written with `Journal::write_fresh_in_place` only.
    pub fn begin_fresh_in_place(&mut self) -> InPlaceGuard {
        let tid = self.running.tid;
        self.running.guard(Some(tid), 0)
    }

    /// The blocks were freed. After this transaction has committed, their versions are no longer
    /// brought home. A revoke is written for blocks that recovery would replay.
    pub fn forget(&mut self, start: HomeBlock, count: u64) {
        let range = start.0..start.0 + count;
        if count <= self.changes.len() as u64 {
            range.clone().for_each(|n| drop(self.changes.remove(&HomeBlock(n))));
        } else {
            self.changes.retain(|block, _| !range.contains(&block.0));
        }
        self.freed.push(range);
    }

    /// Publishes the changes and closes the handle.
    pub fn stop(mut self) -> Tid {
        let freed = std::mem::take(&mut self.freed);
        for range in freed {
            self.publish_freed(range);
        }
        self.keep_logged_blocks_journaled();
        let running = &mut *self.running;
        for (block, change) in self.changes.drain() {
            let before = self.parts.blocks.cache.publish(block, change.block.clone());
            match change.route {
                Route::Journal => log(running, block, change, before),
                Route::InPlace => {
                    let is_logged = running.blocks.contains_key(&block);
                    assert!(!is_logged, "{block} goes in place, and into the journal");
                    let ordered = Ordered { version: change.block, owner: change.owner };
                    running.ordered.insert(block, ordered);
                }
            }
        }
        // Draining takes as long as the map has room.
        if self.changes.capacity() <= SPARE_CHANGES_MAX {
            running.spare_changes = std::mem::take(&mut self.changes);
        }
        self.running.handle_count += 1;
        self.running.since.get_or_insert_with(Instant::now);
        // Protected by the handle lock.
        Counters::add_alone(&self.parts.context.counters.handles, 1);
        self.running.tid
    }

    /// Moves data in place of a logged block to the journal. A block is logged if the journal holds
    /// a record of it, or gets one with this transaction. Otherwise a checkpoint or recovery would
    /// write the older record over the data, or a part of an earlier operation would be home before
    /// the commit.
    fn keep_logged_blocks_journaled(&mut self) {
        let mut in_place: Vec<_> =
            self.changes.iter_mut().filter(|(_, c)| c.route == Route::InPlace).collect();
        if in_place.is_empty() {
            return;
        }
        let regions = self.parts.ring.lock();
        for (block, change) in &mut in_place {
            if self.running.blocks.contains_key(block) || regions.is_logged(**block) {
                change.route = Route::Journal;
            }
        }
    }

    fn publish_freed(&mut self, range: Range<u64>) {
        let blocks = HomeBlock(range.start)..HomeBlock(range.end);
        let running = &mut *self.running;
        remove_range(&mut running.blocks, &blocks);
        remove_range(&mut running.ordered, &blocks);
        self.parts.ring.lock().logged_blocks_in(&range, &mut running.revokes);
        self.parts.blocks.cache.forget(range);
    }

    /// Refuses a block that the handle has no credit for: an operation must ask for enough credits.
    fn spend_credit(&mut self, block: HomeBlock) -> Result<()> {
        if self.changes.len() < self.credit_count || self.changes.contains_key(&block) {
            return Ok(());
        }
        debug_assert!(false, "a handle used more than its {} credits", self.credit_count);
        let used = self.changes.len() + self.running.blocks.len();
        if used < self.parts.limits.transaction_blocks {
            return Ok(());
        }
        let text = format!("an operation changed more than {} blocks", self.changes.len());
        Err(JournalError::TooSmall(text))
    }
}
