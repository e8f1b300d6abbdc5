//! The running transaction: what handles have published since the previous transaction was closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use device::sync::{Condvar, Mutex};

use crate::{BlockOwner, BlockRef, Form, HomeBlock, Tid};

/// A block that a transaction changed and logs.
#[derive(Clone)]
pub(crate) struct Logged {
    pub version: BlockRef,
    /// The version that the previous transaction left. Until this transaction is committed, every
    /// crash leaves it. `None`: it is unknown or meaningless; then the record must hold all of the
    /// block.
    pub base: Option<BlockRef>,
    pub form: Form,
    pub owner: BlockOwner,
    /// No file had the block before this transaction: until it commits, it does not matter what the
    /// block holds at home.
    pub is_fresh: bool,
}

/// A block of data on its way home.
pub(crate) struct Ordered {
    pub version: BlockRef,
    pub owner: BlockOwner,
}

/// The running transaction. Its mutex is the handle lock: the thread that holds it has the open handle.
pub(crate) struct Running {
    pub tid: Tid,
    /// The blocks changed in this transaction that go through the journal.
    pub blocks: BTreeMap<HomeBlock, Logged>,
    /// Data that goes home in place before this transaction commits.
    pub ordered: BTreeMap<HomeBlock, Ordered>,
    /// Blocks freed in this transaction of which older versions are in the journal.
    pub revokes: BTreeSet<HomeBlock>,
    /// In-place writes that began with a handle of this transaction and have not ended.
    pub in_place: Arc<InPlaceCount>,
    pub handle_count: usize,
    /// When the first handle changed something.
    pub since: Option<Instant>,
}

impl Running {
    pub(crate) fn new(tid: Tid) -> Running {
        Running {
            tid,
            blocks: BTreeMap::new(),
            ordered: BTreeMap::new(),
            revokes: BTreeSet::new(),
            in_place: Arc::default(),
            handle_count: 0,
            since: None,
        }
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.revokes.is_empty()
            && self.ordered.is_empty()
            && self.in_place.is_zero()
    }
}

/// A transaction that was closed, until it is committed.
pub(crate) struct Committing {
    pub tid: Tid,
    pub blocks: BTreeMap<HomeBlock, Logged>,
    pub revokes: BTreeSet<HomeBlock>,
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
    fresh_of: Option<Tid>,
}

impl InPlaceGuard {
    /// `fresh_of`: it guards only blocks that no file had before this transaction.
    pub(crate) fn new(in_place: &Arc<InPlaceCount>, fresh_of: Option<Tid>) -> InPlaceGuard {
        in_place.writes.lock().count += 1;
        InPlaceGuard { in_place: in_place.clone(), fresh_of }
    }

    /// The transaction, if the guard is one for fresh blocks.
    pub(crate) fn fresh_of(&self) -> Option<Tid> {
        self.fresh_of
    }
}

impl Drop for InPlaceGuard {
    fn drop(&mut self) {
        let mut writes = self.in_place.writes.lock();
        let count = writes.count.checked_sub(1);
        writes.count = count.expect("a guard is counted from when it is made");
        writes.is_lost |= std::thread::panicking();
        if writes.count == 0 {
            self.in_place.zero.notify_all();
        }
    }
}
