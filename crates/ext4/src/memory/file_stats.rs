//! Counters of each file: bytes written to it, and bytes that the volume wrote because of them.
//!
//! The counters outlive the closing of a file, but not the mount. The table has a bounded size and
//! two generations of files. A file that is used moves to the younger generation. When that has
//! half of the limit, the older one is dropped and the younger takes its place. So a file whose
//! counters are dropped was not used while 2048 other files were.
//!
//! Lock: one mutex, taken last, held for a few look-ups.

use std::cmp::Reverse;
use std::collections::HashMap;

use device::sync::Mutex;
use journal::{BlockOwner, FORM_COUNT, Observer, Written, WrittenAs};

use crate::InodeNo;

/// The most files in the table.
const FILE_LIMIT: usize = 4096;

/// The counters of a file since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Writes.
    pub app_writes: u64,
    /// Bytes of them.
    pub app_bytes: u64,
    /// Calls of `fsync` and `fdatasync`.
    pub fsyncs: u64,
    /// Bytes of its data in the journal by record form (block, sparse, extent, delta, xor-lzo,
    /// copy, patch): tags and changes, before compression and padding.
    pub journal_bytes: [u64; FORM_COUNT],
    /// Bytes of its data written in place.
    pub in_place_bytes: u64,
    /// Bytes of its data that checkpoints brought home.
    pub home_bytes: u64,
    /// Whether counters were dropped before these began. The file's own may have been among them.
    pub may_be_partial: bool,
}

impl FileStat {
    /// Bytes that were written for it to any place, before compression and padding.
    pub fn written_bytes(&self) -> u64 {
        self.journal_bytes.iter().sum::<u64>() + self.in_place_bytes + self.home_bytes
    }

    fn add(&mut self, how: WrittenAs, len_bytes: u64) {
        let counter = match how {
            WrittenAs::Home => &mut self.home_bytes,
            WrittenAs::InPlace => &mut self.in_place_bytes,
            WrittenAs::Logged { form } => {
                let index = usize::from(form).wrapping_sub(1);
                self.journal_bytes.get_mut(index).expect("the engine knows the form")
            }
        };
        *counter += len_bytes;
    }
}

#[derive(Debug, Default)]
struct Table {
    young: HashMap<InodeNo, FileStat>,
    old: HashMap<InodeNo, FileStat>,
    has_dropped: bool,
}

/// The counters of all files of a volume.
#[derive(Debug, Default)]
pub(crate) struct FileStats {
    table: Mutex<Table>,
}

impl FileStats {
    /// The owner under which the journal counts the content of this file.
    pub(crate) fn owner(ino: InodeNo) -> BlockOwner {
        BlockOwner(ino.0.into())
    }

    /// Counts a write of `len_bytes` bytes by the application.
    pub(crate) fn note_write(&self, ino: InodeNo, len_bytes: usize) {
        let mut table = self.table.lock();
        let stat = table.stat(ino);
        stat.app_writes += 1;
        stat.app_bytes += len_bytes as u64;
    }

    pub(crate) fn note_fsync(&self, ino: InodeNo) {
        self.table.lock().stat(ino).fsyncs += 1;
    }

    /// Counts data of the file that were written home without the engine's buffers.
    pub(crate) fn note_in_place(&self, ino: InodeNo, len_bytes: usize) {
        self.table.lock().stat(ino).add(WrittenAs::InPlace, len_bytes as u64);
    }

    /// Drops the counters: the number now belongs to a new file.
    pub(crate) fn forget(&self, ino: InodeNo) {
        let mut table = self.table.lock();
        table.young.remove(&ino);
        table.old.remove(&ino);
    }

