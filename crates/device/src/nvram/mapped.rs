//! Real memory: a DAX device or file, or ordinary memory that the user names explicitly.
//!
//! A store is a copy into the mapping and a write-back of its cache lines, without a system call.
//! `medium` says what a store to each kind of medium survives.
//!
//! # What can go wrong after opening
//!
//! Memory has no error codes. SIGBUS is raised by a load of a line that the memory has lost, and by
//! an access after the end of a file that was made shorter. `bus` turns it into an error: this
//! operation and all later ones fail. Four measures make that rare:
//!
//! - Everything is mapped writable at opening, which fails for pages that are known to be bad.
//! - Everything is allocated then, against a full file system.
//! - The file is locked, against programs that lock it, too.
//! - A file that only this process uses is watched (`cut`), so that a cut in a part without stores
//!   is noticed.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use host::{
    Access, NUMBER_MIN, Sought, Trust, above_standard, lock_file, open_parent, refuse_swap,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Stat, openat, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::cut::CutWatch;
use super::interface::{Nvram, check_span, failed, total_bytes};
use super::medium::{Medium, Promise};
use super::persist::{self, STREAM_FROM_BYTES};
use super::processor::{Native, Processor};
use crate::durability::Durability;
use crate::error::{DeviceError, Operation, Result};
use crate::error::{errno, refused};
use crate::mapping::memory::{LOST, Mapping, Sharing};

/// Memory mapped from a file or DAX device, locked against other users while it is open.
pub struct MappedNvram {
    mapping: Mapping,
    access: Access,
    durability: Durability,
    processor: Native,
    stream_from_bytes: usize,
    /// Holds the lock.
    fd: Option<OwnedFd>,
    /// For a file that only this process uses.
    watch: Option<CutWatch>,
}

impl MappedNvram {
    /// Opens the DAX device or file at `path`. `asked` is the durability class that the user asks
    /// for. `None` stands for the most that the medium assures. For reading and writing that must
    /// be [`Durability::Power`]: a weaker class must be asked for by name.
    ///
    /// Fails if another user has it ("in use"), if the medium cannot give the class, if it is
    /// empty, and if it has no memory for all of its bytes.
    pub fn open(
        path: impl AsRef<Path>,
        access: Access,
        asked: Option<Durability>,
    ) -> Result<MappedNvram> {
        Self::open_with(path.as_ref(), access, asked, None)
    }

    /// Like [`MappedNvram::open`], but refuses files that users who are not trusted have made or
    /// can write to.
    pub fn open_trusted(
        path: impl AsRef<Path>,
        access: Access,
        asked: Option<Durability>,
        trust: Trust,
    ) -> Result<MappedNvram> {
        Self::open_with(path.as_ref(), access, asked, Some(trust))
    }

    fn open_with(
        path: &Path,
        access: Access,
        asked: Option<Durability>,
        trust: Option<Trust>,
    ) -> Result<MappedNvram> {
        let sought = Sought::at(path, trust)?;
        let (found, stat) = (&sought.found, sought.found.stat);
        Medium::of(path, &stat)?;
        refuse_swap(path, access, &stat)?;
        let fd = found.open(access.flags()).map_err(|e| errno(path, e))?;
        sought.check(&fd)?;
        lock_file(path, &fd, &stat, access)?;
        Self::of_fd(path, fd, access, asked)
    }

    /// Makes the file `path`, which must not exist, with `len_bytes` zeros, and opens it for
    /// reading and writing. A file that cannot be used is removed again.
    pub fn create(
        path: impl AsRef<Path>,
        len_bytes: u64,
        asked: Option<Durability>,
    ) -> Result<MappedNvram> {
        let path = path.as_ref();
        let name = path.file_name().ok_or_else(|| errno(path, Errno::ISDIR))?;
        let parent = open_parent(path).map_err(|e| refused(path, e.kind(), e))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = above_standard(|| openat(&parent, name, flags, Mode::RUSR | Mode::WUSR));
        let fd = fd.map_err(|e| errno(path, e))?;
        let created = new_length(&parent, &fd, len_bytes)
            .map_err(|e| errno(path, e))
            .and_then(|stat| Ok(lock_file(path, &fd, &stat, Access::ReadWrite)?))
            .and_then(|()| Self::of_fd(path, fd, Access::ReadWrite, asked));
        if created.is_err() {
            // The error to report is the one there is already.
            let _ = unlinkat(&parent, name, AtFlags::empty());
        }
        created
    }

