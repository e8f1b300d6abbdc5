//! The frames that a connection wrote to the WAL since the last sync, in memory, so that a commit
//! does not read the file.
//!
//! SQLite writes the frames of a transaction one after the other, each as a header and a page.
//! Before the sync it may write some of them again (savepoints, checksums).
//!
//! Invariant: the kept bytes are what the file holds, except for a frame header at their end that
//! waits for its page. After a gap, a failed write, or too many bytes nothing is kept, and the
//! commit reads the file. The file is not told of a rollback, and another connection may then write
//! at the same offsets, so each transaction starts with nothing (`Pending::belongs_to`). The user
//! of these bytes checks that they follow the last logged frame (`tail`).

use std::ops::Range;

use crate::format::wal::{FRAME_HEADER_BYTES, FrameHeader, Header};
use crate::frames::wal_index::Counted;

/// The most bytes that are kept. A larger transaction makes the WAL file itself durable
/// (`wal::commit`).
const KEPT_BYTES_MAX: usize = (1 << 20) + (128 << 10);
/// The most memory that is kept for the next transaction.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// The bytes that a transaction wrote since the last sync.
#[derive(Debug, Default)]
pub struct Pending {
    /// From the first byte written to the last, including gaps.
    written: Range<u64>,
    /// The kept bytes, from the front of `written` on. They are complete if `is_whole`.
    bytes: Vec<u8>,
    is_whole: bool,
    /// The number of the transaction that wrote it.
    transaction: u64,
    /// What SQLite counted when the transaction first wrote, if everything here was written since
    /// then.
    counted: Option<Counted>,
    /// The header of the last frame, at the end of the kept bytes, is not in the file yet.
    is_held: bool,
}

impl Pending {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// From the first byte written to the last, including gaps.
    pub fn written(&self) -> Range<u64> {
        self.written.clone()
    }

    /// Everything that was written, if it was kept. It begins where [`Pending::written`] does.
    pub fn bytes(&self) -> Option<&[u8]> {
        (self.is_whole && !self.is_empty()).then_some(&self.bytes)
    }

    /// The header of the first frame that was written, if it was kept and is at a frame's offset.
    pub fn first_frame(&self, header: &Header) -> Option<FrameHeader> {
        let first = header.frames_before(self.written.start) + 1;
        let is_frame = self.written.start == header.frame_at(first);
        let bytes = self.bytes().filter(|bytes| is_frame && bytes.len() >= FRAME_HEADER_BYTES)?;
        Some(FrameHeader::parse(bytes))
    }

    /// Announces that the next write belongs to transaction `number`. `counted`: what SQLite counts
    /// now.
    pub fn belongs_to(&mut self, number: u64, counted: impl FnOnce() -> Option<Counted>) {
        if self.transaction != number {
            self.clear();
            self.transaction = number;
            self.counted = counted();
        }
    }

    /// Whether SQLite counted exactly `frames` when it began to write this, so that the next frame
    /// continues the chain from the last of them.
    pub fn follows(&self, frames: &Counted) -> bool {
        frames.frames > 0 && self.counted.as_ref() == Some(frames)
    }

    /// Records that `bytes` were written at `at`.
    pub fn wrote(&mut self, at: u64, bytes: &[u8]) {
        if self.is_empty() {
            self.bytes.clear();
            (self.written.start, self.is_whole) = (at, true);
        }
        if self.is_whole {
            self.is_whole = self.keep(at, bytes);
        }
        self.extend(at..at + bytes.len() as u64);
    }

    /// Holds a frame's header until its page is written. `false`: the caller writes the header now.
    /// Called only while nothing is held.
    pub fn hold(&mut self, at: u64, header: &[u8]) -> bool {
        debug_assert!(!self.is_held && header.len() == FRAME_HEADER_BYTES);
        let is_next = self.is_empty() || self.is_whole && at == self.written.end;
        if !is_next || self.bytes.len() + header.len() > KEPT_BYTES_MAX {
            return false;
        }
        self.wrote(at, header);
        self.is_held = true;
        true
    }

    /// The held header and `bytes` as one piece, with its offset, if `bytes` at `at` follow the
    /// header directly. Afterwards nothing is held.
    pub fn with_held(&mut self, at: u64, bytes: &[u8]) -> Option<(u64, &[u8])> {
        let is_kept = self.bytes.len() + bytes.len() <= KEPT_BYTES_MAX;
        if !self.is_held || at != self.written.end || !is_kept {
            return None;
        }
        self.is_held = false;
        let from = self.bytes.len() - FRAME_HEADER_BYTES;
        self.wrote(at, bytes);
        Some((at - FRAME_HEADER_BYTES as u64, &self.bytes[from..]))
    }

    /// The held header, if there is one, and its offset. The caller writes it now.
    pub fn take_held(&mut self) -> Option<(u64, [u8; FRAME_HEADER_BYTES])> {
        let header = *self.bytes.last_chunk().filter(|_| self.is_held)?;
        self.is_held = false;
        Some((self.written.end - header.len() as u64, header))
    }

    fn extend(&mut self, at: Range<u64>) {
        self.written = match self.is_empty() {
            true => at,
            false => self.written.start.min(at.start)..self.written.end.max(at.end),
        };
    }

