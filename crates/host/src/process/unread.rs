//! Counts what the other end of a socket has not received yet.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{self, Getter, Opcode};

/// `SIOCOUTQ` of Linux (<linux/sockios.h>), as on all architectures but Alpha, MIPS, PowerPC and
/// SPARC.
const SIOCOUTQ: Opcode = 0x5411;

/// Bytes of memory that hold data that were sent through a Unix socket and not yet received at the
/// other end.
///
/// # Errors
/// The errors of the system, for example if `socket` is not a socket.
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: SIOCOUTQ stores an int through its argument and keeps no pointer.
    let count: c_int = unsafe { ioctl::ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) }?;
    u64::try_from(count).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn received_bytes_are_not_counted() {
        let (mut one, mut other) = UnixStream::pair().expect("sockets");
        assert_eq!(unread_bytes(&one).expect("count"), 0);
        one.write_all(b"hello").expect("send");
        assert!(unread_bytes(&one).expect("count") >= 5);
        other.read_exact(&mut [0; 5]).expect("receive");
        assert_eq!(unread_bytes(&one).expect("count"), 0);
        assert!(unread_bytes(std::fs::File::open("/dev/null").expect("file")).is_err());
    }
}
