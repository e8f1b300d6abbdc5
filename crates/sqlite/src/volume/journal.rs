//! Holds back the records of a rollback journal that is a file on a volume, where each write is a
//! request to the volume's process.
//!
//! SQLite writes the header of the journal, and for each page that a transaction changes its
//! number, its old content and a checksum: three writes. The records matter only once the database
//! is changed. On a volume SQLite is told that writes keep their order, so it does not sync them
//! before. So they are held back until SQLite writes to the database or looks at the journal, and
//! then written with one request.
//!
//! Invariants:
//! 1. No write to the database reaches the volume before everything that is held.
//! 2. Only new records are held: a header, which begins with SQLite's magic, and what directly
//!    follows it or records that were held before. Any other write, such as the zeros that end a
//!    transaction with `journal_mode=PERSIST`, reaches the volume at once, after everything that is
//!    held.
//! 3. Nothing is held when the connection gives up its lock, or the journal is closed. Records that
//!    are still held then belong to changes that were not made, and are dropped.
//!
//! If the process dies, records that were held are lost with the changes that they would undo. The
//! journal is then empty, or has the records of the changes that were made.

use std::rc::Rc;

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::volume::memory::MAGIC;

/// Most bytes that may be held.
const HELD_BYTES_MAX: usize = 1 << 20;

/// The records that are held back, and the journal, which is open.
pub struct HeldJournal {
    journal: Rc<Real>,
    records: Records,
}

/// Records of a journal that are held back.
#[derive(Default)]
struct Records {
    begin: u64,
    bytes: Vec<u8>,
    /// Where the records that were held before end.
    written_end: Option<u64>,
}

impl Records {
    /// Takes a write, if it may be held.
    fn push(&mut self, at: u64, bytes: &[u8]) -> bool {
        let is_next = match self.bytes.is_empty() {
            true => bytes.starts_with(&MAGIC) || self.written_end == Some(at),
            false => at == self.begin + self.bytes.len() as u64,
        };
        if !is_next || self.bytes.len() + bytes.len() > HELD_BYTES_MAX {
            return false;
        }
        if self.bytes.is_empty() {
            self.begin = at;
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Passes everything that is held to `write`, as one write. If that fails it stays held.
    fn settle(
        &mut self,
        write: impl FnOnce(u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.bytes.is_empty() {
            write(self.begin, &self.bytes)?;
            self.written_end = Some(self.begin + self.bytes.len() as u64);
            self.bytes.clear();
        }
        Ok(())
    }
}

impl HeldJournal {
    /// Takes over a journal that was opened for writing.
    pub fn new(journal: Rc<Real>) -> HeldJournal {
        HeldJournal { journal, records: Records::default() }
    }

    /// Takes a write to the journal.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        if self.records.push(at, bytes) {
            return Ok(());
        }
        self.settle()?;
        if self.records.push(at, bytes) { Ok(()) } else { self.journal.write(at, bytes) }
    }

    /// Writes everything that is held.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.records.settle(|at, bytes| self.journal.write(at, bytes))
    }

    /// The connection gives up its lock.
    pub fn forget(&mut self) {
        self.records = Records::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type File = Vec<(u64, Vec<u8>)>;

    /// Pushes a write as the VFS does. Returns the writes that reach the file.
    fn apply(records: &mut Records, at: u64, bytes: &[u8], file: &mut File) {
        if records.push(at, bytes) {
            return;
        }
        settle(records, file);
        if !records.push(at, bytes) {
            file.push((at, bytes.to_vec()));
        }
    }

    fn settle(records: &mut Records, file: &mut File) {
        let put = |at, bytes: &[u8]| -> Result<(), Failure> {
            file.push((at, bytes.to_vec()));
            Ok(())
        };
        records.settle(put).expect("it takes all");
    }

    fn header() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes
    }

    #[test]
    fn the_records_of_a_transaction_are_one_write() {
        let (mut records, mut file) = (Records::default(), Vec::new());
        apply(&mut records, 0, &header(), &mut file);
        let mut at = 512;
        for _ in 0..30 {
            for piece in [&[1; 4][..], &[2; 4096], &[3; 4]] {
                apply(&mut records, at, piece, &mut file);
                at += piece.len() as u64;
            }
        }
        assert!(file.is_empty());
        settle(&mut records, &mut file);
        assert_eq!((file.len(), file[0].0, file[0].1.len() as u64), (1, 0, at));
    }

    /// With `journal_mode=PERSIST` they are the commit.
    #[test]
    fn zeros_over_the_header_are_not_held() {
        let (mut records, mut file) = (Records::default(), Vec::new());
        apply(&mut records, 0, &header(), &mut file);
        apply(&mut records, 0, &[0; 28], &mut file);
        assert_eq!(file, [(0, header()), (0, vec![0; 28])]);
        assert!(records.bytes.is_empty());
    }

    #[test]
    fn no_more_is_held_than_a_mebibyte() {
        let (mut records, mut file) = (Records::default(), Vec::new());
        apply(&mut records, 0, &header(), &mut file);
        for number in 0..3 << 10 {
            apply(&mut records, 512 + number * 512, &[1; 512], &mut file);
        }
        assert!(file.iter().all(|(_, bytes)| bytes.len() <= HELD_BYTES_MAX));
        assert!(file[0].1.len() > HELD_BYTES_MAX - 512);
        assert_eq!(file.len(), 1, "what follows is held again");
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        /// For any writes: the file ends as if nothing had been held.
        #[test]
        fn the_file_is_the_same(
            writes in proptest::collection::vec((0..40_u64, 0..3_usize), 1..60),
        ) {
            let (mut records, mut file) = (Records::default(), Vec::new());
            let mut wanted = vec![0; 64 * 512];
            let mut next = 0;
            for (value, (number, what)) in (1..).zip(writes) {
                let (at, bytes) = match what {
                    0 => (number * 512, header()),
                    1 => (next, vec![value; 100]),
                    _ => (number * 512, vec![value; 28]),
                };
                next = (at + bytes.len() as u64).min(60 * 512);
                wanted[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                apply(&mut records, at, &bytes, &mut file);
            }
            settle(&mut records, &mut file);
            let mut found = vec![0; wanted.len()];
            for (at, bytes) in &file {
                found[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
