//! The pages that a transaction writes, in memory between *begin* and *commit*.

use std::collections::BTreeMap;

/// The most bytes that are held. For more, SQLite writes a journal, as for a transaction that does
/// not fit into its page cache.
pub const HELD_BYTES_MAX: usize = 8 << 20;

/// Pages of one size, by number.
#[derive(Debug, Default)]
pub struct HeldPages {
    page_bytes: usize,
    /// The offset of each page's bytes.
    offsets: BTreeMap<u32, usize>,
    bytes: Vec<u8>,
    /// The size of the database in bytes, if SQLite has told it.
    pub size_hint: Option<i64>,
}

impl HeldPages {
    /// Bytes of a page; 0 while no page is held.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Holds a write. `false`: it is not a page, or too much would be held.
    #[must_use]
    pub fn push(&mut self, at: u64, page: &[u8]) -> bool {
        if self.offsets.is_empty() {
            self.page_bytes = page.len();
        }
        let is_page = !page.is_empty()
            && page.len() == self.page_bytes
            && at.is_multiple_of(page.len() as u64);
        let Some(number) = is_page.then(|| at / page.len() as u64 + 1) else { return false };
        let Ok(number) = u32::try_from(number) else { return false };
        if let Some(offset) = self.offsets.get(&number) {
            self.bytes[*offset..offset + page.len()].copy_from_slice(page);
            return true;
        }
        if self.bytes.len() + page.len() > HELD_BYTES_MAX {
            return false;
        }
        self.offsets.insert(number, self.bytes.len());
        self.bytes.extend_from_slice(page);
        true
    }

    /// The pages, by number.
    pub fn pages(&self) -> impl DoubleEndedIterator<Item = (u32, &[u8])> {
        self.offsets.iter().map(|(page, at)| (*page, &self.bytes[*at..at + self.page_bytes]))
    }

    /// Whether the transaction writes this page.
    pub fn has(&self, page: u32) -> bool {
        self.offsets.contains_key(&page)
    }

    /// Page 1.
    pub fn first(&self) -> Option<&[u8]> {
        self.pages().next().filter(|(page, _)| *page == 1).map(|(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_held_once_and_in_order() {
        let mut held = HeldPages::default();
        assert!(
            held.push(1024, &[2; 512]) && held.push(0, &[1; 512]) && held.push(1024, &[3; 512])
        );
        let pages: Vec<(u32, u8)> = held.pages().map(|(page, bytes)| (page, bytes[511])).collect();
        assert_eq!(pages, [(1, 1), (3, 3)]);
        assert_eq!(held.first(), Some(&[1; 512][..]));
    }

    #[test]
    fn a_write_that_is_no_page_or_too_much_is_refused() {
        let mut held = HeldPages::default();
        assert!(held.push(512, &[0; 512]));
        assert!(!held.push(100, &[0; 512]) && !held.push(0, &[0; 1024]) && !held.push(0, &[]));
        assert_eq!(held.first(), None);
        let mut held = HeldPages::default();
        let count = (HELD_BYTES_MAX / 65536) as u64;
        assert!((0..count).all(|page| held.push(page * 65536, &[1; 65536])));
        assert!(!held.push(count * 65536, &[1; 65536]) && held.push(0, &[2; 65536]));
    }
}
