//! Appends to a lane: copy, persist, publish. An append makes no system call and takes no lock that
//! another process could hold.
//!
//! ```text
//! chunks:   | ... record | record | header, payload -> |      zeros
//!                                 ^ position = the word `appended`
//!                                   (moves when the record is persistent)
//! ```
//!
//! An embedded service and a client of the daemon run the same code. The [`ChunkAllocator`] gives
//! them their chunks.

use crate::faults::{self, Fault};
use crate::format::chunk::{LaneChunk, parts};
use crate::format::record::{
    FOLLOWS_UNSYNCED, HEADER_BYTES, Identity, PAYLOAD_BYTES_MAX, record_bytes,
};
use crate::words::{Appender, LaneWords};
use crate::{LogError, Lsn, Result, Usn, clock};

/// Gives a writer chunks and USNs.
pub(crate) trait ChunkAllocator {
    /// A chunk for span `ordinal` of the stream, entered in the lane's table. Waits for a bounded
    /// time until there is one. If there is none, frees all chunks after the one that holds the
    /// end. Otherwise, writers that each hold a part of what they need would wait for each other
    /// for ever.
    fn allocate(&self, ordinal: u64) -> Result<LaneChunk>;

    /// Reserves USNs beyond the present limit.
    fn extend_usn(&self) -> Result<()>;

    /// Says that the writer will soon need a chunk for span `ordinal`.
    fn announce(&self, _ordinal: u64) {}
}

/// Sizes of the pool, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Data of a chunk.
    pub(crate) chunk_bytes: u64,
    /// All chunks. One append may take half of them.
    pub(crate) pool_bytes: u64,
}

/// The end of a lane, for its lessee.
pub(crate) struct Writer {
    identity: Identity,
    words: LaneWords,
    end: Appender,
    sizes: Sizes,
    /// Whether a record must be persistent when its append returns.
    is_nvram: bool,
    /// Where the next record begins.
    position: u64,
    /// The chunks from the one that holds the position on, in order.
    chunks: Vec<LaneChunk>,
    last_usn: u64,
    /// The last span that was announced.
    announced: u64,
}

impl Writer {
    /// A writer that continues at `position`. `chunks` hold the position and what follows.
    pub(crate) fn new(
        identity: Identity,
        words: LaneWords,
        sizes: Sizes,
        is_nvram: bool,
        position: u64,
        chunks: Vec<LaneChunk>,
    ) -> Writer {
        let last_usn = words.last_usn();
        let (end, announced) = (words.appender(), 0);
        Writer { identity, words, end, sizes, is_nvram, position, chunks, last_usn, announced }
    }

    /// Appends one record. On NVRAM it is durable when this returns.
    #[cfg(test)]
    pub(crate) fn append(&mut self, allocator: &dyn ChunkAllocator, payload: &[u8]) -> Result<Lsn> {
        self.append_batch(allocator, &[payload])
    }

    /// Appends records one after the other, and persists them together. Returns where the last one
    /// begins. After a crash during this call, any number of the first records may be there. If
    /// this call fails, nothing was appended.
    pub(crate) fn append_batch(
        &mut self,
        allocator: &dyn ChunkAllocator,
        payloads: &[&[u8]],
    ) -> Result<Lsn> {
        let len_bytes = check_sizes(payloads, self.sizes.pool_bytes / 2)?;
        self.allocate_up_to(allocator, self.position + len_bytes)?;
        let begin = self.position;
        let mut at = begin;
        let mut last = Lsn(begin);
        let is_alone = payloads.len() == 1;
        let first_usn = self.take_usns(allocator, payloads.len() as u64)?;
        for (usn, payload) in (first_usn..).map(Usn).zip(payloads) {
            last = Lsn(at);
            let flags = self.flags(at);
            let header = self.identity.seal(last, usn, payload, flags);
            self.store(at, &header, payload, is_alone)?;
            at += record_bytes(payload.len()) as u64;
        }
        if self.is_nvram && !is_alone {
            for chunk in &self.chunks {
                chunk.memory.persist()?;
            }
        }
        self.publish(at, payloads);
        Ok(last)
    }

    /// The flags of a record at `at`: they say whether all records before it are durable already.
    fn flags(&self, at: u64) -> u32 {
        let durable = match self.is_nvram {
            true => self.position,
            false => self.words.synced(),
        };
        let follows_unsynced = (durable < at || faults::is(Fault::AlwaysFollowsUnsynced))
            && !faults::is(Fault::NeverFollowsUnsynced);
        if follows_unsynced { FOLLOWS_UNSYNCED } else { 0 }
    }

