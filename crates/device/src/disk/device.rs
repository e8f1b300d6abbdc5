//! A real disk: a block device, or a regular file used as one.
//!
//! All I/O is direct. So a write that has returned is at most in the device's own cache, and one
//! flush makes it durable. If a file system refuses direct I/O, the page cache is used, and the
//! same calls give the same promise.
//!
//! # One flush for one durable write
//!
//! | disk | durable write |
//! |---|---|
//! | file | `pwritev2(RWF_DSYNC)`, whatever its size |
//! | block device, write fits one request | io_uring write with `RWF_DSYNC` |
//! | block device, larger write, or no io_uring | writes, then `fdatasync` |
//!
//! `examples/durable_write.rs` measures why.
//!
//! Only the second way, on a device that knows FUA or has no volatile cache, is durable without a
//! flush (`write_fua`). For a file, the devices below it are unknown.
//!
//! Several threads may use a `Disk` at once. It does not order their requests.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sync::Mutex;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use super::caches;
use super::direct_io::DirectIo;
use super::geometry::{Geometry, SECTOR_BYTES_MAX};
use crate::block::block_device::{BlockDevice, check_span};
use crate::buffer::aligned::AlignedBuf;
use crate::durability::Durability;
use crate::error::{DeviceError, Operation, Result};
use crate::error::{errno, refused};
use crate::length::Length;
use crate::uring::ring::RingPool;
use host::{Access, Claimed, DiskKind, NUMBER_MIN, Trust, claim};

/// A file or block device, locked against other users for as long as it is open.
pub struct Disk {
    fd: OwnedFd,
    access: Access,
    geometry: Geometry,
    /// The expected length of the file that holds the bytes, if that file is known.
    length: Option<Length>,
    /// See [`BlockDevice::caches`].
    caches: Vec<u64>,
    /// On a block device that is opened for writing: the claim against the kernel's own users.
    exclusive: Mutex<Option<OwnedFd>>,
    /// Holds the lock on the backing file of a loop device.
    _locked: Option<OwnedFd>,
    /// For a block device, if io_uring is allowed.
    rings: Option<RingPool>,
    /// Whether `pwritev2(RWF_DSYNC)` is used: for a file, until a kernel reports that it does not
    /// know it.
    dsync: AtomicBool,
    /// What a write says that finds no room.
    no_room: &'static str,
}

/// The descriptors of an open disk. They hold its claim.
#[derive(Debug)]
pub struct Held {
    /// The disk.
    pub fd: OwnedFd,
    /// The claim against the kernel's own users, if there is one.
    pub exclusive: Option<OwnedFd>,
    /// Holds the lock on the backing file of a loop device.
    pub locked: Option<OwnedFd>,
    /// The backing file, and the offset at which the disk begins in it, in bytes.
    pub behind: Option<(OwnedFd, u64)>,
}

/// The same, for each kind of disk.
const NO_ROOM_FOR_IMAGE: &str = "the file system that holds the image is full, not the volume; \
                                 free some space there, then unmount and mount again";
const NO_ROOM_BELOW: &str = "the storage below the block device is full, not the volume; enlarge \
                             it, then unmount and mount again";
const NO_ROOM_FOR_FILE: &str = "the file system that holds the file is full; free some space there";

