//! In-core inodes: the locks of an inode, its pins, and the transactions that its `fsync` commits.
//!
//! An in-core inode is *needed* while
//! 1. a thread holds it,
//! 2. a transaction that changed the inode is not committed,
//! 3. its content is lost,
//! 4. or the inode is pinned, and may get a name or has cursors of a directory.
//!
//! So an inode without an in-core inode has nothing to sync. One that is not needed has hints only.
//! If a shard has more than [`HINTED_COUNT`] in-core inodes, it drops such ones; an in-core inode
//! that was used lately stays longer. The kernel pins every file that it knows; a pin alone makes
//! no in-core inode ([`Pins`]).
//!
//! Lock: one mutex for each shard. While it is held, the journal is asked which transaction is
//! committed, and the cursors of a directory whether there are any; nothing else outside of this
//! file and of [`Pins`] is called.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use device::sync::{Mutex, RwLock};
use journal::Tid;

use super::cursors::Cursors;
use super::pins::{Pins, place_of};
use crate::InodeNo;
use crate::data_mode::Asked;

const SHARD_COUNT: usize = 16;

/// In-core inodes of a shard that are kept although they are not needed. All shards together have
/// about 1 MiB of them.
const HINTED_COUNT: usize = 256;

/// In-core inodes that one call examines, at most.
const EXAMINED_COUNT: usize = 3;

/// What is kept in memory of one inode.
#[derive(Default)]
pub(crate) struct InCoreInode {
    /// Content of the inode: see the crate's lock order.
    pub(crate) content: RwLock<()>,
    /// Attributes of the inode: see the crate's lock order.
    pub(crate) xattr: RwLock<()>,
    /// Positions of readers in a directory. Other inodes have none.
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

    /// Whether it holds more than hints, while the inode is pinned.
    fn is_irreplaceable(&self) -> bool {
        self.is_linkable() || self.cursors.has_any()
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
    eviction: Eviction,
    /// Whether it was used since it was examined.
    was_used: bool,
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
    pins: Pins,
    entries: HashMap<InodeNo, Entry>,
    /// Each inode with an entry once, in the order in which they are examined.
    queue: VecDeque<InodeNo>,
}

/// All in-core inodes and pins of a volume.
#[derive(Default)]
pub(crate) struct InCoreInodes {
    shards: [Mutex<Shard>; SHARD_COUNT],
}

/// A pinned inode, for the next one who opens the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// The inode.
    pub ino: InodeNo,
    /// How often it is pinned, at least once.
    pub count: u64,
    /// Whether it was made without a name, and may get one.
    pub is_linkable: bool,
}

impl InCoreInodes {
    /// With these pins.
    pub(crate) fn with(pins: &[Pin]) -> InCoreInodes {
        let in_core = InCoreInodes::default();
        for pin in pins {
            let mut shard = in_core.shard(pin.ino).lock();
            shard.pins.set(pin.ino, pin.count);
            if pin.is_linkable {
                shard.entry(pin.ino).in_core.set_linkable(true);
            }
        }
        in_core
    }

    /// All pinned inodes.
    pub(crate) fn all_pins(&self) -> Vec<Pin> {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let is_linkable =
                |ino| shard.entries.get(&ino).is_some_and(|entry| entry.in_core.is_linkable());
            let pins = shard.pins.all();
            let pins = pins.map(|(ino, count)| Pin { ino, count, is_linkable: is_linkable(ino) });
            pins.collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    fn shard(&self, ino: InodeNo) -> &Mutex<Shard> {
        let (block, _) = place_of(ino);
        &self.shards[block as usize % SHARD_COUNT]
    }

    /// The in-core inode, which is made if there is none. `committed` returns the journal's newest
    /// durable transaction; it is needed to drop in-core inodes that are not used any more.
    pub(crate) fn get(&self, ino: InodeNo, committed: impl FnOnce() -> Tid) -> Arc<InCoreInode> {
        let mut shard = self.shard(ino).lock();
        if let Some(entry) = shard.entries.get_mut(&ino) {
            entry.was_used = true;
            return entry.in_core.clone();
        }
        shard.collect(committed());
        shard.entry(ino).in_core.clone()
    }

    /// Pins an inode once.
    pub(crate) fn pin(&self, ino: InodeNo) {
        self.shard(ino).lock().pins.add(ino);
    }

    /// Removes `count` pins. True if these were the last.
    pub(crate) fn unpin(&self, ino: InodeNo, count: u64, committed: Tid) -> bool {
        let mut shard = self.shard(ino).lock();
        let (before, after) = shard.pins.remove(ino, count);
        if after > 0 {
            return false;
        }
        shard.collect(committed);
        before > 0
    }

    /// Whether the inode has no pin.
    pub(crate) fn is_unpinned(&self, ino: InodeNo) -> bool {
        self.shard(ino).lock().pins.count(ino) == 0
    }

    /// Begins to examine whether the inode has to be freed. `false`: it is pinned, or another
    /// thread is examining it and will examine it again.
    pub(crate) fn begin_eviction(&self, ino: InodeNo) -> bool {
        let mut shard = self.shard(ino).lock();
        if shard.pins.count(ino) > 0 {
            return false;
        }
        let entry = shard.entry(ino);
        let is_ours = entry.eviction == Eviction::None;
        entry.eviction = if is_ours { Eviction::UnderWay } else { Eviction::Again };
        is_ours
    }

    /// Ends the examination. `true`: the inode must be examined again, and this has begun.
    pub(crate) fn end_eviction(&self, ino: InodeNo) -> bool {
        let mut shard = self.shard(ino).lock();
        let is_unpinned = shard.pins.count(ino) == 0;
        let Some(entry) = shard.entries.get_mut(&ino) else { return false };
        let again = entry.eviction == Eviction::Again && is_unpinned;
        entry.eviction = if again { Eviction::UnderWay } else { Eviction::None };
        again
    }
}

impl Shard {
    /// The entry of an inode, which is made if there is none.
    fn entry(&mut self, ino: InodeNo) -> &mut Entry {
        self.entries.entry(ino).or_insert_with(|| {
            self.queue.push_back(ino);
            Entry::default()
        })
    }

