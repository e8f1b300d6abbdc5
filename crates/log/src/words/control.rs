//! The words of the service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::SharedWords;

use super::client::{Client, claim};
use super::limits::{CHUNK_COUNT_MAX, CLIENT_COUNT_MAX, STREAM_COUNT_MAX};
use super::memory::Memory;
use crate::{Result, StreamId};

#[cfg(test)]
use super::model::ModelWords;

/// Indexes of the words. Each is a word of 8 bytes in the machine's order.
pub(super) mod at {
    use super::{CHUNK_COUNT_MAX, STREAM_COUNT_MAX};

    /// Not 0 once the service is recovered.
    pub(super) const STATE: usize = 0;
    pub(super) const USN_BASE: usize = 1;
    pub(super) const USN_LIMIT: usize = 2;
    /// How many clients have joined so far.
    pub(super) const GENERATION: usize = 3;
    pub(in crate::words) const LEADER: usize = 4;
    pub(in crate::words) const EPOCH: usize = 5;
    pub(super) const GROUP_OFFSET: usize = 6;
    pub(super) const GROUP_SEQUENCE: usize = 7;
    pub(in crate::words) const FREED: usize = 8;
    /// How often, and how long in ns, a writer waited for a chunk.
    pub(super) const WAIT_COUNT: usize = 9;
    pub(super) const WAIT_NS: usize = 10;
    /// Not 0 after a write of the group log failed.
    pub(super) const ABORTED: usize = 11;
    pub(super) const NEXT_STREAM: usize = 12;
    /// Entries and bytes written to the group log.
    pub(super) const GROUP_COUNT: usize = 13;
    pub(super) const GROUP_BYTES: usize = 14;
    /// Drains, and bytes they wrote to log files.
    pub(super) const DRAIN_COUNT: usize = 15;
    pub(super) const DRAIN_BYTES: usize = 16;
    /// Streams that shared group commits, in all.
    pub(super) const GROUP_MEMBERS: usize = 17;
    /// Salt of the group log's present incarnation.
    pub(super) const GROUP_SALT: usize = 18;
    /// Generation of the group log's newest header.
    pub(super) const GROUP_HEADER: usize = 19;
    /// Not 0: a leader died, and these words may not say how far the group log was written.
    pub(in crate::words) const GROUP_UNSURE: usize = 20;
    /// Leases that were given to clients of a daemon.
    pub(super) const LEASE_COUNT: usize = 21;
    /// How many threads wait for the epoch, and for free chunks.
    pub(in crate::words) const EPOCH_WAITERS: usize = 22;
    pub(in crate::words) const FREED_WAITERS: usize = 23;
    pub(in crate::words) const ARRIVALS: usize = 24;
    /// The number of arrivals at which a waiting leader must be woken, with a mark. 0: no leader
    /// waits.
    pub(in crate::words) const ARRIVALS_WANTED: usize = 25;
    /// How many waiting streams leaders have taken so far.
    pub(super) const GROUP_TAKEN: usize = 26;
    /// How many streams the next leader expects, and how long a write takes (`gather`).
    pub(super) const GROUP_EXPECTED: usize = 27;
    pub(super) const GROUP_WRITE_NS: usize = 28;
    /// The largest USN of a record that was drained.
    pub(super) const USN_HIGHEST: usize = 29;
    /// How often a process became the leader, and the number of the one that was found to make no
    /// progress.
    pub(in crate::words) const LEADS: usize = 30;
    pub(in crate::words) const STALLED_LEAD: usize = 31;
    /// How often each slot was taken.
    pub(super) const SLOTS: usize = 64;
    pub(in crate::words) const PENDING: usize = 512;
    pub(super) const PENDING_COUNT: usize = STREAM_COUNT_MAX / 64;
    pub(in crate::words) const CHUNKS: usize = 2048;
    pub(super) const HOLDERS: usize = CHUNKS + CHUNK_COUNT_MAX;
    /// A bit for each stream whose lane's file was made, by the stream's index.
    pub(super) const LANE_MARKS: usize = 4096;
    /// A bit for each chunk whose file was made.
    pub(super) const CHUNK_MARKS: usize = LANE_MARKS + STREAM_COUNT_MAX / 64;
}

