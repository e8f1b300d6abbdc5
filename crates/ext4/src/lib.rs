//! The ext4 format and its operations, each one inside a journal handle.
//!
//! A [`Volume`] is an ext4 file system on a block device, made by `mke2fs`, whose journal is
//! ours. It must not know FUSE or errno: the same operations run mounted and in the simulator.
//!
//! # Concurrency
//!
//! Every change is an operation ([`op::Op`]) around one journal handle, and handles are
//! exclusive: there is one total order of changes. A change is private to its handle until it
//! finishes, all at once; dropped unfinished it never happened. Readers do not take part in that
//! order, they read published blocks.
//!
//! Locks, in the order in which they are taken:
//! 1. `InodeCell::content` of **one regular file** (shared: read, seek; exclusive: write, truncate,
//!    fallocate, freeing its blocks), held from before the handle until after it.
//! 2. `InodeCell::xattr` of one inode (shared: get, list, looking up the data mode; exclusive: set,
//!    remove), the same way.
//! 3. the journal handle.
//! 4. `InodeCell::content` of **directories**: exclusive, by ascending inode number, only while a
//!    finished operation is published (`Op::finish`); readers (lookup, readdir) hold it shared and
//!    take nothing else.

mod access_time;
mod alloc;
mod area;
mod attr;
mod claim;
mod data_mode;
#[cfg(test)]
mod data_mode_test;
mod data_modes;
mod dir;
mod error;
mod evict;
mod extent;
mod facts;
mod fallocate;
mod file;
mod file_atomic;
#[cfg(test)]
mod file_bench;
#[cfg(test)]
mod file_model_test;
mod file_read;
#[cfg(test)]
mod file_test;
mod file_write;
mod finish_mkfs;
mod fixed_inodes;
mod found;
mod give_up;
mod heartbeat;
mod inode;
mod label;
pub mod layout;
mod make;
mod marks;
mod memory;
mod names;
mod op;
mod open;
mod options;
mod place;
mod plan;
mod raw;
mod read_dir;
mod recover;
mod rename;
mod repair;
mod seek;
mod stat_fs;
mod survey;
mod sync;
mod truncate;
mod types;
mod unlink;
mod volume;
mod xattr;
mod xattrs;

pub use claim::{Claimant, check_claim};
pub use data_mode::{DATA_MODE_XATTR, DataMode};
pub use error::{Error, Result};
pub use facts::{Spender, spending_as};
pub use fallocate::Allocate;
pub use file_atomic::Piece;
pub use finish_mkfs::{finish_mkfs, is_mkfs_under_way};
pub use give_up::give_up_journal;
pub use journal::DeltaCodec;
pub use layout::claim::Claim;
pub use memory::FileStat;
pub use options::OpenOptions;
pub use repair::{apply_repair, can_be_repaired, mend_superblock, recover_only};
pub use survey::Survey;
pub use types::{
    Attr, DirEntry, FileKind, InodeNo, NewNode, Owner, RenameHow, SeekTo, SetAttr, SetTime, StatFs,
    Timestamp, XattrFlags,
};
pub use volume::Volume;
