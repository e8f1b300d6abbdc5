//! The group log's layout: the bytes of one device write for many streams.
//!
//! ```text
//! | header A 4 KiB | header B 4 KiB | entry | entry | entry | zeros, or entries of an earlier round |
//!
//! header: magic u64, crc u32, version u32, salt u64, generation u64, sequence u64, step u32
//! entry:  magic u32, crc u32, salt u64, sequence u64, length u32, pieces u32,
//!         then for each piece LSN u64, stream u32, length u32; then the pieces' bytes;
//!         zeros to the step
//! ```
//!
//! The newest valid header has the sequence number of the first entry. Entries follow each other
//! with consecutive numbers. A piece consists of whole records.
//!
//! When the area is full, every stream is drained to its log files. Then a new header says that the
//! next number begins at the front, and the area is used again.
//!
//! The salt of the header is in the CRC of all its entries, and is random for each incarnation of
//! the service. So no byte of an earlier incarnation is taken for an entry. The step is the sector
//! size of the device that the entries were written to. A device with other sectors can read them.

use device::{AlignedBuf, BlockDevice};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{LogError, Result, StreamId};

pub(crate) const HEADER_BYTES: u64 = 4096;
/// Where the entries begin.
pub(crate) const ENTRIES_AT: u64 = 2 * HEADER_BYTES;
pub(crate) const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"OJGROUP1");
pub(crate) const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"OJGE");
pub(crate) const VERSION: u32 = 2;

/// Sectors that a device may have, in bytes.
const SECTOR_BYTES: std::ops::RangeInclusive<usize> = 512..=4096;
/// Sizes that a group log may have, in bytes. All of it is read at once.
pub(crate) const GROUP_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(256 << 20);
/// Most bytes of an entry that is read. The longest that is written has about half of it. A bound
/// is needed because an entry may have to be looked for at each sector.
const READ_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) magic: U64,
    pub(crate) crc: U32,
    pub(crate) version: U32,
    pub(crate) salt: U64,
    pub(crate) generation: U64,
    pub(crate) sequence: U64,
    /// Entries begin at multiples of this many bytes.
    pub(crate) step_bytes: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 44);

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) magic: U32,
    pub(crate) crc: U32,
    pub(crate) salt: U64,
    pub(crate) sequence: U64,
    /// Length of the whole entry, without the zeros after it.
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
    pub(crate) fn new(salt: u64, generation: u64, sequence: u64, step_bytes: usize) -> RawHeader {
        let mut raw = RawHeader {
            magic: U64::new(HEADER_MAGIC),
            crc: U32::new(0),
            version: U32::new(VERSION),
            salt: U64::new(salt),
            generation: U64::new(generation),
            sequence: U64::new(sequence),
            step_bytes: U32::new(u32::try_from(step_bytes).expect("a sector is small")),
        };
        raw.crc = U32::new(crc32c::crc32c(raw.as_bytes()));
        raw
    }

    /// An error if no device has such sectors.
    fn step_bytes(&self) -> Result<usize> {
        match usize::try_from(self.step_bytes.get()) {
            Ok(bytes) if bytes.is_power_of_two() && SECTOR_BYTES.contains(&bytes) => Ok(bytes),
            _ => {
                let text = format!("the group log has steps of {} bytes", self.step_bytes.get());
                Err(LogError::Incompatible(text))
            }
        }
    }

    fn is_valid(&self) -> bool {
        let unsummed = RawHeader { crc: U32::new(0), ..*self };
        self.magic.get() == HEADER_MAGIC && self.crc.get() == crc32c::crc32c(unsummed.as_bytes())
    }
}

/// Writes the header of the next generation, durably, where it replaces the older one.
pub(crate) fn write_header(device: &dyn BlockDevice, header: &RawHeader) -> Result<()> {
    let mut block = AlignedBuf::zeroed(HEADER_BYTES as usize);
    block[..size_of::<RawHeader>()].copy_from_slice(header.as_bytes());
    Ok(device.write_durable(header.generation.get() % 2 * HEADER_BYTES, &block)?)
}