    /// Records that a write failed, so the content of the file there is unknown.
    pub fn failed(&mut self, at: Range<u64>) {
        self.is_whole = false;
        self.extend(at);
    }

    /// Moves the memory of the kept bytes out, for the caller to swap. Afterwards nothing is kept.
    pub fn take(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.is_held, "it would never be written");
        (self.written, self.is_whole, self.counted) = (0..0, false, None);
        &mut self.bytes
    }

    /// Drops everything: the WAL was synced, or begins again from its start.
    pub fn clear(&mut self) {
        let bytes = self.take();
        bytes.clear();
        bytes.shrink_to(IDLE_BYTES_MAX);
    }

    /// Whether everything is still kept.
    fn keep(&mut self, at: u64, bytes: &[u8]) -> bool {
        let offset = at.checked_sub(self.written.start).and_then(|at| usize::try_from(at).ok());
        let Some(offset) = offset.filter(|&offset| offset <= self.bytes.len()) else {
            return false;
        };
        if offset + bytes.len() > KEPT_BYTES_MAX {
            return false;
        }
        let (over, behind) = bytes.split_at(bytes.len().min(self.bytes.len() - offset));
        self.bytes[offset..offset + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_written_again_replace_the_kept_ones() {
        let mut pending = Pending::default();
        assert_eq!(pending.bytes(), None);
        pending.wrote(32, &[1; 24]);
        pending.wrote(56, &[2; 8]);
        pending.wrote(54, &[3; 4]);
        pending.wrote(62, &[4; 4]);
        let wanted = [&[1; 22][..], &[3; 4], &[2; 4], &[4; 4]].concat();
        assert_eq!((pending.written(), pending.bytes()), (32..66, Some(&wanted[..])));
        pending.clear();
        assert!(pending.is_empty() && pending.bytes().is_none());
    }

    #[test]
    fn gaps_failures_and_too_much_leave_only_where_it_was() {
        let mut pending = Pending::default();
        pending.wrote(32, &[1; 8]);
        pending.wrote(41, &[1; 8]);
        assert_eq!((pending.written(), pending.bytes()), (32..49, None), "a gap");
        pending.clear();
        pending.wrote(32, &[1; 8]);
        pending.wrote(31, &[1; 4]);
        assert_eq!((pending.written(), pending.bytes()), (31..40, None), "before the front");
        pending.clear();
        pending.failed(32..36);
        pending.wrote(33, &[1; 8]);
        assert_eq!((pending.written(), pending.bytes()), (32..41, None), "a failure");
        pending.clear();
        let page = vec![5; 65536];
        for number in 0..64 {
            pending.wrote(32 + number * 65536, &page);
        }
        assert_eq!((pending.written(), pending.bytes()), (32..32 + (4 << 20), None), "too much");
        assert!(pending.bytes.len() <= KEPT_BYTES_MAX);
        pending.clear();
        assert!(pending.bytes.capacity() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn a_header_is_written_with_its_page_or_before_anything_else() {
        let mut pending = Pending::default();
        assert!(pending.hold(32, &[1; 24]));
        let frame = [[1; 24], [2; 24]].concat();
        assert_eq!(pending.with_held(56, &[2; 24]), Some((32, &frame[..])));
        assert_eq!(pending.with_held(80, &[2; 8]), None);
        assert_eq!(pending.take_held(), None);
        assert_eq!((pending.written(), pending.bytes()), (32..80, Some(&frame[..])));
        assert!(!pending.hold(32, &[3; 24]), "it is written again");
        assert!(!pending.hold(81, &[3; 24]), "a gap");
        assert!(pending.hold(80, &[3; 24]));
        assert_eq!(pending.with_held(105, &[4; 8]), None, "not directly after it");
        assert_eq!(pending.take_held(), Some((80, [3; 24])));
        assert_eq!((pending.take_held(), pending.written()), (None, 32..104));
        pending.clear();
        assert!(pending.hold(32, &[1; 24]));
        assert_eq!(pending.with_held(56, &vec![0; KEPT_BYTES_MAX]), None, "too much");
        assert_eq!(pending.take_held(), Some((32, [1; 24])));
        pending.clear();
        pending.wrote(32, &vec![0; KEPT_BYTES_MAX]);
        assert!(!pending.hold(32 + KEPT_BYTES_MAX as u64, &[1; 24]), "too much");
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        /// Wherever writes go, the kept bytes are what the file holds.
        #[test]
        fn as_the_file(
            writes in proptest::collection::vec((0..40_usize, 1..30_usize, 0..9_u8), 1..20)
        ) {
            let (mut pending, mut file) = (Pending::default(), [0; 80]);
            for (value, (at, count, how)) in (1..).zip(writes) {
                let at = if how < 6 { pending.written().end.min(49) as usize } else { at };
                let bytes = vec![value; count];
                file[at..at + count].copy_from_slice(&bytes);
                pending.wrote(at as u64, &bytes);
                let Range { start, end } = pending.written();
                prop_assert!(start <= at as u64 && end >= (at + count) as u64);
                if let Some(kept) = pending.bytes() {
                    prop_assert_eq!(kept, &file[start as usize..end as usize]);
                }
            }
        }
    }
}
