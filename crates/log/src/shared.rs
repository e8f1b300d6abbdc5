//! What processes share in memory: the service's words and each lane's.
//!
//! # Words of the service ([`Control`]), written by whoever serves the directory
//!
//! | word | what | changed by |
//! |---|---|---|
//! | leader | who writes the group log | compare-and-swap from nobody or from somebody dead |
//! | group offset, sequence | where its next entry goes | the leader |
//! | pending | a bit for each stream that waits for a group commit | set by waiters, taken by the leader |
//! | arrivals, wanted, taken, expected | how many wait, and are waited for (`gather`) | waiters; the leader |
//! | chunk owners | stream + 1, or 0; with [`FREEING`] | compare-and-swap from 0 by the lender; to FREEING, then 0 by the drainer |
//! | chunk holders | see [`Control::chunk_holder`] | who has just lent it |
//! | epoch, freed | changes that waiters sleep on | the leader; the drainer |
//!
//! # Words of a lane ([`LaneWords`]), also written by its writer, which need not be trusted
//!
//! `drained <= synced <= appended`, all ends of records. Below `drained` the log files hold the
//! stream durably; below `synced` it is durable (on NVRAM: below `appended`); below `appended`
//! it is in the chunks.
//!
//! | word | changed by |
//! |---|---|
//! | lessee | compare-and-swap from nobody or from somebody dead |
//! | appended | the lessee |
//! | synced | the leader, or the drainer |
//! | drainer | compare-and-swap from nobody or from somebody dead |
//! | drained, chunk table | the drainer; new entries of the table the lessee |
//!
//! Whoever may write the files may make them shorter. The words are zeros of this process then, and `check` says so.
//!
//! A client of the daemon never sees these words: it has a copy of its own (`remote`), from which whoever
//! serves the directory takes over `appended`, if it can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::SharedWords;

use crate::{LogError, Result, StreamId, mortal};

/// Who is attached to a service: a slot and how often it has been taken. 0 is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) u64);

impl Client {
    pub(crate) const NOBODY: Client = Client(0);

    pub(crate) fn new(slot: usize, generation: u64) -> Client {
        Client(generation << 16 | (slot as u64 + 1))
    }

    /// The same client, holding a lease only while it gives back the chunks of an idle lane.
    pub(crate) fn for_a_moment(self) -> Client {
        Client(self.0 | 1 << 63)
    }

    /// Whether it will let go without being asked.
    pub(crate) fn is_for_a_moment(self) -> bool {
        self.0 >> 63 != 0
    }

    /// Without that mark.
    pub(crate) fn plain(self) -> Client {
        Client(self.0 & !(1 << 63))
    }

    pub(crate) fn slot(self) -> Option<usize> {
        let slot = usize::try_from(self.0 & 0xffff).expect("16 bits");
        slot.checked_sub(1)
    }
}

/// Most clients of one service at a time.
pub const CLIENT_COUNT_MAX: usize = 256;
/// Most streams of one service at a time.
pub const STREAM_COUNT_MAX: usize = 1 << 16;
/// Most chunks of one pool.
pub const CHUNK_COUNT_MAX: usize = 992;

/// In a chunk's owner: it is being given back, so nobody else may begin to.
pub(crate) const FREEING: u64 = 1 << 32;

/// In place of a chunk's holder: its file is being replaced, or whoever did that died.
pub(crate) const REPLACING: u64 = u64::MAX;

/// Spans have smaller numbers: so many fit into a lane's table.
pub(crate) const ORDINAL_MAX: u64 = 1 << 48;
impl StreamId {
    /// What stands in the owner's word of its chunks.
    pub(crate) fn owner(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Its place among those that exist, which no other of them has.
    pub(crate) fn place(self) -> usize {
        self.0 as usize % STREAM_COUNT_MAX
    }
}

/// Bytes of the note that a lessee leaves for the next one.
pub const NOTE_BYTES: usize = 64;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $index:expr;)*) => {
        $($(#[$doc])* pub(crate) fn $name(&self) -> &AtomicU64 {
            mortal::step();
            self.0.word($index)
        })*
    };
}