/// The newest valid header; `None`: the device is all zeros there.
pub(crate) fn newest_header(device: &dyn BlockDevice) -> Result<Option<RawHeader>> {
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
    let header = newest_header(device)?;
    let area_bytes = usize::try_from(device.size_bytes() - ENTRIES_AT).expect("fits memory");
    let mut area = AlignedBuf::zeroed(area_bytes);
    device.read(ENTRIES_AT, &mut area)?;
    let Some(header) = header else {
        // The first entry is written when a header is durable.
        return match area.iter().all(|byte| *byte == 0) {
            true => Ok((Vec::new(), 0)),
            false => Err(LogError::Incompatible("the group log has no header".into())),
        };
    };
    let step_bytes = header.step_bytes()?;
    let salt = header.salt.get();
    let mut sequence = header.sequence.get();
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(entry) = parse_entry(&area[at..], salt, Some(sequence)) {
        at += entry.len_bytes.next_multiple_of(step_bytes);
        sequence += 1;
        pieces.extend(entry.pieces);
    }
    let later = (at..area.len()).step_by(step_bytes).find(|&at| {
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

/// The entry at the beginning of `bytes`. `None`: it is not valid, or does not have the wanted
/// number.
fn parse_entry(bytes: &[u8], salt: u64, wanted: Option<u64>) -> Option<Entry> {
    let (raw, _) = RawEntry::read_from_prefix(bytes).ok()?;
    let sequence = raw.sequence.get();
    let is_ours = raw.magic.get() == ENTRY_MAGIC && raw.salt.get() == salt;
    if !is_ours || wanted.is_some_and(|wanted| wanted != sequence) {
        return None;
    }
    let len_bytes = usize::try_from(raw.len_bytes.get()).ok()?;
    if len_bytes > READ_BYTES_MAX {
        return None;
    }
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
        let (stream, lsn) = (StreamId(piece.stream.get()), piece.lsn.get());
        if lsn.checked_add(bytes.len() as u64).is_none_or(|end| end > u64::MAX / 2) {
            return None;
        }
        pieces.push(Piece { stream, lsn, bytes: bytes.to_vec() });
        (table, data) = (rest, behind);
    }
    Some(Entry { sequence, len_bytes, pieces })
}

/// The bytes of an entry, filled up to whole sectors.
pub(crate) fn encode_entry(
    salt: u64,
    sequence: u64,
    pieces: &[Piece],
    sector_bytes: usize,
) -> AlignedBuf {
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

/// Most bytes of an entry without the bytes of its pieces.
pub(crate) fn table_room(piece_count: usize) -> u64 {
    (head_bytes(piece_count) + SECTOR_BYTES.end()) as u64
}

/// Bytes of an entry before its pieces.
fn head_bytes(piece_count: usize) -> usize {
    size_of::<RawEntry>() + piece_count * size_of::<RawPiece>()
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
        written_with(512)
    }

    fn written_with(sector_bytes: usize) -> (MemoryDevice, Vec<u64>) {
        let device = MemoryDevice::new(1 << 20, sector_bytes);
        write_header(&device, &RawHeader::new(77, 4, 10, sector_bytes)).expect("memory");
        let mut at = ENTRIES_AT;
        let mut starts = Vec::new();
        for number in 0..3 {
            let entry =
                encode_entry(77, 10 + number, &pieces(number as u32 * 20 + 1), sector_bytes);
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

    /// They used to be looked for at the sectors of the device that they were read from.
    #[test]
    fn regression_entries_are_found_on_other_sectors() {
        for (written, read) in [(512, 4096), (4096, 512)] {
            let (device, starts) = written_with(written);
            let copy = |device: &MemoryDevice| MemoryDevice::from_bytes(device.to_bytes(), read);
            let (found, _) = read_pieces(&copy(&device)).expect("valid");
            assert_eq!(found, [pieces(1), pieces(21), pieces(41)].concat(), "{written} to {read}");
            let mut sector = vec![0; written];
            device.read(starts[1], &mut sector).expect("read");
            sector[40] ^= 1;
            device.write(starts[1], &sector).expect("write");
            let error = read_pieces(&copy(&device)).expect_err("damaged");
            assert!(matches!(error, LogError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn impossible_steps_are_refused() {
        for step_bytes in [0, 1, 256, 768, 8192] {
            let device = MemoryDevice::new(1 << 20, 512);
            write_header(&device, &RawHeader::new(77, 4, 10, step_bytes)).expect("memory");
            assert!(matches!(read_pieces(&device), Err(LogError::Incompatible(_))));
        }
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
        write_header(&device, &RawHeader::new(77, 5, 13, 512)).expect("memory");
        assert_eq!(read_pieces(&device).expect("valid"), (vec![], 5));
        write_header(&device, &RawHeader::new(78, 6, 10, 512)).expect("memory");
        assert_eq!(read_pieces(&device).expect("valid"), (vec![], 6), "another salt");
    }

    /// Its checksum would be computed for each sector of a planted group log.
    #[test]
    fn regression_an_entry_that_is_too_long_is_none() {
        let piece = |len_bytes| [Piece { stream: StreamId(1), lsn: 0, bytes: vec![7; len_bytes] }];
        for (len_bytes, count) in [(3 << 20, 1), (READ_BYTES_MAX, 0)] {
            let device = MemoryDevice::new(8 << 20, 512);
            write_header(&device, &RawHeader::new(77, 4, 10, 512)).expect("memory");
            let entry = encode_entry(77, 10, &piece(len_bytes), 512);
            device.write_durable(ENTRIES_AT, &entry).expect("memory");
            assert_eq!(read_pieces(&device).expect("valid").0.len(), count, "{len_bytes}");
        }
    }

    #[test]
    fn regression_a_piece_where_none_can_be_makes_the_entry_none() {
        for (lsn, count) in [(u64::MAX / 2 - 100, 1), (u64::MAX / 2, 0), (u64::MAX, 0)] {
            let device = MemoryDevice::new(1 << 20, 512);
            write_header(&device, &RawHeader::new(77, 4, 10, 512)).expect("memory");
            let piece = Piece { stream: StreamId(1), lsn, bytes: vec![7; 100] };
            device.write_durable(ENTRIES_AT, &encode_entry(77, 10, &[piece], 512)).expect("memory");
            assert_eq!(read_pieces(&device).expect("valid").0.len(), count, "{lsn}");
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let device = MemoryDevice::new(1 << 20, 512);
        device.write(0, &[1; 512]).expect("memory");
        assert!(matches!(read_pieces(&device), Err(LogError::Incompatible(_))));
    }
}
