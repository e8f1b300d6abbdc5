//! In-core inodes: the locks of an inode, its pins, and the transactions that its `fsync` commits.
//!
//! An in-core inode is dropped when
//! 1. no thread holds it,
//! 2. no pin holds it,
//! 3. every transaction that changed the inode is committed,
//! 4. and its content is not lost.
//!
//! So an inode without an in-core inode has nothing to sync. In-core inodes without a pin wait in a
//! queue of their shard until they can be dropped.
//!
//! Lock: one mutex for each shard. While it is held, the journal is asked which transaction is
//! committed; nothing else outside of this file is called.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use device::sync::{Mutex, RwLock};
use journal::Tid;

use super::cursors::Cursors;
use crate::InodeNo;
use crate::data_mode::Asked;

const SHARD_COUNT: usize = 16;

/// What is kept in memory of one inode.
#[derive(Default)]
pub(crate) struct InCoreInode {
    /// Content of the inode: see the crate's lock order.
    pub(crate) content: RwLock<()>,
    /// Attributes of the inode: see the crate's lock order.
    pub(crate) xattr: RwLock<()>,
    /// Of a directory.
    pub(crate) cursors: Cursors,
    sync_tid: AtomicU64,
    datasync_tid: AtomicU64,
    unwritten_tid: AtomicU64,
    is_content_lost: AtomicBool,
    is_linkable: AtomicBool,
    data: DataHints,
}

/// What a write to the content needs to know first; see `data_mode`.
struct DataHints {
    /// The code of what the inode asks for. [`UNKNOWN`]: not looked up yet.
    asked_code: AtomicU8,
    was_synced: AtomicBool,
    /// Bytes written since the last sync to blocks that held nothing.
    appended_bytes: AtomicU64,
}

/// No [`Asked::code`].
const UNKNOWN: u8 = u8::MAX;

impl Default for DataHints {
    fn default() -> DataHints {
        DataHints {
            asked_code: AtomicU8::new(UNKNOWN),
            was_synced: AtomicBool::new(false),
            appended_bytes: AtomicU64::new(0),
        }
    }
}

impl InCoreInode {
    /// The last transaction that changed the inode. `fsync` commits it.
    pub(crate) fn sync_tid(&self) -> Tid {
        Tid(self.sync_tid.load(Ordering::Acquire))
    }

    /// The last transaction that `fdatasync` has to commit (data, size, extents).
    pub(crate) fn datasync_tid(&self) -> Tid {
        Tid(self.datasync_tid.load(Ordering::Acquire))
    }

    /// The last transaction that made written blocks unwritten. Until it is committed, a crash
    /// brings back what they hold. (It changed the inode, too, so the in-core inode is not dropped
    /// before that.)
    pub(crate) fn unwritten_tid(&self) -> Tid {
        Tid(self.unwritten_tid.load(Ordering::Acquire))
    }

    /// `tid` made written blocks unwritten.
    pub(crate) fn note_unwritten(&self, tid: Tid) {
        self.unwritten_tid.fetch_max(tid.0, Ordering::AcqRel);
        self.note_change(tid, true);
    }

    /// Whether blocks that are now part of the file did not get their data. They still hold data of
    /// their previous owner.
    pub(crate) fn is_content_lost(&self) -> bool {
        self.is_content_lost.load(Ordering::Acquire)
    }

    /// See [`InCoreInode::is_content_lost`]. The caller holds the content lock.
    pub(crate) fn lose_content(&self) {
        self.is_content_lost.store(true, Ordering::Release);
    }

    /// Whether it was made without a name, and may get one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.is_linkable.load(Ordering::Acquire)
    }

    /// See [`InCoreInode::is_linkable`].
    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.is_linkable.store(is_linkable, Ordering::Release);
    }

    /// What the inode asks for, as it was last set; `None`: look it up.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let code = self.data.asked_code.load(Ordering::Acquire);
        (code != UNKNOWN).then(|| Asked::from_code(code))
    }

    /// `None`: it has to be looked up.
    pub(crate) fn set_asked(&self, asked: Option<Asked>) {
        self.data.asked_code.store(asked.map_or(UNKNOWN, Asked::code), Ordering::Release);
    }

    /// Whether the file was synced since its inode is in memory.
    pub(crate) fn was_synced(&self) -> bool {
        self.data.was_synced.load(Ordering::Relaxed)
    }

    /// Records that the file was synced, or (`false`) that it is new.
    pub(crate) fn set_synced(&self, was_synced: bool) {
        self.data.was_synced.store(was_synced, Ordering::Relaxed);
        self.data.appended_bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes written since the last sync to blocks that held nothing.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.data.appended_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_appended(&self, len_bytes: usize) {
        self.data.appended_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }

    /// The inode was changed by `tid`.
    pub(crate) fn note_change(&self, tid: Tid, for_datasync: bool) {
        self.sync_tid.fetch_max(tid.0, Ordering::AcqRel);
        if for_datasync {
            self.datasync_tid.fetch_max(tid.0, Ordering::AcqRel);
        }
    }
}