/// The service's words.
#[derive(Clone)]
pub(crate) struct Control(pub(crate) Arc<SharedWords>);

impl Control {
    pub(crate) const COUNT: usize = 4096;
    const EPOCH: usize = 5;
    const FREED: usize = 8;
    const ARRIVALS: usize = 24;
    const SLOTS: usize = 64;
    const PENDING: usize = 512;
    const PENDING_COUNT: usize = STREAM_COUNT_MAX / 64;
    const CHUNKS: usize = 2048;
    const HOLDERS: usize = Self::CHUNKS + CHUNK_COUNT_MAX;

    words! {
        /// Not 0 once the service is recovered.
        state = 0;
        usn_base = 1;
        usn_limit = 2;
        /// Clients so far.
        generation = 3;
        leader = 4;
        group_offset = 6;
        group_sequence = 7;
        /// How often, and how long in ns, a writer waited for a chunk.
        wait_count = 9;
        wait_ns = 10;
        /// Not 0: a write of the group log failed.
        aborted = 11;
        next_stream = 12;
        /// Entries and bytes written to the group log.
        group_count = 13;
        group_bytes = 14;
        /// Drains, and bytes they wrote to log files.
        drain_count = 15;
        drain_bytes = 16;
        /// Streams that shared group commits, in all.
        group_members = 17;
        /// Salt of the group log's present life.
        group_salt = 18;
        /// Generation of the group log's newest header.
        group_header = 19;
        /// Not 0: a leader died, and these words may not say how far the group log was written.
        group_unsure = 20;
        /// Leases that were given to clients of a daemon.
        lease_count = 21;
        /// Who waits for the epoch, and for free chunks.
        epoch_waiters = 22;
        freed_waiters = 23;
        /// Arrivals at which a leader that waits for them is to be woken, and a mark; 0: none waits.
        arrivals_wanted = 25;
        /// Streams that leaders took from those that wait.
        group_taken = 26;
        /// Streams that the next leader expects, and what a write takes (`gather`).
        group_expected = 27;
        group_write_ns = 28;
    }

    /// An error when the words are lost; see [`LaneWords::check`].
    pub(crate) fn check(&self) -> Result<()> {
        gone(self.0.check())
    }

