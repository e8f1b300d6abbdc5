//! The whole transactions that follow the last logged frame: a chain of frames whose checksums
//! continue from it.
//!
//! The frames come from memory if this connection has just written all of them, otherwise from the
//! file. The checksums of frames from memory are SQLite's own, of the same bytes. They continue
//! from the last frame that SQLite counted when the transaction began. If that is the last logged
//! frame, the chain is whole and no page is summed again. It is not if another process wrote over
//! the logged frames (`wal::tests` does that). In that case, and if SQLite's count is unknown, the
//! chain is computed.

use std::borrow::Cow;

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::wal::{Checksum, FRAME_HEADER_BYTES, FrameHeader, Header};
use crate::frames::pending::Pending;
use crate::frames::wal_index::Counted;
use crate::stream::header::StreamHeader;

/// With more bytes of frames than this at once, the WAL file itself is made durable: for a large
/// write that costs the same.
pub const DIRECT_BYTES: u64 = 1 << 20;
/// The frames after the last logged one, up to the last that ends a transaction.
pub struct Tail<'a> {
    /// Checksum of the frame before the first.
    pub before: Checksum,
    /// The last frame; it ends a transaction.
    pub last: u32,
    /// Its checksum.
    pub checksum: Checksum,
    /// The frames. If they come from the file, only the first ones, not much more than
    /// [`DIRECT_BYTES`].
    pub frames: Cow<'a, [u8]>,
}

impl<'a> Tail<'a> {
    /// Follows the chain to the end of what `pending` says; `None` if no transaction ends there.
    pub fn find(
        header: &Header,
        wal: &Real,
        shared: &StreamHeader,
        pending: &'a Pending,
    ) -> Result<Option<Tail<'a>>, Failure> {
        let (logged, before) = match shared.salts == header.salts && shared.logged > 0 {
            true => (shared.logged, shared.checksum),
            false => (0, header.checksum),
        };
        let written = pending.written();
        if header.frames_before(written.end) <= logged {
            return Ok(None);
        }
        let mut chain =
            Chain { header, before, checksum: before, number: logged, last: None, is_known: false };
        match pending.bytes() {
            Some(kept) if written.start == header.frame_at(logged + 1) => {
                let frames = Counted { salts: header.salts, frames: logged, checksum: before };
                chain.is_known = pending.follows(&frames);
                chain.is_known |= faults::is(Fault::TrustsPending);
                Ok(chain.of_kept(kept))
            }
            _ => chain.of_file(wal, header.frames_before(written.end)),
        }
    }
}

/// The chain as far as it was followed.
struct Chain<'h> {
    header: &'h Header,
    before: Checksum,
    checksum: Checksum,
    number: u32,
    /// The last frame that ends a transaction, and its checksum.
    last: Option<(u32, Checksum)>,
    /// Whether the frames are known to be a chain, each with its checksum.
    is_known: bool,
}

impl Chain<'_> {
    /// Whether `frame` continues the chain.
    fn takes(&mut self, frame: &[u8]) -> bool {
        let parsed = FrameHeader::parse(frame);
        let checksum = match self.is_known {
            true => parsed.checksum,
            false => self.header.frame_checksum(self.checksum, frame),
        };
        if parsed.salts != self.header.salts || parsed.checksum != checksum || parsed.page == 0 {
            return false;
        }
        (self.checksum, self.number) = (checksum, self.number + 1);
        if parsed.commit_pages > 0 {
            self.last = Some((self.number, checksum));
        }
        true
    }

    fn of_kept(mut self, kept: &[u8]) -> Option<Tail<'_>> {
        let frame_bytes = FRAME_HEADER_BYTES + self.header.page_bytes;
        let first = self.number + 1;
        let _ = kept.chunks_exact(frame_bytes).all(|frame| self.takes(frame));
        let (last, checksum) = self.last?;
        let frames = &kept[..(last + 1 - first) as usize * frame_bytes];
        // The fault must be found by its consequences.
        debug_assert!(
            faults::is(Fault::TrustsPending)
                || checksum
                    == frames
                        .chunks_exact(frame_bytes)
                        .fold(self.before, |sum, frame| self.header.frame_checksum(sum, frame)),
            "SQLite's checksums are of other bytes"
        );
        Some(Tail { before: self.before, last, checksum, frames: Cow::Borrowed(frames) })
    }

    fn of_file<'a>(mut self, wal: &Real, end: u32) -> Result<Option<Tail<'a>>, Failure> {
        let (mut frames, mut committed_bytes) = (Vec::new(), 0);
        let mut frame = vec![0; self.header.page_bytes + FRAME_HEADER_BYTES];
        for number in self.number + 1..=end {
            wal.read(self.header.frame_at(number), &mut frame)?;
            if !self.takes(&frame) {
                break;
            }
            if frames.len() as u64 <= DIRECT_BYTES {
                frames.extend_from_slice(&frame);
            }
            if self.last.is_some_and(|(last, _)| last == number) {
                committed_bytes = frames.len();
            }
        }
        frames.truncate(committed_bytes);
        let frames = Cow::Owned(frames);
        let before = self.before;
        Ok(self.last.map(|(last, checksum)| Tail { before, last, checksum, frames }))
    }
}