/// Mark in a chunk's owner: the chunk is being freed, so no other process may begin to free it. The
/// mark is larger than all numbers of streams.
const FREEING: u64 = 1 << 40;

/// In place of a chunk's holder: the chunk's file is being replaced, or the process that replaced
/// it died.
const REPLACING: u64 = u64::MAX;

/// Mark for a wanted number of arrivals, because that number itself may be 0.
const WANTED: u64 = 1 << 32;

/// The service's words.
#[derive(Clone)]
pub(crate) struct Control(Memory);

/// Where the next entry of the group log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    /// Salt of the group log's present incarnation.
    pub(crate) salt: u64,
    /// Generation of its newest header.
    pub(crate) generation: u64,
    /// Number of the next entry, and its offset in bytes.
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
}

/// The owner of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkState {
    Free,
    Allocated(StreamId),
    /// A process began to free it.
    Freeing(StreamId),
    /// The word is not the number of any possible stream.
    Foreign,
}

impl Control {
    pub(crate) const COUNT: usize = 5632;

    pub(crate) fn new(words: Arc<SharedWords>) -> Control {
        Control(Memory::mapped(words))
    }

    #[cfg(test)]
    pub(super) fn model(words: Arc<ModelWords>) -> Control {
        Control(Memory::model(words))
    }

    /// An error when the words are lost; see [`LaneWords::check`](super::LaneWords::check).
    pub(crate) fn check(&self) -> Result<()> {
        self.0.check()
    }

    #[cfg(test)]
    pub(crate) fn is_recovered(&self) -> bool {
        self.0.get(at::STATE) != 0
    }

    pub(crate) fn mark_recovered(&self) {
        self.0.set(at::STATE, 1);
    }

    pub(crate) fn usn_base(&self) -> u64 {
        self.0.get(at::USN_BASE)
    }

    pub(crate) fn usn_limit(&self) -> u64 {
        self.0.get(at::USN_LIMIT)
    }

    /// Sets the USN that belongs to time 0 of the clock.
    pub(crate) fn set_usn_base(&self, base: u64) {
        self.0.set(at::USN_BASE, base);
    }

    /// USNs below `limit` may be used. The limit is stored durably before this.
    pub(crate) fn set_usn_limit(&self, limit: u64) {
        self.0.set(at::USN_LIMIT, limit);
    }

    /// The largest USN of all records that were brought to the log files.
    pub(crate) fn highest_usn(&self) -> u64 {
        self.0.get(at::USN_HIGHEST)
    }

    /// Says that a record with this USN is in the log files.
    pub(crate) fn raise_highest_usn(&self, usn: u64) {
        self.0.raise(at::USN_HIGHEST, usn);
    }

    /// The number of the next stream.
    pub(crate) fn next_stream(&self) -> u64 {
        self.0.get(at::NEXT_STREAM)
    }

    /// Sets the number of the next stream. The caller holds the service's lock.
    pub(crate) fn set_next_stream(&self, number: u64) {
        self.0.set(at::NEXT_STREAM, number);
    }

    /// The number of a new lease for a client of the daemon; the first is 1.
    pub(crate) fn new_lease(&self) -> u64 {
        self.0.add(at::LEASE_COUNT, 1) + 1
    }

    /// How many clients have joined.
    pub(crate) fn joined_count(&self) -> u64 {
        self.0.get(at::GENERATION)
    }

    /// Makes a client of `slot`. The caller has the slot's lock.
    pub(crate) fn join(&self, slot: usize) -> Client {
        let generation = self.0.add(at::GENERATION, 1) + 1;
        self.0.set(slot_at(slot), generation);
        Client::new(slot, generation)
    }

