//! What whoever wrote a database's stream last leaves for the next, in the 64 bytes of shared memory that the
//! log keeps with a stream. Zeros after a restart of the machine, which is how recovery knows.

use log::NOTE_BYTES;

use crate::format::wal::{Checksum, Salts};

/// Everything as of the last record. Written under the stream's lease only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Note {
    /// The generation that the log knows; zeros: none.
    pub salts: Salts,
    /// Frames of it that are logged or durable in the file.
    pub logged: u32,
    /// Bytes of its pages.
    pub page_bytes: u32,
    /// Checksum of the last of them, or of the header.
    pub checksum: Checksum,
    /// The file was made durable with frames that are not logged, and a checkpoint has begun: the
    /// next commit has to make the file durable itself.
    pub is_dirty: bool,
    /// The file is new and was never durable.
    pub is_new: bool,
    /// A sync of the file failed: the disk may lack what was written before it for good, and no sync says anything of
    /// that until it is written again.
    pub is_unsynced: bool,
    /// There are frames behind the base.
    pub has_frames: bool,
    /// A period of transactions of pages has begun (`batch`).
    pub has_pages: bool,
    /// Pages of the last of them are being written to the database, or a sync of it failed: it may have any of them in
    /// part, and replay is due.
    pub is_applying: bool,
    /// CRC of the database's header behind the last of them.
    pub front_crc: u32,
    /// LSN before which nothing counts: of the base, or what a record *home* behind it says.
    pub base_lsn: u64,
    /// LSN of the last record.
    pub last_lsn: u64,
    /// Behind it. When the stream goes on, whoever appended there died before leaving a note.
    pub end_lsn: u64,
}

/// What a stream's 64 bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The machine was restarted, or nobody ever wrote: recovery is due.
    Nothing,
    /// Somebody died while writing it: nothing is known, but the files are as they were left.
    Torn,
    /// A note.
    Note(Note),
}

const DIRTY: u32 = 2;
const NEW: u32 = 4;
const FRAMES: u32 = 8;
const PAGES: u32 = 16;
const APPLYING: u32 = 32;
const UNSYNCED: u32 = 64;

impl Note {
    /// The bytes to leave.
    pub fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let flags = 1
            | flag(self.is_dirty, DIRTY)
            | flag(self.is_new, NEW)
            | flag(self.has_frames, FRAMES)
            | flag(self.has_pages, PAGES)
            | flag(self.is_applying, APPLYING)
            | flag(self.is_unsynced, UNSYNCED);
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.salts);
        bytes[16..20].copy_from_slice(&self.logged.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.page_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base_lsn.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_lsn.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.end_lsn.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.checksum[0].to_le_bytes());
        bytes[52..56].copy_from_slice(&self.checksum[1].to_le_bytes());
        bytes[56..60].copy_from_slice(&self.front_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What the bytes of a stream say.
    pub fn find(bytes: &[u8; NOTE_BYTES]) -> Found {
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        if u32_at(0) != crc32c::crc32c(&bytes[4..]) {
            return Found::Torn;
        }
        let flags = u32_at(4);
        Found::Note(Note {
            salts: bytes[8..16].try_into().expect("eight"),
            logged: u32_at(16),
            page_bytes: u32_at(20),
            checksum: [u32_at(48), u32_at(52)],
            is_dirty: flags & DIRTY != 0,
            is_new: flags & NEW != 0,
            has_frames: flags & FRAMES != 0,
            has_pages: flags & PAGES != 0,
            is_applying: flags & APPLYING != 0,
            is_unsynced: flags & UNSYNCED != 0,
            front_crc: u32_at(56),
            base_lsn: u64_at(24),
            last_lsn: u64_at(32),
            end_lsn: u64_at(40),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_torn_one_is_known() {
        assert_eq!(Note::find(&[0; NOTE_BYTES]), Found::Nothing);
        let note = Note {
            salts: *b"saltsalt",
            logged: 7,
            page_bytes: 4096,
            checksum: [5, 6],
            is_dirty: true,
            has_frames: true,
            has_pages: true,
            is_applying: true,
            is_unsynced: true,
            front_crc: 8,
            base_lsn: 1 << 40,
            last_lsn: 3,
            ..Note::default()
        };
        let mut bytes = note.to_bytes();
        assert_eq!(Note::find(&bytes), Found::Note(note));
        bytes[17] ^= 1;
        assert_eq!(Note::find(&bytes), Found::Torn);
        assert!(matches!(Note::find(&Note::default().to_bytes()), Found::Note(_)), "not zeros");
    }
}