impl Disk {
    /// Opens `path`. Fails if another user has it ("in use"), if it is neither a file nor a block
    /// device, and if it is smaller than one sector.
    ///
    /// For writing, its bytes are claimed against every other user, by any path, loop device or
    /// partition, including kernel mounts. For reading, they are claimed against writers that lock
    /// them.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Disk> {
        Self::open_with(path.as_ref(), access, None)
    }

    /// Like [`Disk::open`], but refuses files that users who are not trusted have made or can write
    /// to.
    pub fn open_trusted(path: impl AsRef<Path>, access: Access, trust: Trust) -> Result<Disk> {
        Self::open_with(path.as_ref(), access, Some(trust))
    }

    fn open_with(path: &Path, access: Access, trust: Option<Trust>) -> Result<Disk> {
        Self::of_claimed(path, access, claim(path, access, trust)?)
    }

    /// Goes on with a disk that is open in another process, or was, for what it was opened for. Its
    /// claim stays with it. `path` is for messages.
    pub fn take_over(path: impl AsRef<Path>, held: Held) -> Result<Disk> {
        let path = path.as_ref();
        let Held { fd, exclusive, locked, behind } = held;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|e| errno(path, e))?;
        let access = match flags.contains(OFlags::RDWR) {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
        let kind = DiskKind::of(&stat)
            .map_err(|why| refused(path, io::ErrorKind::InvalidInput, why.to_string()))?;
        Self::of_claimed(path, access, Claimed { fd, exclusive, locked, behind, kind, stat })
    }

    /// Copies of its descriptors, for [`Disk::take_over`]. The claim holds as long as one is open.
    pub fn held(&self) -> Result<Held> {
        let copy = |fd: &OwnedFd| fcntl_dupfd_cloexec(fd, NUMBER_MIN);
        let held = || {
            let behind = self.length.as_ref().and_then(Length::another);
            rustix::io::Result::Ok(Held {
                fd: copy(&self.fd)?,
                exclusive: self.exclusive.lock().as_ref().map(copy).transpose()?,
                locked: self._locked.as_ref().map(copy).transpose()?,
                behind: behind.map(|(fd, start)| Ok((copy(fd)?, start))).transpose()?,
            })
        };
        held().map_err(|e| DeviceError::new(Operation::Open, 0, 0, e.into()))
    }

    fn of_claimed(path: &Path, access: Access, claimed: Claimed) -> Result<Disk> {
        let Claimed { fd, exclusive, locked, behind, kind, stat } = claimed;
        let geometry = Geometry::of(fd.as_fd(), kind, &stat).map_err(|e| errno(path, e))?;
        if geometry.size_bytes == 0 {
            let why = format!("is smaller than one sector of {} bytes", geometry.sector_bytes);
            return Err(refused(path, io::ErrorKind::InvalidInput, why));
        }
        if geometry.sector_bytes > SECTOR_BYTES_MAX as usize {
            let why = format!(
                "has sectors of {} bytes, and {SECTOR_BYTES_MAX} at most can be used; a loop \
                 device gets others by: losetup --sector-size {SECTOR_BYTES_MAX}",
                geometry.sector_bytes
            );
            return Err(refused(path, io::ErrorKind::Unsupported, why));
        }
        if (kind, access) == (DiskKind::File, Access::ReadWrite) {
            check_limit(path, geometry.size_bytes)?;
        }
        let rings = match (kind, access) {
            (DiskKind::Block, Access::ReadWrite) => RingPool::new().ok(),
            _ => None,
        };
        let dsync = AtomicBool::new(kind == DiskKind::File);
        let caches = caches::below(kind, &stat);
        let length = length_of(path, kind, behind, geometry.size_bytes)?;
        let exclusive = Mutex::new(exclusive);
        let no_room = match kind {
            DiskKind::File => NO_ROOM_FOR_IMAGE,
            DiskKind::Block => NO_ROOM_BELOW,
        };
        Ok(Disk {
            fd,
            access,
            geometry,
            length,
            caches,
            exclusive,
            _locked: locked,
            rings,
            dsync,
            no_room,
        })
    }

    /// The regular file `fd`, open for reading and writing, shared with other processes. No claim
    /// is made, so the processes have to agree on who writes where. `path` is for messages.
    pub fn share(path: impl AsRef<Path>, fd: OwnedFd) -> Result<Disk> {
        let path = path.as_ref();
        let (stat, kind) = (rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?, DiskKind::File);
        let geometry = Geometry::of(fd.as_fd(), kind, &stat).map_err(|e| errno(path, e))?;
        let (access, dsync) = (Access::ReadWrite, AtomicBool::new(true));
        let caches = caches::below(kind, &stat);
        let length = Some(Length::of_itself(geometry.size_bytes));
        let exclusive = Mutex::new(None);
        let (rings, _locked) = (None, None);
        let no_room = NO_ROOM_FOR_FILE;
        Ok(Disk { fd, access, geometry, length, caches, exclusive, _locked, rings, dsync, no_room })
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Gives up the claim against the kernel's own users, so that a `fuseblk` mount can claim the
    /// block device itself. The disk stays open and locked. Does nothing for a file.
    pub fn release_exclusive(&self) {
        self.exclusive.lock().take();
    }

    /// Whether its I/O bypasses the page cache.
    pub fn direct_io(&self) -> DirectIo {
        let is_asked_for =
            rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        match is_asked_for {
            true => DirectIo::of(self.fd.as_fd()),
            false => DirectIo::No,
        }
    }

    /// A copy of the descriptor of the open file or device. A path may lead to another file by now.
    pub fn file(&self) -> Result<File> {
        let copy = fcntl_dupfd_cloexec(&self.fd, NUMBER_MIN);
        copy.map(File::from).map_err(|e| DeviceError::new(Operation::Open, 0, 0, e.into()))
    }

    /// Whether direct I/O accepts memory at `address`.
    fn is_aligned(&self, address: *const u8) -> bool {
        address.addr().is_multiple_of(self.geometry.memory_align_bytes)
    }

    fn check(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<()> {
        let Geometry { sector_bytes, size_bytes, .. } = self.geometry;
        check_span(operation, offset, len_bytes, sector_bytes, size_bytes)?;
        if operation != Operation::Read && self.access == Access::ReadOnly {
            let why = io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only");
            return Err(DeviceError::new(operation, offset, len_bytes, why));
        }
        Ok(())
    }

    /// An error if the file that holds the bytes has become shorter.
    fn check_length(&self) -> io::Result<()> {
        self.length.as_ref().map_or(Ok(()), |length| length.check(&self.fd))
    }

    /// Checks only the bytes before `end`.
    fn check_length_up_to(&self, end: u64) -> io::Result<()> {
        self.length.as_ref().map_or(Ok(()), |length| length.check_up_to(&self.fd, end))
    }

    fn write_aligned(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        self.check_length()?; // Writing would make it long again.
        if !durable {
            return write_all(self.fd.as_fd(), offset, data, ReadWriteFlags::empty());
        }
        if self.dsync.load(Ordering::Relaxed) {
            match write_dsync(self.fd.as_fd(), offset, data)? {
                DsyncWrite::Durable => return Ok(()),
                DsyncWrite::NotSupported => self.dsync.store(false, Ordering::Relaxed),
            }
        }
        self.write_one_request(offset, data).unwrap_or_else(|| {
            write_all(self.fd.as_fd(), offset, data, ReadWriteFlags::empty())?;
            sync_data(self.fd.as_fd())
        })
    }

    /// `None` if one request with FUA is not possible.
    fn write_one_request(&self, offset: u64, data: &[u8]) -> Option<io::Result<()>> {
        let rings = self.rings.as_ref()?;
        let fits = data.len() as u64 <= self.geometry.request_bytes_max;
        fits.then(|| write_ring(rings, self.fd.as_fd(), offset, data)).flatten()
    }

    fn write_any(&self, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        self.check(Operation::Write, offset, data.len())?;
        self.with_aligned(data, |data| self.write_aligned(offset, data, durable))
            .map_err(|e| DeviceError::new(Operation::Write, offset, data.len(), self.explained(e)))
    }

    /// Says which storage is full. A reader of the error may think of the volume on this disk.
    fn explained(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                io::Error::new(error.kind(), format!("{error}: {}", self.no_room))
            }
            _ => error,
        }
    }

    fn with_aligned<T>(&self, data: &[u8], write: impl FnOnce(&[u8]) -> T) -> T {
        if self.is_aligned(data.as_ptr()) {
            write(data)
        } else {
            write(&AlignedBuf::from_slice(data))
        }
    }
}

