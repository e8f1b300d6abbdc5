//! Where bytes become durable: block devices, files and NVRAM.
//!
//! This is the only crate that sends I/O to a volume. It does not know what the bytes mean: it
//! knows no journal and no file system. The crates above use a medium through [`BlockDevice`] or
//! [`Nvram`]. What a path leads to, and who else uses it, is known by the crate `host` below.
//!
//! # What we assume of a block medium
//!
//! The simulator (`SimDevice` of the crate `testing`) breaks everything that is not on this list.
//!
//! 1. 512 aligned bytes are written whole or not at all. A larger write may be torn, whatever
//!    logical sector the device reports.
//! 2. A write that has returned is visible to later reads. A power cut may lose it until a flush
//!    that was issued after it has returned.
//! 3. Unflushed writes survive a power cut in any subset and in any order.
//! 4. `write_durable` returns when its own bytes survive a power cut. It does not make earlier
//!    writes durable.
//! 5. After a failed write, each 512-byte piece that it covered holds old or new bytes. After a
//!    failed flush, the state of every unflushed write is unknown, permanently: the flush is never
//!    repeated. `write_durable` may be a write and a flush. If another user's flush fails between
//!    the two, its bytes may be lost. `write_fua` has no such gap.
//!
//! # What we assume of NVRAM
//!
//! The simulator (`SimNvram` of the crate `testing`) breaks everything that is not on this list.
//!
//! 1. An aligned word of 8 bytes that is stored whole is in memory whole or not at all. A word that
//!    is stored in part gets there byte by byte.
//! 2. A store that has returned is visible to later loads. A power cut may lose it until a fence
//!    that *the same thread* issued after it has returned.
//! 3. Unfenced stores survive a power cut in any subset and in any order. A cache line may be
//!    written back at any time, for any reason, and several times with different words.
//! 4. `write_durable` returns when its own bytes, and everything that its thread stored before,
//!    survive a power cut.
//! 5. A store changes its own bytes and no others, also while other threads store to the same line.
//! 6. A load of a line that memory has lost (*poison*) fails, and so does every access after it.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   disk/ nvram/               Disk: a file or block device; Nvram, mapped memory
//!   mapping/ uring/            mapped memory, shared words; io_uring
//!   block/                     BlockDevice; memory, counters
//!   buffer/                    aligned memory
//!   directory                  the files of a log
//!   compare durability error file_clock length meter sync
//! ```

mod block;
mod buffer;
pub mod compare;
mod directory;
mod disk;
mod durability;
mod error;
mod file_clock;
mod length;
mod mapping;
mod meter;
mod nvram;
pub mod sync;
mod uring;

pub use block::block_device::{BlockDevice, check_span};
pub use block::memory::MemoryDevice;
pub use block::metered::{Counters, Metered};
pub use buffer::aligned::AlignedBuf;
pub use directory::{Directory, FileStore, StoredFile};
pub use disk::block_durability::block_durability;
pub use disk::caches::{devices_below, member_devices};
pub use disk::device::{Disk, Held};
pub use disk::direct_io::DirectIo;
pub use durability::{Durability, file_system_durability, known_durability};
pub use error::{DeviceError, Operation, Result};
pub use file_clock::FileClock;
pub use mapping::fork_mark::ForkMark;
pub use mapping::words::SharedWords;
pub use nvram::{
    AddedLatency, LINE_BYTES, MappedNvram, MeteredNvram, Nvram, NvramCounters, line_count,
};
pub use uring::command_ring::{COMMAND_BYTES, CommandRing};
pub use uring::ring::RingPool;
