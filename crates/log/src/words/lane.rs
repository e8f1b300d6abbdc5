//! The words of one stream's lane.

use std::sync::Arc;

use device::SharedWords;

use super::client::{Client, claim};
use super::limits::{CHUNK_COUNT_MAX, ORDINAL_MAX, STREAM_HEADER_BYTES};
use super::memory::Memory;
use crate::Result;

#[cfg(test)]
use super::model::ModelWords;

/// Indexes of the words. Each is a word of 8 bytes in the machine's order.
pub(super) mod at {
    pub(in crate::words) const LESSEE: usize = 0;
    pub(in crate::words) const APPENDED: usize = 1;
    /// LSN up to which a group commit is wanted.
    pub(in crate::words) const WANTED: usize = 2;
    pub(in crate::words) const SYNCED: usize = 3;
    pub(in crate::words) const DRAINED: usize = 4;
    pub(in crate::words) const DRAINER: usize = 5;
    /// LSN before which no record is needed.
    pub(super) const HEAD: usize = 6;
    /// 1: all words are right. 0: only the chunk table is right, and log files and chunks were not
    /// read yet.
    pub(super) const STATE: usize = 7;
    pub(super) const USN_BASE: usize = 8;
    pub(super) const USN_LIMIT: usize = 9;
    /// See [`Abort`](super::Abort).
    pub(super) const ABORTED: usize = 10;
    /// Records and payload bytes appended.
    pub(in crate::words) const RECORD_COUNT: usize = 11;
    pub(in crate::words) const PAYLOAD_BYTES: usize = 12;
    pub(in crate::words) const LAST_USN: usize = 13;
    /// What the quarantine has (`engine::aside`).
    pub(super) const ASIDE_BYTES: usize = 14;
    pub(super) const ASIDE_END: usize = 15;
    pub(super) const STREAM_HEADER: usize = 16;
    /// Not 0: a drainer died, and may have left a chunk that is neither allocated nor free.
    pub(in crate::words) const SUSPECT: usize = 24;
    /// Not 0: chunks on NVRAM contradict each other.
    pub(super) const CONTRADICTION: usize = 25;
    /// Number of the lease that a client of a daemon has; 0: none.
    pub(super) const REMOTE: usize = 28;
    /// The token that this client sends for its lease, and its user.
    pub(super) const REMOTE_TOKEN: usize = 29;
    pub(super) const REMOTE_UID: usize = 30;
    pub(in crate::words) const CHUNKS: usize = 32;
}

/// The words of one stream's lane.
#[derive(Clone)]
pub(crate) struct LaneWords(Memory);

/// What has been appended to a lane in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) record_count: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) last_usn: u64,
}

/// Why a lane is aborted. The numbers are those of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The log files could not be written.
    Io = 1,
    /// The lane's content does not agree with its words.
    Lane = 2,
    /// The stream was removed.
    Removed = 3,
}

impl LaneWords {
    pub(crate) const COUNT: usize = 1024;
    // Words that are also reached through a file (`remote`), by index.
    pub(crate) const APPENDED: usize = at::APPENDED;
    pub(crate) const ABORTED: usize = at::ABORTED;
    pub(crate) const RECORD_COUNT: usize = at::RECORD_COUNT;
    pub(crate) const PAYLOAD_BYTES: usize = at::PAYLOAD_BYTES;
    pub(crate) const LAST_USN: usize = at::LAST_USN;
    pub(crate) const STREAM_HEADER: usize = at::STREAM_HEADER;

    pub(crate) fn new(words: Arc<SharedWords>) -> LaneWords {
        LaneWords(Memory::mapped(words))
    }

    #[cfg(test)]
    pub(super) fn model(words: Arc<ModelWords>) -> LaneWords {
        LaneWords(Memory::model(words))
    }

    /// An error if the words are lost because another process made their file shorter. This process
    /// then sees zeros that no other process sees. Call this after reading words, and before
    /// writing, freeing or reporting anything because of them.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.check()
    }
}

/// How far the stream is appended, durable and drained.
impl LaneWords {
    pub(crate) fn appended(&self) -> u64 {
        self.0.get(at::APPENDED)
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.0.get(at::WANTED)
    }