    /// Takes `count` consecutive USNs. Returns the first one. The caller must do this before it
    /// stores any record. Otherwise, a batch could fail for lack of USNs after some of its records
    /// are stored. The next append would overwrite only the first of them, and recovery could take
    /// the second for a record.
    fn take_usns(&mut self, allocator: &dyn ChunkAllocator, count: u64) -> Result<u64> {
        let now = clock::usn_at(self.words.usn_base(), clock::later_ns());
        let next = self.last_usn.saturating_add(1);
        let is_good = |first: u64| first.saturating_add(count - 1) < self.words.usn_limit();
        let mut first = now.max(next);
        if !is_good(first) {
            allocator.extend_usn()?;
        }
        if !is_good(first) {
            // The clock is ahead of the daemon's.
            first = next;
        }
        if !is_good(first) {
            let text = format!("the lane says that USN {} was given", self.last_usn);
            return Err(LogError::Incompatible(text));
        }
        self.last_usn = first + (count - 1);
        Ok(first)
    }

    /// Allocates the chunks for the bytes up to `end`.
    fn allocate_up_to(&mut self, allocator: &dyn ChunkAllocator, end: u64) -> Result<()> {
        let first = self.position / self.sizes.chunk_bytes;
        self.chunks.retain(|chunk| chunk.ordinal >= first);
        let next = self.chunks.last().map_or(first, |chunk| chunk.ordinal + 1);
        for ordinal in next..=(end - 1) / self.sizes.chunk_bytes {
            match allocator.allocate(ordinal) {
                Ok(allocated) => self.chunks.push(allocated),
                Err(e) => {
                    // The allocator has freed the chunks in which nothing was stored.
                    self.chunks.retain(|chunk| chunk.ordinal <= first);
                    return Err(e);
                }
            }
        }
        let (behind, within) = (end.div_ceil(self.sizes.chunk_bytes), end % self.sizes.chunk_bytes);
        let is_last = self.chunks.last().is_some_and(|chunk| chunk.ordinal < behind);
        if is_last && within >= self.sizes.chunk_bytes / 4 && self.announced < behind {
            self.announced = behind;
            allocator.announce(behind);
        }
        Ok(())
    }

    /// Stores a record. With `persist`, and if the lane is on NVRAM, it is persistent when this
    /// returns. The padding after the payload is zeros already, because nothing was stored there
    /// before.
    fn store(&self, at: u64, header: &[u8], payload: &[u8], persist: bool) -> Result<()> {
        let first = self.chunks[0].ordinal;
        let mut rest = [header, payload];
        for part in parts(at, HEADER_BYTES + payload.len(), self.sizes.chunk_bytes) {
            let index = usize::try_from(part.ordinal - first).expect("an allocated chunk");
            let memory = &self.chunks[index].memory;
            let (head, head_rest) = rest[0].split_at(part.len_bytes.min(rest[0].len()));
            let (tail, tail_rest) = rest[1].split_at(part.len_bytes - head.len());
            rest = [head_rest, tail_rest];
            if persist && self.is_nvram {
                memory.write_durable(part.offset, &[head, tail])?;
            } else {
                memory.store(part.offset, head)?;
                memory.store(part.offset + head.len() as u64, tail)?;
            }
        }
        Ok(())
    }

    fn publish(&mut self, end: u64, payloads: &[&[u8]]) {
        self.position = end;
        let bytes: usize = payloads.iter().map(|payload| payload.len()).sum();
        let count = payloads.len() as u64;
        self.end.publish_appended(end, count, bytes as u64, self.last_usn);
    }
}

fn too_large(len_bytes: u64, limit_bytes: u64) -> LogError {
    LogError::TooLarge { len_bytes, limit_bytes }
}

/// Bytes that the records take together. An error if there is no record, or if they are too long.
fn check_sizes(payloads: &[&[u8]], most_bytes: u64) -> Result<u64> {
    if payloads.is_empty() {
        return Err(LogError::Usage("an append of no record".into()));
    }
    let mut total = 0;
    for payload in payloads {
        if payload.is_empty() {
            return Err(LogError::Usage("a record of no bytes: it must have at least one".into()));
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(too_large(payload.len() as u64, PAYLOAD_BYTES_MAX as u64));
        }
        total += record_bytes(payload.len()) as u64;
    }
    if total > most_bytes {
        return Err(too_large(total, most_bytes));
    }
    Ok(total)
}
