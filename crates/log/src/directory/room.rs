//! Where shared memory may be: on a tmpfs that has room for it.

use std::io;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::os::fd::AsFd;
use std::path::Path;

use device::{Durability, file_system_durability};
use host::{Folder, mount_of};
use rustix::fs::{Mode, OFlags};

use crate::error::{LogError, Result};
use crate::format::chunk::DATA_OFFSET;
use crate::host::Settings;
use crate::media::files::at;
use crate::words::{Control, LaneWords};

/// The memory that a service needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// For the service's words and one stream with a chunk.
    least_bytes: u64,
    /// The same with all chunks of the pool. Each further stream adds its words.
    most_bytes: u64,
    /// Whether chunks are in it.
    has_chunks: bool,
}

impl Room {
    /// The memory of a service with these settings.
    pub(crate) fn of(settings: &Settings) -> Room {
        let chunks = (settings.chunk_bytes, settings.chunk_count);
        Room::with_chunks(settings.nvram.is_none().then_some(chunks))
    }

    /// The memory of a service with chunks of this size and number; `None`: they are on NVRAM.
    pub(crate) fn with_chunks(chunks: Option<(u64, u32)>) -> Room {
        // Words of the service and of a stream, and a page that says where the log is.
        let words = (Control::COUNT + LaneWords::COUNT) as u64 * 8 + 4096;
        let (chunk_bytes, count) = match chunks {
            Some((chunk_bytes, count)) => (chunk_bytes + DATA_OFFSET, count),
            None => (0, 0),
        };
        Room {
            least_bytes: words + chunk_bytes,
            most_bytes: words + chunk_bytes * u64::from(count),
            has_chunks: chunks.is_some(),
        }
    }

    /// An error if `directory` cannot have the memory. If it does not exist, the directory above
    /// it counts.
    pub(crate) fn check(&self, directory: &Path) -> Result<()> {
        let parent = |path: &&Path| path.as_os_str().is_empty() || path.exists();
        let found = directory.ancestors().find(parent).unwrap_or(directory);
        let found = if found.as_os_str().is_empty() { Path::new(".") } else { found };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(found, flags, Mode::empty());
        let opened = opened.map_err(|e| at(found)(e.into()))?;
        // Words alone may be anywhere: on a disk they are slower, and lost with the machine, too.
        if self.has_chunks && file_system_durability(&opened) != Durability::Process {
            return Err(on_disk(directory, &opened));
        }
        match free_bytes(&opened) {
            Some((free, _)) if free < self.least_bytes => {
                Err(self.full(directory, &opened, self.least_bytes))
            }
            _ => Ok(()),
        }
    }

    /// The error of a file in the memory's own directory that takes `len_bytes`. If there is no
    /// room for it, the error says so.
    pub(crate) fn or_full(&self, error: LogError, memory: &Folder, len_bytes: u64) -> LogError {
        let is_full = |source: &io::Error| matches!(source.kind(), StorageFull | QuotaExceeded);
        match &error {
            LogError::System { source, .. } if is_full(source) => {
                let directory = memory.path().parent().unwrap_or(memory.path());
                self.full(directory, memory, len_bytes)
            }
            _ => error,
        }
    }

    /// The error of a file system that has no room for `needed_bytes` more.
    pub(crate) fn full(&self, directory: &Path, fd: impl AsFd, needed_bytes: u64) -> LogError {
        let mounted = mount_of(&fd).map_or_else(|| directory.to_owned(), |mount| mount.dir);
        let free = match free_bytes(fd) {
            Some((free, all)) => format!("{} KiB of {} KiB are free", free >> 10, all >> 10),
            None => "it takes no more".into(),
        };
        let directory = directory.display();
        LogError::NoMemory(format!(
            "{directory} has no room for the shared memory of the log: {} KiB are needed, {free}, \
             and the log may use up to {} MiB. Make it larger: for a container, docker run \
             --shm-size=128m; else mount -o remount,size=SIZE {}. Or name a directory on another \
             tmpfs: memory=DIR in the URI, --memory DIR. The disk of the log is not full",
            needed_bytes.div_ceil(1 << 10),
            self.most_bytes.div_ceil(1 << 20),
            mounted.display(),
        ))
    }
}

fn on_disk(directory: &Path, fd: impl AsFd) -> LogError {
    let kind = mount_of(fd).map_or_else(|| "unknown".into(), |mount| mount.kind);
    let directory = directory.display();
    LogError::NoMemory(format!(
        "{directory} cannot have the shared memory of the log: it is on a disk (file system \
         {kind}), and has to be on a tmpfs. Mount one there: mount -t tmpfs tmpfs {directory}; for \
         a container, docker run --tmpfs {directory}. Or name a directory on a tmpfs: memory=DIR \
         in the URI, --memory DIR"
    ))
}

/// The bytes that a file system has free for this user, and all that it has. `None`: it has no
/// limit, or does not say.
fn free_bytes(fd: impl AsFd) -> Option<(u64, u64)> {
    let found = rustix::fs::fstatvfs(fd).ok().filter(|found| found.f_blocks > 0)?;
    Some((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
}