    /// Asks for a group commit up to `end`.
    pub(crate) fn want(&self, end: u64) {
        self.0.raise(at::WANTED, end);
    }

    pub(crate) fn synced(&self) -> u64 {
        self.0.get(at::SYNCED)
    }

    /// Records that the stream is durable up to `end`. The caller has made it so, or the daemon
    /// said so.
    pub(crate) fn mark_synced(&self, end: u64) {
        self.0.raise(at::SYNCED, end);
    }

    pub(crate) fn drained(&self) -> u64 {
        self.0.get(at::DRAINED)
    }

    pub(crate) fn head(&self) -> u64 {
        self.0.get(at::HEAD)
    }

    /// Moves the head forward to `lsn`. Returns the previous head.
    pub(crate) fn raise_head(&self, lsn: u64) -> u64 {
        self.0.raise(at::HEAD, lsn)
    }

    /// Where the last whole piece of the quarantine ends, in bytes of its file. 0: unknown.
    pub(crate) fn aside_bytes(&self) -> u64 {
        self.0.get(at::ASIDE_BYTES)
    }

    /// Changes [`aside_bytes`](Self::aside_bytes). The caller holds the service's lock.
    pub(crate) fn set_aside_bytes(&self, bytes: u64) {
        self.0.set(at::ASIDE_BYTES, bytes);
    }

    /// The quarantine has all records from `drained` up to here, if this is not smaller.
    pub(crate) fn aside_end(&self) -> u64 {
        self.0.get(at::ASIDE_END)
    }

    /// Changes [`aside_end`](Self::aside_end). The caller holds the service's lock.
    pub(crate) fn set_aside_end(&self, end: u64) {
        self.0.set(at::ASIDE_END, end);
    }

    /// Makes the stream end at `end`, durable and drained. Only while no process appends, drains or
    /// leads a group commit with it.
    pub(crate) fn reset_end(&self, end: u64) {
        for index in [at::APPENDED, at::WANTED, at::SYNCED, at::DRAINED] {
            self.0.set(index, end);
        }
    }

    /// Whether the words are right; see [`mark_ready`](Self::mark_ready).
    pub(crate) fn is_ready(&self) -> bool {
        self.0.get(at::STATE) == 1
    }

    /// Records that the stream is recovered: it has the records of [`head`, `end`), and all of them
    /// are drained. The caller holds the service's lock.
    pub(crate) fn mark_ready(&self, head: u64, end: u64, last_usn: u64) {
        self.0.set(at::HEAD, head);
        self.0.set(at::LAST_USN, last_usn);
        // Recovery has removed the quarantine.
        self.0.set(at::ASIDE_BYTES, 0);
        self.0.set(at::ASIDE_END, 0);
        self.reset_end(end);
        self.0.set(at::STATE, 1);
    }

    /// Makes the next process that opens the stream recover it, also if it was aborted.
    pub(crate) fn mark_unrecovered(&self) {
        self.0.set(at::ABORTED, 0);
        self.0.set(at::STATE, 0);
    }

    pub(crate) fn has_contradiction(&self) -> bool {
        self.0.get(at::CONTRADICTION) != 0
    }

    /// Sets whether chunks on NVRAM contradict each other.
    pub(crate) fn set_contradiction(&self, is_there: bool) {
        self.0.set(at::CONTRADICTION, is_there.into());
    }
}

/// Sequence numbers and totals.
impl LaneWords {
    pub(crate) fn usn_base(&self) -> u64 {
        self.0.get(at::USN_BASE)
    }

    pub(crate) fn usn_limit(&self) -> u64 {
        self.0.get(at::USN_LIMIT)
    }

    /// Tells the writer which USNs it may use.
    pub(crate) fn set_usn_range(&self, base: u64, limit: u64) {
        self.0.set(at::USN_BASE, base);
        self.0.set(at::USN_LIMIT, limit);
    }

    pub(crate) fn last_usn(&self) -> u64 {
        self.0.get(at::LAST_USN)
    }