#[derive(Default)]
struct Entry {
    in_core: Arc<InCoreInode>,
    pin_count: u64,
    eviction: Eviction,
    /// Whether it is in the queue of its shard.
    is_queued: bool,
}

/// Whether a thread examines if an inode has to be freed, and frees it.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Eviction {
    #[default]
    None,
    UnderWay,
    /// As before, and another thread removed the last pin meanwhile.
    Again,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<InodeNo, Entry>,
    /// Every inode without a pin is here once. Others may be here, too.
    unpinned: VecDeque<InodeNo>,
}

/// All in-core inodes of a volume.
#[derive(Default)]
pub(crate) struct InCoreInodes {
    shards: [Mutex<Shard>; SHARD_COUNT],
}

impl InCoreInodes {
    fn shard(&self, ino: InodeNo) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARD_COUNT]
    }

    /// The in-core inode, which is made if there is none. `committed` returns the journal's newest
    /// durable transaction; it is needed to drop in-core inodes that are not used any more.
    pub(crate) fn get(&self, ino: InodeNo, committed: impl FnOnce() -> Tid) -> Arc<InCoreInode> {
        let mut shard = self.shard(ino).lock();
        if let Some(entry) = shard.entries.get(&ino) {
            return entry.in_core.clone();
        }
        shard.collect(committed());
        let in_core = Arc::<InCoreInode>::default();
        shard.entries.insert(ino, Entry { in_core: in_core.clone(), ..Entry::default() });
        shard.queue(ino);
        in_core
    }

    /// Pins an inode once.
    pub(crate) fn pin(&self, ino: InodeNo) {
        self.shard(ino).lock().entries.entry(ino).or_default().pin_count += 1;
    }

    /// Removes `count` pins. True if these were the last.
    pub(crate) fn unpin(&self, ino: InodeNo, count: u64, committed: Tid) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(entry) = shard.entries.get_mut(&ino) else { return false };
        let was_pinned = entry.pin_count > 0;
        entry.pin_count = entry.pin_count.saturating_sub(count);
        if entry.pin_count > 0 {
            return false;
        }
        if was_pinned {
            shard.queue(ino);
        }
        shard.collect(committed);
        was_pinned
    }

    /// Whether the inode has no pin.
    pub(crate) fn is_unpinned(&self, ino: InodeNo) -> bool {
        self.shard(ino).lock().entries.get(&ino).is_none_or(|entry| entry.pin_count == 0)
    }

    /// Begins to examine whether the inode has to be freed. `false`: it is pinned, or another
    /// thread is examining it and will examine it again.
    pub(crate) fn begin_eviction(&self, ino: InodeNo) -> bool {
        let mut shard = self.shard(ino).lock();
        let entry = shard.entries.entry(ino).or_default();
        let is_ours = entry.pin_count == 0 && entry.eviction == Eviction::None;
        if is_ours {
            entry.eviction = Eviction::UnderWay;
        } else if entry.pin_count == 0 {
            entry.eviction = Eviction::Again;
        }
        is_ours
    }

    /// Ends the examination. `true`: the inode must be examined again, and this has begun.
    pub(crate) fn end_eviction(&self, ino: InodeNo) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(entry) = shard.entries.get_mut(&ino) else { return false };
        let again = entry.eviction == Eviction::Again && entry.pin_count == 0;
        entry.eviction = if again { Eviction::UnderWay } else { Eviction::None };
        if !again && entry.pin_count == 0 {
            shard.queue(ino);
        }
        again
    }
}

