//! Group commit: one device write makes the records of many processes durable. Only where lanes are
//! ordinary memory.
//!
//! One leader writes at a time. So a valid entry after an invalid one proves damage. `gather`
//! decides how long it waits.
//!
//! Invariants:
//!
//! 1. A piece consists of bytes below `appended`, which do not change any more.
//! 2. A piece counts only if its records were not drained when it had been read: the chunk is freed
//!    after that. The leader does not make itself the drainer of lanes of other processes, because
//!    it may be stopped at any time.
//! 3. A stream is made shorter (`discard_damaged`) only by the leader. So no other process has a
//!    piece of what is given up, or counts it as synced later.
//!
//! A process that waits for a leader that makes no progress syncs its stream alone (`stall`,
//! `aside`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::BlockDevice;

use crate::engine::aside::copy_whole_records;
use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::{
    LeaderWait, OTHERS_LIMIT, OTHERS_LIMIT_AGAIN, StallTimeout, is_stall, others_limit,
};
use crate::error::Refusal;
use crate::faults::{self, Fault};
use crate::format::group::{ENTRIES_AT, Piece, RawHeader, encode_entry, table_room, write_header};
use crate::words::{GroupPosition, after_reads};
use crate::{LogError, Result, StreamId};

/// If one stream has more bytes than this to sync, it is drained instead. Its bytes are then
/// written only once, to its log file.
const DIRECT_BYTES: u64 = 128 << 10;
/// Most bytes of all pieces in one entry. The first piece may be longer.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of one stream in one entry.
const PIECE_BYTES_MAX: u64 = 2 * DIRECT_BYTES;
/// How long a waiter sleeps before it checks whether the leader lives.
const LEADER_WAIT: Duration = Duration::from_millis(20);

impl Service {
    /// Makes the lane durable up to `end`, together with all other lanes that wait.
    pub(crate) fn commit_to(&self, lane: &Arc<Lane>, end: u64) -> Result<()> {
        let words = &lane.words;
        let is_large = end - words.synced().min(end) > DIRECT_BYTES;
        words.check()?;
        if is_large {
            return self.sync_alone(lane);
        }
        words.want(end);
        let mut is_late = false;
        let mut wait = LeaderWait::default();
        loop {
            if words.synced() >= end {
                return Ok(());
            }
            lane.check()?;
            self.check_group()?;
            let epoch = self.control.epoch();
            if wait.is_over(&self.control) {
                return self.sync_alone(lane);
            }
            self.control.set_pending(lane.identity().stream.index());
            // Whether a leader lives is asked of the system, so only when it takes its time.
            let is_dead = |held| is_late && self.is_dead(held);
            if self.control.claim_leader(self.host.client(), is_dead) {
                self.gather();
                let led = self.lead();
                self.control.release_leader();
                match led {
                    // A process was stopped with the service's lock, which a new round needed.
                    Err(e) if is_stall(&e) => {}
                    led => led?,
                }
                if words.synced() < end {
                    // It had no room in the entry, or was drained meanwhile.
                    return self.sync_alone(lane);
                }
            } else if words.synced() < end {
                self.control.wait_epoch(epoch, LEADER_WAIT);
                is_late = self.control.epoch() == epoch;
            }
        }
    }

    /// Two numbers that change while a leader makes progress.
    fn group_progress(&self) -> (u32, u64) {
        (self.control.epoch(), self.control.drain_bytes())
    }

    /// An error if the leader has made no progress for too long.
    fn check_leader(&self, stall: &mut StallTimeout<(u32, u64)>) -> Result<()> {
        let leader = self.control.leader();
        stall.check(self.group_progress(), leader, "write the group log")
    }

    fn check_group(&self) -> Result<()> {
        match self.control.is_aborted() {
            false => self.control.check(),
            true => Err(Refusal::GroupLogFailed.into()),
        }
    }

