//! Group commit: one device write makes durable what any number of processes wait for. Only where
//! lanes are ordinary memory.
//!
//! One leader writes at a time (`gather` says for whom it waits), so an entry that is found behind one that is not valid proves damage.
//!
//! Invariants: a piece is written once its bytes can change no more (below `appended`), and read while
//! the drainer's word is held, so that its chunk is not lent to another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::BlockDevice;

use crate::faults::{self, Fault};
use crate::group::{ENTRIES_AT, Piece, RawHeader, encode_entry, table_room, write_header};
use crate::kept;
use crate::lane::Lane;
use crate::patience::Patience;
use crate::service::Service;
use crate::words::GroupPlace;
use crate::{LogError, Result, StreamId};

/// More bytes of one stream than this are drained instead: written once, to its log file.
const DIRECT_BYTES: u64 = 128 << 10;
/// Bytes of pieces in one entry at most, but for the first.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Bytes of one stream in one entry at most.
const PIECE_BYTES_MAX: u64 = 2 * DIRECT_BYTES;
/// How long a waiter sleeps before it looks whether the leader lives.
const LEADER_WAIT: Duration = Duration::from_millis(20);

/// The records of [`begin`, `end`), verified; `end` is the end of one.
fn copy_whole_records(lane: &Lane, begin: u64, end: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - begin).expect("bounded")];
    lane.read_chunks(begin, &mut bytes)?;
    let mut at = begin;
    while at < end {
        let offset = usize::try_from(at - begin).expect("in the buffer");
        let Some(header) = lane.identity().whole(crate::Lsn(at), &bytes[offset..]) else {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: crate::Lsn(at),
                what: "its lane holds no record where one was published".into(),
            });
        };
        at += header.record_bytes() as u64;
    }
    Ok(bytes)
}

impl Service {
    /// Makes the lane durable up to `end`, together with everybody who waits.
    pub(crate) fn commit_to(&self, lane: &Arc<Lane>, end: u64) -> Result<()> {
        let words = &lane.words;
        let is_large = end - words.synced().min(end) > DIRECT_BYTES;
        words.check()?;
        if is_large {
            return self.drain(lane);
        }
        words.want(end);
        let mut is_late = false;
        let mut patience = Patience::new(self.patience(), self.group_progress());
        loop {
            if words.synced() >= end {
                return Ok(());
            }
            lane.check()?;
            self.check_group()?;
            let epoch = self.control.epoch();
            self.check_leader(&mut patience)?;
            self.control.set_pending(lane.identity().stream.place());
            // Whether a leader lives is asked of the system, so only when it takes its time.
            let is_dead = |held| is_late && self.is_dead(held);
            if self.control.claim_leader(self.host.client(), is_dead) {
                self.gather();
                let led = self.lead();
                self.control.release_leader();
                led?;
                if words.synced() < end {
                    // It had no place in the entry, or is being drained just now.
                    return self.drain(lane);
                }
            } else if words.synced() < end {
                self.control.wait_epoch(epoch, LEADER_WAIT);
                is_late = self.control.epoch() == epoch;
            }
        }
    }

    /// What shows that a leader works.
    fn group_progress(&self) -> (u32, u64) {
        (self.control.epoch(), self.control.drain_bytes())
    }

    /// An error when the leader does not go on.
    fn check_leader(&self, patience: &mut Patience<(u32, u64)>) -> Result<()> {
        let leader = self.control.leader();
        patience.check(self.group_progress(), leader, "write the group log")
    }

    fn check_group(&self) -> Result<()> {
        match self.control.is_aborted() {
            false => self.control.check(),
            true => Err(LogError::Aborted("the group log could not be written".into())),
        }
    }