impl Shard {
    /// Puts an inode without pins into the queue, where it waits until its in-core inode can be
    /// dropped.
    fn queue(&mut self, ino: InodeNo) {
        if let Some(entry) = self.entries.get_mut(&ino)
            && !entry.is_queued
        {
            entry.is_queued = true;
            self.unpinned.push_back(ino);
        }
    }

    /// Drops a few in-core inodes that are not needed. The work is bounded: two for each call, so
    /// the queue shrinks faster than it grows.
    fn collect(&mut self, committed: Tid) {
        for _ in 0..2 {
            let Some(ino) = self.unpinned.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&ino) else { continue };
            entry.is_queued = false;
            if entry.pin_count > 0 {
                continue;
            }
            // The count cannot grow meanwhile: clones are made under the shard's lock.
            let in_use = Arc::strong_count(&entry.in_core) > 1
                || entry.in_core.is_content_lost()
                || entry.eviction != Eviction::None;
            if in_use || entry.in_core.sync_tid() > committed {
                self.queue(ino);
            } else {
                self.entries.remove(&ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_in_core_inode_lives_while_it_is_pinned_held_or_uncommitted() {
        let in_core = InCoreInodes::default();
        let count = || in_core.shards.iter().map(|s| s.lock().entries.len()).sum::<usize>();
        let (a, b) = (InodeNo(16), InodeNo(32));
        in_core.pin(a);
        in_core.get(a, || Tid(0)).note_change(Tid(5), true);
        assert!(!in_core.unpin(a, 0, Tid(9)));
        assert!(in_core.unpin(a, 1, Tid(4)));
        assert_eq!(in_core.get(a, || Tid(4)).datasync_tid(), Tid(5));
        let held = in_core.get(b, || Tid(5));
        assert_eq!(count(), 1, "a is committed and gone, b is held");
        in_core.pin(InodeNo(48));
        in_core.unpin(InodeNo(48), 1, Tid(5));
        assert!(Arc::ptr_eq(&held, &in_core.get(b, || Tid(5))));
    }

    /// Each FORGET of a file that had just been deleted added two entries.
    #[test]
    fn regression_the_queue_is_not_longer_than_what_is_in_it() {
        let in_core = InCoreInodes::default();
        let lens = || {
            let shards = in_core.shards.iter().map(Mutex::lock);
            shards.fold((0, 0), |(queue, entries), shard| {
                (queue + shard.unpinned.len(), entries + shard.entries.len())
            })
        };
        for round in 1..1000 {
            for ino in [InodeNo(16), InodeNo(32), InodeNo(48)] {
                in_core.pin(ino);
                in_core.get(ino, || Tid(round - 1)).note_change(Tid(round), true);
                assert!(in_core.unpin(ino, 1, Tid(round - 1)));
                assert!(in_core.begin_eviction(ino) && !in_core.end_eviction(ino));
            }
            let (queue, entries) = lens();
            assert!(queue <= entries && entries <= 3, "{queue} of {entries}, round {round}");
        }
        for _ in 0..3 {
            drop(in_core.get(InodeNo(64), || Tid(1000)));
        }
        assert!(lens().1 <= 2, "what is committed goes");
    }

    #[test]
    fn one_looks_at_a_time_whether_an_inode_is_to_be_freed() {
        let (in_core, ino) = (InCoreInodes::default(), InodeNo(11));
        assert!(in_core.begin_eviction(ino) && in_core.is_unpinned(ino));
        assert!(!in_core.begin_eviction(ino), "somebody does already");
        assert!(in_core.end_eviction(ino), "and looks again");
        in_core.pin(ino);
        assert!(!in_core.is_unpinned(ino) && !in_core.begin_eviction(ino));
        assert!(!in_core.end_eviction(ino));
        assert!(!in_core.begin_eviction(ino), "it is pinned");
        assert!(in_core.unpin(ino, 1, Tid(0)) && in_core.begin_eviction(ino));
        assert!(!in_core.end_eviction(ino));
    }

    #[test]
    fn pins_are_counted() {
        let in_core = InCoreInodes::default();
        in_core.pin(InodeNo(11));
        in_core.pin(InodeNo(11));
        assert!(!in_core.unpin(InodeNo(11), 1, Tid(0)));
        assert!(in_core.unpin(InodeNo(11), 7, Tid(9)));
        assert!(!in_core.unpin(InodeNo(11), 1, Tid(9)), "only the last pin counts as the last");
    }
}
