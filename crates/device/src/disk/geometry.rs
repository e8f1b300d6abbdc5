//! The properties of a file or block device: its size, its sectors, and what its writes survive.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use host::{DiskKind, read_number, sysfs_directory};
use rustix::fs::{AtFlags, OFlags, SeekFrom, Stat, StatxFlags};

use crate::disk::block_durability::block_durability;
use crate::durability::Durability;
use crate::durability::file_system_durability;

/// Smallest and largest logical sector.
const SECTOR_BYTES_MIN: u32 = 512;
pub(crate) const SECTOR_BYTES_MAX: u32 = 4096;

/// A write to a block device of at most this size is one bio (256 vectors of one page).
const BIO_BYTES_MAX: u64 = 1 << 20;

/// Assumed if the block queue does not report the limit of one request.
const REQUEST_BYTES_DEFAULT: u64 = 128 << 10;

/// Size, alignment and durability of an open disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    /// Size in bytes, rounded down to whole sectors.
    pub(crate) size_bytes: u64,
    /// Logical sector: the unit of offsets and lengths of direct I/O. A block device may have more
    /// than [`SECTOR_BYTES_MAX`]; the disk then refuses it.
    pub(crate) sector_bytes: usize,
    /// Alignment of memory addresses that direct I/O requires.
    pub(crate) memory_align_bytes: usize,
    pub(crate) durability: Durability,
    /// The largest write that reaches the medium as one request. The kernel splits a larger write
    /// with FUA, and may flush after each part.
    pub(crate) request_bytes_max: u64,
    /// A request with FUA is durable by itself: the block layer need not send a flush after the
    /// write.
    pub(crate) needs_no_flush: bool,
}

impl Geometry {
    /// The geometry of the open `fd` that `stat` describes.
    pub(crate) fn of(fd: BorrowedFd<'_>, kind: DiskKind, stat: &Stat) -> rustix::io::Result<Self> {
        let (sector_bytes, memory_align_bytes) = match kind {
            DiskKind::File => file_alignment(fd)?,
            DiskKind::Block => {
                let sector = rustix::fs::ioctl_blksszget(fd)?.max(SECTOR_BYTES_MIN) as usize;
                (sector, sector)
            }
        };
        let end_bytes = rustix::fs::seek(fd, SeekFrom::End(0))?;
        let sector = sector_bytes as u64;
        Ok(Geometry {
            size_bytes: end_bytes / sector * sector,
            sector_bytes,
            memory_align_bytes,
            durability: match kind {
                DiskKind::File => file_system_durability(fd),
                DiskKind::Block => block_durability(stat.st_rdev),
            },
            request_bytes_max: match kind {
                DiskKind::File => u64::MAX,
                DiskKind::Block => request_bytes_max(stat.st_rdev),
            },
            needs_no_flush: kind == DiskKind::Block && needs_no_flush(stat.st_rdev),
        })
    }
}

/// Sector size and memory alignment of a file; 4096 if its file system does not report them.
fn file_alignment(fd: BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)> {
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match statx {
        Ok(statx) if statx.stx_dio_offset_align > SECTOR_BYTES_MAX => {
            // More than we ask of our callers: the page cache takes any offset.
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT)?;
            Ok((SECTOR_BYTES_MAX as usize, 1))
        }
        Ok(statx) if statx.stx_dio_offset_align.is_power_of_two() => {
            let sector = clamp_sector(statx.stx_dio_offset_align);
            let memory = statx.stx_dio_mem_align.max(1).next_power_of_two();
            Ok((sector, memory.min(SECTOR_BYTES_MAX) as usize))
        }
        _ => Ok((SECTOR_BYTES_MAX as usize, SECTOR_BYTES_MAX as usize)),
    }
}

fn clamp_sector(bytes: u32) -> usize {
    bytes.clamp(SECTOR_BYTES_MIN, SECTOR_BYTES_MAX) as usize
}

/// The directory of a block device in sysfs; of the whole disk for a partition.
fn whole_disk(device: u64) -> PathBuf {
    let own = sysfs_directory(device);
    if own.join("partition").exists() { own.join("..") } else { own }
}

fn request_bytes_max(device: u64) -> u64 {
    let queue = whole_disk(device).join("queue");
    let Some(sectors_kb) = read_number(&queue.join("max_sectors_kb")) else {
        return REQUEST_BYTES_DEFAULT;
    };
    let mut bytes = BIO_BYTES_MAX.min(sectors_kb.saturating_mul(1024));
    if let Some(segments) = read_number(&queue.join("max_segments")) {
        // A segment is at least a page; a buffer that starts inside a page needs one more.
        bytes = bytes.min(segments.saturating_sub(1).max(1).saturating_mul(4096));
    }
    bytes
}

/// Whether the device knows FUA, or has no volatile cache.
fn needs_no_flush(device: u64) -> bool {
    let queue = whole_disk(device).join("queue");
    let cache = fs::read_to_string(queue.join("write_cache")).unwrap_or_default();
    read_number(&queue.join("fua")) == Some(1) || cache.trim() == "write through"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_kept_within_what_a_device_may_have() {
        assert_eq!(clamp_sector(1), 512);
        assert_eq!(clamp_sector(512), 512);
        assert_eq!(clamp_sector(65536), 4096);
    }

    #[test]
    fn an_unknown_queue_gets_the_cautious_limit() {
        assert_eq!(request_bytes_max(rustix::fs::makedev(4095, 77)), REQUEST_BYTES_DEFAULT);
        assert!(!needs_no_flush(rustix::fs::makedev(4095, 77)));
    }
}