/// The expected length of the file that holds the bytes of a disk, if such a file can be opened.
/// Refuses a loop device whose file is too short: reading it would give zeros for the missing part.
fn length_of(
    path: &Path,
    kind: DiskKind,
    behind: Option<(OwnedFd, u64)>,
    size_bytes: u64,
) -> Result<Option<Length>> {
    let Some((file, start_bytes)) = behind else {
        return Ok((kind == DiskKind::File).then(|| Length::of_itself(size_bytes)));
    };
    let length = Length::of_another(file, start_bytes, size_bytes);
    length.check_at_opening().map_err(|error| refused(path, error.kind(), error))?;
    Ok(Some(length))
}

/// A thread is started for at least this many writes.
const SPANS_PER_WRITER: usize = 8;

impl BlockDevice for Disk {
    fn size_bytes(&self) -> u64 {
        self.geometry.size_bytes
    }

    fn sector_bytes(&self) -> usize {
        self.geometry.sector_bytes
    }

    fn durability(&self) -> Durability {
        self.geometry.durability
    }

    fn caches(&self) -> &[u64] {
        &self.caches
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buf.len())?;
        let len_bytes = buf.len();
        let read = if self.is_aligned(buf.as_ptr()) {
            read_all(self.fd.as_fd(), offset, buf)
        } else {
            let mut bounce = AlignedBuf::zeroed(len_bytes);
            read_all(self.fd.as_fd(), offset, &mut bounce).map(|()| buf.copy_from_slice(&bounce))
        };
        // Also after an error: a short file explains it, and is remembered.
        let length = self.check_length_up_to(offset + len_bytes as u64);
        length.and(read).map_err(|e| DeviceError::new(Operation::Read, offset, len_bytes, e))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_any(offset, data, false)
    }

    /// Writes several spans at a time. One after the other, small writes would leave all but one of
    /// the disk's channels idle.
    fn write_spans(&self, spans: &[(u64, &[u8])], at_a_time: usize) -> Result<()> {
        assert!(at_a_time > 0, "at least this thread writes");
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let write_some = || {
            while let Some((offset, data)) = spans.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.write(*offset, data) {
                    failed.lock().get_or_insert(error);
                    next.store(spans.len(), Ordering::Relaxed);
                }
            }
        };
        let helper_count = (spans.len() / SPANS_PER_WRITER).min(at_a_time - 1);
        std::thread::scope(|scope| {
            for _ in 0..helper_count {
                let helper = std::thread::Builder::new().name("home-writer".into());
                if helper.spawn_scoped(scope, write_some).is_err() {
                    break; // The threads that have started write all.
                }
            }
            write_some();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_any(offset, data, true)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Option<Result<()>> {
        if !self.geometry.needs_no_flush {
            return None;
        }
        if let Err(error) = self.check(Operation::Write, offset, data.len()) {
            return Some(Err(error));
        }
        if let Err(error) = self.check_length() {
            return Some(Err(DeviceError::new(Operation::Write, offset, data.len(), error)));
        }
        let written = self.with_aligned(data, |data| self.write_one_request(offset, data))?;
        let failed = |e| DeviceError::new(Operation::Write, offset, data.len(), self.explained(e));
        Some(written.map_err(failed))
    }

    fn flush(&self) -> Result<()> {
        sync_data(self.fd.as_fd())
            .and_then(|()| self.check_length())
            .map_err(|e| DeviceError::new(Operation::Flush, 0, 0, self.explained(e)))
    }
}

/// An error if this process may not write all of a file of this size. Block devices have no such
/// limit.
fn check_limit(path: &Path, size_bytes: u64) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < size_bytes => {
            let why = format!(
                "has {size_bytes} bytes, and this process may write only the first {limit} of a \
                 file: raise that limit (ulimit -f)"
            );
            Err(refused(path, io::ErrorKind::FileTooLarge, why))
        }
        _ => Ok(()),
    }
}

