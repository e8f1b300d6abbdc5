//! One long-lived command on a file through io_uring (`IORING_OP_URING_CMD`). The kernel fills two
//! buffers, and the caller answers in the same two. The next submission delivers the answer and
//! waits for the next request. FUSE uses this (`Documentation/filesystems/fuse/fuse-io-uring.rst`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use host::occupy_standard;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;

use crate::buffer::aligned::AlignedBuf;

/// Bytes of a command that are for the file.
pub const COMMAND_BYTES: usize = 80;

/// A ring with one command at a time, and the two buffers that it lends to the kernel.
///
/// It belongs to the thread that runs its first command, because the kernel completes commands
/// there.
pub struct CommandRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    header: AlignedBuf,
    payload: AlignedBuf,
    /// Address and length of each buffer (`struct iovec`). The kernel reads them with a command.
    vectors: Box<[[u64; 2]; 2]>,
    /// Whether a thread owns the ring already.
    enabled: bool,
}

impl CommandRing {
    /// A ring for commands on `file`, with buffers of these lengths in bytes. An error if the
    /// kernel is older than Linux 6.1 or forbids io_uring.
    pub fn new(
        file: BorrowedFd<'_>,
        header_bytes: usize,
        payload_bytes: usize,
    ) -> io::Result<CommandRing> {
        occupy_standard();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(2)?;
        Ok(CommandRing {
            ring,
            file: file.try_clone_to_owned()?,
            header: AlignedBuf::zeroed(header_bytes),
            payload: AlignedBuf::zeroed(payload_bytes),
            vectors: Box::new([[0; 2]; 2]),
            enabled: false,
        })
    }

    /// The two buffers, usable while no command is under way.
    pub fn buffers(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut self.header, &mut self.payload)
    }

    /// Submits `command` and waits until the kernel completes it. Then the kernel has filled the
    /// buffers, or the result is an error.
    pub fn run(&mut self, operation: u32, command: [u8; COMMAND_BYTES]) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        *self.vectors = [&mut self.header, &mut self.payload]
            .map(|buffer| [buffer.as_mut_ptr() as u64, buffer.len() as u64]);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), operation)
            .cmd(command)
            .addr(Some(self.vectors.as_ptr() as u64))
            .build();
        let entry = with_length(entry, 2);
        // SAFETY: the kernel writes to `header` and `payload` while the command is under way, that
        // is until `wait` returns. Until then `self` is borrowed exclusively, and this thread
        // touches neither. After that the kernel keeps their addresses only for the next command.
        // The buffers are heap memory that lives, unmoved, as long as `self`. Dropping `self`
        // closes the ring, which cancels the command.
        unsafe { self.ring.submission().push(&entry) }.expect("an empty queue has room for one");
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        loop {
            let entered = self.ring.submit_and_wait(1);
            if let Some(completed) = self.ring.completion().next() {
                return match completed.result() {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                    _ => Ok(()),
                };
            }
            match entered {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) => {
                    // The kernel may still write to our buffers: neither returning nor unwinding
                    // is safe. Not reachable with a ring that was set up correctly.
                    eprintln!("io_uring took a command and cannot be waited for: {error}");
                    std::process::abort();
                }
            }
        }
    }
}

/// Sets `sqe->len`, the number of buffers at `sqe->addr`. The library has no setter for it in this
/// kind of entry.
fn with_length(entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    const LENGTH_INDEX: usize = 24 / size_of::<u32>();
    // SAFETY: `Entry128` is `repr(C)`: `struct io_uring_sqe` and 64 more bytes. All 128 bytes are
    // initialised integers, or unions of integers, without padding. Every bit pattern is a valid
    // value of it, and `len` is at byte 24 by the kernel's ABI.
    unsafe {
        let mut words: [u32; 32] = std::mem::transmute(entry);
        words[LENGTH_INDEX] = len;
        std::mem::transmute(words)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use onejournal_testing::{Need, skip};

    use super::*;

    #[test]
    fn a_file_without_commands_refuses_them() {
        let file = tempfile::tempfile().unwrap();
        let mut ring = match CommandRing::new(file.as_fd(), 288, 8192) {
            Ok(ring) => ring,
            Err(error) => return skip(Need::Uring, format!("needs Linux 6.1: {error}")),
        };
        for _ in 0..3 {
            let error = ring.run(1, [0; COMMAND_BYTES]).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP));
        }
        let (header, payload) = ring.buffers();
        assert_eq!((header.len(), payload.len()), (288, 8192));
    }

    #[test]
    fn the_length_is_where_the_kernel_reads_it() {
        let entry = opcode::UringCmd80::new(types::Fd(7), 1).addr(Some(0x1234)).build();
        // SAFETY: as in `with_length`.
        let words: [u32; 32] = unsafe { std::mem::transmute(with_length(entry, 2)) };
        assert_eq!((words[1], words[4], words[6]), (7, 0x1234, 2));
    }
}
