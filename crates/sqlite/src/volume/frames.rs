//! Holds back the frames of a transaction on their way to a WAL on a volume, where each write is a
//! request to the volume's process.
//!
//! SQLite writes each frame as a header and a page, and publishes the frames (`mxFrame` in the
//! shared memory) after the `xWrite` of the commit frame has returned. No connection reads frames
//! after `mxFrame`. So the frames are held back until the page of the commit frame comes, and then
//! written with one request. The `xWrite` of that page reports an error.
//!
//! Invariant: only new frames are held, each a header at a frame's offset, after everything that
//! was written since the write lock was taken, and then its page. Any other write goes to the file
//! after what is held. (SQLite writes headers and pages again that the transaction has written
//! before.)

use crate::failure::Failure;
use crate::format::wal::{FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES};

/// Most bytes that may be held.
const HELD_BYTES_MAX: usize = 1 << 20;

/// What happens to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is held.
    Held,
    /// It is held, and everything that is held must be written now.
    Full,
    /// It is not held. First everything that is held must be written, then this write.
    Foreign,
}

/// Frames that are held back.
#[derive(Debug, Default)]
pub struct Frames {
    begin: u64,
    bytes: Vec<u8>,
    /// Set if the last write was the header of a frame. `true`: of a commit frame.
    is_commit: Option<bool>,
    /// End of the writes since the write lock was taken.
    written: u64,
}

impl Frames {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Takes a write of `bytes` at `at`, to a WAL with pages of this size.
    pub fn push(&mut self, at: u64, bytes: &[u8], page_bytes: usize) -> Step {
        let is_next = if self.is_empty() { at >= self.written } else { at == self.end() };
        if !is_next {
            return Step::Foreign;
        }
        match self.is_commit {
            None if bytes.len() == FRAME_HEADER_BYTES && is_frame_offset(at, page_bytes) => {
                self.is_commit = Some(FrameHeader::parse(bytes).commit_pages != 0);
                if self.is_empty() {
                    self.begin = at;
                }
                self.bytes.extend_from_slice(bytes);
                Step::Held
            }
            Some(is_commit) if bytes.len() == page_bytes => {
                self.is_commit = None;
                self.bytes.extend_from_slice(bytes);
                let frame_bytes = FRAME_HEADER_BYTES + page_bytes;
                let is_full = self.bytes.len() + frame_bytes > HELD_BYTES_MAX;
                if is_commit || is_full { Step::Full } else { Step::Held }
            }
            _ => Step::Foreign,
        }
    }

