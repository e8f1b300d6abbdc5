//! A connection without threads: the file system takes requests and answers them when it wants,
//! also later and in another order. `Connection::run` is for all others.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use device::AlignedBuf;
use rustix::io::Errno;

use crate::error::MountError;
use crate::mounting::attach::MountHandle;
use crate::reply::{Answer, send_answer};
use crate::request::Request;
use crate::transport::receive::{MAX_TRANSFER_BYTES, PAGE_BYTES, WRITE_HEAD_BYTES, has_ended};

/// What [`Polled::take`] found.
#[derive(Debug)]
pub enum Taken<'a> {
    /// A request. It wants an answer unless it is a FORGET, a BATCH_FORGET or an INTERRUPT. The
    /// next call of [`Polled::take`] overwrites its body.
    Request(Request<'a>),
    /// Nothing now; the descriptor becomes readable when there is something.
    Nothing,
    /// The file system was unmounted.
    Unmounted,
}

/// A mounted connection without threads, for one thread that waits with `poll` (through
/// [`AsFd`]). [`crate::Connection::into_polled`] makes one.
pub struct Polled {
    device: OwnedFd,
    handle: MountHandle,
    input: AlignedBuf,
}

impl Polled {
    pub(crate) fn new(device: OwnedFd, handle: MountHandle) -> Result<Polled, MountError> {
        let nonblocking =
            rustix::fs::fcntl_getfl(&device).map(|flags| flags | rustix::fs::OFlags::NONBLOCK);
        nonblocking
            .and_then(|flags| rustix::fs::fcntl_setfl(&device, flags))
            .map_err(|errno| MountError::System { what: "fcntl of /dev/fuse", errno })?;
        Ok(Polled { device, handle, input: AlignedBuf::zeroed(PAGE_BYTES + MAX_TRANSFER_BYTES) })
    }

    /// The mount. Any thread can unmount it.
    pub fn handle(&self) -> MountHandle {
        self.handle.clone()
    }

    /// Takes the next request, without waiting for one.
    pub fn take(&mut self) -> Result<Taken<'_>, MountError> {
        // The data of a WRITE come onto a page boundary.
        let start = PAGE_BYTES - WRITE_HEAD_BYTES;
        let len_bytes = match rustix::io::read(&self.device, &mut self.input[start..]) {
            Ok(len_bytes) => len_bytes,
            // ENOENT: the request was interrupted before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => return Ok(Taken::Nothing),
            Err(errno) if has_ended(errno) => return Ok(Taken::Unmounted),
            Err(errno) => return Err(MountError::System { what: "reading /dev/fuse", errno }),
        };
        Request::parse(&self.input[start..start + len_bytes])
            .map(Taken::Request)
            .map_err(|_| MountError::Protocol("a garbled request".into()))
    }

    /// Answers the request `unique`. It is no error if the request was interrupted or the file
    /// system unmounted meanwhile.
    pub fn answer(&self, unique: u64, answer: Answer, payload: &[u8]) -> Result<(), MountError> {
        send_answer(&self.device, unique, answer, payload)
            .map_err(|errno| MountError::System { what: "answering the kernel", errno })
    }
}

impl AsFd for Polled {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
