//! The group log: one device write makes durable what any number of processes wait for. Only where
//! lanes are ordinary memory.
//!
//! ```text
//! | header A 4 KiB | header B 4 KiB | entry | entry | entry | zeros, or entries of an earlier round |
//!
//! header: magic u64, crc u32, version u32, salt u64, generation u64, sequence u64
//! entry:  magic u32, crc u32, salt u64, sequence u64, length u32, pieces u32,
//!         then for each piece LSN u64, stream u32, length u32; then the pieces' bytes; zeros to a sector
//! ```
//!
//! The newest valid header says which sequence number the entry behind the headers has; entries follow
//! each other with consecutive numbers. A piece is whole records. When the area is full, every stream
//! is drained to its log files, a header says that the next number begins at the front, and the
//! area is used anew. A header's salt is in the CRC of all its entries, and random for each life
//! of the service, so nothing of an earlier life is taken for an entry.
//!
//! One leader writes at a time (`gather` says for whom it waits), so an entry that is found behind one that is not valid proves damage.
//!
//! Invariants: a piece is written once its bytes can change no more (below `appended`), and read while
//! the drainer's word is held, so that its chunk is not lent to another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::{AlignedBuf, BlockDevice};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::broken::{self, Broken};
use crate::lane::Lane;
use crate::patience::Patience;
use crate::service::Service;
use crate::shared::{Client, claim};
use crate::{LogError, Result, StreamId};

pub(crate) const HEADER_BYTES: u64 = 4096;
/// Where the entries begin.
const ENTRIES_AT: u64 = 2 * HEADER_BYTES;
pub(crate) const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"OJGROUP1");
pub(crate) const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"OJGE");
pub(crate) const VERSION: u32 = 1;

/// More bytes of one stream than this are drained instead: written once, to its log file.
const DIRECT_BYTES: u64 = 128 << 10;
/// Bytes of pieces in one entry at most, but for the first.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Bytes of one stream in one entry at most.
const PIECE_BYTES_MAX: u64 = 2 * DIRECT_BYTES;
/// Smallest group log, in bytes.
pub(crate) const GROUP_BYTES_MIN: u64 = 1 << 20;
/// How long a waiter sleeps before it looks whether the leader lives.
const LEADER_WAIT: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) magic: U64,
    pub(crate) crc: U32,
    pub(crate) version: U32,
    pub(crate) salt: U64,
    pub(crate) generation: U64,
    pub(crate) sequence: U64,
}

const _: () = assert!(size_of::<RawHeader>() == 40);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) magic: U32,
    pub(crate) crc: U32,
    pub(crate) salt: U64,
    pub(crate) sequence: U64,
    /// Of the whole entry without the zeros behind it.
    pub(crate) len_bytes: U32,
    pub(crate) piece_count: U32,
}

const _: () = assert!(size_of::<RawEntry>() == 32);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawPiece {
    pub(crate) lsn: U64,
    pub(crate) stream: U32,
    pub(crate) len_bytes: U32,
}

const _: () = assert!(size_of::<RawPiece>() == 16);

/// Records of one stream in the group log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stream: StreamId,
    pub(crate) lsn: u64,
    pub(crate) bytes: Vec<u8>,
}

impl RawHeader {
    fn new(salt: u64, generation: u64, sequence: u64) -> RawHeader {
        let mut raw = RawHeader {
            magic: U64::new(HEADER_MAGIC),
            crc: U32::new(0),
            version: U32::new(VERSION),
            salt: U64::new(salt),
            generation: U64::new(generation),
            sequence: U64::new(sequence),
        };
        raw.crc = U32::new(crc32c::crc32c(raw.as_bytes()));
        raw
    }

    fn is_valid(&self) -> bool {
        let unsummed = RawHeader { crc: U32::new(0), ..*self };
        self.magic.get() == HEADER_MAGIC && self.crc.get() == crc32c::crc32c(unsummed.as_bytes())
    }
}

