//! The ext4 format and its operations, each one inside a journal handle.
//!
//! A [`Volume`] is an ext4 file system on a block device, made by `mke2fs`, with a journal of this
//! project. The crate knows neither FUSE nor errno: the same operations run in a mounted volume and
//! in the simulator.
//!
//! # Example
//!
//! An image that is not mounted. `examples/unmounted.rs` is a whole program.
//!
//! ```
//! # use std::{process::Command, sync::Arc};
//! # use device::Disk;
//! # use host::Access;
//! # use onejournal_ext4::{InodeNo, NewNode, OpenOptions, Owner, RootVolume};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let image = directory.path().join("image");
//! # std::fs::File::create(&image)?.set_len(64 << 20)?;
//! # let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
//! # let mut mke2fs = Command::new("mke2fs");
//! # mke2fs.env("PATH", path).args(["-q", "-F", "-t", "ext4", "-b", "4096"]).arg(&image);
//! # assert!(mke2fs.status()?.success());
//! let open = || {
//!     let device = Arc::new(Disk::open(&image, Access::ReadWrite)?);
//!     Ok::<_, Box<dyn std::error::Error>>(RootVolume::open(device, OpenOptions::default())?)
//! };
//! let volume = open()?;
//! let owner = Owner::default();
//! let file = volume.make(InodeNo::ROOT, b"f", NewNode::Regular, 0o644, 0, owner)?;
//! volume.write(file.ino, 0, b"durable")?;
//! volume.fsync(file.ino, false)?;
//! // As after a crash: nothing is brought home, and the next opening recovers.
//! drop(volume);
//!
//! let volume = open()?;
//! let mut bytes = [0; 7];
//! volume.read(volume.lookup(InodeNo::ROOT, b"f")?.ino, 0, &mut bytes)?;
//! assert_eq!(&bytes, b"durable");
//! // Now the image is an ordinary ext4.
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   volume          Volume, VolumeAs: the public face, one call for each method
//!   open/           opening and closing: superblock, journal area, claim, feature bits, recovery;
//!                   and repair, survey, mkfs of a volume that is not open
//!   names/ attr/    lookup, make, link, unlink, rename, readdir, freeing inodes without a name;
//!                   attributes, xattrs, declarations, label, statfs
//!   file/           content: read, write, fallocate, truncate, seek, fsync; data modes;
//!                   untorn writes
//!   dir/            entries in blocks; the hash index
//!   xattr/          extended attributes and access lists as they are stored
//!   extent/         which blocks a file has: extent trees, block maps
//!   alloc/          block and inode allocator
//!   op/             Op: one operation in one journal handle
//!   memory/         Mounted: the journal, the facts, and what is kept in memory only
//!                   (in-core inodes, pending frees, totals, orphan table, counters)
//!   inode/          the 256 bytes of an inode, and reading them
//!   facts/          Facts: geometry, checksums, features, superblock, places of metadata;
//!                   Source: where blocks are read from
//!   layout/         bytes on disk
//!   clock           where the times of inodes come from
//!   error data_mode types faults
//! ```
//!
//! # Concurrency
//!
//! Every change is an operation (`op::Op`) in one journal handle. Only one handle is open at a
//! time, so changes have one total order. A change is private to its handle until the operation
//! finishes, and then becomes visible as a whole. An operation that is dropped has no effect.
//! Readers are not part of this order: they read published blocks.
//!
//! Locks, in the order in which they are taken:
//! 1. `InCoreInode::content` of **one regular file** (shared: read, seek; exclusive: write,
//!    truncate, fallocate, freeing its blocks), held from before the handle until after it.
//! 2. `InCoreInode::xattr` of one inode (shared: get, list, looking up the data mode; exclusive:
//!    set, remove), the same way.
//! 3. the journal handle.
//! 4. `InCoreInode::content` of **directories**: exclusive, by ascending inode number, only while a
//!    finished operation is published (`Op::finish`). Readers (lookup, readdir) hold it shared and
//!    take no other lock but that of the directory's `Cursors`.

mod alloc;
mod attr;
#[cfg(test)]
mod bench;
mod clock;
mod data_mode;
mod dir;
mod error;
mod extent;
mod facts;
mod faults;
mod file;
mod inode;
pub mod layout;
mod memory;
mod names;
mod op;
mod open;
mod types;
mod volume;
mod xattr;

pub use clock::Clock;
pub use data_mode::{
    ATOMIC_VOLUME_XATTR, ATOMIC_XATTR, DATA_MODE_XATTR, DECLARED_BYTES, DataMode, parse_declared,
};
pub use error::{Error, Holder, NoVolume, Result, WrongJournal};
pub use facts::Spender;
#[doc(hidden)]
pub use faults::Fault;
pub use file::{Allocate, Piece};
pub use journal::{CheckpointPolicy, DeltaCodec, MemoryLimits, Synced, WhenDurable};
pub use layout::claim::Claim;
pub use memory::{FileStat, Pin};
pub use open::{
    Claimant, JournalChoice, NewJournal, OWN_JOURNAL_BYTES_MAX, OpenOptions, RecordedJournal,
    Survey, apply_repair, begin_mkfs, can_be_repaired, change_journal, check_claim, finish_mkfs,
    give_up_journal, is_mkfs_under_way, mend_superblock, recorded_journal, recover_only,
};
pub use types::{
    Attr, DirEntry, FileKind, InodeNo, NewNode, Owner, RenameHow, SeekTo, SetAttr, SetTime, StatFs,
    Timestamp, XattrFlags, uuid_text,
};
pub use volume::{RootVolume, Volume, VolumeAs};