    /// The last client that took `slot`.
    pub(crate) fn client_in(&self, slot: usize) -> Client {
        Client::new(slot, self.0.get(slot_at(slot)))
    }
}

fn slot_at(slot: usize) -> usize {
    assert!(slot < CLIENT_COUNT_MAX, "slot {slot}");
    at::SLOTS + slot
}

/// Says whether a file of the shared memory was made in this incarnation.
pub(crate) struct FileMark {
    memory: Memory,
    index: usize,
    bit: u64,
}

impl FileMark {
    pub(crate) fn is_set(&self) -> bool {
        self.memory.get(self.index) & self.bit != 0
    }

    pub(crate) fn set(&self) {
        self.memory.set_bits(self.index, self.bit);
    }

    pub(crate) fn clear(&self) {
        self.memory.clear_bits(self.index, self.bit);
    }
}

/// The files that were made.
impl Control {
    /// The mark of a lane's file.
    pub(crate) fn lane_mark(&self, stream: StreamId) -> FileMark {
        self.mark(at::LANE_MARKS, stream.index())
    }

    /// The mark of a chunk's file.
    pub(crate) fn chunk_mark(&self, index: usize) -> FileMark {
        assert!(index < CHUNK_COUNT_MAX, "chunk {index}");
        self.mark(at::CHUNK_MARKS, index)
    }

    fn mark(&self, first: usize, index: usize) -> FileMark {
        FileMark { memory: self.0.clone(), index: first + index / 64, bit: 1 << (index % 64) }
    }
}

/// Group commit.
impl Control {
    pub(crate) fn leader(&self) -> Client {
        Client(self.0.get(at::LEADER))
    }

    /// Makes `client` the leader if there is none, or if the leader is dead. In the second case,
    /// marks the group log's position as unsure.
    pub(crate) fn claim_leader(&self, client: Client, is_dead: impl Fn(Client) -> bool) -> bool {
        match claim(&self.0, at::LEADER, client, is_dead) {
            None => false,
            Some(before) => {
                self.0.count(at::LEADS, 1);
                if before != Client::NOBODY {
                    self.mark_group_unsure();
                }
                true
            }
        }
    }

    /// The number of the leader that works now. `None`: there is no leader.
    pub(crate) fn lead_number(&self) -> Option<u64> {
        let leader = self.leader();
        (leader != Client::NOBODY).then(|| self.0.peek(at::LEADS))
    }

    /// Whether the leader with this number was found to make no progress, by any process. A hint:
    /// only speed depends on it.
    pub(crate) fn is_stalled_lead(&self, number: u64) -> bool {
        self.0.peek(at::STALLED_LEAD) == number
    }

    /// Says that the leader with this number makes no progress.
    pub(crate) fn set_stalled_lead(&self, number: u64) {
        self.0.leave(at::STALLED_LEAD, number);
    }

    /// Ends the leader's work, and wakes all that wait for it. Only the leader may.
    pub(crate) fn release_leader(&self) {
        self.0.set(at::LEADER, 0);
        self.advance_epoch();
    }

    /// Where the next entry goes. Only the leader may call this.
    pub(crate) fn group_position(&self) -> GroupPosition {
        GroupPosition {
            salt: self.0.get(at::GROUP_SALT),
            generation: self.0.get(at::GROUP_HEADER),
            sequence: self.0.get(at::GROUP_SEQUENCE),
            offset: self.0.get(at::GROUP_OFFSET),
        }
    }

    /// Records that an entry of `len_bytes` was written. The offset changes before the number. If
    /// the leader dies between the two changes, the number is one that the group log contains
    /// already. That does no harm, because the next leader begins a new round after a death.
    pub(crate) fn entry_written(&self, position: GroupPosition, len_bytes: u64) {
        self.0.set(at::GROUP_OFFSET, position.offset + len_bytes);
        self.0.set(at::GROUP_SEQUENCE, position.sequence + 1);
        self.0.count(at::GROUP_COUNT, 1);
        self.0.count(at::GROUP_BYTES, len_bytes);
    }

