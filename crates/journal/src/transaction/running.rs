//! The running transaction: what handles have published since the previous transaction was closed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use device::sync::{Condvar, Mutex};

use crate::block_map::BlockMap;
use crate::observer::BlockOwner;
use crate::record::{Committing, Form, Logged};
use crate::types::{BlockBytes, BlockRef, HomeBlock, Tid};

/// Where a changed block is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Journal,
    InPlace,
}

/// A block that the open handle has changed.
pub(crate) struct Change {
    pub block: BlockRef,
    pub route: Route,
    pub form: Form,
    pub owner: BlockOwner,
    pub is_fresh: bool,
}

/// A block of data on its way home.
pub(crate) struct Ordered {
    pub version: BlockRef,
    pub owner: BlockOwner,
}

/// The running transaction. Its mutex is the handle lock: the thread that holds it has the open
/// handle.
pub(crate) struct Running {
    pub tid: Tid,
    /// The blocks changed in this transaction that go through the journal.
    pub blocks: BTreeMap<HomeBlock, Logged>,
    /// Data that goes home in place before this transaction commits.
    pub ordered: BTreeMap<HomeBlock, Ordered>,
    /// Blocks freed in this transaction of which older versions are in the journal.
    pub revokes: BTreeSet<HomeBlock>,
    /// Owners whose numbers belong to new files.
    pub new_owners: Vec<BlockOwner>,
    /// In-place writes that began with a handle of this transaction and have not ended. `None`: no
    /// such write has begun.
    pub in_place: Option<Arc<InPlaceCount>>,
    pub handle_count: usize,
    /// When the first handle changed something.
    pub since: Option<Instant>,
    pub spare_blocks: SpareBlocks,
    /// An empty map, for the changes of the next handle.
    pub spare_changes: BlockMap<Change>,
}

impl Running {
    pub(crate) fn new(tid: Tid) -> Running {
        Running {
            tid,
            blocks: BTreeMap::new(),
            ordered: BTreeMap::new(),
            revokes: BTreeSet::new(),
            new_owners: Vec::new(),
            in_place: None,
            handle_count: 0,
            since: None,
            spare_blocks: SpareBlocks::default(),
            spare_changes: BlockMap::default(),
        }
    }

    /// The transaction after `closed`, which is committed now.
    pub(crate) fn after(closed: &mut Running) -> Running {
        let spare_blocks = std::mem::take(&mut closed.spare_blocks);
        let spare_changes = std::mem::take(&mut closed.spare_changes);
        Running { spare_blocks, spare_changes, ..Running::new(closed.tid.next()) }
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.revokes.is_empty()
            && self.ordered.is_empty()
            && self.in_place.as_ref().is_none_or(|in_place| in_place.is_zero())
    }

    /// Blocks of the transaction in memory, also the blocks that syncs are writing in place.
    pub(crate) fn block_count(&self) -> usize {
        let on_their_way = self.in_place.as_ref().map_or(0, |count| count.writes.lock().blocks);
        self.blocks.len() + self.ordered.len() + on_their_way
    }

    /// Makes the commit wait until the guard is dropped. `fresh_of`: it guards only blocks that no
    /// file had before this transaction. `block_count`: so many blocks were buffered, and stay in
    /// memory until then.
    pub(crate) fn guard(&mut self, fresh_of: Option<Tid>, block_count: usize) -> InPlaceGuard {
        let in_place = self.in_place.get_or_insert_default().clone();
        let mut writes = in_place.writes.lock();
        writes.count += 1;
        writes.blocks += block_count;
        drop(writes);
        InPlaceGuard { in_place, fresh_of, block_count }
    }
}

pub(super) fn remove_range<T>(map: &mut BTreeMap<HomeBlock, T>, blocks: &Range<HomeBlock>) {
    let gone: Vec<HomeBlock> = map.range(blocks.clone()).map(|(block, _)| *block).collect();
    gone.iter().for_each(|block| drop(map.remove(block)));
}

/// Memory of versions that were replaced by a commit and that nothing refers to any more. The next
/// private copy of a block is made in it, because it is still in the processor's cache.
#[derive(Default)]
pub(crate) struct SpareBlocks(Vec<BlockRef>);

impl SpareBlocks {
    /// No more blocks are kept.
    const COUNT_MAX: usize = 16;