    /// Maps the open file or DAX device `fd`, shared with other processes. No claim is made, so the
    /// processes have to agree on who stores where. `path` is for messages; `asked` is as in
    /// [`MappedNvram::open`].
    pub fn share(
        path: impl AsRef<Path>,
        fd: OwnedFd,
        access: Access,
        asked: Option<Durability>,
    ) -> Result<MappedNvram> {
        // The processes that share the file see to its length.
        let shared = Self::of_fd(path.as_ref(), fd, access, asked)?;
        Ok(MappedNvram { watch: None, ..shared })
    }

    /// `len_bytes` zeros in this process's own memory, for tests and for measurements without a
    /// medium. They do not survive the process. Panics if `len_bytes` is 0.
    pub fn in_memory(len_bytes: usize) -> Result<MappedNvram> {
        assert!(len_bytes > 0, "memory of no bytes");
        let mapping = Mapping::anonymous(len_bytes).and_then(|m| m.populate().map(|()| m));
        let mapping = mapping.map_err(|e| failed(Operation::Open, e.into()))?;
        Ok(Self::of_mapping(mapping, Access::ReadWrite, Durability::Process, None))
    }

    /// A copy of the descriptor of the open file or device. Memory of this process's own has none.
    pub fn file(&self) -> Result<File> {
        let copy = match &self.fd {
            Some(fd) => fcntl_dupfd_cloexec(fd, NUMBER_MIN),
            None => Err(Errno::BADF),
        };
        copy.map(File::from).map_err(|e| failed(Operation::Open, e.into()))
    }

    /// Durable writes of at least this length bypass the cache. Shorter ones go through the cache
    /// and are written back. Both give the same promise; only the speed differs.
    pub fn with_stream_from_bytes(self, stream_from_bytes: usize) -> Self {
        MappedNvram { stream_from_bytes, ..self }
    }