    /// What was appended so far, for statistics.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            record_count: self.0.peek(at::RECORD_COUNT),
            payload_bytes: self.0.peek(at::PAYLOAD_BYTES),
            last_usn: self.0.peek(at::LAST_USN),
        }
    }

    /// Access to the end of the lane, for its lessee.
    pub(crate) fn appender(&self) -> Appender {
        Appender(self.0.clone())
    }

    /// Takes over what a client of the daemon has appended. The caller has checked it (`report`).
    pub(super) fn take_over(&self, appended: u64, totals: Totals) {
        self.0.leave(at::RECORD_COUNT, totals.record_count);
        self.0.leave(at::PAYLOAD_BYTES, totals.payload_bytes);
        self.0.leave(at::LAST_USN, totals.last_usn);
        self.0.raise(at::APPENDED, appended);
    }
}

/// The lease of the lane.
impl LaneWords {
    pub(crate) fn lessee(&self) -> Client {
        Client(self.0.get(at::LESSEE))
    }

    /// Takes the lease if no client has it, or a dead one. Returns the previous lessee.
    pub(crate) fn claim_lessee(
        &self,
        client: Client,
        is_dead: impl Fn(Client) -> bool,
    ) -> Option<Client> {
        claim(&self.0, at::LESSEE, client, is_dead)
    }

    /// Releases the lease. Only the lessee may.
    pub(crate) fn release_lessee(&self) {
        self.0.set(at::LESSEE, 0);
    }

    /// Releases the lease if `client` has it. Otherwise the error names the lessee.
    pub(crate) fn release_lessee_of(&self, client: Client) -> std::result::Result<(), Client> {
        self.0.exchange(at::LESSEE, client.0, 0).map(drop).map_err(Client)
    }

    /// Whether a process died during a change, so that the next lessee has to check the chunks.
    pub(crate) fn is_suspect(&self) -> bool {
        self.0.get(at::SUSPECT) != 0
    }

    pub(crate) fn set_suspect(&self, is_suspect: bool) {
        self.0.set(at::SUSPECT, is_suspect.into());
    }

    /// The number of the lease that a client of the daemon has. What that client has appended is in
    /// its own words.
    pub(crate) fn remote(&self) -> Option<u64> {
        Some(self.0.get(at::REMOTE)).filter(|&serial| serial != 0)
    }

    /// Sets the token and the user of the client that gets a lease. To be called before
    /// [`begin_remote`](Self::begin_remote).
    pub(crate) fn prepare_remote(&self, token: u64, uid: u32) {
        self.0.set(at::REMOTE_TOKEN, token);
        self.0.set(at::REMOTE_UID, uid.into());
    }

    /// Begins the lease `serial` of a client. `serial` is not 0.
    pub(crate) fn begin_remote(&self, serial: u64) {
        self.0.set(at::REMOTE, serial);
    }

    pub(crate) fn end_remote(&self) {
        self.0.set(at::REMOTE, 0);
    }

    /// Whether a client of the user has the lease.
    pub(crate) fn is_remote_of(&self, uid: u32) -> bool {
        self.remote_uid() == Some(uid)
    }

    /// The user of the client that has the lease.
    pub(crate) fn remote_uid(&self) -> Option<u32> {
        self.remote().and_then(|_| self.0.get(at::REMOTE_UID).try_into().ok())
    }

    /// Whether `token` is that of the client that has the lease.
    pub(crate) fn is_token(&self, token: u64) -> bool {
        self.0.get(at::REMOTE_TOKEN) == token
    }

    /// The first bytes of a client's own words: a copy of these words without the chunk table.
    pub(crate) fn copy_for_client(&self) -> Vec<u8> {
        let word = |index| match index {
            at::REMOTE_TOKEN => 0,
            index => self.0.get(index),
        };
        let mut bytes: Vec<u8> =
            (0..at::CHUNKS).flat_map(|index| word(index).to_ne_bytes()).collect();
        bytes.resize(LaneWords::COUNT * 8, 0);
        bytes
    }
}

/// The drainer, and what aborts the lane.
impl LaneWords {
    pub(crate) fn drainer(&self) -> Client {
        Client(self.0.get(at::DRAINER))
    }