    /// How often `slot` was taken.
    pub(crate) fn slot(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < CLIENT_COUNT_MAX, "slot {slot}");
        self.0.word(Self::SLOTS + slot)
    }

    /// Owner of chunk `index`: stream + 1, or 0; perhaps with [`FREEING`].
    pub(crate) fn chunk_owner(&self, index: usize) -> &AtomicU64 {
        assert!(index < CHUNK_COUNT_MAX, "chunk {index}");
        mortal::step();
        self.0.word(Self::CHUNKS + index)
    }

    /// Whose mappings may show the file of chunk `index`: the number of a client's lease, or 0 for
    /// processes that serve the directory.
    pub(crate) fn chunk_holder(&self, index: usize) -> &AtomicU64 {
        assert!(index < CHUNK_COUNT_MAX, "chunk {index}");
        mortal::step();
        self.0.word(Self::HOLDERS + index)
    }

    /// Says that the stream at `place` waits for a group commit.
    pub(crate) fn set_pending(&self, place: usize) {
        let bit = 1 << (place % 64);
        if self.0.word(Self::PENDING + place / 64).fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return;
        }
        let arrivals = self.0.half(Self::ARRIVALS).fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let wanted = self.arrivals_wanted().load(Ordering::SeqCst);
        if wanted != 0 && is_reached(arrivals, wanted) {
            self.0.wake_all(Self::ARRIVALS);
        }
    }

    /// Streams that began to wait for a group commit so far.
    pub(crate) fn arrivals(&self) -> u32 {
        self.0.half(Self::ARRIVALS).load(Ordering::SeqCst)
    }

    /// Waits until `count` more streams wait for a group commit, `limit` at most. For one leader at a time;
    /// one that dies here costs those who arrive a system call each until the next one waits.
    pub(crate) fn wait_arrivals(&self, count: u64, limit: Duration) {
        let begin = Instant::now();
        let mut seen = self.arrivals();
        let wanted = WANTED | u64::from(seen.wrapping_add(count as u32));
        self.arrivals_wanted().store(wanted, Ordering::SeqCst);
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            if is_reached(seen, wanted) || left.is_zero() {
                break;
            }
            self.0.wait(Self::ARRIVALS, seen, left);
            seen = self.arrivals();
        }
        self.arrivals_wanted().store(0, Ordering::SeqCst);
    }

    /// Takes the streams that wait, by their place: number modulo [`STREAM_COUNT_MAX`].
    pub(crate) fn take_pending(&self) -> Vec<usize> {
        let mut places = Vec::new();
        for index in 0..Self::PENDING_COUNT {
            let word = self.0.word(Self::PENDING + index);
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                places.push(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        places
    }

    /// Changes with every group commit; see [`Control::wait_epoch`].
    pub(crate) fn epoch(&self) -> u32 {
        self.0.half(Self::EPOCH).load(Ordering::SeqCst)
    }

    pub(crate) fn advance_epoch(&self) {
        self.advance(Self::EPOCH, self.epoch_waiters());
    }

    pub(crate) fn wait_epoch(&self, seen: u32, limit: Duration) {
        self.wait(Self::EPOCH, self.epoch_waiters(), seen, limit);
    }

    /// Changes when chunks become free.
    pub(crate) fn freed(&self) -> u32 {
        self.0.half(Self::FREED).load(Ordering::SeqCst)
    }

    pub(crate) fn advance_freed(&self) {
        self.advance(Self::FREED, self.freed_waiters());
    }

    pub(crate) fn wait_freed(&self, seen: u32, limit: Duration) {
        self.wait(Self::FREED, self.freed_waiters(), seen, limit);
    }

    /// Wakes whoever waits for a change, with no system call when nobody does. A waiter counts itself
    /// before it looks at the word for the last time, and the word is changed before they are counted:
    /// either it sees the change or it is seen. One that dies while it waits stays counted, which
    /// costs a system call each time and nothing else.
    fn advance(&self, word: usize, waiters: &AtomicU64) {
        self.0.half(word).fetch_add(1, Ordering::SeqCst);
        if waiters.load(Ordering::SeqCst) != 0 {
            self.0.wake_all(word);
        }
    }

    fn wait(&self, word: usize, waiters: &AtomicU64, seen: u32, limit: Duration) {
        waiters.fetch_add(1, Ordering::SeqCst);
        self.0.wait(word, seen, limit);
        waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Marks a number of arrivals that is wanted: the number itself may be 0.
const WANTED: u64 = 1 << 32;

/// Whether so many have arrived, with numbers that begin again at 0.
fn is_reached(arrivals: u32, wanted: u64) -> bool {
    arrivals.wrapping_sub(wanted as u32) < 1 << 31
}

/// The words of one stream's lane.
#[derive(Clone)]
pub(crate) struct LaneWords(pub(crate) Arc<SharedWords>);

impl LaneWords {
    pub(crate) const COUNT: usize = 1024;
    pub(crate) const NOTE: usize = 16;
    pub(crate) const CHUNKS: usize = 32;
    // Words that are also reached through a file, by index.
    pub(crate) const APPENDED: usize = 1;
    pub(crate) const ABORTED: usize = 10;
    pub(crate) const RECORD_COUNT: usize = 11;
    pub(crate) const PAYLOAD_BYTES: usize = 12;
    pub(crate) const LAST_USN: usize = 13;
    pub(crate) const REMOTE_TOKEN: usize = 29;
    const CHUNK_BITS: u32 = 16;

    words! {
        lessee = 0;
        appended = Self::APPENDED;
        /// A group commit is wanted up to here.
        wanted = 2;
        synced = 3;
        drained = 4;
        drainer = 5;
        /// Records before this are not wanted any more.
        head = 6;
        /// See [`LANE_READY`].
        state = 7;
        usn_base = 8;
        usn_limit = 9;
        /// Not 0: a write of this stream's log files failed, or its lane holds no record where one
        /// was published.
        aborted = Self::ABORTED;
        /// Records and payload bytes appended.
        record_count = Self::RECORD_COUNT;
        payload_bytes = Self::PAYLOAD_BYTES;
        last_usn = Self::LAST_USN;
        /// Not 0: a drainer died, and may have left a chunk that is neither lent nor free.
        suspect = 24;
        /// Number of the lease that a client of a daemon has, whose own words count for what is
        /// appended (`remote`); 0: none.
        remote = 28;
        /// What that client shows for its lease, and its user.
        remote_token = Self::REMOTE_TOKEN;
        remote_uid = 30;
        /// Not 0: chunks on NVRAM say of themselves what cannot be.
        contradiction = 25;
    }

    /// An error when the words are lost, because somebody made their file shorter: they are zeros of this process alone
    /// then. Asked after words were read, and before anything is written, freed or told because of them.
    pub(crate) fn check(&self) -> Result<()> {
        gone(self.0.check())
    }

    /// The chunk that holds span `ordinal`.
    pub(crate) fn chunk(&self, ordinal: u64) -> Option<usize> {
        let word = self.entry(ordinal).load(Ordering::Acquire);
        let index = usize::try_from(word & 0xffff).expect("16 bits");
        (word >> Self::CHUNK_BITS == ordinal).then(|| index.checked_sub(1)).flatten()
    }

    /// Whether anything stands where the chunk of span `ordinal` would.
    pub(crate) fn has_entry(&self, ordinal: u64) -> bool {
        self.entry(ordinal).load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_chunk(&self, ordinal: u64, index: usize) {
        let word = ordinal << Self::CHUNK_BITS | (index as u64 + 1);
        self.entry(ordinal).store(word, Ordering::Release);
    }

    pub(crate) fn clear_chunk(&self, ordinal: u64) {
        self.entry(ordinal).store(0, Ordering::Release);
    }

    /// All spans that lie in chunks: ordinal and chunk, by ordinal.
    pub(crate) fn chunks(&self) -> Vec<(u64, usize)> {
        let entry = |index| {
            let word = self.0.word(Self::CHUNKS + index).load(Ordering::Acquire);
            let chunk = usize::try_from(word & 0xffff).expect("16 bits").checked_sub(1)?;
            (chunk < CHUNK_COUNT_MAX).then_some((word >> Self::CHUNK_BITS, chunk))
        };
        let mut found: Vec<_> = (0..CHUNK_COUNT_MAX).filter_map(entry).collect();
        found.sort_unstable();
        found
    }

    fn entry(&self, ordinal: u64) -> &AtomicU64 {
        let index = usize::try_from(ordinal % CHUNK_COUNT_MAX as u64).expect("992 at most");
        mortal::step();
        self.0.word(Self::CHUNKS + index)
    }

    pub(crate) fn note(&self) -> [u8; NOTE_BYTES] {
        let mut note = [0; NOTE_BYTES];
        for (index, bytes) in note.chunks_exact_mut(8).enumerate() {
            let word = self.0.word(Self::NOTE + index).load(Ordering::Acquire);
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        note
    }

    pub(crate) fn set_note(&self, note: &[u8; NOTE_BYTES]) {
        for (index, bytes) in note.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(bytes.try_into().expect("eight"));
            self.0.word(Self::NOTE + index).store(word, Ordering::Release);
        }
    }
}

fn gone(checked: device::Result<()>) -> Result<()> {
    checked.map_err(|e| {
        LogError::Aborted(format!(
            "{}. End all processes that use the log: nothing synced is lost",
            e.source
        ))
    })
}

/// In the state word of a lane: all words are right. Else it is 0, only the chunk table is right, and
/// log files and chunks were not looked at.
pub(crate) const LANE_READY: u64 = 1;

/// Takes `word` for `client` when nobody has it or `is_dead` says so of whoever has. Returns who
/// had it.
pub(crate) fn claim(
    word: &AtomicU64,
    client: Client,
    is_dead: impl Fn(Client) -> bool,
) -> Option<Client> {
    let mut held = word.load(Ordering::Acquire);
    loop {
        if held != 0 && !is_dead(Client(held)) {
            return None;
        }
        match word.compare_exchange(held, client.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(Client(held)),
            Err(other) => held = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Arc<SharedWords> {
        Arc::new(SharedWords::anonymous(count).expect("words"))
    }

    #[test]
    fn pending_streams_are_taken_once() {
        let control = Control(words(Control::COUNT));
        for stream in [65_535, 0, 63, 64, 63] {
            control.set_pending(StreamId(stream + (STREAM_COUNT_MAX as u32) * 2).place());
        }
        assert_eq!(control.take_pending(), [0, 63, 64, 65_535]);
        assert!(control.take_pending().is_empty());
    }

    #[test]
    fn waiters_are_woken_and_counted() {
        let control = Control(words(Control::COUNT));
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
            while control.epoch_waiters().load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            while waiters.iter().any(|waiter| !waiter.is_finished()) {
                control.advance_epoch();
                std::thread::yield_now();
            }
        });
        assert_eq!(control.epoch_waiters().load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_leader_is_woken_when_the_last_one_arrives_and_not_by_who_waits_already() {
        let control = Control(words(Control::COUNT));
        control.0.half(Control::ARRIVALS).store(u32::MAX - 1, Ordering::SeqCst);
        control.set_pending(900);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| control.wait_arrivals(3, Duration::from_secs(600)));
            while control.arrivals_wanted().load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            for place in [900, 1, 1, 2, 900] {
                control.set_pending(place);
            }
            assert!(!leader.is_finished());
            control.set_pending(3);
        });
        assert_eq!((control.arrivals(), control.take_pending().len()), (2, 4));
        assert_eq!(control.arrivals_wanted().load(Ordering::SeqCst), 0);
        // Nobody comes.
        control.wait_arrivals(1, Duration::from_millis(1));
    }

    #[test]
    fn the_areas_do_not_overlap() {
        const { assert!(Control::SLOTS + CLIENT_COUNT_MAX <= Control::PENDING) }
        const { assert!(Control::PENDING + Control::PENDING_COUNT <= Control::CHUNKS) }
        const { assert!(Control::HOLDERS + CHUNK_COUNT_MAX <= Control::COUNT) }
        const { assert!(LaneWords::NOTE + NOTE_BYTES / 8 <= LaneWords::CHUNKS) }
        const { assert!(LaneWords::CHUNKS + CHUNK_COUNT_MAX <= LaneWords::COUNT) }
    }

    #[test]
    fn chunks_are_found_by_ordinal() {
        let lane = LaneWords(words(LaneWords::COUNT));
        assert_eq!(lane.chunk(0), None);
        lane.set_chunk(1000, 991);
        lane.set_chunk(999, 0);
        assert_eq!(lane.chunk(1000), Some(991));
        assert_eq!(lane.chunk(1000 - 992), None, "the same entry, another ordinal");
        assert_eq!(lane.chunks(), [(999, 0), (1000, 991)]);
        lane.clear_chunk(999);
        assert_eq!(lane.chunks(), [(1000, 991)]);
    }

    #[test]
    fn a_word_is_claimed_from_nobody_and_from_the_dead() {
        let words = words(1);
        let (one, two) = (Client::new(0, 1), Client::new(1, 2));
        assert_eq!(claim(words.word(0), one, |_| false), Some(Client::NOBODY));
        assert_eq!(claim(words.word(0), two, |_| false), None);
        assert_eq!(claim(words.word(0), two, |held| held == one), Some(one));
        assert_eq!((one.slot(), two.slot(), Client::NOBODY.slot()), (Some(0), Some(1), None));
    }
}
