//! Simulated media, for tests: block devices, NVRAM and files that lose in a power cut all that
//! real ones may lose. Also what tests of several crates share: layers in front of a device
//! ([`Layered`]), the directories of a log service ([`ServiceDirectories`]), programs that are
//! started ([`spawn_without_files`]), limits of memory ([`MemoryGroup`]), files with holes
//! ([`save_device`]), and the comparison of structs with the pages of `docs/format`
//! ([`FormatPage`]).
//!
//! The product does not link this crate. Tests do, and so do the crates that check the product
//! (`sim`, `judge`). The lists of what a medium promises are in the crate `device`, because
//! the product refers to them, too: at its head for block devices and NVRAM, at the head of its
//! `files` for files. The simulators break every promise that is not on these lists.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   drive/           an emulated disk, which is mounted
//!   files/           a simulated file system
//!   block/ nvram/    a simulated block device, a simulated NVRAM
//!   power_cut/       what all of them share: images, traces, power cuts
//!   modules      modules of other languages that tests need
//!   memory_group  control groups that limit memory
//!   abilities    what this machine has of what tests need
//!   again child format_page kernel noise service_directories skip sparse standstill tier
//! ```

mod abilities;
mod again;
mod block;
mod child;
pub mod drive;
mod files;
mod format_page;
mod kernel;
mod memory_group;
mod modules;
mod noise;
mod nvram;
mod power_cut;
mod service_directories;
mod skip;
mod sparse;
pub mod standstill;
pub mod tier;

pub use abilities::{
    ENABLE_URING, can_mount, can_mount_ext4, can_mount_fuse, find_python_with_extensions, has_disk,
    has_fuse_over_uring, has_loop_devices, has_namespaces, has_program, has_shm, has_uring,
    is_root, python_with_extensions,
};
pub use again::{again, again_words, close_standard_descriptors, is_alone, name_of};
pub use block::{Layer, Layered, SimDevice};
pub use child::spawn_without_files;
pub use files::{FilesCursor, FilesImage, FilesTrace, SimDirectory, SimFiles};
pub use format_page::{Fields, FormatPage};
pub use kernel::{are_syncs_told, is_linux_since};
pub use memory_group::MemoryGroup;
pub use modules::{has_module, module_paths};
pub use noise::noise_and_copies;
pub use nvram::SimNvram;
pub use power_cut::{
    Cursor, Cursors, Event, Fault, Image, Pending, Piece, SimClock, SimMedium, Survival, Trace,
    Traces, Unit,
};
pub use service_directories::{ServiceDirectories, lose_memory};
pub use skip::{Need, skip};
pub use sparse::{read_sparse, save_device, write_sparse};
