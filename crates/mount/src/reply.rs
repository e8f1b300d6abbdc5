//! Where the payload of an answer is built: in the place from which it is sent, on a page boundary,
//! so that file data is read straight there by direct I/O.

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::abi::OutHeader;

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

/// Payload of an answer.
pub struct Reply<'a> {
    room: &'a mut [u8],
    len_bytes: usize,
}

impl<'a> Reply<'a> {
    /// An empty payload with `room` to grow in.
    pub fn new(room: &'a mut [u8]) -> Reply<'a> {
        Reply { room, len_bytes: 0 }
    }

    /// Forgets the payload.
    pub fn clear(&mut self) {
        self.len_bytes = 0;
    }

    /// Bytes of payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.room[..self.len_bytes]
    }

    /// Appends a structure; `EOVERFLOW` when the buffer is full.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.push_bytes(value.as_bytes())
    }

    /// Appends bytes; `EOVERFLOW` when the buffer is full.
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), Errno> {
        let spare = &mut self.room[self.len_bytes..];
        spare.get_mut(..value.len()).ok_or(Errno::OVERFLOW)?.copy_from_slice(value);
        self.len_bytes += value.len();
        Ok(())
    }

    /// The next `len_bytes` bytes, to be filled in place (they hold leftovers of earlier answers)
    /// and then confirmed with [`Reply::advance`].
    pub fn spare(&mut self, len_bytes: usize) -> Result<&mut [u8], Errno> {
        self.room[self.len_bytes..].get_mut(..len_bytes).ok_or(Errno::INVAL)
    }

    /// Takes `len_bytes` of the spare bytes into the payload.
    pub fn advance(&mut self, len_bytes: usize) {
        self.len_bytes += len_bytes;
        assert!(self.len_bytes <= self.room.len(), "a reply beyond its buffer");
    }
}

impl Answer {
    /// The header of an answer whose payload, if it is [`Answer::Done`], has `payload_bytes`
    /// bytes; `None` when there is nothing to send.
    pub(crate) fn header(self, unique: u64, payload_bytes: usize) -> Option<OutHeader> {
        let (error, payload_bytes) = match self {
            Answer::Silent => return None,
            Answer::Done => (0, payload_bytes),
            Answer::Failed(errno) => (-errno.raw_os_error(), 0),
        };
        let len = u32::try_from(HEADER_BYTES + payload_bytes).expect("a reply is about 1 MiB");
        Some(OutHeader { len, error, unique })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_built_piece_by_piece() {
        let mut room = [0; 64];
        let mut reply = Reply::new(&mut room);
        reply.push(&7u32).unwrap();
        reply.spare(3).unwrap().copy_from_slice(b"abc");
        reply.advance(3);
        assert_eq!(reply.payload(), [&7u32.to_ne_bytes()[..], b"abc"].concat());
        let header = Answer::Done.header(9, reply.payload().len()).unwrap();
        assert_eq!((header.len, header.error, header.unique), (23, 0, 9));
    }

    #[test]
    fn an_error_carries_no_payload() {
        let header = Answer::Failed(Errno::NOENT).header(9, 4).unwrap();
        assert_eq!((header.len, header.error, header.unique), (16, -2, 9));
        assert!(Answer::Silent.header(9, 0).is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut room = [0; 8];
        let mut reply = Reply::new(&mut room);
        assert!(reply.spare(9).is_err());
        assert!(reply.push_bytes(&[0; 9]).is_err());
        assert!(reply.push_bytes(&[0; 8]).is_ok());
        assert!(reply.push(&1u8).is_err());
        assert!(reply.spare(usize::MAX).is_err());
    }
}
