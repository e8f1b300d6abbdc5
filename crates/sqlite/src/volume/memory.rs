//! A rollback journal that exists in memory only.

/// The start of a journal's header (SQLite's file format, "The Rollback Journal").
pub const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Most bytes of a journal in memory.
const BYTES_MAX: usize = 1 << 20;
/// Where the header has the size of a page.
const PAGE_SIZE_AT: usize = 24;

/// The bytes of the journal.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

impl Memory {
    /// Whether the journal has what undoes a transaction. The end of a transaction removes the
    /// journal, empties it, or writes zeros over the header.
    pub fn is_valid(&self) -> bool {
        self.bytes.starts_with(&MAGIC)
    }

    /// The size of a page of the database, as the header says.
    pub fn page_bytes(&self) -> Option<usize> {
        let field = self.bytes.get(PAGE_SIZE_AT..PAGE_SIZE_AT + 4)?;
        let bytes = u32::from_be_bytes(field.try_into().expect("4 bytes"));
        (bytes.is_power_of_two() && (512..=65_536).contains(&bytes)).then_some(bytes as usize)
    }

    /// Takes a write. `false`: the journal would be too large, and is as it was.
    #[must_use]
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(bytes.len()));
        let Some(end) = end.filter(|end| *end <= BYTES_MAX) else { return false };
        if at == 0 && bytes.starts_with(&MAGIC) && !self.is_valid() {
            // The bytes are of an earlier transaction, with `journal_mode=PERSIST`.
            self.bytes.clear();
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[end - bytes.len()..end].copy_from_slice(bytes);
        true
    }

    /// Reads bytes; those after the end are zeros. `false`: some are after the end.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let there = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..)).unwrap_or(&[]);
        let count = there.len().min(to.len());
        to[..count].copy_from_slice(&there[..count]);
        to[count..].fill(0);
        count == to.len()
    }

    /// Makes the journal `size` bytes long.
    pub fn truncate(&mut self, size: u64) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.bytes.truncate(size);
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(page_bytes: u32) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..8].copy_from_slice(&MAGIC);
        header[24..28].copy_from_slice(&page_bytes.to_be_bytes());
        header
    }

    #[test]
    fn it_is_valid_from_the_header_to_the_end_of_the_transaction() {
        let mut memory = Memory::default();
        assert!(!memory.is_valid() && memory.page_bytes().is_none());
        assert!(memory.write(0, &header(4096)));
        assert!(memory.is_valid());
        assert_eq!(memory.page_bytes(), Some(4096));
        assert!(memory.write(0, &[0; 28]));
        assert!(!memory.is_valid());
        assert!(memory.write(512, &[7; 100]) && memory.write(0, &header(1024)));
        assert_eq!((memory.bytes().len(), memory.page_bytes()), (512, Some(1024)));
        memory.truncate(0);
        assert!(!memory.is_valid() && memory.bytes().is_empty());
        assert!(memory.write(0, &header(1000)));
        assert_eq!(memory.page_bytes(), None);
    }

    #[test]
    fn it_reads_as_a_file() {
        let mut memory = Memory::default();
        assert!(memory.write(10, b"abc"));
        let mut to = [9; 6];
        assert!(!memory.read(8, &mut to));
        assert_eq!(to, *b"\0\0abc\0");
        assert!(memory.read(11, &mut to[..2]));
        assert_eq!(to[..2], *b"bc");
        assert!(!memory.read(u64::MAX, &mut to));
        assert_eq!(to, [0; 6]);
    }

    #[test]
    fn a_write_that_is_too_much_changes_nothing() {
        let mut memory = Memory::default();
        assert!(memory.write(0, b"abc"));
        assert!(!memory.write(BYTES_MAX as u64 - 1, b"de") && !memory.write(u64::MAX, b"d"));
        assert_eq!(memory.bytes(), b"abc");
        assert!(memory.write(BYTES_MAX as u64 - 1, b"d"));
    }
}
