//! Facts about the Linux that a program runs on: what is behind a path, and who uses it.
//!
//! Everything is read from `/proc`, `/sys` and the kernel's calls, and no other program is started.
//! The rules of trust are here, too: which users' files, links and FUSE servers are followed, and
//! how a path is opened that others could exchange. No bytes of a disk are read or written.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   process/                   signs of life, open files, descriptors that a fork closes, what a
//!                              process inherits, to whom users count
//!   claim/                     one user at a time has the bytes of a disk
//!   below/ files/              loop devices, partitions, mounts: what the bytes of a disk are on;
//!                              Folder, trust
//!   access descriptor error faults processes
//! ```

mod access;
mod below;
mod claim;
mod descriptor;
mod error;
mod faults;
mod files;
mod process;
mod processes;

pub use access::Access;
pub use below::backing::{Backing, Root, backing_file};
pub use below::file_system::{Store, store_of};
pub use below::kind::DiskKind;
pub use below::list::{ListedDevice, block_devices, share_bytes};
pub use below::loop_device::{LoopDevice, LoopOptions};
pub use below::mount_table::{
    MountEntry, each_mount, mount_of, mounts_in, own_mounts, parse_mounts,
};
pub use below::sysfs::{device_number, read_number, sysfs_directory};
pub use claim::take::{Claimed, claim, lock_file, refuse_swap};
pub use descriptor::{NUMBER_MIN, above_standard, link_to, moved_above_standard, occupy_standard};
pub use error::{Forgeable, InUse, OpenError, Result};
/// Mistakes of the crate, for tests that check their checks.
#[doc(hidden)]
pub use faults::Fault;
pub use files::file_id::FileId;
pub use files::folder::Folder;
pub use files::found::Found;
pub use files::fuse::is_fuse;
pub use files::parent::open_parent;
pub use files::reach::{cached_kind, cached_stat};
pub use files::servers::{has_name, server_of};
pub use files::trust::Trust;
pub use files::trusted_file::Sought;
pub use process::account::Account;
pub use process::fork_closed::ForkClosed;
pub use process::inherited::{keep_descriptors_from_children, reset_scheduling, reset_signals};
pub use process::interrupt::Interruptible;
pub use process::machine::{Living, Machine};
pub use process::open_files::{fuse_connection, open_files, process_uses};
pub use process::own_descriptors::with_own_descriptors;
pub use process::own_mounts::without_foreign_servers;
pub use process::replace::replace_program;
pub use process::unread::unread_bytes;
pub use processes::{
    command_line, has_no_memory, own_program, process_name, process_owner, process_program,
    processes,
};
