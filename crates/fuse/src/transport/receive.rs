//! Reading requests from `/dev/fuse`: how large they get, and where in a buffer they are put.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::abi::{InHeader, WriteIn};

/// Largest read or write request, in bytes of data.
pub const MAX_TRANSFER_BYTES: usize = 1 << 20;
/// The smallest page of the kernel's cache, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Bytes before the data of a WRITE. A request that is read to this many bytes before a page
/// boundary has its data on the boundary.
pub(crate) const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Whether reading a request failed because the connection has ended. `ECONNABORTED`: it ended just
/// while the request was read.
pub(crate) fn has_ended(errno: Errno) -> bool {
    matches!(errno, Errno::NODEV | Errno::CONNABORTED)
}

/// What a read of `/dev/fuse` has brought.
pub(crate) enum Read {
    /// A request of so many bytes.
    Request(usize),
    /// The thread was interrupted.
    Nothing,
    /// The file system was unmounted.
    Unmounted,
}

/// Waits for a request.
pub(crate) fn read_request(device: &OwnedFd, buffer: &mut [u8]) -> Result<Read, Errno> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len_bytes) => return Ok(Read::Request(len_bytes)),
            Err(Errno::INTR) => return Ok(Read::Nothing),
            // ENOENT: the request was interrupted before it was read.
            Err(Errno::NOENT | Errno::AGAIN) => {}
            Err(errno) if has_ended(errno) => return Ok(Read::Unmounted),
            Err(errno) => return Err(errno),
        }
    }
}
