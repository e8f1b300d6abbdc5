//! Where bytes become durable: block devices, files and NVRAM.
//!
//! The only crate that issues I/O on a volume. It must not know what the bytes mean: no
//! journal, no file system. Everything above speaks to a medium through [`BlockDevice`] or
//! [`Nvram`].
//!
//! # What we assume of a block medium
//!
//! The simulator (`SimDevice` of the crate `testing`) breaks everything that is not on this list.
//!
//! 1. 512 aligned bytes are written whole or not at all. Nothing larger is, whatever logical sector the
//!    device reports.
//! 2. A write that has returned is visible to later reads, and may be lost in a power cut
//!    until a flush that was issued after it has returned.
//! 3. Unflushed writes survive a power cut in any subset and in any order.
//! 4. `write_durable` returns when its own bytes survive a power cut. It says nothing about
//!    the writes before it.
//! 5. After a failed write the 512-byte pieces it covered hold old or new bytes, each by itself.
//!    After a failed flush nothing is known of any unflushed write, for ever: nobody retries.
//!    `write_durable` may be a write and a flush, and lose its bytes by somebody else's failed
//!    flush between the two; `write_fua` is not.
//!
//! # What we assume of NVRAM
//!
//! The simulator (`SimNvram` of the crate `testing`) breaks everything that is not on this list.
//!
//! 1. An aligned word of 8 bytes that is stored whole is in memory whole or not at all. A
//!    word that is stored in part gets there byte by byte.
//! 2. A store that has returned is visible to later loads, and may be lost in a power cut
//!    until a fence that *the same thread* issued after it has returned.
//! 3. Unfenced stores survive a power cut in any subset and in any order; a cache line may be
//!    written back at any time, for whatever reason, also twice with other words each time.
//! 4. `write_durable` returns when its own bytes survive a power cut, and with them all that
//!    its thread has stored before.
//! 5. A store changes its own bytes and no other, whoever else stores to the same line.
//! 6. A load of a line that memory has lost (*poison*) fails; so does every access after it.

mod below;
mod block;
mod buffer;
mod claim;
pub mod compare;
mod disk;
mod error;
mod files;
mod mapping;
mod nvram;
mod process;
pub mod sync;
mod uring;

pub use below::loop_device::{LoopDevice, LoopOptions};
pub use below::mount_table::{MountEntry, mounts_in, own_mounts, parse_mounts};
pub use block::memory::MemoryDevice;
pub use block::metered::{Counters, Metered};
pub use buffer::aligned::AlignedBuf;
pub use claim::take::Access;
pub use disk::device::Disk;
pub use disk::geometry::file_system_durability;
pub use error::{DeviceError, Operation, Result};
pub use files::directory::{Directory, FileStore, StoredFile};
pub use files::folder::Folder;
pub use files::trust::Trust;
pub use mapping::words::SharedWords;
pub use nvram::{
    AddedLatency, LINE_BYTES, MappedNvram, MeteredNvram, Nvram, NvramCounters, line_count,
};
pub use process::fork_closed::ForkClosed;
pub use process::fork_mark::ForkMark;
pub use process::machine::{Living, Machine};
pub use process::processes::{process_name, processes};
pub use process::unread::unread_bytes;
pub use uring::command_ring::{COMMAND_BYTES, CommandRing};
pub use uring::ring::RingPool;

/// What a completed durable write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Only the process: the medium is ordinary memory (tmpfs, an in-memory device).
    Process,
    /// A reboot, not a power cut (reserved or battery-backed memory).
    Reboot,
    /// A power cut.
    Power,
}

impl Durability {
    /// The word shown to users: `process`, `reboot` or `power`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::Reboot => "reboot",
            Durability::Power => "power",
        }
    }

    /// The class that has this word, if one has.
    pub fn from_name(name: &str) -> Option<Durability> {
        let all = [Durability::Process, Durability::Reboot, Durability::Power];
        all.into_iter().find(|class| class.name() == name)
    }
}

/// A medium of logical sectors. Offsets and lengths are in bytes and multiples of
/// [`BlockDevice::sector_bytes`]; an implementation panics when they are not (a bug of the
/// caller) and returns an error when they lie outside of the device.
///
/// Buffers need no alignment; an [`AlignedBuf`] saves the copy that an unaligned one costs.
pub trait BlockDevice: Send + Sync {
    /// Size of the device in bytes.
    fn size_bytes(&self) -> u64;

    /// Size of a logical sector in bytes: a power of two, 512 to 4096.
    fn sector_bytes(&self) -> usize;

    /// What a durable write survives.
    fn durability(&self) -> Durability;

    /// Numbers of the devices whose volatile caches its writes are in until they are flushed, as far as they
    /// are known. A failed flush loses writes to every device that has one of them in common.
    fn caches(&self) -> &[u64] {
        &[]
    }

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`; durable after the next [`BlockDevice::flush`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes each of `spans`, which do not overlap, as [`BlockDevice::write`] does, in any order. After an error
    /// any of them may have been written.
    fn write_spans(&self, spans: &[(u64, &[u8])]) -> Result<()> {
        spans.iter().try_for_each(|(offset, data)| self.write(*offset, data))
    }

    /// Writes `data` at `offset` and returns when it is durable. Not atomic beyond 512 bytes.
    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// [`BlockDevice::write_durable`] without a flush: no failed flush of somebody else's, before or
    /// meanwhile, can have lost what this reports done. `None`: that cannot be had, and nothing is
    /// known to be written.
    fn write_fua(&self, _offset: u64, _data: &[u8]) -> Option<Result<()>> {
        None
    }

    /// Returns when every write that returned before this call is durable.
    fn flush(&self) -> Result<()>;
}

/// The check of a span that every implementation of a medium makes first. Panics unless the span is made of
/// whole sectors (of 1 byte for NVRAM); returns an error unless it is on the device.
pub fn check_span(
    operation: Operation,
    offset: u64,
    len_bytes: usize,
    sector_bytes: usize,
    size_bytes: u64,
) -> Result<()> {
    let sector = sector_bytes as u64;
    assert!(
        offset.is_multiple_of(sector) && (len_bytes as u64).is_multiple_of(sector),
        "{operation} of {len_bytes} bytes at {offset} is not made of {sector_bytes}-byte sectors"
    );
    match offset.checked_add(len_bytes as u64) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(DeviceError::outside(operation, offset, len_bytes, size_bytes)),
    }
}