    /// Writes the records that all waiting streams wait for, in one entry.
    fn lead(&self) -> Result<()> {
        let mut lanes = Vec::new();
        let mut pieces = Vec::new();
        let mut taken_bytes = 0;
        let room_bytes = self.host.group().map_or(0, |device| device.size_bytes() - ENTRIES_AT);
        let indexes = self.control.take_pending();
        self.took(indexes.len());
        for index in indexes {
            let next_bytes = taken_bytes as u64 + PIECE_BYTES_MAX + table_room(pieces.len() + 1);
            let is_full = taken_bytes >= ENTRY_BYTES_MAX || next_bytes > room_bytes;
            if is_full && !pieces.is_empty() {
                self.control.set_pending(index);
                continue;
            }
            // If a lane cannot be opened or read, the stream that waits for it gets the error.
            let Ok(Some(lane)) = self.lane_at(index) else { continue };
            if let Ok(Some(piece)) = self.take_piece(&lane) {
                taken_bytes += piece.bytes.len();
                pieces.push(piece);
                lanes.push(lane);
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        self.write_entry(&pieces)?;
        self.gathered(pieces.len(), begin);
        for (lane, piece) in lanes.iter().zip(&pieces) {
            let end = piece.lsn + piece.bytes.len() as u64;
            lane.words.mark_synced(end);
        }
        self.control.count_members(pieces.len() as u64);
        Ok(())
    }

    /// The records that the stream waits for. `None`: it waits for none, or it was drained
    /// meanwhile.
    pub(super) fn take_piece(&self, lane: &Lane) -> Result<Option<Piece>> {
        self.take_piece_by(lane, copy_whole_records)
    }

    /// The same, with `read` to read the records.
    fn take_piece_by(
        &self,
        lane: &Lane,
        read: impl FnOnce(&Lane, u64, u64) -> Result<Vec<u8>>,
    ) -> Result<Option<Piece>> {
        let words = &lane.words;
        let lsn = words.synced();
        let end = words.wanted().min(words.appended());
        let count = end.saturating_sub(lsn);
        if count == 0 || count > PIECE_BYTES_MAX {
            // Too much for an entry: the drain of the stream that waits makes it durable.
            return Ok(None);
        }
        let read = read(lane, lsn, lsn + count);
        after_reads(words);
        // The chunk may have been freed after the copy began, and allocated again.
        let is_freed = words.drained() > lsn && !faults::is(Fault::PieceOfFreedChunk);
        if is_freed || lane.check().is_err() {
            return Ok(None);
        }
        let stream = lane.identity().stream;
        match read {
            Ok(bytes) => Ok(Some(Piece { stream, lsn, bytes })),
            Err(_) => self.take_damaged_piece(lane, lsn, lsn + count),
        }
    }

    /// The same for records that could not be read. If they cannot be read while no other process
    /// drains or repairs the lane, the lane is aborted.
    fn take_damaged_piece(&self, lane: &Lane, lsn: u64, end: u64) -> Result<Option<Piece>> {
        let Some(_drainer) = self.claim_drainer(lane) else { return Ok(None) };
        if lane.words.drained() > lsn || lane.check().is_err() {
            return Ok(None);
        }
        let bytes = copy_whole_records(lane, lsn, end).inspect_err(|e| lane.abort_after(e))?;
        Ok(Some(Piece { stream: lane.identity().stream, lsn, bytes }))
    }

    pub(super) fn write_entry(&self, pieces: &[Piece]) -> Result<()> {
        let device = self.host.group().expect("only where lanes are ordinary memory");
        let encode = |position: &GroupPosition| {
            encode_entry(position.salt, position.sequence, pieces, device.sector_bytes())
        };
        let mut position = self.control.group_position();
        let mut entry = encode(&position);
        let end = position.offset + entry.len() as u64;
        if self.control.is_group_unsure() || end > device.size_bytes() {
            position = self.begin_round(device)?;
            entry = encode(&position);
        }
        // If the words are lost, `position` is wrong: the write could destroy other entries.
        self.control.check()?;
        self.latched(device.write_durable(position.offset, &entry).map_err(LogError::from))?;
        self.control.entry_written(position, entry.len() as u64);
        Ok(())
    }

    /// Frees the whole area: drains what it holds, and says durably that the next entry is at its
    /// front. That entry's number is one that no leader can have written, even one that died before
    /// it said so.
    fn begin_round(&self, device: &dyn BlockDevice) -> Result<GroupPosition> {
        // A process that is stopped is waited for once, however many streams it drains.
        let mut limit = OTHERS_LIMIT;
        for stream in self.owners() {
            let lane = match self.lane_of(stream) {
                Ok(Some(lane)) => lane,
                Ok(None) => continue,
                // Its log files are damaged. Other streams, and a process that has it open, go on.
                Err(e) if e.is_of_one_stream() => {
                    self.quarantine_unread(stream)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let drained = lane.words.drained();
            let is_needed = drained < lane.words.synced();
            // Only the group log may hold the records of a stream whose words are lost.
            lane.words.check()?;
            if is_needed
                && let Err(e) = self.drain_within(&lane, limit.min(others_limit(&lane)))
                && !lane.is_spoiled()
            {
                if is_stall(&e) {
                    limit = OTHERS_LIMIT_AGAIN;
                } else if lane.check().is_ok() {
                    return Err(e);
                }
                // Its drainer is stopped, or its files cannot be written. Other streams go on.
                self.put_synced_aside(&lane)?;
            }
        }
        let GroupPosition { salt, generation, sequence, .. } = self.control.group_position();
        let (generation, sequence) = (generation + 1, sequence + 1);
        self.control.check()?;
        let header = RawHeader::new(salt, generation, sequence, device.sector_bytes());
        self.latched(write_header(device, &header))?;
        let position = GroupPosition { salt, generation, sequence, offset: ENTRIES_AT };
        self.control.begin_group(position);
        Ok(position)
    }

    /// Quarantines what was synced of a stream whose log files cannot be read here.
    fn quarantine_unread(&self, stream: StreamId) -> Result<()> {
        let streams = self.host.streams()?;
        match streams.into_iter().find(|(_, meta)| meta.id == stream.0) {
            Some((name, meta)) => {
                self.put_synced_aside(&Lane::unread(self.host.clone(), name, meta)?)
            }
            None => Ok(()),
        }
    }

    /// Drains all records that the group log holds, and starts the group log at its front.
    pub(crate) fn empty_group(&self) -> Result<()> {
        self.as_leader(|| self.empty_group_as_leader())
    }

    /// The same. The caller is the leader.
    pub(crate) fn empty_group_as_leader(&self) -> Result<()> {
        self.host.group().map_or(Ok(()), |device| self.begin_round(device).map(drop))
    }

    /// Runs `f` while no other process or thread leads.
    pub(crate) fn as_leader<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut stall = StallTimeout::new(self.stall_limit(), self.group_progress());
        while !self.control.claim_leader(self.host.client(), |held| self.is_dead(held)) {
            self.check_leader(&mut stall)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = f();
        self.control.release_leader();
        done
    }

    /// Passes the result of a write on. If it failed, every later call fails, too.
    fn latched(&self, written: Result<()>) -> Result<()> {
        if let Err(e) = &written {
            tracing::error!("group log: {e}");
            self.control.abort();
        }
        written
    }

    /// Begins a new incarnation of the group log. The caller has brought all its pieces to log
    /// files.
    pub(crate) fn begin_group(&self, newest_generation: u64) -> Result<()> {
        let Some(device) = self.host.group() else { return Ok(()) };
        let salt = fastrand::u64(..);
        let generation = newest_generation + 1;
        write_header(device, &RawHeader::new(salt, generation, 1, device.sector_bytes()))?;
        self.control.begin_group(GroupPosition {
            salt,
            generation,
            sequence: 1,
            offset: ENTRIES_AT,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory::{TestDirectory, make_lane};

    /// Appends a record that waits for a group commit.
    fn append(service: &Service, lane: &Arc<Lane>, bytes: &[u8]) {
        let appended =
            service.with_writer(lane, |writer, allocator| writer.append(allocator, bytes));
        appended.expect("append");
        lane.words.want(lane.words.appended());
    }

    /// What a leader takes if the records are drained while it reads them, and another stream's
    /// record is stored in their chunk.
    fn piece_of_a_chunk_that_is_used_again() -> Option<Piece> {
        let test_dir = TestDirectory::new();
        let (_, service) = &test_dir.join();
        let [lane, other] = ["a", "b"].map(|name| make_lane(service, name));
        append(service, &lane, b"record");
        service.release(&lane);
        let read = |lane: &Lane, begin: u64, end: u64| {
            let (_, index) = lane.chunks()[0];
            service.drain(lane).expect("drain");
            append(service, &other, b"others");
            assert_eq!(other.chunks()[0].1, index, "the same chunk");
            let mut bytes = vec![0; usize::try_from(end - begin).expect("short")];
            other.read_chunks(begin, &mut bytes)?;
            Ok(bytes)
        };
        service.take_piece_by(&lane, read).expect("no error")
    }

    #[test]
    fn a_piece_whose_chunk_was_freed_does_not_count() {
        assert!(piece_of_a_chunk_that_is_used_again().is_none());
    }

    #[test]
    fn canary_another_streams_record_would_be_taken() {
        let found = fault::with(Fault::PieceOfFreedChunk, piece_of_a_chunk_that_is_used_again);
        assert!(found.is_some());
    }
}