    /// Maps an open file or DAX device.
    fn of_fd(
        path: &Path,
        fd: OwnedFd,
        access: Access,
        asked: Option<Durability>,
    ) -> Result<MappedNvram> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
        let medium = Medium::of(path, &stat)?;
        let len_bytes = medium.len_bytes(&stat);
        let Some(len_bytes) = usize::try_from(len_bytes).ok().filter(|&len| len > 0) else {
            let why = format!("cannot be mapped: it has {len_bytes} bytes");
            return Err(refused(path, ErrorKind::InvalidInput, why));
        };
        let (mapping, promise) = map(path, &fd, &medium, &stat, len_bytes, access)?;
        let durability = promise.class(path, access, asked)?;
        if access == Access::ReadWrite {
            reserve(path, &fd, &medium, &mapping)?;
        }
        let block_bytes = usize::try_from(stat.st_blksize).unwrap_or(0);
        let watch = (medium == Medium::File)
            .then(|| CutWatch::of_file(&fd, len_bytes, block_bytes))
            .transpose()
            .map_err(|e| errno(path, e))?;
        let opened = Self::of_mapping(mapping, access, durability, Some(fd));
        Ok(MappedNvram { watch, ..opened })
    }

    fn of_mapping(
        mapping: Mapping,
        access: Access,
        durability: Durability,
        fd: Option<OwnedFd>,
    ) -> Self {
        let processor = Native::detect();
        let stream_from_bytes = STREAM_FROM_BYTES;
        let watch = None;
        MappedNvram { mapping, access, durability, processor, stream_from_bytes, fd, watch }
    }

    /// An error if the memory is gone. Call it after every access: if it fails, the bytes that were
    /// read are meaningless, and the bytes that were stored are lost.
    #[inline]
    fn check(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<()> {
        match self.mapping.is_lost() {
            false => Ok(()),
            true => {
                let why = io::Error::new(ErrorKind::UnexpectedEof, LOST);
                Err(DeviceError::new(operation, offset, len_bytes, why))
            }
        }
    }

    /// The address of a span that is in the memory and may be accessed by this operation.
    fn span(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<*mut u8> {
        check_span(operation, offset, len_bytes, self.len_bytes())?;
        if operation == Operation::Write && self.access == Access::ReadOnly {
            let why = io::Error::new(ErrorKind::PermissionDenied, "opened for reading only");
            return Err(DeviceError::new(operation, offset, len_bytes, why));
        }
        self.check_whole(operation, offset, len_bytes)?;
        let offset = usize::try_from(offset).expect("not more than the length of the mapping");
        Ok(self.mapping.at(offset))
    }

    /// An error if the file has become shorter: for a read, if bytes of the span are lost; for a
    /// store, if any bytes are lost.
    fn check_whole(&self, operation: Operation, offset: u64, len_bytes: usize) -> Result<()> {
        let (Some(watch), Some(fd)) = (&self.watch, &self.fd) else { return Ok(()) };
        let end = offset + len_bytes as u64;
        match operation {
            Operation::Read => watch.check_read(fd, end),
            _ => watch.check_store(fd, end),
        }
        .map_err(|error| DeviceError::new(operation, offset, len_bytes, error))
    }
}

impl Nvram for MappedNvram {
    fn len_bytes(&self) -> u64 {
        self.mapping.len_bytes() as u64
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let from = self.span(Operation::Read, offset, buf.len())?;
        // SAFETY: the span is in the mapping, which is readable and lives as long as `self`;
        // no reference to mapped memory is ever made.
        unsafe { self.processor.load(from, buf) }
        self.check(Operation::Read, offset, buf.len())
    }

    fn store(&self, offset: u64, data: &[u8]) -> Result<()> {
        let to = self.span(Operation::Write, offset, data.len())?;
        // SAFETY: as in `read`; writable, because `span` refuses what is opened for reading.
        unsafe { persist::store_cached(&self.processor, to, &[data]) }
        self.check(Operation::Write, offset, data.len())
    }

    fn persist(&self) -> Result<()> {
        self.processor.fence();
        self.check_whole(Operation::Flush, 0, 0)?;
        self.check(Operation::Flush, 0, 0)
    }

    fn write_durable(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len_bytes = total_bytes(pieces);
        let to = self.span(Operation::Write, offset, len_bytes)?;
        // SAFETY: as in `store`, for the span of all pieces.
        unsafe {
            if len_bytes >= self.stream_from_bytes {
                persist::stream(&self.processor, to, pieces);
            } else {
                persist::store_cached(&self.processor, to, pieces);
                self.processor.fence();
            }
        }
        self.check(Operation::Write, offset, len_bytes)
    }
}

/// Maps the medium. Returns what is known of its durability.
fn map(
    path: &Path,
    fd: &OwnedFd,
    medium: &Medium,
    stat: &Stat,
    len_bytes: usize,
    access: Access,
) -> Result<(Mapping, Promise)> {
    let of_file = |sharing| Mapping::of_file(fd.as_fd(), len_bytes, access, sharing);
    match of_file(Sharing::Synchronous) {
        Ok(mapping) => return Ok((mapping, Promise::of_dax(medium, stat))),
        Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
        Err(e) => return Err(errno(path, e)),
    }
    let Some(promise) = Promise::of_page_cache(fd) else {
        let why = "the kernel cannot map it as memory (MAP_SYNC): give a file on an ext4 or XFS \
                   that is mounted with -o dax from NVRAM, a DAX device, or a file on tmpfs with \
                   durability=process";
        return Err(refused(path, ErrorKind::Unsupported, why));
    };
    let mapping = of_file(Sharing::PageCache).map_err(|e| errno(path, e))?;
    Ok((mapping, promise))
}

/// Makes sure that there is memory for every byte.
fn reserve(path: &Path, fd: &OwnedFd, medium: &Medium, mapping: &Mapping) -> Result<()> {
    if *medium == Medium::File {
        let len_bytes = mapping.len_bytes() as u64;
        match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, 0, len_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => {
                let why =
                    format!("has no memory for its {len_bytes} bytes: {}", io::Error::from(e));
                return Err(refused(path, io::Error::from(e).kind(), why));
            }
        }
    }
    mapping.populate().map_err(|e| {
        let why = format!("not every page of it can be written: {}", io::Error::from(e));
        refused(path, io::Error::from(e).kind(), why)
    })
}

/// Gives a new file its length. Returns when that and its name are durable.
fn new_length(parent: &OwnedFd, fd: &OwnedFd, len_bytes: u64) -> rustix::io::Result<Stat> {
    rustix::fs::ftruncate(fd, len_bytes)?;
    rustix::fs::fsync(fd)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(openat(parent, ".", flags, Mode::empty())?)?;
    rustix::fs::fstat(fd)
}

#[cfg(test)]
mod tests;
