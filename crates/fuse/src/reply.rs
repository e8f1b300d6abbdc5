//! The answer to a request. Its payload is built in the buffer from which it is sent, so that file
//! data are read straight there, also by direct I/O.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

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
    /// [`Reply::block_in_place`] could not block, and nothing was changed. The transport serves the
    /// request again when one of the blocked threads is back. Through io_uring the request fails
    /// with `EBUSY`.
    Later,
    /// An [`Answerer`] answers.
    HandedOver,
    /// The kernel expects no answer (FORGET, BATCH_FORGET, INTERRUPT).
    Silent,
}

/// Room for the answer of a request with a large payload: a WRITE's is 8 bytes.
pub(crate) const SHORT_REPLY_BYTES: usize = 128;

/// Sends a header and a payload before the request is done. `false`: that did not work, and the
/// answer is sent at the end of the request.
pub type SendEarly<'a> = &'a dyn Fn(&OutHeader, &[u8]) -> bool;

/// Whether a thread may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Yes,
    /// Not before one of the blocked threads is back.
    TooMany,
    /// The thread did not start that would answer meanwhile.
    NoThread,
}

/// How a transport replaces a thread that blocks.
pub(crate) trait StandIns {
    /// Another thread answers the requests that the calling one would answer.
    fn begin(&self) -> Begun;
    /// The calling thread is back.
    fn end(&self);
}

/// Payload of an answer, in a buffer of the transport: [`crate::MAX_TRANSFER_BYTES`] long, or 128
/// bytes for the answer to a large WRITE or SETXATTR.
pub struct Reply<'a> {
    room: &'a mut [u8],
    len_bytes: usize,
    /// How to send an answer before the request is done with.
    early: Option<SendEarly<'a>>,
    stand_ins: Option<&'a dyn StandIns>,
    /// `/dev/fuse`, where another thread may answer.
    device: Option<&'a Arc<OwnedFd>>,
    is_sent: bool,
}

/// Answers a request that was handed over, from any thread. If it is dropped before, the answer is
/// `EIO`.
pub struct Answerer {
    /// `None`: it was answered.
    device: Option<Arc<OwnedFd>>,
    unique: u64,
}

impl Answerer {
    /// Answers the request: with success and no payload, or with an error.
    pub fn answer(mut self, result: Result<(), Errno>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), Errno>) {
        let Some(device) = self.device.take() else { return };
        let answer = result.map_or_else(Answer::Failed, |()| Answer::Done);
        if let Err(errno) = send_answer(&*device, self.unique, answer, &[]) {
            tracing::error!(%errno, self.unique, "an answer was refused");
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.send(Err(Errno::IO));
    }
}