    /// Makes `client` the drainer if there is none, or if the drainer is dead. In the second case,
    /// marks the lane as suspect, because the dead drainer may have been freeing a chunk.
    pub(crate) fn claim_drainer(
        &self,
        client: Client,
        is_dead: impl Fn(Client) -> bool,
    ) -> Option<DrainerClaim> {
        let before = claim(&self.0, at::DRAINER, client, is_dead)?;
        if before != Client::NOBODY {
            self.set_suspect(true);
        }
        Some(DrainerClaim(self.clone()))
    }

    /// Why the lane is aborted. `None`: it is not.
    pub(crate) fn aborted(&self) -> Option<Abort> {
        match self.0.get(at::ABORTED) {
            0 => None,
            1 => Some(Abort::Io),
            3 => Some(Abort::Removed),
            // A client may write any number into its own words.
            _ => Some(Abort::Lane),
        }
    }

    /// Aborts the lane. The first reason stays.
    pub(crate) fn abort(&self, why: Abort) {
        let _ = self.0.exchange(at::ABORTED, 0, why as u64);
    }
}

/// The chunk table: which chunk holds a span of the stream.
impl LaneWords {
    /// The chunk that holds span `ordinal`.
    pub(crate) fn chunk(&self, ordinal: u64) -> Option<usize> {
        let slot = entry(ordinal);
        let found = decode_entry(slot, self.0.get(slot));
        found.filter(|(of, _)| *of == ordinal).map(|(_, index)| index)
    }

    /// Whether the table has an entry where that of span `ordinal` would be.
    pub(crate) fn has_entry(&self, ordinal: u64) -> bool {
        self.0.get(entry(ordinal)) != 0
    }

    pub(crate) fn set_chunk(&self, ordinal: u64, index: usize) {
        self.0.set(entry(ordinal), ordinal << CHUNK_BITS | (index as u64 + 1));
    }

    pub(crate) fn clear_chunk(&self, ordinal: u64) {
        self.0.set(entry(ordinal), 0);
    }

    /// All spans that are in chunks: ordinal and chunk, by ordinal.
    pub(crate) fn chunks(&self) -> Vec<(u64, usize)> {
        let entry = |slot| decode_entry(slot, self.0.get(slot));
        let slots = at::CHUNKS..at::CHUNKS + CHUNK_COUNT_MAX;
        let mut found: Vec<_> = slots.filter_map(entry).collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn header(&self) -> [u8; STREAM_HEADER_BYTES] {
        let mut header = [0; STREAM_HEADER_BYTES];
        for (index, bytes) in header.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.0.get(at::STREAM_HEADER + index).to_le_bytes());
        }
        header
    }

    pub(crate) fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]) {
        for (index, bytes) in header.chunks_exact(8).enumerate() {
            self.0.set(
                at::STREAM_HEADER + index,
                u64::from_le_bytes(bytes.try_into().expect("eight")),
            );
        }
    }
}

/// Index of the table's entry for span `ordinal`.
fn entry(ordinal: u64) -> usize {
    at::CHUNKS + usize::try_from(ordinal % CHUNK_COUNT_MAX as u64).expect("992 at most")
}

/// Bits of an entry that have the chunk; the others have the span.
const CHUNK_BITS: u32 = 16;

/// The span and the chunk in the table's entry at `slot`. `None` if it has none, or what cannot be
/// an entry there.
fn decode_entry(slot: usize, word: u64) -> Option<(u64, usize)> {
    let chunk = usize::try_from(word & 0xffff).expect("16 bits").checked_sub(1)?;
    let ordinal = word >> CHUNK_BITS;
    let is_entry = chunk < CHUNK_COUNT_MAX && ordinal < ORDINAL_MAX - 1 && entry(ordinal) == slot;
    is_entry.then_some((ordinal, chunk))
}

/// Orders the reads of this thread before it before all its accesses after it: what was read of a
/// chunk is older than a word that is read next.
pub(crate) fn after_reads(words: &LaneWords) {
    words.0.fence_reads();
}

/// Orders what this thread read and wrote before it before what it writes after it: bytes that are
/// stored next are not seen by a thread that does not see the words yet.
pub(crate) fn before_writes(words: &LaneWords) {
    words.0.fence_writes();
}

/// The end of a lane, for its lessee.
pub(crate) struct Appender(Memory);

