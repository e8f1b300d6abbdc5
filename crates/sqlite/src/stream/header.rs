//! The header of a database's stream: what the last writer leaves for the next one, in 64 bytes of
//! shared memory.
//!
//! The log keeps these bytes with the stream. They are to a stream what the WAL-index header is to
//! a WAL: all writers share them, and a restart of the machine makes them zeros, which is how
//! recovery knows that it is due. (The log does not know what they mean.)
//!
//! A writer changes them only with the stream's lease. A reader needs no lock: the bytes have a
//! CRC32C, so a header that is being written, or whose writer died, is found torn.

use log::STREAM_HEADER_BYTES;

use crate::format::wal::{Checksum, Salts};
use crate::stream::stamp::{NAME_BITS, Stamp};

/// The state of the stream after its last record. It is written only by the process that has the
/// stream's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamHeader {
    /// The generation of the WAL that the log has a base of. Zeros: none.
    pub salts: Salts,
    /// How many of its frames are in the log, or durable in the WAL file.
    pub logged: u32,
    /// Bytes of its pages.
    pub page_bytes: u32,
    /// Checksum of the last of these frames. Without frames, that of the WAL's header.
    pub checksum: Checksum,
    /// The file was made durable with frames that are not logged, and a checkpoint has begun: the
    /// next commit has to make the file durable itself.
    pub is_dirty: bool,
    /// The file is new and was never durable.
    pub is_new: bool,
    /// A sync of the file failed. The disk may lack earlier writes for good, and a later sync does
    /// not report that. So these bytes must be written again.
    pub is_unsynced: bool,
    /// What follows the base.
    pub holds: Holds,
    /// CRC of the database header after the last transaction.
    pub database_header_crc: u32,
    /// LSN of the first record that counts: that of the base, or the LSN in a later record *home*.
    pub base_lsn: u64,
    /// LSN of the last record.
    pub last_lsn: u64,
    /// LSN after the last record. If the stream ends later, the process that appended there died
    /// before it wrote a stream header.
    pub end_lsn: u64,
}

/// What follows a stream's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holds {
    /// Nothing.
    #[default]
    Nothing,
    /// Records of frames.
    Frames,
    /// A period of transactions of pages (`batch`), which the database has.
    Pages,
    /// The same, but the last transaction is being written to the database, or a sync of the
    /// database failed. The database may have parts of these pages, so a replay is due.
    PagesInPart,
}

impl Holds {
    /// Whether a period of transactions of pages has begun.
    pub fn has_pages(self) -> bool {
        matches!(self, Holds::Pages | Holds::PagesInPart)
    }

    fn flags(self) -> u32 {
        match self {
            Holds::Nothing => 0,
            Holds::Frames => FRAMES,
            Holds::Pages => PAGES,
            Holds::PagesInPart => PAGES | APPLYING,
        }
    }

    /// `None`: no writer sets these flags together.
    fn of_flags(flags: u32) -> Option<Holds> {
        let all = [Holds::Nothing, Holds::Frames, Holds::Pages, Holds::PagesInPart];
        all.into_iter().find(|it| it.flags() == flags & (FRAMES | PAGES | APPLYING))
    }
}

/// The content of the stream header's 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedHeader {
    /// Zeros: the machine was restarted, or no process ever wrote. Recovery is due.
    Unset,
    /// A process is writing them now, or died while it wrote them. (Or no version writes such
    /// bytes.) Their content is unknown, and the files are as that process left them.
    Torn,
    /// A header.
    Whole(StreamHeader),
}

const DIRTY: u32 = 2;
const NEW: u32 = 4;
const FRAMES: u32 = 8;
const PAGES: u32 = 16;
const APPLYING: u32 = 32;
const UNSYNCED: u32 = 64;

impl StreamHeader {
    /// Whether the log holds nothing, and no generation of the WAL has begun in it.
    pub fn is_closed(&self) -> bool {
        let nothing = Salts::default();
        self.holds == Holds::Nothing && !self.is_dirty && self.salts == nothing
    }