impl<'a> Reply<'a> {
    /// An empty payload with `room` to grow in.
    #[inline]
    pub fn new(room: &'a mut [u8]) -> Reply<'a> {
        let (early, stand_ins, device) = (None, None, None);
        Reply { room, len_bytes: 0, early, stand_ins, device, is_sent: false }
    }

    /// Lets [`Reply::send_early`] send with `early`. Without, `send_early` does nothing. For
    /// transports, and for tests of a file system.
    pub fn with_early(self, early: SendEarly<'a>) -> Reply<'a> {
        Reply { early: Some(early), ..self }
    }

    pub(crate) fn with_stand_ins(self, stand_ins: &'a dyn StandIns) -> Reply<'a> {
        Reply { stand_ins: Some(stand_ins), ..self }
    }

    pub(crate) fn with_device(self, device: &'a Arc<OwnedFd>) -> Reply<'a> {
        Reply { device: Some(device), ..self }
    }

    /// Lets another thread answer the request `unique`, which wants no payload. `serve` then has to
    /// return [`Answer::HandedOver`]. `None` where the transport cannot: a request of io_uring is
    /// answered by the thread that took it.
    pub fn hand_over(&self, unique: u64) -> Option<Answerer> {
        Some(Answerer { device: Some(self.device?.clone()), unique })
    }

    /// Runs `wait`, which blocks until the kernel has had an answer to other requests. The
    /// transport starts a thread for them if no other is free; through io_uring it keeps one free.
    ///
    /// An error is the answer to the request, which must have changed nothing; `wait` did not run.
    /// [`Answer::Later`]: as many threads block already as may. `EBUSY`: no thread started.
    ///
    /// Without a transport, in tests of a file system, `wait` just runs.
    pub fn block_in_place<T>(&self, wait: impl FnOnce() -> T) -> Result<T, Answer> {
        let Some(stand_ins) = self.stand_ins else { return Ok(wait()) };
        match stand_ins.begin() {
            Begun::Yes => {}
            Begun::TooMany => return Err(Answer::Later),
            Begun::NoThread => return Err(Answer::Failed(Errno::BUSY)),
        }
        let result = wait();
        stand_ins.end();
        Ok(result)
    }

    /// Forgets the payload.
    #[inline]
    pub fn clear(&mut self) {
        self.len_bytes = 0;
    }

    /// Answers the request `unique` with the payload at once. The file system goes on with the
    /// request, whose body stays as it is; the answer that `serve` returns is dropped. Does nothing
    /// where the transport cannot answer early.
    pub fn send_early(&mut self, unique: u64) {
        let Some(early) = self.early else { return };
        if let Some(header) = self.header(unique, Answer::Done) {
            self.is_sent = early(&header, self.payload());
        }
    }

    /// Bytes of payload so far.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.room[..self.len_bytes]
    }

    /// Appends a structure; `EOVERFLOW` when the buffer is full.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.push_bytes(value.as_bytes())
    }

    /// Appends bytes; `EOVERFLOW` when the buffer is full.
    #[inline]
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), Errno> {
        let spare = &mut self.room[self.len_bytes..];
        spare.get_mut(..value.len()).ok_or(Errno::OVERFLOW)?.copy_from_slice(value);
        self.len_bytes += value.len();
        Ok(())
    }

    /// The next `len_bytes` bytes, to be filled in place and then confirmed with
    /// [`Reply::advance`]. They hold leftovers of earlier answers. `EINVAL`: the buffer is shorter.
    #[inline]
    pub fn spare(&mut self, len_bytes: usize) -> Result<&mut [u8], Errno> {
        self.room[self.len_bytes..].get_mut(..len_bytes).ok_or(Errno::INVAL)
    }

    /// Takes the next `len_bytes` bytes of the buffer into the payload. Panics beyond its end.
    #[inline]
    pub fn advance(&mut self, len_bytes: usize) {
        self.len_bytes += len_bytes;
        assert!(self.len_bytes <= self.room.len(), "a reply beyond its buffer");
    }

    /// The header to send before the payload. `None`: the answer is silent, or was sent early. For
    /// transports, and for tests of a file system.
    pub fn header(&self, unique: u64, answer: Answer) -> Option<OutHeader> {
        if self.is_sent { None } else { out_header(unique, answer, self.len_bytes) }
    }
}

/// Sends an answer, with `payload` if it is [`Answer::Done`]. It is no error if the request was
/// interrupted or the file system unmounted: the kernel waits for no answer any more.
pub(crate) fn send_answer(
    device: impl AsFd,
    unique: u64,
    answer: Answer,
    payload: &[u8],
) -> Result<(), Errno> {
    let Some(header) = out_header(unique, answer, payload.len()) else { return Ok(()) };
    let payload = if answer == Answer::Done { payload } else { &[] };
    let message = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
    match rustix::io::writev(device, &message) {
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The header of an answer with so many bytes of payload, if it is [`Answer::Done`].
pub(crate) fn out_header(unique: u64, answer: Answer, payload_bytes: usize) -> Option<OutHeader> {
    let (error, payload_bytes) = match answer {
        Answer::Silent | Answer::HandedOver => return None,
        Answer::Done => (0, payload_bytes),
        Answer::Failed(errno) => (-errno.raw_os_error(), 0),
        Answer::Later => (-Errno::BUSY.raw_os_error(), 0),
    };
    let len = u32::try_from(HEADER_BYTES + payload_bytes).expect("a reply is about 1 MiB");
    Some(OutHeader { len, error, unique })
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
        let header = reply.header(9, Answer::Done).unwrap();
        assert_eq!((header.len, header.error, header.unique), (23, 0, 9));
    }

    #[test]
    fn an_answer_that_was_sent_early_is_not_sent_again() {
        let sent = std::cell::RefCell::new(Vec::new());
        let early = |header: &OutHeader, payload: &[u8]| {
            sent.borrow_mut().push((header.unique, payload.to_vec()));
            true
        };
        let mut room = [0; 8];
        let mut reply = Reply::new(&mut room).with_early(&early);
        reply.push(&7u32).unwrap();
        reply.send_early(9);
        reply.send_early(9);
        assert!(reply.header(9, Answer::Failed(Errno::IO)).is_none());
        assert_eq!(*sent.borrow(), [(9, 7u32.to_ne_bytes().to_vec())]);
    }

    #[test]
    fn without_a_way_to_send_early_the_answer_is_sent_at_the_end() {
        let (mut one, mut other) = ([0; 8], [0; 8]);
        for mut reply in [Reply::new(&mut one), Reply::new(&mut other).with_early(&|_, _| false)] {
            reply.send_early(9);
            assert!(reply.header(9, Answer::Done).is_some());
        }
    }

    #[test]
    fn an_error_carries_no_payload() {
        let header = out_header(9, Answer::Failed(Errno::NOENT), 4).unwrap();
        assert_eq!((header.len, header.error, header.unique), (16, -2, 9));
        assert!(out_header(9, Answer::Silent, 0).is_none());
    }

    #[test]
    fn data_that_do_not_fit_are_refused() {
        let mut room = [0; 8];
        let mut reply = Reply::new(&mut room);
        assert!(reply.spare(9).is_err());
        assert!(reply.push_bytes(&[0; 9]).is_err());
        assert!(reply.push_bytes(&[0; 8]).is_ok());
        assert!(reply.push(&1u8).is_err());
        assert!(reply.spare(usize::MAX).is_err());
    }
}
