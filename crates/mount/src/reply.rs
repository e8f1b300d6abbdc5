//! The buffer in which an answer is built: header and payload in one piece, so that one `write`
//! sends it.
//!
//! The payload starts on a page boundary and the header stands directly before it: file data is
//! read straight into its place, aligned for direct I/O.

use std::os::fd::OwnedFd;

use device::AlignedBuf;
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::abi::OutHeader;

const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = size_of::<OutHeader>();

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Success: send what is in the [`Reply`].
    Done,
    /// Failure: send this errno alone.
    Failed(Errno),
    /// The kernel expects no answer (FORGET, INTERRUPT).
    Silent,
}

/// Payload of an answer, used again for each request of a worker.
pub struct Reply {
    bytes: AlignedBuf,
    len_bytes: usize,
    /// Where to send an answer before the request is done with.
    early: Option<OwnedFd>,
    is_sent: bool,
}

impl Reply {
    /// A reply with room for `capacity_bytes` of payload.
    pub fn new(capacity_bytes: usize) -> Reply {
        let bytes = AlignedBuf::zeroed(PAGE_BYTES + capacity_bytes);
        Reply { bytes, len_bytes: 0, early: None, is_sent: false }
    }

    /// Lets [`Reply::send_early`] send on `device`; where that cannot be had, it does nothing.
    pub(crate) fn early_on(self, device: &OwnedFd) -> Reply {
        Reply { early: device.try_clone().ok(), ..self }
    }

    /// Forgets the payload.
    pub fn clear(&mut self) {
        self.len_bytes = 0;
        self.is_sent = false;
    }

    /// Answers `unique` with the payload at once, while the server goes on with the request (whose
    /// bytes stay as they are); how it ends is told to nobody then. The transport may be unable to.
    pub fn send_early(&mut self, unique: u64) {
        let Some(device) = self.early.take() else { return };
        if let Some(message) = self.finish(unique, Answer::Done) {
            let sent = rustix::io::write(&device, message);
            // Interrupted, or unmounted: nobody waits for an answer any more. After another error
            // the answer is tried again at the end of the request.
            self.is_sent = matches!(sent, Ok(_) | Err(Errno::NOENT | Errno::NODEV));
        }
        self.early = Some(device);
    }

    /// Bytes of payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[PAGE_BYTES..PAGE_BYTES + self.len_bytes]
    }

    /// Appends a structure; `EOVERFLOW` when the buffer is full.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.push_bytes(value.as_bytes())
    }

    /// Appends bytes; `EOVERFLOW` when the buffer is full.
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), Errno> {
        let start = PAGE_BYTES + self.len_bytes;
        let room = self.bytes.get_mut(start..start + value.len()).ok_or(Errno::OVERFLOW)?;
        room.copy_from_slice(value);
        self.len_bytes += value.len();
        Ok(())
    }

    /// The next `len_bytes` bytes, to be filled in place (they hold leftovers of earlier answers)
    /// and then confirmed with [`Reply::advance`].
    pub fn spare(&mut self, len_bytes: usize) -> Result<&mut [u8], Errno> {
        let start = PAGE_BYTES + self.len_bytes;
        let end = start.checked_add(len_bytes).ok_or(Errno::INVAL)?;
        self.bytes.get_mut(start..end).ok_or(Errno::INVAL)
    }

    /// Takes `len_bytes` of the spare bytes into the payload.
    pub fn advance(&mut self, len_bytes: usize) {
        self.len_bytes += len_bytes;
        assert!(PAGE_BYTES + self.len_bytes <= self.bytes.len(), "a reply beyond its buffer");
    }

    /// The bytes to send for `answer`; `None` when there is nothing to send.
    pub(crate) fn finish(&mut self, unique: u64, answer: Answer) -> Option<&[u8]> {
        if self.is_sent {
            return None;
        }
        let (error, payload_bytes) = match answer {
            Answer::Silent => return None,
            Answer::Done => (0, self.len_bytes),
            Answer::Failed(errno) => (-errno.raw_os_error(), 0),
        };
        let len = u32::try_from(HEADER_BYTES + payload_bytes).expect("a reply is about 1 MiB");
        let start = PAGE_BYTES - HEADER_BYTES;
        let header = OutHeader { len, error, unique };
        self.bytes[start..PAGE_BYTES].copy_from_slice(header.as_bytes());
        Some(&self.bytes[start..PAGE_BYTES + payload_bytes])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn header_and_payload_are_one_piece() {
        let mut reply = Reply::new(64);
        reply.push(&7u32).unwrap();
        reply.spare(3).unwrap().copy_from_slice(b"abc");
        reply.advance(3);
        let bytes = reply.finish(9, Answer::Done).unwrap();
        assert_eq!(bytes[0..4], 23u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 0i32.to_ne_bytes());
        assert_eq!(bytes[8..16], 9u64.to_ne_bytes());
        assert_eq!(&bytes[20..], b"abc");
    }

    #[test]
    fn an_answer_that_was_sent_early_is_not_sent_again() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut reply = Reply::new(64).early_on(&writer);
        for unique in [9, 10] {
            reply.clear();
            reply.push(&7u32).unwrap();
            reply.send_early(unique);
            reply.send_early(unique);
            assert_eq!(reply.finish(unique, Answer::Failed(Errno::IO)), None);
        }
        drop((reply, writer));
        let mut sent = Vec::new();
        std::fs::File::from(reader).read_to_end(&mut sent).unwrap();
        assert_eq!(sent.len(), 2 * 20);
        assert_eq!((sent[8], sent[28], &sent[16..20]), (9, 10, 7u32.as_bytes()));
    }

    #[test]
    fn without_a_way_to_send_early_the_answer_is_sent_at_the_end() {
        let (_, writer) = rustix::pipe::pipe().unwrap();
        for mut reply in [Reply::new(64), Reply::new(64).early_on(&writer)] {
            reply.send_early(9); // the pipe has no reader: EPIPE
            assert!(reply.finish(9, Answer::Done).is_some());
        }
    }

    #[test]
    fn an_error_carries_no_payload() {
        let mut reply = Reply::new(64);
        reply.push(&7u32).unwrap();
        let bytes = reply.finish(9, Answer::Failed(Errno::NOENT)).unwrap();
        assert_eq!(bytes.len(), 16);
        assert_eq!(bytes[4..8], (-2i32).to_ne_bytes());
        assert_eq!(reply.finish(9, Answer::Silent), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut reply = Reply::new(8);
        assert!(reply.spare(4097).is_err());
        assert!(reply.push_bytes(&[0; 9]).is_err());
        assert!(reply.push_bytes(&[0; 8]).is_ok());
        assert!(reply.push(&1u8).is_err());
    }
}