impl Appender {
    /// Says that `count` records with `payload_bytes`, stored before this, end at `end`.
    pub(crate) fn publish_appended(&self, end: u64, count: u64, payload_bytes: u64, last_usn: u64) {
        for (index, more) in [(at::RECORD_COUNT, count), (at::PAYLOAD_BYTES, payload_bytes)] {
            // Changed by the lessee alone.
            self.0.leave(index, self.0.peek(index).wrapping_add(more));
        }
        self.0.leave(at::LAST_USN, last_usn);
        self.0.set(at::APPENDED, end);
    }
}

/// The right to take bytes out of a lane. It is not released by a drop: a thread that panics keeps
/// it, and the next holder marks the lane suspect.
#[must_use]
pub(crate) struct DrainerClaim(LaneWords);

impl DrainerClaim {
    /// Says that the log files hold the stream durably up to `end`.
    pub(crate) fn mark_drained(&self, end: u64) {
        let DrainerClaim(words) = self;
        words.mark_synced(end);
        words.0.set(at::DRAINED, end);
    }

    /// Tells all processes that have the stream open that it was removed, and that nothing of it is
    /// left to write.
    pub(crate) fn mark_removed(&self) {
        let DrainerClaim(words) = self;
        words.0.set(at::ABORTED, Abort::Removed as u64);
        for (ordinal, _) in words.chunks() {
            words.clear_chunk(ordinal);
        }
        let end = words.appended();
        words.0.set(at::SYNCED, end);
        words.0.set(at::DRAINED, end);
    }

    pub(crate) fn release(&self) {
        self.0.0.set(at::DRAINER, 0);
    }
}

/// What tests put into the words, as a process that is broken or means harm would.
#[cfg(test)]
impl LaneWords {
    pub(crate) fn spoil_appended(&self, value: u64) {
        self.0.set(at::APPENDED, value);
    }

    pub(crate) fn spoil_wanted(&self, value: u64) {
        self.0.set(at::WANTED, value);
    }

    pub(crate) fn spoil_synced(&self, value: u64) {
        self.0.set(at::SYNCED, value);
    }

    pub(crate) fn spoil_drained(&self, value: u64) {
        self.0.set(at::DRAINED, value);
    }

    pub(crate) fn spoil_last_usn(&self, value: u64) {
        self.0.set(at::LAST_USN, value);
    }

    pub(crate) fn spoil_lessee(&self, client: Client) {
        self.0.set(at::LESSEE, client.0);
    }

    pub(crate) fn spoil_drainer(&self, client: Client) {
        self.0.set(at::DRAINER, client.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(at::STREAM_HEADER + STREAM_HEADER_BYTES / 8 <= at::SUSPECT);
    const _: () = assert!(at::REMOTE_UID < at::CHUNKS);
    const _: () = assert!(at::CHUNKS + CHUNK_COUNT_MAX <= LaneWords::COUNT);

    fn lane() -> LaneWords {
        LaneWords::new(Arc::new(SharedWords::anonymous(LaneWords::COUNT).expect("words")))
    }

    #[test]
    fn chunks_are_found_by_ordinal() {
        let lane = lane();
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
    fn lease_is_claimed_when_it_is_free_or_its_holder_is_dead() {
        let lane = lane();
        let (one, two) = (Client::new(0, 1), Client::new(1, 2));
        assert_eq!(lane.claim_lessee(one, |_| false), Some(Client::NOBODY));
        assert_eq!(lane.claim_lessee(two, |_| false), None);
        assert_eq!(lane.claim_lessee(two, |held| held == one), Some(one));
        assert_eq!(lane.release_lessee_of(one), Err(two));
        assert_eq!(lane.release_lessee_of(two), Ok(()));
        assert_eq!((one.slot(), two.slot(), Client::NOBODY.slot()), (Some(0), Some(1), None));
    }

    #[test]
    fn the_first_reason_of_an_abort_stays() {
        let lane = lane();
        assert_eq!(lane.aborted(), None);
        lane.abort(Abort::Lane);
        lane.abort(Abort::Io);
        assert_eq!(lane.aborted(), Some(Abort::Lane));
        lane.mark_unrecovered();
        assert_eq!((lane.aborted(), lane.is_ready()), (None, false));
    }
}