    /// The group log begins at `position`, whose header was written durably.
    pub(crate) fn begin_group(&self, position: GroupPosition) {
        self.0.set(at::GROUP_SALT, position.salt);
        self.0.set(at::GROUP_HEADER, position.generation);
        self.0.set(at::GROUP_SEQUENCE, position.sequence);
        self.0.set(at::GROUP_OFFSET, position.offset);
        self.0.set(at::GROUP_UNSURE, 0);
    }

    /// Whether the words may not say how far the group log was written.
    pub(crate) fn is_group_unsure(&self) -> bool {
        self.0.get(at::GROUP_UNSURE) != 0
    }

    pub(crate) fn mark_group_unsure(&self) {
        self.0.set(at::GROUP_UNSURE, 1);
    }

    /// Whether a write of the group log failed.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.get(at::ABORTED) != 0
    }

    pub(crate) fn abort(&self) {
        self.0.set(at::ABORTED, 1);
    }

    /// Says that the stream with this index waits for a group commit.
    pub(crate) fn set_pending(&self, index: usize) {
        let bit = 1 << (index % 64);
        if self.0.set_bits(at::PENDING + index / 64, bit) & bit != 0 {
            return;
        }
        let arrivals = self.0.change(at::ARRIVALS);
        self.0.fence();
        let wanted = self.0.peek(at::ARRIVALS_WANTED);
        if wanted != 0 && is_reached(arrivals, wanted) {
            self.0.wake(at::ARRIVALS);
        }
    }

    /// How many streams have begun to wait for a group commit so far.
    pub(crate) fn arrivals(&self) -> u32 {
        self.0.changes(at::ARRIVALS)
    }

    /// Waits until `count` more streams wait for a group commit, for at most `limit`. Only one
    /// leader may wait at a time. If it dies here, each arrival costs a system call until the next
    /// leader waits.
    pub(crate) fn wait_arrivals(&self, count: u64, limit: Duration) {
        let begin = Instant::now();
        let mut seen = self.arrivals();
        let wanted = WANTED | u64::from(seen.wrapping_add(count as u32));
        self.0.leave(at::ARRIVALS_WANTED, wanted);
        self.0.fence();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            if is_reached(seen, wanted) || left.is_zero() {
                break;
            }
            self.0.sleep(at::ARRIVALS, seen, left);
            seen = self.arrivals();
        }
        self.0.leave(at::ARRIVALS_WANTED, 0);
    }

    /// Takes the streams that wait, by their index: number modulo [`STREAM_COUNT_MAX`].
    pub(crate) fn take_pending(&self) -> Vec<usize> {
        let mut indexes = Vec::new();
        for index in 0..at::PENDING_COUNT {
            self.take_pending_word(index, &mut indexes);
        }
        indexes
    }

    pub(super) fn take_pending_word(&self, index: usize, indexes: &mut Vec<usize>) {
        // The look costs no exclusive access to the cache line. If it misses a bit, the waiter that
        // set the bit tries to lead next.
        if self.0.peek(at::PENDING + index) == 0 {
            return;
        }
        let mut bits = self.0.take(at::PENDING + index);
        while bits != 0 {
            indexes.push(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }

    /// Changes with every group commit; see [`Control::wait_epoch`].
    pub(crate) fn epoch(&self) -> u32 {
        self.0.changes(at::EPOCH)
    }

    pub(crate) fn advance_epoch(&self) {
        self.0.change_and_wake(at::EPOCH, at::EPOCH_WAITERS);
    }

    pub(crate) fn wait_epoch(&self, seen: u32, limit: Duration) {
        self.0.wait_for_change(at::EPOCH, at::EPOCH_WAITERS, seen, limit);
    }
}

/// Whether the wanted number of arrivals is reached. Numbers of arrivals start again at 0 after the
/// largest one.
fn is_reached(arrivals: u32, wanted: u64) -> bool {
    arrivals.wrapping_sub(wanted as u32) < 1 << 31
}

/// Hints for `gather`. Only speed depends on them.
impl Control {
    /// Streams that wait for a group commit and were not taken yet.
    pub(crate) fn waiting_count(&self) -> u64 {
        // Both only grow, and the futex's word has 32 bits.
        u64::from(self.arrivals().wrapping_sub(self.0.peek(at::GROUP_TAKEN) as u32))
    }

    pub(crate) fn count_taken(&self, count: u64) {
        self.0.count(at::GROUP_TAKEN, count);
    }

    pub(crate) fn expected_count(&self) -> u64 {
        self.0.peek(at::GROUP_EXPECTED)
    }

    pub(crate) fn expect(&self, count: u64) {
        self.0.leave(at::GROUP_EXPECTED, count);
    }

    pub(crate) fn group_write_ns(&self) -> u64 {
        self.0.peek(at::GROUP_WRITE_NS)
    }

    pub(crate) fn set_group_write_ns(&self, ns: u64) {
        self.0.leave(at::GROUP_WRITE_NS, ns);
    }
}

/// The pool of chunks.
impl Control {
    pub(crate) fn chunk_state(&self, index: usize) -> ChunkState {
        let word = self.0.get(owner_at(index));
        let stream = (word & !FREEING).checked_sub(1).map(u32::try_from);
        match stream {
            None if word == 0 => ChunkState::Free,
            Some(Ok(number)) if word & FREEING == 0 => ChunkState::Allocated(StreamId(number)),
            Some(Ok(number)) => ChunkState::Freeing(StreamId(number)),
            _ => ChunkState::Foreign,
        }
    }

    /// The stream that owns the chunk, also while a process frees it for that stream.
    pub(crate) fn chunk_owner(&self, index: usize) -> Option<StreamId> {
        match self.chunk_state(index) {
            ChunkState::Allocated(stream) | ChunkState::Freeing(stream) => Some(stream),
            ChunkState::Free | ChunkState::Foreign => None,
        }
    }

    /// Whether the chunk is free, for statistics and as a first check. This read is not ordered
    /// with other accesses.
    pub(crate) fn seems_free(&self, index: usize) -> bool {
        self.0.peek(owner_at(index)) == 0
    }

    /// Takes a free chunk for `stream`. `false`: it is not free.
    pub(crate) fn take_chunk(&self, index: usize, stream: StreamId) -> bool {
        self.seems_free(index) && self.0.exchange(owner_at(index), 0, stream.owner()).is_ok()
    }

    /// Sets the chunk's owner to the stream in the chunk's header on NVRAM. Only while the service
    /// is recovered.
    pub(crate) fn adopt_chunk(&self, index: usize, stream: StreamId) {
        self.0.set(owner_at(index), stream.owner());
    }

    /// Begins to free a chunk of `stream`. `false`: it has another owner, or another process frees
    /// it.
    pub(crate) fn begin_freeing(&self, index: usize, stream: StreamId) -> bool {
        let owner = stream.owner();
        self.0.exchange(owner_at(index), owner, owner | FREEING).is_ok()
    }

    /// Undoes [`begin_freeing`](Self::begin_freeing).
    pub(crate) fn cancel_freeing(&self, index: usize, stream: StreamId) {
        self.0.set(owner_at(index), stream.owner());
    }

    /// Makes the chunk free, and wakes all that wait for one.
    pub(crate) fn free_chunk(&self, index: usize) {
        self.0.set(owner_at(index), 0);
        self.advance_freed();
    }

    /// The process whose mappings may show the chunk's file: the number of a client's lease, or 0
    /// for processes that serve the directory.
    pub(crate) fn chunk_holder(&self, index: usize) -> u64 {
        self.0.get(holder_at(index))
    }

    /// Says that the caller is about to replace the chunk's file. If it dies before
    /// [`set_chunk_holder`](Self::set_chunk_holder), the next process replaces the file again.
    pub(crate) fn begin_replacing(&self, index: usize) {
        self.0.set(holder_at(index), REPLACING);
    }

    pub(crate) fn set_chunk_holder(&self, index: usize, holder: u64) {
        self.0.set(holder_at(index), holder);
    }

    /// A number that changes when chunks become free.
    pub(crate) fn freed(&self) -> u32 {
        self.0.changes(at::FREED)
    }

    fn advance_freed(&self) {
        self.0.change_and_wake(at::FREED, at::FREED_WAITERS);
    }

    pub(crate) fn wait_freed(&self, seen: u32, limit: Duration) {
        self.0.wait_for_change(at::FREED, at::FREED_WAITERS, seen, limit);
    }
}

fn owner_at(index: usize) -> usize {
    assert!(index < CHUNK_COUNT_MAX, "chunk {index}");
    at::CHUNKS + index
}

fn holder_at(index: usize) -> usize {
    assert!(index < CHUNK_COUNT_MAX, "chunk {index}");
    at::HOLDERS + index
}

/// Statistics.
impl Control {
    /// Counts a writer that waits for a chunk.
    pub(crate) fn count_wait(&self) {
        self.0.count(at::WAIT_COUNT, 1);
    }

    pub(crate) fn count_wait_ns(&self, ns: u64) {
        self.0.count(at::WAIT_NS, ns);
    }

    pub(crate) fn wait_count(&self) -> u64 {
        self.0.peek(at::WAIT_COUNT)
    }

    pub(crate) fn wait_ns(&self) -> u64 {
        self.0.peek(at::WAIT_NS)
    }

    pub(crate) fn count_members(&self, count: u64) {
        self.0.count(at::GROUP_MEMBERS, count);
    }

    pub(crate) fn group_count(&self) -> u64 {
        self.0.peek(at::GROUP_COUNT)
    }

    pub(crate) fn group_members(&self) -> u64 {
        self.0.peek(at::GROUP_MEMBERS)
    }

    pub(crate) fn group_bytes(&self) -> u64 {
        self.0.peek(at::GROUP_BYTES)
    }

    pub(crate) fn count_drain(&self, written_bytes: u64) {
        self.0.count(at::DRAIN_COUNT, 1);
        self.0.count(at::DRAIN_BYTES, written_bytes);
    }

    pub(crate) fn drain_count(&self) -> u64 {
        self.0.peek(at::DRAIN_COUNT)
    }

    pub(crate) fn drain_bytes(&self) -> u64 {
        self.0.peek(at::DRAIN_BYTES)
    }
}

/// What tests put into the words, as a process that is broken or means harm would.
#[cfg(test)]
impl Control {
    pub(crate) fn spoil_leader(&self, client: Client) {
        self.0.set(at::LEADER, client.0);
    }

    pub(crate) fn spoil_group_position(&self, position: GroupPosition) {
        self.0.set(at::GROUP_OFFSET, position.offset);
        self.0.set(at::GROUP_SEQUENCE, position.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(at::SLOTS + CLIENT_COUNT_MAX <= at::PENDING);
    const _: () = assert!(at::PENDING + at::PENDING_COUNT <= at::CHUNKS);
    const _: () = assert!(at::HOLDERS + CHUNK_COUNT_MAX <= at::LANE_MARKS);
    const _: () = assert!(at::CHUNK_MARKS + CHUNK_COUNT_MAX.div_ceil(64) <= Control::COUNT);

    fn control() -> (Control, Arc<SharedWords>) {
        let words = Arc::new(SharedWords::anonymous(Control::COUNT).expect("words"));
        (Control::new(words.clone()), words)
    }

    #[test]
    fn files_are_marked_one_by_one() {
        let (control, _) = control();
        let marks = [
            control.lane_mark(StreamId(0)),
            control.lane_mark(StreamId(63)),
            control.lane_mark(StreamId(STREAM_COUNT_MAX as u32 * 2 - 1)),
            control.chunk_mark(0),
            control.chunk_mark(CHUNK_COUNT_MAX - 1),
        ];
        let are_set = || marks.each_ref().map(FileMark::is_set);
        for (index, mark) in marks.iter().enumerate() {
            mark.set();
            assert_eq!(are_set().into_iter().position(|is_set| is_set), Some(index));
            assert_eq!(are_set().into_iter().filter(|is_set| *is_set).count(), 1);
            mark.clear();
        }
        assert_eq!(are_set(), [false; 5]);
    }

    #[test]
    fn pending_streams_are_taken_once() {
        let (control, _) = control();
        for stream in [65_535, 0, 63, 64, 63] {
            control.set_pending(StreamId(stream + (STREAM_COUNT_MAX as u32) * 2).index());
        }
        assert_eq!(control.take_pending(), [0, 63, 64, 65_535]);
        assert!(control.take_pending().is_empty());
    }

    #[test]
    fn waiters_are_woken_and_counted() {
        let (control, _) = control();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let control = control.clone();
                    scope.spawn(move || {
                        for _ in 0..200 {
                            control.wait_epoch(control.epoch(), Duration::from_secs(600));
                        }
                    })
                })
                .collect();
            while control.0.peek(at::EPOCH_WAITERS) < 3 {
                std::thread::yield_now();
            }
            while waiters.iter().any(|waiter| !waiter.is_finished()) {
                control.advance_epoch();
                std::thread::yield_now();
            }
        });
        assert_eq!(control.0.peek(at::EPOCH_WAITERS), 0);
    }

    #[test]
    fn a_leader_is_woken_when_the_last_one_arrives_and_not_by_who_waits_already() {
        let (control, words) = control();
        words.half(at::ARRIVALS).store(u32::MAX - 1, std::sync::atomic::Ordering::SeqCst);
        control.set_pending(900);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| control.wait_arrivals(3, Duration::from_secs(600)));
            while control.0.peek(at::ARRIVALS_WANTED) == 0 {
                std::thread::yield_now();
            }
            for index in [900, 1, 1, 2, 900] {
                control.set_pending(index);
            }
            assert!(!leader.is_finished());
            control.set_pending(3);
        });
        assert_eq!((control.arrivals(), control.take_pending().len()), (2, 4));
        assert_eq!(control.0.peek(at::ARRIVALS_WANTED), 0);
        // No stream comes.
        control.wait_arrivals(1, Duration::from_millis(1));
    }

    #[test]
    fn the_states_of_a_chunk() {
        let (control, words) = control();
        let (one, other) = (StreamId(u32::MAX), StreamId(0));
        assert_eq!(control.chunk_state(3), ChunkState::Free);
        assert!(control.take_chunk(3, one) && !control.take_chunk(3, other));
        assert_eq!(control.chunk_state(3), ChunkState::Allocated(one));
        assert!(!control.begin_freeing(3, other) && control.begin_freeing(3, one));
        assert_eq!(control.chunk_state(3), ChunkState::Freeing(one));
        assert!(!control.begin_freeing(3, one), "once only");
        control.cancel_freeing(3, one);
        assert_eq!(control.chunk_owner(3), Some(one));
        control.free_chunk(3);
        assert!(control.seems_free(3));
        for foreign in [FREEING, u64::MAX, 1 << 39] {
            words.word(at::CHUNKS + 3).store(foreign, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(control.chunk_state(3), ChunkState::Foreign, "{foreign:#x}");
        }
    }
}