    /// Passes everything that is held to `write`, as one write. If that fails it stays held.
    pub fn settle(
        &mut self,
        write: impl FnOnce(u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        write(self.begin, &self.bytes)?;
        self.wrote(self.end());
        self.forget();
        Ok(())
    }

    /// Records that something else was written up to `end`.
    pub fn wrote(&mut self, end: u64) {
        self.written = self.written.max(end);
    }

    /// Drops everything that is held, because its transaction failed.
    pub fn forget(&mut self) {
        self.bytes.clear();
        self.is_commit = None;
    }

    /// A transaction begins, or a WAL from its start.
    pub fn begin(&mut self) {
        self.written = 0;
    }
}

fn is_frame_offset(at: u64, page_bytes: usize) -> bool {
    let frame_bytes = (FRAME_HEADER_BYTES + page_bytes) as u64;
    at.checked_sub(HEADER_BYTES as u64).is_some_and(|at| at.is_multiple_of(frame_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 512;
    const FRAME: u64 = (FRAME_HEADER_BYTES + PAGE) as u64;

    fn header(commit_pages: u32) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [7; FRAME_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&commit_pages.to_be_bytes());
        bytes
    }

    fn frame_at(number: u64) -> u64 {
        HEADER_BYTES as u64 + number * FRAME
    }

    /// Pushes writes as the VFS does. Returns the writes that reach the file.
    fn apply(frames: &mut Frames, at: u64, bytes: &[u8], file: &mut Vec<(u64, Vec<u8>)>) {
        let step = frames.push(at, bytes, PAGE);
        if step != Step::Held {
            let put = |at, bytes: &[u8]| -> Result<(), Failure> {
                file.push((at, bytes.to_vec()));
                Ok(())
            };
            frames.settle(put).expect("it takes all");
        }
        if step == Step::Foreign {
            file.push((at, bytes.to_vec()));
            frames.wrote(at + bytes.len() as u64);
        }
    }

    #[test]
    fn a_transaction_is_one_write_with_its_commit_frame() {
        let (mut frames, mut file) = (Frames::default(), Vec::new());
        for number in 0..30 {
            apply(&mut frames, frame_at(number), &header(u32::from(number == 29)), &mut file);
            assert!(file.is_empty());
            apply(&mut frames, frame_at(number) + 24, &[1; PAGE], &mut file);
        }
        assert_eq!(file.len(), 1);
        assert_eq!((file[0].0, file[0].1.len() as u64), (frame_at(0), 30 * FRAME));
        assert!(frames.is_empty());
    }

    /// SQLite rewrites headers. The header of the commit frame is the last, and SQLite writes
    /// nothing after it.
    #[test]
    fn rewritten_frames_are_never_held() {
        let (mut frames, mut file) = (Frames::default(), Vec::new());
        for number in 0..3 {
            apply(&mut frames, frame_at(number), &header(u32::from(number == 2)), &mut file);
            apply(&mut frames, frame_at(number) + 24, &[1; PAGE], &mut file);
        }
        apply(&mut frames, frame_at(1) + 24, &[2; PAGE], &mut file);
        apply(&mut frames, frame_at(2), &header(1), &mut file);
        assert!(frames.is_empty());
        assert_eq!(file.len(), 3);
    }

    #[test]
    fn no_more_is_held_than_a_mebibyte_and_a_failure_keeps_it() {
        let (mut frames, mut file) = (Frames::default(), Vec::new());
        for number in 0..5000 {
            apply(&mut frames, frame_at(number), &header(0), &mut file);
            apply(&mut frames, frame_at(number) + 24, &[1; PAGE], &mut file);
        }
        assert!(file.iter().all(|(_, bytes)| bytes.len() <= HELD_BYTES_MAX));
        assert!(file.len() == 2 && !frames.is_empty());
        let failure = Failure::Damaged("no".into());
        assert!(frames.settle(|_, _| Err(failure)).is_err() && !frames.is_empty());
        frames.forget();
        assert!(frames.is_empty());
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        /// For any writes at any offsets: the file ends as if nothing had been held, and nothing is
        /// held after the page of a commit frame.
        #[test]
        fn the_file_is_the_same(
            writes in proptest::collection::vec((0..6_u64, 0..4_usize, 0..3_u32), 1..60),
        ) {
            let (mut frames, mut file) = (Frames::default(), Vec::new());
            let mut wanted = vec![0; frame_at(8) as usize];
            for (value, (number, what, commit)) in (1..).zip(writes) {
                let head = header(commit);
                let (at, pieces): (u64, Vec<Vec<u8>>) = match what {
                    0 => (frame_at(number), vec![head.to_vec()]),
                    1 => (frame_at(number) + 24, vec![vec![value; PAGE]]),
                    2 => (frame_at(number) + 5, vec![vec![value; 24]]),
                    _ => (frame_at(number), vec![head.to_vec(), vec![value; PAGE]]),
                };
                let mut at = at;
                for piece in pieces {
                    wanted[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
                    apply(&mut frames, at, &piece, &mut file);
                    at += piece.len() as u64;
                }
                prop_assert!(what != 3 || commit == 0 || frames.is_empty());
            }
            let mut last = Vec::new();
            frames.settle(|at, bytes| { last.push((at, bytes.to_vec())); Ok(()) }).expect("taken");
            let mut found = vec![0; wanted.len()];
            for (at, bytes) in file.iter().chain(&last) {
                found[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
