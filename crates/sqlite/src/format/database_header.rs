//! The header of a database file, its first 100 bytes: page size, change counter, size in pages
//! (the file format: <https://www.sqlite.org/fileformat2.html#the_database_header>).

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::format::wal;

/// Bytes of the header.
pub const DATABASE_HEADER_BYTES: usize = 100;

/// The header of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Its change counter.
    pub change_counter: u32,
    /// CRC32C of the header.
    pub crc: u32,
    /// Whether it was last written in WAL mode.
    pub is_in_wal_mode: bool,
    /// Number of pages. `None`: the last writer did not maintain that field, so the file's size
    /// counts.
    page_count: Option<u32>,
}

impl DatabaseHeader {
    /// The header at the start of `bytes`; `None` if they are not one.
    pub fn parse(bytes: &[u8]) -> Option<DatabaseHeader> {
        let bytes = bytes.get(..DATABASE_HEADER_BYTES)?;
        let be32 =
            |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let change_counter = wal::change_counter(bytes);
        let is_kept = be32(92) == change_counter && be32(28) > 0;
        Some(DatabaseHeader {
            page_bytes: wal::database_page_bytes(bytes)?,
            change_counter,
            crc: crc32c::crc32c(bytes),
            is_in_wal_mode: bytes[18] == 2,
            page_count: is_kept.then(|| be32(28)),
        })
    }

    /// The header of an open database.
    pub fn read(main: &Real) -> Result<Option<DatabaseHeader>, Failure> {
        let mut bytes = [0; DATABASE_HEADER_BYTES];
        let count = main.read(0, &mut bytes)?;
        Ok(DatabaseHeader::parse(&bytes[..count]))
    }

    /// Pages of a database whose file has `file_bytes`.
    pub fn pages_in(&self, file_bytes: u64) -> u32 {
        let in_file = u32::try_from(file_bytes / self.page_bytes as u64).unwrap_or(u32::MAX);
        self.page_count.map_or(in_file, |count| count.min(in_file))
    }

    /// Number of pages by the header, if it gives one.
    pub fn page_count(&self) -> Option<u32> {
        self.page_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> [u8; DATABASE_HEADER_BYTES] {
        let mut bytes = [0; DATABASE_HEADER_BYTES];
        bytes[..16].copy_from_slice(b"SQLite format 3\0");
        bytes[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        for at in [24, 92] {
            bytes[at..at + 4].copy_from_slice(&7_u32.to_be_bytes());
        }
        bytes[28..32].copy_from_slice(&3_u32.to_be_bytes());
        bytes
    }

    #[test]
    fn golden_header() {
        let header = DatabaseHeader::parse(&bytes()).expect("valid");
        assert_eq!((header.page_bytes, header.change_counter), (4096, 7));
        assert_eq!((header.page_count(), header.pages_in(5 * 4096)), (Some(3), 3));
        assert_eq!(header.pages_in(2 * 4096 + 9), 2, "the file is shorter");
        assert_eq!(DatabaseHeader::parse(&bytes()[..99]), None);
        let mut old = bytes();
        old[95] = 6;
        let old = DatabaseHeader::parse(&old).expect("valid");
        assert_eq!((old.page_count(), old.pages_in(5 * 4096 + 1)), (None, 5));
    }
}
