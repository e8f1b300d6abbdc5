//! Where bytes become durable: block devices, files and NVRAM.
//!
//! This is the only crate that sends I/O to a volume. It does not know what the bytes mean: it
//! knows no journal and no file system. The crates above use a medium through [`BlockDevice`] or
//! [`Nvram`].
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
//!   process/                   signs of life, processes, descriptors that a fork closes, what a
//!                              process inherits
//!   claim/                     one user at a time has the bytes of a disk
//!   below/ files/              loop devices, partitions, mounts: what the bytes of a disk are on;
//!                              Folder, Directory, trust
//!   mapping/ uring/            mapped memory, shared words; io_uring
//!   block/                     BlockDevice; memory, counters
//!   buffer/                    aligned memory
//!   access descriptor durability error faults file_clock sync compare meter
//! ```

mod access;
mod below;
mod block;
mod buffer;
mod claim;
pub mod compare;
mod descriptor;
mod disk;
mod durability;
mod error;
mod faults;
mod file_clock;
mod files;
mod mapping;
mod meter;
mod nvram;
mod process;
pub mod sync;
mod uring;

pub use access::Access;
pub use below::file_system::{Store, file_system_durability, known_durability, store_of};
pub use below::list::{ListedDevice, block_devices, share_bytes};
pub use below::loop_device::{LoopDevice, LoopOptions};
pub use below::mount_table::{
    MountEntry, each_mount, mount_of, mounts_in, own_mounts, parse_mounts,
};
pub use below::sysfs::{device_number, read_number, sysfs_directory};
pub use block::block_device::{BlockDevice, check_span};
pub use block::memory::MemoryDevice;
pub use block::metered::{Counters, Metered};
pub use buffer::aligned::AlignedBuf;
pub use descriptor::{above_standard, moved_above_standard, occupy_standard};
pub use disk::block_durability::block_durability;
pub use disk::caches::{devices_below, member_devices};
pub use disk::device::Disk;
pub use disk::direct_io::DirectIo;
pub use durability::Durability;
pub use error::{DeviceError, Operation, Result};
/// Mistakes of the crate, for tests that check their checks.
#[doc(hidden)]
pub use faults::Fault;
pub use file_clock::FileClock;
pub use files::directory::{Directory, FileStore, StoredFile};
pub use files::file_id::FileId;
pub use files::folder::Folder;
pub use files::found::Found;
pub use files::fuse::is_fuse;
pub use files::parent::open_parent;
pub use files::reach::cached_stat;
pub use files::servers::{has_name, server_of};
pub use files::trust::Trust;
pub use mapping::words::SharedWords;
pub use nvram::{
    AddedLatency, LINE_BYTES, MappedNvram, MeteredNvram, Nvram, NvramCounters, line_count,
};
pub use process::account::Account;
pub use process::fork_closed::ForkClosed;
pub use process::fork_mark::ForkMark;
pub use process::inherited::{keep_descriptors_from_children, reset_scheduling, reset_signals};
pub use process::machine::{Living, Machine};
pub use process::own_descriptors::with_own_descriptors;
pub use process::own_mounts::without_foreign_servers;
pub use process::processes::{process_name, process_owner, process_program, processes};
pub use process::unread::unread_bytes;
pub use uring::command_ring::{COMMAND_BYTES, CommandRing};
pub use uring::ring::RingPool;