/// Writes the header of the next generation, durably, where it replaces the older one.
fn write_header(device: &dyn BlockDevice, header: &RawHeader) -> Result<()> {
    let mut block = AlignedBuf::zeroed(HEADER_BYTES as usize);
    block[..size_of::<RawHeader>()].copy_from_slice(header.as_bytes());
    Ok(device.write_durable(header.generation.get() % 2 * HEADER_BYTES, &block)?)
}

/// The newest valid header; `None`: the device is all zeros there.
fn newest_header(device: &dyn BlockDevice) -> Result<Option<RawHeader>> {
    let mut blocks = AlignedBuf::zeroed(ENTRIES_AT as usize);
    device.read(0, &mut blocks)?;
    let headers = [0, HEADER_BYTES as usize]
        .map(|at| RawHeader::read_from_prefix(&blocks[at..]).expect("a block is longer").0);
    let newest = headers.into_iter().filter(RawHeader::is_valid).max_by_key(|h| h.generation.get());
    match newest {
        Some(header) if header.version.get() != VERSION => {
            let text = format!("the group log has version {}", header.version.get());
            Err(LogError::Incompatible(text))
        }
        None if blocks.iter().any(|byte| *byte != 0) => {
            Err(LogError::Incompatible("the group log has no valid header".into()))
        }
        newest => Ok(newest),
    }
}

/// All pieces that the group log holds, in the order they were written.
pub(crate) fn read_pieces(device: &dyn BlockDevice) -> Result<(Vec<Piece>, u64)> {
    let Some(header) = newest_header(device)? else { return Ok((Vec::new(), 0)) };
    let area_bytes = usize::try_from(device.size_bytes() - ENTRIES_AT).expect("fits memory");
    let mut area = AlignedBuf::zeroed(area_bytes);
    device.read(ENTRIES_AT, &mut area)?;
    let sector_bytes = device.sector_bytes();
    let salt = header.salt.get();
    let mut sequence = header.sequence.get();
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(entry) = parse_entry(&area[at..], salt, Some(sequence)) {
        at += entry.len_bytes.next_multiple_of(sector_bytes);
        sequence += 1;
        pieces.extend(entry.pieces);
    }
    let later = (at..area.len()).step_by(sector_bytes).find(|&at| {
        parse_entry(&area[at..], salt, None).is_some_and(|entry| entry.sequence > sequence)
    });
    match later {
        None => Ok((pieces, header.generation.get())),
        Some(later) => Err(LogError::Damaged {
            stream: "(group log)".into(),
            at: crate::Lsn(ENTRIES_AT + at as u64),
            what: format!("a later entry is valid at offset {}", ENTRIES_AT + later as u64),
        }),
    }
}

struct Entry {
    sequence: u64,
    len_bytes: usize,
    pieces: Vec<Piece>,
}

/// The entry at the beginning of `bytes`, if it is valid and has the number that is wanted.
fn parse_entry(bytes: &[u8], salt: u64, wanted: Option<u64>) -> Option<Entry> {
    let (raw, _) = RawEntry::read_from_prefix(bytes).ok()?;
    let sequence = raw.sequence.get();
    let is_ours = raw.magic.get() == ENTRY_MAGIC && raw.salt.get() == salt;
    if !is_ours || wanted.is_some_and(|wanted| wanted != sequence) {
        return None;
    }
    let len_bytes = usize::try_from(raw.len_bytes.get()).ok()?;
    let whole = bytes.get(..len_bytes)?;
    let unsummed = RawEntry { crc: U32::new(0), ..raw };
    let crc = crc32c::crc32c(unsummed.as_bytes());
    let body = whole.get(size_of::<RawEntry>()..)?;
    if crc32c::crc32c_append(crc, body) != raw.crc.get() {
        return None;
    }
    // What follows is what a leader wrote: a contradiction in it makes the entry no entry.
    let table_bytes =
        usize::try_from(raw.piece_count.get()).ok()?.checked_mul(size_of::<RawPiece>())?;
    let (mut table, mut data) = body.split_at_checked(table_bytes)?;
    let mut pieces = Vec::new();
    while let Ok((piece, rest)) = RawPiece::read_from_prefix(table) {
        let (bytes, behind) =
            data.split_at_checked(usize::try_from(piece.len_bytes.get()).ok()?)?;
        let stream = StreamId(piece.stream.get());
        pieces.push(Piece { stream, lsn: piece.lsn.get(), bytes: bytes.to_vec() });
        (table, data) = (rest, behind);
    }
    Some(Entry { sequence, len_bytes, pieces })
}

