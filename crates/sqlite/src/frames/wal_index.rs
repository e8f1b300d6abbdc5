//! The frames that SQLite counts: the header of the WAL's index, in the shared memory of all
//! connections (<https://www.sqlite.org/walformat.html#the_wal_index_header>).
//!
//! A connection that holds the write lock finds here which frame its own frames follow.

use std::sync::atomic::{Ordering, fence};

use crate::abi::real::{INDEX_WORDS, Real};
use crate::format::wal::{Checksum, Salts};

const VERSION: u32 = 3_007_000;
/// Words of the header, which is stored twice.
const HEADER_WORDS: usize = 12;
const _: () = assert!(2 * HEADER_WORDS == INDEX_WORDS, "both copies can be read");

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

/// The present count, in the WAL's index of the database `main`. `None`: the index is not mapped,
/// its header is being changed, or it has an unknown form.
pub fn counted_in(main: &Real) -> Option<Counted> {
    let first = main.index_words(0)?;
    fence(Ordering::Acquire);
    counted_by([first, main.index_words(HEADER_WORDS)?])
}

/// The salts of the WAL of the database `main`, also while the header is being changed. Only a
/// restart of the WAL or a new index changes them. `None`: the index is not mapped.
pub fn salts_in(main: &Real) -> Option<Salts> {
    main.index_words(0).map(salts)
}

/// The count by the two copies of the header, which were read in this order.
fn counted_by([first, second]: [[u32; HEADER_WORDS]; 2]) -> Option<Counted> {
    (first == second).then_some(first).and_then(counted)
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
            let word =
                |at: usize| u32::from_ne_bytes(index[4 * at..][..4].try_into().expect("four"));
            let mut words: [u32; INDEX_WORDS] = std::array::from_fn(word);
            let found = |words: &[u32; INDEX_WORDS]| {
                let copies = words.chunks(HEADER_WORDS).map(|copy| copy.try_into());
                let copies: Vec<_> = copies.collect::<Result<_, _>>().expect("two copies");
                counted_by(copies.try_into().expect("two copies"))
            };
            let wanted = Counted { salts: header.salts, frames, checksum: last.checksum };
            assert_eq!(found(&words), Some(wanted));
            for changed in [4, HEADER_WORDS + 6] {
                words[changed] ^= 1;
                assert_eq!(found(&words), None, "the two are not the same");
                words[changed] ^= 1;
            }
            for other in [0, HEADER_WORDS] {
                words[other] += 1;
            }
            assert_eq!(found(&words), None, "another version");
        }
    }
}