    /// Writes what everybody waits for in one entry.
    fn lead(&self) -> Result<()> {
        let mut lanes = Vec::new();
        let mut pieces = Vec::new();
        let mut taken_bytes = 0;
        let room_bytes = self.host.group().map_or(0, |device| device.size_bytes() - ENTRIES_AT);
        let places = self.control.take_pending();
        self.took(places.len());
        for place in places {
            let next_bytes = taken_bytes as u64 + PIECE_BYTES_MAX + table_room(pieces.len() + 1);
            let is_full = taken_bytes >= ENTRY_BYTES_MAX || next_bytes > room_bytes;
            if is_full && !pieces.is_empty() {
                self.control.set_pending(place);
                continue;
            }
            // A lane that cannot be opened or read is the trouble of whoever waits for it.
            let Ok(Some(lane)) = self.lane_at(place) else { continue };
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
        if !faults::is(Fault::ToldBeforeWritten) {
            self.write_entry(&pieces)?;
        }
        self.gathered(pieces.len(), begin);
        for (lane, piece) in lanes.iter().zip(&pieces) {
            let end = piece.lsn + piece.bytes.len() as u64;
            lane.words.mark_synced(end);
        }
        self.control.count_members(pieces.len() as u64);
        Ok(())
    }

    /// What the stream waits for; `None`: nothing, or it is being drained just now.
    fn take_piece(&self, lane: &Lane) -> Result<Option<Piece>> {
        let Some(drainer) = self.claim_drainer(lane) else { return Ok(None) };
        let words = &lane.words;
        let lsn = words.synced();
        let end = words.wanted().min(words.appended());
        let count = end.saturating_sub(lsn);
        if count > PIECE_BYTES_MAX {
            // More than whoever waits for it may have asked for: its own drain makes it durable.
            return Ok(None);
        }
        let read = copy_whole_records(lane, lsn, lsn + count);
        drop(drainer);
        let bytes = read.inspect_err(|e| lane.abort_after(e))?;
        let stream = lane.identity().stream;
        Ok((!bytes.is_empty()).then_some(Piece { stream, lsn, bytes }))
    }

    fn write_entry(&self, pieces: &[Piece]) -> Result<()> {
        let device = self.host.group().expect("only where lanes are ordinary memory");
        let encode = |place: &GroupPlace| {
            encode_entry(place.salt, place.sequence, pieces, device.sector_bytes())
        };
        let mut place = self.control.group_place();
        let mut entry = encode(&place);
        let end = place.offset + entry.len() as u64;
        if self.control.is_group_unsure() || end > device.size_bytes() {
            place = self.begin_round(device)?;
            entry = encode(&place);
        }
        // Else it could be written over what others need.
        self.control.check()?;
        self.latched(device.write_durable(place.offset, &entry).map_err(LogError::from))?;
        self.control.entry_written(place, entry.len() as u64);
        Ok(())
    }

    /// Frees the whole area: drains what it holds, and says durably that the next entry is at its
    /// front. That entry's number is one that no leader can have written, even one that died before it
    /// said so.
    fn begin_round(&self, device: &dyn BlockDevice) -> Result<GroupPlace> {
        for stream in self.owners() {
            let lane = match self.lane_of(stream) {
                Ok(Some(lane)) => lane,
                Ok(None) => continue,
                // Its log files are damaged, which is nobody else's trouble. Who has it open may go on.
                Err(LogError::Damaged { .. } | LogError::Incompatible(_)) => {
                    self.keep_unread(stream)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let drained = lane.words.drained();
            let is_needed = drained < lane.words.synced();
            // What the group log holds of a stream whose words are lost is nowhere else.
            lane.words.check()?;
            if is_needed
                && let Err(e) = self.drain(&lane)
                && !lane.is_spoiled()
            {
                if lane.check().is_ok() {
                    return Err(e);
                }
                // Its files cannot be written, which is nobody else's trouble.
                self.keep_synced(&lane)?;
            }
        }
        let GroupPlace { salt, generation, sequence, .. } = self.control.group_place();
        let (generation, sequence) = (generation + 1, sequence + 1);
        self.control.check()?;
        let header = RawHeader::new(salt, generation, sequence, device.sector_bytes());
        self.latched(write_header(device, &header))?;
        let place = GroupPlace { salt, generation, sequence, offset: ENTRIES_AT };
        self.control.begin_group(place);
        Ok(place)
    }

    /// Keeps what was synced of a stream whose log files cannot be read here.
    fn keep_unread(&self, stream: StreamId) -> Result<()> {
        let streams = self.host.streams()?;
        match streams.into_iter().find(|(_, meta)| meta.id == stream.0) {
            Some((name, meta)) => self.keep_synced(&Lane::unread(self.host.clone(), name, meta)?),
            None => Ok(()),
        }
    }

    /// Keeps what was synced of a stream that failed, until it is recovered.
    fn keep_synced(&self, lane: &Lane) -> Result<()> {
        let _drainer = self.wait_for_drainer(lane)?;
        let lsn = lane.words.drained();
        let end = lane.words.synced();
        lane.words.check()?;
        if lane.is_removed() || lsn >= end {
            return Ok(());
        }
        let bytes = match copy_whole_records(lane, lsn, end) {
            Err(LogError::Damaged { at, .. }) => copy_whole_records(lane, lsn, at.0)?,
            // Its lane was found wrong, which is its writer's doing.
            Err(LogError::Incompatible(why)) => {
                tracing::error!("{why}");
                return Ok(());
            }
            read => read?,
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let piece = Piece { stream: lane.identity().stream, lsn, bytes };
        kept::keep(&*self.host.store(&lane.name)?, lane.identity(), &[&piece])
    }

    /// Drains all that the group log holds, and begins it anew.
    pub(crate) fn empty_group(&self) -> Result<()> {
        let Some(device) = self.host.group() else { return Ok(()) };
        let mut patience = Patience::new(self.patience(), self.group_progress());
        while !self.control.claim_leader(self.host.client(), |held| self.is_dead(held)) {
            self.check_leader(&mut patience)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let begun = self.begin_round(device);
        self.control.release_leader();
        begun.map(drop)
    }

    /// After a failed write nobody is told success any more.
    fn latched(&self, written: Result<()>) -> Result<()> {
        if let Err(e) = &written {
            tracing::error!("group log: {e}");
            self.control.abort();
        }
        written
    }

    /// Begins a new life of the group log, whose pieces are all in log files.
    pub(crate) fn begin_group(&self, newest_generation: u64) -> Result<()> {
        let Some(device) = self.host.group() else { return Ok(()) };
        let salt = fastrand::u64(..);
        let generation = newest_generation + 1;
        write_header(device, &RawHeader::new(salt, generation, 1, device.sector_bytes()))?;
        self.control.begin_group(GroupPlace { salt, generation, sequence: 1, offset: ENTRIES_AT });
        Ok(())
    }
}
