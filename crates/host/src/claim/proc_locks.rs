//! The locks of the machine, as `/proc` shows them.

use crate::below::backing::{Backing, Root};

/// A line of `/proc/locks`, or the text after `lock:` of `/proc/PID/fdinfo/N`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Made by [`range_lock`](super::range_lock), not by `flock`.
    pub(crate) is_range: bool,
    pub(crate) is_write: bool,
    /// Number of the file system, as the kernel shows it for locks.
    device: u64,
    inode: u64,
    pub(crate) start: u64,
    /// Exclusive.
    end: u64,
}

impl Lock {
    pub(crate) fn parse(line: &str) -> Option<Lock> {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A process that waits for a lock stands after the holder, with an arrow.
        let [_, kind, _, access, _, place, start, end] = words[..] else { return None };
        let mut numbers = place.splitn(3, ':');
        let mut hex = || u32::from_str_radix(numbers.next()?, 16).ok();
        let device = rustix::fs::makedev(hex()?, hex()?);
        Some(Lock {
            is_range: kind == "OFDLCK",
            is_write: access == "WRITE",
            device,
            inode: numbers.next()?.parse().ok()?,
            start: start.parse().ok()?,
            end: if end == "EOF" { u64::MAX } else { end.parse::<u64>().ok()?.checked_add(1)? },
        })
    }

    /// Whether the locked range begins at `place`.
    pub(crate) fn is_at(&self, place: u64) -> bool {
        self.start == place
    }

    /// The file that is locked.
    pub(crate) fn root(&self) -> Root {
        Root::File { device: self.device, inode: self.inode }
    }

    /// Whether it is a lock of a part of `disk`.
    pub(crate) fn is_on(&self, disk: &Backing) -> bool {
        let Root::File { device, inode } = disk.root else { return false };
        self.inode == inode
            && is_same_file_system(self.device, device)
            && self.start < disk.end
            && disk.start < self.end
    }
}

/// File systems without a block device (btrfs, overlayfs) have one number in `stat` and another one
/// for locks. So any two such numbers may belong to the same file system.
fn is_same_file_system(one: u64, other: u64) -> bool {
    one == other || rustix::fs::major(one) == 0 && rustix::fs::major(other) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(device: u64, start: u64, end: u64) -> Backing {
        let root = Root::File { device, inode: 77 };
        Backing { root, start, end, name: None, whole: None }
    }

    #[test]
    fn a_line_of_the_locks() {
        let lock = Lock::parse("3: OFDLCK ADVISORY  WRITE -1 fe:01:77 512 1023").expect("a lock");
        let device = rustix::fs::makedev(0xfe, 1);
        let expected =
            Lock { is_range: true, is_write: true, device, inode: 77, start: 512, end: 1024 };
        assert_eq!(lock, expected);
        assert!(lock.is_on(&backing(device, 1023, 2048)));
        assert!(!lock.is_on(&backing(device, 1024, 2048)));
        assert!(!lock.is_on(&backing(rustix::fs::makedev(0xfe, 2), 0, u64::MAX)));
        let flock = Lock::parse("1: FLOCK  ADVISORY  WRITE 8263 fe:01:77 0 EOF").expect("a lock");
        assert!(!flock.is_range && flock.end == u64::MAX);
        assert_eq!(Lock::parse("1: -> FLOCK  ADVISORY  WRITE 8263 fe:01:77 0 EOF"), None);
        assert_eq!(Lock::parse("1: FLOCK"), None);
    }

    #[test]
    fn numbers_of_file_systems_without_a_device_are_not_compared() {
        let [one, other] = [35, 36].map(|minor| rustix::fs::makedev(0, minor));
        assert!(is_same_file_system(one, other));
        assert!(!is_same_file_system(one, rustix::fs::makedev(8, 1)));
    }
}