/// The result of a write with `RWF_DSYNC`.
enum DsyncWrite {
    /// The data are durable.
    Durable,
    /// The kernel does not know `RWF_DSYNC`. It reports that before it writes anything.
    NotSupported,
}

fn write_dsync(fd: BorrowedFd<'_>, offset: u64, data: &[u8]) -> io::Result<DsyncWrite> {
    match write_all(fd, offset, data, ReadWriteFlags::DSYNC) {
        Ok(()) => Ok(DsyncWrite::Durable),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(DsyncWrite::NotSupported),
            _ => Err(error),
        },
    }
}

/// Repeated only after EINTR, which means that a signal interrupted the call, and not that a write
/// was lost. Every other error is final.
fn sync_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fdatasync(fd))?)
}

fn read_all(fd: BorrowedFd<'_>, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *buf, offset))?;
        if count == 0 {
            let why = "the disk has become shorter than it was when it was opened";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        offset += count as u64;
        buf = &mut buf[count..];
    }
    Ok(())
}

fn write_all(
    fd: BorrowedFd<'_>,
    mut offset: u64,
    mut data: &[u8],
    flags: ReadWriteFlags,
) -> io::Result<()> {
    while !data.is_empty() {
        let slices = [IoSlice::new(data)];
        let count = rustix::io::retry_on_intr(|| rustix::io::pwritev2(fd, &slices, offset, flags))?;
        advance(count, &mut offset, &mut data)?;
    }
    Ok(())
}

/// `None` if nothing is known to be durable; the caller then writes in another way.
fn write_ring(
    rings: &RingPool,
    fd: BorrowedFd<'_>,
    mut offset: u64,
    mut data: &[u8],
) -> Option<io::Result<()>> {
    while !data.is_empty() {
        let written = match rings.write_dsync(fd, offset, data)? {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            written => written,
        };
        if let Err(e) = written.and_then(|count| advance(count, &mut offset, &mut data)) {
            return Some(Err(e));
        }
    }
    Some(Ok(()))
}

fn advance(count: usize, offset: &mut u64, data: &mut &[u8]) -> io::Result<()> {
    if count == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    *offset += count as u64;
    *data = &data[count..];
    Ok(())
}

#[cfg(test)]
mod tests;
