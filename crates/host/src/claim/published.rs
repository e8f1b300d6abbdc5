//! Locks that exist to be seen: every process of the machine finds them in `/proc/locks`.
//!
//! A range lock on a private memory file excludes no other user. But the kernel lists it in every
//! namespace, with its range, as long as the process lives. Two facts are published in this way:
//!
//! - A disk is used whose file cannot be opened, and so cannot be locked. The lock is at a *name*
//!   that is made of the file's numbers. Beside it is a lock of the span that is used.
//! - A process lives ([`crate::Living`]). The lock is at a random name.
//!
//! A name is a range of one byte at a place that no span of a disk reaches.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, Stat, memfd_create};

use super::proc_locks::Lock;
use super::range_lock::lock_range;
use crate::access::Access;
use crate::below::backing::{Backing, Root};
use crate::descriptor::above_standard;

/// Names begin here: no disk is as large as that.
const NAMES_FROM: u64 = 1 << 62;

/// The place of a name that is made of `number`.
pub(crate) fn place_of(number: u64) -> u64 {
    NAMES_FROM | number >> 2
}

/// Publishes a lock at `place` until the descriptor is closed.
pub(crate) fn publish(place: u64) -> io::Result<OwnedFd> {
    let file = above_standard(|| memfd_create("onejournal", MemfdFlags::CLOEXEC))?;
    lock_range(&file, Access::ReadOnly, place, place + 1)?;
    Ok(file)
}

/// Whether a process has published a lock at `place`.
pub(crate) fn is_published(place: u64) -> io::Result<bool> {
    Ok(locks()?.iter().any(|lock| lock.is_at(place)))
}

/// Publishes that the span of `disk` is used, for writing or for reading.
pub(crate) fn publish_use(disk: &Backing, access: Access) -> io::Result<OwnedFd> {
    let file = publish(name_of(disk))?;
    lock_range(&file, access, disk.start, disk.end.min(NAMES_FROM))?;
    Ok(file)
}

/// What `/proc/locks` says of the use of a disk.
#[derive(Debug)]
pub(crate) enum Use {
    /// No process has published a use that excludes the caller's.
    None,
    /// A process has published such a use.
    Excluding,
    /// `/proc/locks` cannot be read.
    Unknown(io::Error),
}

/// Finds a published use of a part of `disk` that excludes `access`. `own`: the memory file of the
/// caller's own published use. If it is given, a lock on the disk's own file excludes the caller,
/// too.
pub(crate) fn find_use(disk: &Backing, access: Access, own: Option<&Stat>) -> Use {
    let locks = match locks() {
        Ok(locks) => locks,
        Err(error) => return Use::Unknown(error),
    };
    let name = name_of(disk);
    let own = own.map(|stat| Root::File { device: stat.st_dev, inode: stat.st_ino });
    let published = locks.iter().filter(|lock| lock.is_at(name)).map(Lock::root);
    let mut roots: Vec<Root> = published.filter(|root| Some(*root) != own).collect();
    if own.is_some() {
        roots.push(disk.root);
    }
    let excludes = |lock: &&Lock| access == Access::ReadWrite || lock.is_write;
    let mut spans = locks.iter().filter(excludes).filter(|lock| lock.start < NAMES_FROM);
    let is_part =
        |lock: &Lock| roots.iter().any(|root| lock.is_on(&Backing { root: *root, ..disk.clone() }));
    if spans.any(is_part) { Use::Excluding } else { Use::None }
}

fn name_of(disk: &Backing) -> u64 {
    let mix =
        |state: u64, word: u64| (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let words = match disk.root {
        Root::File { device, inode } => [1, device, inode],
        Root::Disk(device) => [2, device, 0],
    };
    place_of(words.into_iter().fold(0, mix).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The range locks of the machine.
fn locks() -> io::Result<Vec<Lock>> {
    let table = fs::read_to_string("/proc/locks")?;
    Ok(table.lines().filter_map(Lock::parse).filter(|lock| lock.is_range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(inode: u64, start: u64, end: u64) -> Backing {
        let root = Root::File { device: rustix::fs::makedev(8, 1), inode };
        Backing { root, start, end, name: None, whole: None }
    }

    #[test]
    fn a_published_use_is_seen_while_it_lasts_and_where_it_overlaps() {
        let inode = u64::from(std::process::id()) << 32 | 1; // no other test's
        let (read, write) = (Access::ReadOnly, Access::ReadWrite);
        let used = |access, start, end| match find_use(&backing(inode, start, end), access, None) {
            Use::None => false,
            Use::Excluding => true,
            Use::Unknown(error) => panic!("/proc/locks: {error}"),
        };
        let writer = publish_use(&backing(inode, 100, 200), write).expect("publish");
        assert!(used(write, 0, 101) && used(read, 199, u64::MAX));
        assert!(!used(write, 0, 100) && !used(write, 200, u64::MAX));
        let own = rustix::fs::fstat(&writer).expect("stat");
        let others = find_use(&backing(inode, 0, u64::MAX), write, Some(&own));
        assert!(matches!(others, Use::None), "{others:?}");
        let another = find_use(&backing(inode + 1, 0, u64::MAX), write, None);
        assert!(matches!(another, Use::None), "{another:?}");
        drop(writer);
        assert!(!used(write, 0, u64::MAX));
        let _reader = publish_use(&backing(inode, 0, u64::MAX), read).expect("publish");
        assert!(used(write, 7, 8) && !used(read, 7, 8));
    }
}