/// The bytes of an entry, in whole sectors.
fn encode_entry(salt: u64, sequence: u64, pieces: &[Piece], sector_bytes: usize) -> AlignedBuf {
    let data_bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let len_bytes = head_bytes(pieces.len()) + data_bytes;
    let mut buf = AlignedBuf::zeroed(len_bytes.next_multiple_of(sector_bytes));
    let mut at = size_of::<RawEntry>();
    let mut put = |bytes: &[u8]| {
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    for piece in pieces {
        let raw = RawPiece {
            lsn: U64::new(piece.lsn),
            stream: U32::new(piece.stream.0),
            len_bytes: U32::new(u32::try_from(piece.bytes.len()).expect("1 MiB at most")),
        };
        put(raw.as_bytes());
    }
    for piece in pieces {
        put(&piece.bytes);
    }
    let mut raw = RawEntry {
        magic: U32::new(ENTRY_MAGIC),
        crc: U32::new(0),
        salt: U64::new(salt),
        sequence: U64::new(sequence),
        len_bytes: U32::new(u32::try_from(len_bytes).expect("an entry is small")),
        piece_count: U32::new(u32::try_from(pieces.len()).expect("one a stream")),
    };
    let crc = crc32c::crc32c(raw.as_bytes());
    raw.crc = U32::new(crc32c::crc32c_append(crc, &buf[size_of::<RawEntry>()..len_bytes]));
    buf[..size_of::<RawEntry>()].copy_from_slice(raw.as_bytes());
    buf
}

/// Bytes of an entry besides its pieces, at most.
fn table_room(piece_count: usize) -> u64 {
    const SECTOR_BYTES_MAX: usize = 4096;
    (head_bytes(piece_count) + SECTOR_BYTES_MAX) as u64
}

/// Bytes of an entry before its pieces.
fn head_bytes(piece_count: usize) -> usize {
    size_of::<RawEntry>() + piece_count * size_of::<RawPiece>()
}

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
        if end - words.synced().load(Ordering::Acquire).min(end) > DIRECT_BYTES {
            return self.drain(lane);
        }
        words.wanted().fetch_max(end, Ordering::AcqRel);
        let leader = self.control.leader();
        let mut is_late = false;
        let mut patience = Patience::new(self.patience(), self.group_progress());
        loop {
            if words.synced().load(Ordering::Acquire) >= end {
                return Ok(());
            }
            lane.check()?;
            self.check_group()?;
            let epoch = self.control.epoch();
            self.check_leader(&mut patience)?;
            self.control.set_pending(lane.identity().stream.place());
            // Whether a leader lives is asked of the system, so only when it takes its time.
            let is_dead = |held| is_late && self.is_dead(held);
            if let Some(before) = claim(leader, self.host.client(), is_dead) {
                if before != Client::NOBODY {
                    self.control.group_unsure().store(1, Ordering::Release);
                }
                self.gather();
                let led = self.lead();
                leader.store(0, Ordering::Release);
                self.control.advance_epoch();
                led?;
                if words.synced().load(Ordering::Acquire) < end {
                    // It had no place in the entry, or is being drained just now.
                    return self.drain(lane);
                }
            } else if words.synced().load(Ordering::Acquire) < end {
                self.control.wait_epoch(epoch, LEADER_WAIT);
                is_late = self.control.epoch() == epoch;
            }
        }
    }

    /// What shows that a leader works.
    fn group_progress(&self) -> (u32, u64) {
        (self.control.epoch(), self.control.drain_bytes().load(Ordering::Relaxed))
    }

    /// An error when the leader does not go on.
    fn check_leader(&self, patience: &mut Patience<(u32, u64)>) -> Result<()> {
        let who = Client(self.control.leader().load(Ordering::Acquire));
        patience.check(self.group_progress(), who, "write the group log")
    }

    fn check_group(&self) -> Result<()> {
        match self.control.aborted().load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(LogError::Aborted("the group log could not be written".into())),
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
        if !broken::is(Broken::ToldBeforeWritten) {
            self.write_entry(&pieces)?;
        }
        self.gathered(pieces.len(), begin);
        for (lane, piece) in lanes.iter().zip(&pieces) {
            let end = piece.lsn + piece.bytes.len() as u64;
            lane.words.synced().fetch_max(end, Ordering::AcqRel);
        }
        self.control.group_members().fetch_add(pieces.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// What the stream waits for; `None`: nothing, or it is being drained just now.
    fn take_piece(&self, lane: &Lane) -> Result<Option<Piece>> {
        let Some(drainer) = self.claim_drainer(lane) else { return Ok(None) };
        let words = &lane.words;
        let lsn = words.synced().load(Ordering::Acquire);
        let end =
            words.wanted().load(Ordering::Acquire).min(words.appended().load(Ordering::Acquire));
        let count = end.saturating_sub(lsn);
        if count > PIECE_BYTES_MAX {
            // More than whoever waits for it may have asked for: its own drain makes it durable.
            return Ok(None);
        }
        let read = copy_whole_records(lane, lsn, lsn + count);
        drop(drainer);
        let bytes = read.inspect_err(|e| lane.abort(e))?;
        let stream = lane.identity().stream;
        Ok((!bytes.is_empty()).then_some(Piece { stream, lsn, bytes }))
    }

    fn write_entry(&self, pieces: &[Piece]) -> Result<()> {
        let device = self.host.group().expect("only where lanes are ordinary memory");
        let salt = self.control.group_salt().load(Ordering::Acquire);
        let encode = || {
            let sequence = self.control.group_sequence().load(Ordering::Acquire);
            (sequence, encode_entry(salt, sequence, pieces, device.sector_bytes()))
        };
        let (mut sequence, mut entry) = encode();
        let mut offset = self.control.group_offset().load(Ordering::Acquire);
        let is_unsure = self.control.group_unsure().load(Ordering::Acquire) != 0;
        if is_unsure || offset + entry.len() as u64 > device.size_bytes() {
            self.begin_round(device)?;
            (sequence, entry) = encode();
            offset = ENTRIES_AT;
        }
        self.latched(device.write_durable(offset, &entry).map_err(LogError::from))?;
        let next = offset + entry.len() as u64;
        self.control.group_offset().store(next, Ordering::Release);
        self.control.group_sequence().store(sequence + 1, Ordering::Release);
        self.control.group_count().fetch_add(1, Ordering::Relaxed);
        self.control.group_bytes().fetch_add(entry.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the whole area: drains what it holds, and says durably that the next entry is at its
    /// front. That entry's number is one that no leader can have written, even one that died before it
    /// said so.
    fn begin_round(&self, device: &dyn BlockDevice) -> Result<()> {
        for stream in self.owners() {
            if let Some(lane) = self.lane_of(stream)?
                && lane.words.drained().load(Ordering::Acquire)
                    < lane.words.synced().load(Ordering::Acquire)
                && let Err(e) = self.drain(&lane)
                && !lane.is_spoiled()
            {
                return Err(e);
            }
        }
        let salt = self.control.group_salt().load(Ordering::Acquire);
        let sequence = self.control.group_sequence().load(Ordering::Acquire) + 1;
        let generation = self.control.group_header().load(Ordering::Acquire) + 1;
        self.latched(write_header(device, &RawHeader::new(salt, generation, sequence)))?;
        self.control.group_header().store(generation, Ordering::Release);
        self.control.group_sequence().store(sequence, Ordering::Release);
        self.control.group_offset().store(ENTRIES_AT, Ordering::Release);
        self.control.group_unsure().store(0, Ordering::Release);
        Ok(())
    }

    /// Drains all that the group log holds, and begins it anew.
    pub(crate) fn empty_group(&self) -> Result<()> {
        let Some(device) = self.host.group() else { return Ok(()) };
        let leader = self.control.leader();
        let mut patience = Patience::new(self.patience(), self.group_progress());
        while claim(leader, self.host.client(), |held| self.is_dead(held)).is_none() {
            self.check_leader(&mut patience)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let begun = self.begin_round(device);
        leader.store(0, Ordering::Release);
        self.control.advance_epoch();
        begun
    }

    /// After a failed write nobody is told success any more.
    fn latched(&self, written: Result<()>) -> Result<()> {
        if let Err(e) = &written {
            tracing::error!("group log: {e}");
            self.control.aborted().store(1, Ordering::Release);
        }
        written
    }

    /// Begins a new life of the group log, whose pieces are all in log files.
    pub(crate) fn begin_group(&self, newest_generation: u64) -> Result<()> {
        let Some(device) = self.host.group() else { return Ok(()) };
        let salt = fastrand::u64(..);
        let generation = newest_generation + 1;
        write_header(device, &RawHeader::new(salt, generation, 1))?;
        self.control.group_salt().store(salt, Ordering::Release);
        self.control.group_header().store(generation, Ordering::Release);
        self.control.group_sequence().store(1, Ordering::Release);
        self.control.group_offset().store(ENTRIES_AT, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemoryDevice;

    fn pieces(count: u32) -> Vec<Piece> {
        let piece = |number| Piece {
            stream: StreamId(number),
            lsn: u64::from(number) * 1000,
            bytes: vec![number as u8; number as usize * 10],
        };
        (0..count).map(piece).collect()
    }

    /// A device with a header and three entries, and where they begin.
    fn written() -> (MemoryDevice, Vec<u64>) {
        let device = MemoryDevice::new(1 << 20, 512);
        write_header(&device, &RawHeader::new(77, 4, 10)).expect("memory");
        let mut at = ENTRIES_AT;
        let mut starts = Vec::new();
        for number in 0..3 {
            let entry = encode_entry(77, 10 + number, &pieces(number as u32 * 20 + 1), 512);
            device.write_durable(at, &entry).expect("memory");
            starts.push(at);
            at += entry.len() as u64;
        }
        (device, starts)
    }

    fn flip(device: &MemoryDevice, at: u64) {
        let mut sector = vec![0; 512];
        device.read(at, &mut sector).expect("read");
        sector[40] ^= 1;
        device.write(at, &sector).expect("write");
    }

    #[test]
    fn pieces_are_read_back_in_order() {
        let (device, _) = written();
        let (found, generation) = read_pieces(&device).expect("valid");
        assert_eq!(found, [pieces(1), pieces(21), pieces(41)].concat());
        assert_eq!(generation, 4);
        let empty = MemoryDevice::new(1 << 20, 512);
        assert_eq!(read_pieces(&empty).expect("empty"), (vec![], 0));
    }

    #[test]
    fn a_torn_last_entry_is_dropped_and_a_damaged_one_reported() {
        let (device, starts) = written();
        flip(&device, starts[2]);
        assert_eq!(read_pieces(&device).expect("torn").0, [pieces(1), pieces(21)].concat());
        flip(&device, starts[2]);
        flip(&device, starts[1]);
        let error = read_pieces(&device).expect_err("damaged");
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_new_round_and_a_new_life_end_the_old_one() {
        let (device, _) = written();
        write_header(&device, &RawHeader::new(77, 5, 13)).expect("memory");
        assert_eq!(read_pieces(&device).expect("valid"), (vec![], 5));
        write_header(&device, &RawHeader::new(78, 6, 10)).expect("memory");
        assert_eq!(read_pieces(&device).expect("valid"), (vec![], 6), "another salt");
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let device = MemoryDevice::new(1 << 20, 512);
        device.write(0, &[1; 512]).expect("memory");
        assert!(matches!(read_pieces(&device), Err(LogError::Incompatible(_))));
    }
}