    /// Write access to the version. If others refer to it, to a copy in its place.
    pub(crate) fn make_mut<'a>(&mut self, version: &'a mut BlockRef) -> &'a mut BlockBytes {
        if Arc::get_mut(version).is_none()
            && let Some(mut copy) = self.0.pop()
        {
            let bytes = Arc::get_mut(&mut copy).expect("nothing refers to a spare block");
            bytes.copy_from_slice(version.as_ref());
            *version = copy;
        }
        Arc::make_mut(version)
    }

    /// Keeps the older versions of a committed transaction's blocks.
    pub(crate) fn keep_bases(&mut self, transaction: Committing) {
        let bases = transaction.blocks.into_values().filter_map(|logged| logged.base);
        for mut base in bases.take(Self::COUNT_MAX - self.0.len()) {
            if Arc::get_mut(&mut base).is_some() {
                self.0.push(base);
            }
        }
    }
}

/// Counts in-place writes under way.
#[derive(Default)]
pub(crate) struct InPlaceCount {
    writes: Mutex<InPlaceWrites>,
    zero: Condvar,
}

#[derive(Default)]
struct InPlaceWrites {
    count: usize,
    /// Blocks in memory that they write.
    blocks: usize,
    /// A thread panicked before it had written its data.
    is_lost: bool,
}

impl InPlaceCount {
    fn is_zero(&self) -> bool {
        let writes = self.writes.lock();
        writes.count == 0 && !writes.is_lost
    }

    /// Returns when no write is under way.
    pub(crate) fn wait_for_zero(&self) -> InPlaceEnd {
        let mut writes = self.writes.lock();
        while writes.count > 0 {
            writes = self.zero.wait(writes);
        }
        if writes.is_lost { InPlaceEnd::OneIsLost } else { InPlaceEnd::AllWritten }
    }
}

/// How the in-place writes of a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InPlaceEnd {
    AllWritten,
    /// A thread panicked before it had written its data.
    OneIsLost,
}

/// A write in place that belongs to a transaction. The transaction commits only after this value is
/// dropped.
pub struct InPlaceGuard {
    in_place: Arc<InPlaceCount>,
    /// The transaction, if the guard is one for fresh blocks.
    pub(super) fresh_of: Option<Tid>,
    /// Blocks in memory that are written.
    block_count: usize,
}

impl Drop for InPlaceGuard {
    fn drop(&mut self) {
        let mut writes = self.in_place.writes.lock();
        let count = writes.count.checked_sub(1);
        writes.count = count.expect("a guard is counted from when it is made");
        writes.blocks -= self.block_count;
        writes.is_lost |= std::thread::panicking();
        if writes.count == 0 {
            self.in_place.zero.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BLOCK_BYTES;

    fn committed(bases: impl Iterator<Item = BlockRef>) -> Committing {
        let logged = bases.enumerate().map(|(home, base)| {
            let version = Arc::new([1; BLOCK_BYTES]);
            let owner = BlockOwner::NOBODY;
            let (base, form) = (Some(base), Form::Delta);
            let logged = Logged { version, base, form, owner, is_fresh: false };
            (HomeBlock(home as u64), logged)
        });
        Committing {
            tid: Tid(1),
            blocks: logged.collect(),
            revokes: BTreeSet::new(),
            new_owners: Vec::new(),
        }
    }

    #[test]
    fn a_version_that_a_reader_has_is_never_reused() {
        let mut spares = SpareBlocks::default();
        let held: BlockRef = Arc::new([7; BLOCK_BYTES]);
        let free: BlockRef = Arc::new([8; BLOCK_BYTES]);
        let place = Arc::as_ptr(&free);
        spares.keep_bases(committed([held.clone(), free].into_iter()));
        // The copy is made in the memory of the free one, and is the newest version.
        let newest: BlockRef = Arc::new([9; BLOCK_BYTES]);
        let mut changed = newest.clone();
        spares.make_mut(&mut changed)[0] = 0;
        assert_eq!(Arc::as_ptr(&changed), place);
        assert_eq!((changed[0], &changed[1..]), (0, &newest[1..]));
        // No spare block is left. A block without another reader is changed in its place.
        spares.make_mut(&mut changed.clone())[0] = 1;
        spares.make_mut(&mut changed)[1] = 1;
        assert_eq!((Arc::as_ptr(&changed), &changed[..3]), (place, &[0, 1, 9][..]));
        assert_eq!((*held, *newest), ([7; BLOCK_BYTES], [9; BLOCK_BYTES]));
    }

    #[test]
    fn a_few_blocks_are_kept() {
        let mut spares = SpareBlocks::default();
        let blocks = || (0..3 * SpareBlocks::COUNT_MAX).map(|_| Arc::new([0; BLOCK_BYTES]));
        for _ in 0..2 {
            spares.keep_bases(committed(blocks()));
            assert_eq!(spares.0.len(), SpareBlocks::COUNT_MAX);
        }
    }
}