    /// The files with the most bytes written, at most `limit` of them, in this order. Files without
    /// written bytes are left out.
    pub(crate) fn most_written(&self, limit: usize) -> Vec<(InodeNo, FileStat)> {
        let mut files: Vec<_> = {
            let table = self.table.lock();
            let all = table.young.iter().chain(&table.old);
            let written = all.filter(|(_, stat)| stat.app_bytes + stat.written_bytes() > 0);
            written.map(|(ino, stat)| (*ino, *stat)).collect()
        };
        files.sort_unstable_by_key(|(ino, stat)| (Reverse(stat.written_bytes()), *ino));
        files.truncate(limit);
        files
    }

    pub(crate) fn get(&self, ino: InodeNo) -> FileStat {
        let table = self.table.lock();
        let nothing = FileStat { may_be_partial: table.has_dropped, ..FileStat::default() };
        let found = table.young.get(&ino).or_else(|| table.old.get(&ino));
        found.copied().unwrap_or(nothing)
    }
}

/// The owner of data is the number of its inode.
impl Observer for FileStats {
    fn written(&self, written: &[Written]) {
        let mut table = self.table.lock();
        for Written { owner, how, len_bytes } in written {
            // Owners come from `Op::own_data`, which takes inode numbers.
            let Ok(ino) = u32::try_from(owner.0) else { continue };
            table.stat(InodeNo(ino)).add(*how, *len_bytes);
        }
    }
}

impl Table {
    /// The counters of a file, to change them.
    fn stat(&mut self, ino: InodeNo) -> &mut FileStat {
        if !self.young.contains_key(&ino) {
            if self.young.len() >= FILE_LIMIT / 2 {
                self.old = std::mem::take(&mut self.young);
                self.has_dropped = true;
            }
            let nothing = FileStat { may_be_partial: self.has_dropped, ..FileStat::default() };
            let stat = self.old.remove(&ino).unwrap_or(nothing);
            self.young.insert(ino, stat);
        }
        self.young.get_mut(&ino).expect("it is there now")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_counted_for_its_own_file() {
        let stats = FileStats::default();
        let written = |owner, how, len_bytes| Written { owner: BlockOwner(owner), how, len_bytes };
        stats.note_write(InodeNo(12), 100);
        stats.note_write(InodeNo(12), 50);
        stats.note_fsync(InodeNo(12));
        stats.note_fsync(InodeNo(14));
        stats.note_in_place(InodeNo(12), 4096);
        stats.written(&[
            written(12, WrittenAs::Logged { form: 1 }, 4112),
            written(12, WrittenAs::Logged { form: 4 }, 30),
            written(13, WrittenAs::Home, 4096),
            written(12, WrittenAs::InPlace, 4096),
        ]);
        let wanted = FileStat {
            app_writes: 2,
            app_bytes: 150,
            fsyncs: 1,
            journal_bytes: [4112, 0, 0, 30, 0, 0, 0],
            in_place_bytes: 8192,
            ..FileStat::default()
        };
        assert_eq!(stats.get(InodeNo(12)), wanted);
        assert_eq!(stats.get(InodeNo(13)).home_bytes, 4096);
        let order = |limit| stats.most_written(limit).into_iter().map(|(ino, _)| ino.0);
        assert!(order(9).eq([12, 13]) && order(1).eq([12]));
        stats.forget(InodeNo(12));
        assert_eq!(stats.get(InodeNo(12)), FileStat::default());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_used() {
        let stats = FileStats::default();
        for ino in 1..=20_000 {
            stats.note_write(InodeNo(ino), 1);
            stats.note_write(InodeNo(1), 1);
            let table = stats.table.lock();
            assert!(table.young.len() + table.old.len() <= FILE_LIMIT);
        }
        let (used, gone, late) = (InodeNo(1), InodeNo(2), InodeNo(20_000));
        assert_eq!(stats.get(used).app_writes, 20_001);
        assert!(!stats.get(used).may_be_partial);
        assert_eq!((stats.get(gone).app_writes, stats.get(gone).may_be_partial), (0, true));
        assert_eq!((stats.get(late).app_writes, stats.get(late).may_be_partial), (1, true));
    }
}
