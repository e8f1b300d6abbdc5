//! The frames that SQLite counts: the header of the WAL's index, in the shared memory of all
//! connections (<https://www.sqlite.org/walformat.html#the_wal_index_header>).
//!
//! A connection that holds the write lock finds here which frame its own frames follow.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::format::wal::{Checksum, Salts};

const VERSION: u32 = 3_007_000;
/// Words of the header, which is stored twice.
const HEADER_WORDS: usize = 12;
/// Bytes of both copies.
pub const HEADERS_BYTES: usize = 2 * HEADER_WORDS * 4;

/// The frames that SQLite counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Salts of their generation.
    pub salts: Salts,
    /// Their number.
    pub frames: u32,
    /// Checksum of the last one; meaningless if there is none.
    pub checksum: Checksum,
}

/// The first region of a WAL's index.
#[derive(Clone, Copy)]
pub struct WalIndex(NonNull<u32>);

impl WalIndex {
    /// # Safety
    /// `region` is null or that region, of at least [`HEADERS_BYTES`], and mapped as long as this
    /// and its copies are used.
    pub unsafe fn new(region: *mut c_void) -> Option<WalIndex> {
        let words = NonNull::new(region.cast::<u32>())?;
        words.is_aligned().then_some(WalIndex(words))
    }

    /// The present count. `None`: the header is being changed, or has an unknown form.
    pub fn counted(self) -> Option<Counted> {
        let first = self.header(0);
        fence(Ordering::Acquire);
        (self.header(HEADER_WORDS) == first).then_some(first).and_then(counted)
    }

    /// The salts of the WAL, also while the header is being changed. Only a restart of the WAL or a
    /// new index changes them.
    pub fn salts(self) -> Salts {
        salts(self.header(0))
    }

    fn header(self, at: usize) -> [u32; HEADER_WORDS] {
        // SAFETY: both headers are in the region, which is mapped and aligned (`new`); SQLite
        // changes them in other processes and threads, with plain stores of words.
        std::array::from_fn(|index| unsafe {
            AtomicU32::from_ptr(self.0.as_ptr().add(at + index)).load(Ordering::Relaxed)
        })
    }
}

fn counted(header: [u32; HEADER_WORDS]) -> Option<Counted> {
    let [version, _, _, about, frames, _, s0, s1, ..] = header;
    let is_init = about.to_ne_bytes()[0] == 1;
    let counted = Counted { salts: salts(header), frames, checksum: [s0, s1] };
    (version == VERSION && is_init).then_some(counted)
}

fn salts(header: [u32; HEADER_WORDS]) -> Salts {
    let [.., salt0, salt1, _, _] = header;
    let mut salts = [0; 8];
    salts[..4].copy_from_slice(&salt0.to_ne_bytes());
    salts[4..].copy_from_slice(&salt1.to_ne_bytes());
    salts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::wal::{FrameHeader, Header};

    /// Compares the index that SQLite writes for a database with its WAL.
    #[test]
    fn as_sqlite_writes_it() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let path = home.path().join("a.db");
        let database = rusqlite::Connection::open(&path).expect("open");
        database.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)").expect("a table");
        for value in 0..20 {
            database.execute("INSERT INTO t VALUES(?1)", [value]).expect("insert");
            let wal = std::fs::read(home.path().join("a.db-wal")).expect("the WAL");
            let header = Header::parse(&wal).expect("a header");
            let frames = header.frames_before(wal.len() as u64);
            let last = FrameHeader::parse(&wal[header.frame_at(frames) as usize..]);
            let index = std::fs::read(home.path().join("a.db-shm")).expect("the index");
            let mut words: Vec<u32> = index[..HEADERS_BYTES]
                .chunks(4)
                .map(|word| u32::from_ne_bytes(word.try_into().expect("four")))
                .collect();
            let found = |words: &mut [u32]| {
                // SAFETY: as many words as are read, which live until the end of this call.
                unsafe { WalIndex::new(words.as_mut_ptr().cast()) }.expect("not null").counted()
            };
            let wanted = Counted { salts: header.salts, frames, checksum: last.checksum };
            assert_eq!(found(&mut words), Some(wanted));
            for changed in [4, HEADER_WORDS + 6] {
                words[changed] ^= 1;
                assert_eq!(found(&mut words), None, "the two are not the same");
                words[changed] ^= 1;
            }
            for other in [0, HEADER_WORDS] {
                words[other] += 1;
            }
            assert_eq!(found(&mut words), None, "another version");
        }
    }
}
