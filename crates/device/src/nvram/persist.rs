//! Stores pieces one after the other, so that one fence makes them durable.
//!
//! | way | each line | good for |
//! |---|---|---|
//! | cached | stored through the cache, then written back | up to some hundred bytes |
//! | streamed | stored past the cache; a line that is filled only in part, as above | more |
//!
//! `examples/nvram_persist.rs` measures from which length streaming is faster: from 256 to 512
//! bytes on, by a few percent. At 64 KiB it takes a third of the time.

use super::interface::total_bytes;
use super::line::LINE_BYTES;
use super::processor::Processor;

/// Length in bytes from which writes are streamed, unless set otherwise.
pub(super) const STREAM_FROM_BYTES: usize = 512;

/// Stores `pieces` one after the other through the cache, and begins to write back every line of
/// them, each once.
///
/// # Safety
/// The span of all pieces from `to` is mapped and writable, and no Rust reference to it exists.
pub(super) unsafe fn store_cached(processor: &impl Processor, to: *mut u8, pieces: &[&[u8]]) {
    let mut at = to;
    for piece in pieces {
        // SAFETY: the pieces before and this one are in the span.
        unsafe {
            processor.store(at, piece);
            at = at.add(piece.len());
        }
    }
    // SAFETY: the same span.
    unsafe { write_back(processor, to, total_bytes(pieces)) }
}

/// Begins to write back the lines that the span touches.
///
/// # Safety
/// The span is mapped.
unsafe fn write_back(processor: &impl Processor, from: *const u8, len_bytes: usize) {
    if len_bytes == 0 {
        return;
    }
    let before = from.addr() % LINE_BYTES;
    let first = from.wrapping_sub(before);
    for distance in (0..before + len_bytes).step_by(LINE_BYTES) {
        // SAFETY: the line has a byte of the span, and no line is on two pages.
        unsafe { processor.write_back(first.wrapping_add(distance)) }
    }
}

/// Stores `pieces` one after the other past the cache, each line once, and fences.
///
/// # Safety
/// As for [`store_cached`].
pub(super) unsafe fn stream(processor: &impl Processor, to: *mut u8, pieces: &[&[u8]]) {
    let mut streamer = Streamer { processor, at: to, staged: [0; LINE_BYTES], staged_bytes: 0 };
    for piece in pieces {
        // SAFETY: what is pushed in all is what the caller vouches for.
        unsafe { streamer.push(piece) }
    }
    // SAFETY: the same.
    unsafe { streamer.emit() }
    processor.fence();
}

/// Collects pieces that share a line.
struct Streamer<'a, P> {
    processor: &'a P,
    /// The address of the first byte that is not stored yet.
    at: *mut u8,
    /// Bytes of one line that belong there, and their number.
    staged: [u8; LINE_BYTES],
    staged_bytes: usize,
}

impl<P: Processor> Streamer<'_, P> {
    /// # Safety
    /// The span that begins at `at` and is as long as what is staged and `bytes` together is
    /// mapped and writable, and no Rust reference to it exists.
    unsafe fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = LINE_BYTES - (self.at.addr() + self.staged_bytes) % LINE_BYTES;
            if room == LINE_BYTES
                && let Some((line, rest)) = bytes.split_first_chunk()
            {
                // SAFETY: nothing is staged, because a line ends here and full lines were
                // emitted; so `at` is the start of a line, which is in the span.
                unsafe {
                    self.processor.stream_line(self.at, line);
                    self.at = self.at.add(LINE_BYTES);
                }
                bytes = rest;
                continue;
            }
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            self.staged[self.staged_bytes..][..head.len()].copy_from_slice(head);
            self.staged_bytes += head.len();
            bytes = rest;
            if head.len() == room {
                // SAFETY: what is staged was pushed.
                unsafe { self.emit() }
            }
        }
    }

    /// Stores what is staged.
    ///
    /// # Safety
    /// As for `push`, without more bytes.
    unsafe fn emit(&mut self) {
        let staged_bytes = std::mem::take(&mut self.staged_bytes);
        // SAFETY: the span is the caller's to write. A full line was staged from its start.
        unsafe {
            match staged_bytes {
                0 => {}
                LINE_BYTES => self.processor.stream_line(self.at, &self.staged),
                _ => store_cached(self.processor, self.at, &[&self.staged[..staged_bytes]]),
            }
            self.at = self.at.add(staged_bytes);
        }
    }
}

#[cfg(test)]
mod tests;