    /// The bytes, with the stamp of the stream's file.
    pub fn to_bytes(self, stamp: Stamp) -> [u8; STREAM_HEADER_BYTES] {
        let mut bytes = [0; STREAM_HEADER_BYTES];
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let flags = 1
            | flag(self.is_dirty, DIRTY)
            | flag(self.is_new, NEW)
            | flag(self.is_unsynced, UNSYNCED)
            | self.holds.flags()
            | stamp.name << (u32::BITS - NAME_BITS);
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.salts);
        bytes[16..20].copy_from_slice(&self.logged.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.page_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_lsn.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_lsn.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.end_lsn.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.checksum[0].to_le_bytes());
        bytes[52..56].copy_from_slice(&self.checksum[1].to_le_bytes());
        bytes[56..60].copy_from_slice(&self.database_header_crc.to_le_bytes());
        bytes[60..].copy_from_slice(&stamp.file.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the bytes.
    pub fn read(bytes: &[u8; STREAM_HEADER_BYTES]) -> SharedHeader {
        if bytes.iter().all(|byte| *byte == 0) {
            return SharedHeader::Unset;
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        if u32_at(0) != crc32c::crc32c(&bytes[4..]) {
            return SharedHeader::Torn;
        }
        let flags = u32_at(4);
        let Some(holds) = Holds::of_flags(flags) else { return SharedHeader::Torn };
        SharedHeader::Whole(StreamHeader {
            salts: bytes[8..16].try_into().expect("eight"),
            logged: u32_at(16),
            page_bytes: u32_at(20),
            checksum: [u32_at(48), u32_at(52)],
            is_dirty: flags & DIRTY != 0,
            is_new: flags & NEW != 0,
            is_unsynced: flags & UNSYNCED != 0,
            holds,
            database_header_crc: u32_at(56),
            base_lsn: u64_at(24),
            last_lsn: u64_at(32),
            end_lsn: u64_at(40),
        })
    }
}

impl Stamp {
    /// The stamp in the bytes of a stream header.
    pub fn read(bytes: &[u8; STREAM_HEADER_BYTES]) -> Stamp {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        match StreamHeader::read(bytes) {
            SharedHeader::Whole(_) => {
                Stamp { file: u32_at(60), name: u32_at(4) >> (u32::BITS - NAME_BITS) }
            }
            SharedHeader::Unset | SharedHeader::Torn => Stamp::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_torn_one_is_known() {
        assert_eq!(StreamHeader::read(&[0; STREAM_HEADER_BYTES]), SharedHeader::Unset);
        let shared = StreamHeader {
            salts: *b"saltsalt",
            logged: 7,
            page_bytes: 4096,
            checksum: [5, 6],
            is_dirty: true,
            is_unsynced: true,
            holds: Holds::PagesInPart,
            database_header_crc: 8,
            base_lsn: 1 << 40,
            last_lsn: 3,
            ..StreamHeader::default()
        };
        let stamp = Stamp { file: 5, name: 0xab_cdef };
        let mut bytes = shared.to_bytes(stamp);
        assert_eq!(Stamp::read(&bytes), stamp);
        assert_eq!(StreamHeader::read(&bytes), SharedHeader::Whole(shared));
        bytes[17] ^= 1;
        assert_eq!(StreamHeader::read(&bytes), SharedHeader::Torn);
        for holds in [Holds::Nothing, Holds::Frames, Holds::Pages] {
            let shared = StreamHeader { holds, ..shared };
            let bytes = shared.to_bytes(stamp);
            assert_eq!(StreamHeader::read(&bytes), SharedHeader::Whole(shared));
        }
        for flags in [FRAMES | PAGES, APPLYING, FRAMES | APPLYING, FRAMES | PAGES | APPLYING] {
            assert_eq!(Holds::of_flags(flags | DIRTY | NEW), None);
        }
        assert!(
            matches!(
                StreamHeader::read(&StreamHeader::default().to_bytes(Stamp::default())),
                SharedHeader::Whole(_)
            ),
            "not zeros"
        );
    }
}
