//! One record of a stream, the same bytes in a lane, in the group log and in a log file.
//!
//! ```text
//! | length, flags u32 | crc u32 | stream u32 | low half of LSN u32 | USN u64 | payload | 0 to 3 zeros |
//!   bits 0-24 length                                                          to a multiple of 4
//!   bit 31   follows unsynced records
//! ```
//!
//! The CRC32C covers the stream's salt, the whole LSN, the header without the CRC, and the payload.
//! So a record certifies itself. Bytes at another place, bytes of a stream that was removed, and
//! bytes that were stored in part are not a record.
//!
//! # Torn or damaged
//!
//! Recovery takes records up to the first bytes that are not a record. These bytes are *torn* if
//! nothing that was appended later can have been acknowledged, and *damaged* otherwise. A record
//! that was appended when all records before it were durable does not carry the flag
//! [`FOLLOWS_UNSYNCED`]. If such a record is found after the bytes, they were durable once, and are
//! damaged. A record with the flag proves nothing, because a crash keeps any subset of what was not
//! synced.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Lsn, StreamId, Usn};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 24;

/// Most bytes of a record's payload: 16 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Records begin at multiples of this.
pub(crate) const ALIGN_BYTES: usize = 4;

/// Earlier records of the stream were not durable when this one was appended.
pub(crate) const FOLLOWS_UNSYNCED: u32 = 1 << 31;

const LENGTH_MASK: u32 = (1 << 25) - 1;

/// The header as it is stored.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) length_flags: U32,
    pub(crate) crc: U32,
    pub(crate) stream: U32,
    pub(crate) lsn_low: U32,
    pub(crate) usn: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// What distinguishes the records of a stream from those of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) stream: StreamId,
    /// A random number, chosen when the stream was made.
    pub(crate) salt: u64,
}

/// A record's header. Its form was checked, its payload was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) payload_bytes: usize,
    pub(crate) follows_unsynced: bool,
    pub(crate) usn: Usn,
    crc: u32,
}

impl Header {
    /// Bytes from this record's beginning to the next one's.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.payload_bytes)
    }
}

/// Bytes that a record with such a payload takes.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN_BYTES)
}

impl Identity {
    fn crc(&self, lsn: Lsn, header: &RawHeader, payload: &[u8]) -> u32 {
        let unsummed = RawHeader { crc: U32::new(0), ..*header };
        // One piece: each call costs, and most records are short.
        let mut before = [0; 16 + HEADER_BYTES];
        before[..8].copy_from_slice(&self.salt.to_le_bytes());
        before[8..16].copy_from_slice(&lsn.0.to_le_bytes());
        before[16..].copy_from_slice(unsummed.as_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&before), payload)
    }

    /// The header of a record with this payload. Panics if the payload is too long.
    pub(crate) fn seal(
        &self,
        lsn: Lsn,
        usn: Usn,
        payload: &[u8],
        flags: u32,
    ) -> [u8; HEADER_BYTES] {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "{} bytes in one record", payload.len());
        let length = u32::try_from(payload.len()).expect("16 MiB at most");
        let mut header = RawHeader {
            length_flags: U32::new(length | flags),
            crc: U32::new(0),
            stream: U32::new(self.stream.0),
            lsn_low: U32::new(low_half(lsn)),
            usn: U64::new(usn.0),
        };
        header.crc = U32::new(self.crc(lsn, &header, payload));
        zerocopy::transmute!(header)
    }

    /// The header of the record at `lsn`. `None`: these bytes cannot be a header.
    pub(crate) fn header(&self, lsn: Lsn, bytes: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::read_from_prefix(bytes).ok()?;
        let length_flags = raw.length_flags.get();
        let payload_bytes = usize::try_from(length_flags & LENGTH_MASK).ok()?;
        let is_ours = raw.stream.get() == self.stream.0 && raw.lsn_low.get() == low_half(lsn);
        let is_known = length_flags & !(LENGTH_MASK | FOLLOWS_UNSYNCED) == 0;
        (is_ours && is_known && payload_bytes <= PAYLOAD_BYTES_MAX).then_some(Header {
            payload_bytes,
            follows_unsynced: length_flags & FOLLOWS_UNSYNCED != 0,
            usn: Usn(raw.usn.get()),
            crc: raw.crc.get(),
        })
    }

    /// Whether `bytes` are all of a valid record. They begin with the header that was parsed to
    /// `header`.
    pub(crate) fn is_whole(&self, lsn: Lsn, header: &Header, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.get(..HEADER_BYTES + header.payload_bytes) else { return false };
        let (raw, payload) = RawHeader::read_from_prefix(bytes).expect("longer than a header");
        self.crc(lsn, &raw, payload) == header.crc
    }

    /// The record at the beginning of `bytes`, if they hold all of a valid one.
    pub(crate) fn whole(&self, lsn: Lsn, bytes: &[u8]) -> Option<Header> {
        self.header(lsn, bytes).filter(|header| self.is_whole(lsn, header, bytes))
    }
}

fn low_half(lsn: Lsn) -> u32 {
    (lsn.0 & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Identity = Identity { stream: StreamId(7), salt: 0x1122_3344_5566_7788 };

    fn record(lsn: Lsn, payload: &[u8], flags: u32) -> Vec<u8> {
        let mut bytes = OURS.seal(lsn, Usn(9), payload, flags).to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(record_bytes(payload.len()), 0);
        bytes
    }

    #[test]
    fn golden_bytes() {
        let golden = [
            0x03, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x10, 0x00,
            0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, b'a', b'b', b'c', 0x00,
        ];
        let mut found = record(Lsn(0x1_0000_0010), b"abc", FOLLOWS_UNSYNCED);
        let crc = u32::from_le_bytes(found[4..8].try_into().expect("four"));
        found[4..8].fill(0);
        assert_eq!(found, golden);
        let mut summed = OURS.salt.to_le_bytes().to_vec();
        summed.extend_from_slice(&0x1_0000_0010u64.to_le_bytes());
        summed.extend_from_slice(&golden[..27]);
        assert_eq!(crc, crc32c::crc32c(&summed), "salt, LSN, header, payload without its end");
    }

    #[test]
    fn a_record_is_valid_at_its_place_and_nowhere_else() {
        let bytes = record(Lsn(64), b"hello", 0);
        let header = OURS.whole(Lsn(64), &bytes).expect("valid");
        assert_eq!((header.payload_bytes, header.follows_unsynced), (5, false));
        assert_eq!((header.usn, header.record_bytes()), (Usn(9), 32));
        assert!(OURS.whole(Lsn(68), &bytes).is_none(), "another place");
        assert!(OURS.whole(Lsn(64 + (1 << 32)), &bytes).is_none(), "the same low half");
        let others =
            [Identity { stream: StreamId(8), ..OURS }, Identity { salt: OURS.salt + 1, ..OURS }];
        assert!(others.iter().all(|other| other.whole(Lsn(64), &bytes).is_none()));
        assert!(OURS.whole(Lsn(64), &bytes[..28]).is_none(), "cut");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = record(Lsn(0), b"payload", 0);
        for bit in 0..(HEADER_BYTES + 7) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(OURS.whole(Lsn(0), &flipped).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_no_record() {
        let first = Identity { stream: StreamId(0), salt: 0 };
        assert!(first.whole(Lsn(0), &[0; 64]).is_none());
    }
}