    /// Drops in-core inodes if there are many. The work is bounded: [`EXAMINED_COUNT`] for each
    /// call. One that was used needs two of them, so the queue shrinks faster than it grows.
    fn collect(&mut self, committed: Tid) {
        for _ in 0..EXAMINED_COUNT {
            if self.entries.len() <= HINTED_COUNT {
                return;
            }
            let Some(ino) = self.queue.pop_front() else { return };
            if self.may_drop(ino, committed) {
                self.entries.remove(&ino);
            } else {
                self.queue.push_back(ino);
            }
        }
    }

    fn may_drop(&mut self, ino: InodeNo, committed: Tid) -> bool {
        let Some(entry) = self.entries.get_mut(&ino) else { return true };
        let was_used = std::mem::take(&mut entry.was_used);
        let in_core = &entry.in_core;
        // The count cannot grow meanwhile: clones are made under the shard's lock.
        let is_needed = Arc::strong_count(in_core) > 1
            || in_core.sync_tid() > committed
            || in_core.is_content_lost()
            || entry.eviction != Eviction::None
            || in_core.is_irreplaceable() && self.pins.count(ino) > 0;
        !was_used && !is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_count(in_core: &InCoreInodes) -> usize {
        in_core.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Uses so many other inodes that all are dropped that are not needed.
    fn use_others(in_core: &InCoreInodes, committed: Tid) {
        let count = u32::try_from(4 * HINTED_COUNT * SHARD_COUNT).unwrap();
        (1000..1000 + count).for_each(|n| drop(in_core.get(InodeNo(n), || committed)));
    }

    fn is_there(in_core: &InCoreInodes, ino: InodeNo) -> bool {
        in_core.shard(ino).lock().entries.contains_key(&ino)
    }

    #[test]
    fn an_in_core_inode_lives_while_it_is_needed() {
        let in_core = InCoreInodes::default();
        let [held, changed, lost, unnamed, directory, pinned] = [1, 2, 3, 4, 5, 6].map(InodeNo);
        let get = |ino| in_core.get(ino, || Tid(7));
        let holder = get(held);
        get(changed).note_change(Tid(8), true);
        get(lost).lose_content();
        get(unnamed).set_linkable(true);
        get(directory).cursors.after_name(1, b"name");
        [unnamed, directory, pinned].into_iter().for_each(|ino| in_core.pin(ino));
        get(pinned).set_synced(true);
        use_others(&in_core, Tid(7));
        let needed = [held, changed, lost, unnamed, directory];
        assert!(needed.into_iter().all(|ino| is_there(&in_core, ino)));
        assert!(!is_there(&in_core, pinned) && !in_core.is_unpinned(pinned), "it has only hints");
        drop(holder);
        assert!(in_core.unpin(unnamed, 1, Tid(8)) && in_core.unpin(directory, 1, Tid(8)));
        use_others(&in_core, Tid(8));
        let left = needed.into_iter().filter(|ino| is_there(&in_core, *ino));
        assert!(left.eq([lost]));
    }

    #[test]
    fn a_pin_alone_makes_no_in_core_inode() {
        let in_core = InCoreInodes::default();
        (1..10_000).map(InodeNo).for_each(|ino| in_core.pin(ino));
        assert_eq!(entry_count(&in_core), 0);
        assert!(!in_core.is_unpinned(InodeNo(9_999)) && in_core.is_unpinned(InodeNo(10_000)));
    }

    /// The kernel pins all files that were ever used.
    #[test]
    fn hints_are_kept_of_a_bounded_number_of_inodes_that_were_used_last() {
        let in_core = InCoreInodes::default();
        let most = HINTED_COUNT * SHARD_COUNT;
        let few = u32::try_from(most / 2).unwrap();
        let use_it = |n| {
            in_core.pin(InodeNo(n));
            in_core.get(InodeNo(n), || Tid(7)).set_synced(true);
            in_core.get(InodeNo(n), || Tid(7)).was_synced()
        };
        (1..few).for_each(|n| assert!(use_it(n)));
        assert_eq!(entry_count(&in_core), few as usize - 1, "there are few");
        for n in few..few * 20 {
            assert!(use_it(n));
            assert!(in_core.get(InodeNo(1), || Tid(7)).was_synced(), "it is used again and again");
            let count = entry_count(&in_core);
            assert!(count <= most + most / 2, "{count}");
        }
        assert!(!is_there(&in_core, InodeNo(2)));
    }

    /// Each FORGET of a file that had just been deleted added two entries.
    #[test]
    fn regression_the_queue_is_not_longer_than_what_is_in_it() {
        let in_core = InCoreInodes::default();
        for round in 1..1000 {
            for ino in [InodeNo(1), InodeNo(2), InodeNo(3)] {
                in_core.pin(ino);
                in_core.get(ino, || Tid(round - 1)).note_change(Tid(round), true);
                assert!(in_core.unpin(ino, 1, Tid(round - 1)));
                assert!(in_core.begin_eviction(ino) && !in_core.end_eviction(ino));
            }
            let shard = in_core.shard(InodeNo(1)).lock();
            assert_eq!((shard.queue.len(), shard.entries.len()), (3, 3), "round {round}");
        }
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
