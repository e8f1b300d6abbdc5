//! Durable writes to a block device through io_uring, with one flush each instead of two.
//!
//! A synchronous `RWF_DSYNC` write to a block device is flushed twice. The block layer emulates FUA
//! with a flush after the write, and the generic path for synchronous writes flushes once more. An
//! asynchronous write ends with its own FUA. A ring serves one write at a time, so threads that
//! write at the same time take a ring each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use host::occupy_standard;

use crate::sync::Mutex;
use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, ReadWriteFlags};

/// Rings that are not in use. There are as many as threads have written at the same time.
pub struct RingPool {
    idle: Mutex<Vec<IoUring>>,
}

impl RingPool {
    /// A pool with one ring. An error if the kernel or a container forbids io_uring.
    pub fn new() -> io::Result<Self> {
        Ok(RingPool { idle: Mutex::new(vec![new_ring()?]) })
    }

    /// Writes `data` at `offset` of `fd` durably, and returns the number of bytes written, which
    /// may be less than asked for. `None`: nothing was submitted, because there was no ring or no
    /// memory. The caller then writes in another way.
    pub fn write_dsync(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        data: &[u8],
    ) -> Option<io::Result<usize>> {
        let idle = self.idle.lock().pop();
        let mut ring = idle.map_or_else(new_ring, Ok).ok()?;
        // A ring that did not take the write still holds it in its queue: it is not reused.
        let written = write_one(&mut ring, fd, offset, data)?;
        self.idle.lock().push(ring);
        Some(written)
    }
}

fn new_ring() -> io::Result<IoUring> {
    occupy_standard();
    // Completions are handled by the thread that waits for them: no interrupt of another.
    // Kernels before 5.19 do not know the flag.
    IoUring::builder().setup_coop_taskrun().build(2).or_else(|_| IoUring::new(2))
}

/// Submits one write and waits for it. `None` if it was not submitted.
fn write_one(
    ring: &mut IoUring,
    fd: BorrowedFd<'_>,
    offset: u64,
    data: &[u8],
) -> Option<io::Result<usize>> {
    let len_bytes = u32::try_from(data.len()).ok()?;
    let dsync = ReadWriteFlags::DSYNC.bits().cast_signed();
    let write = opcode::Write::new(types::Fd(fd.as_raw_fd()), data.as_ptr(), len_bytes)
        .offset(offset)
        .rw_flags(dsync)
        .build();
    // SAFETY: `fd` and `data` are borrowed for the whole of this function, and it returns only
    // when the write has completed or was never taken by the kernel (see `wait_for_completion`).
    unsafe { ring.submission().push(&write) }.ok()?;
    let result = wait_for_completion(ring)?;
    Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
}

/// The result of the one write in the ring. `None` if the kernel did not take it.
fn wait_for_completion(ring: &mut IoUring) -> Option<i32> {
    loop {
        let entered = ring.submit_and_wait(1);
        if let Some(completed) = ring.completion().next() {
            return Some(completed.result());
        }
        match entered {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Err(e) => {
                if !ring.submission().is_empty() {
                    return None;
                }
                // The kernel may still read the caller's buffer: neither returning nor
                // unwinding is safe. Not reachable with a ring that was set up correctly.
                eprintln!("io_uring took a write and cannot be waited for: {e}");
                std::process::abort();
            }
        }
    }
}
