//! Pages of a database that a transaction has written, and that are still in memory.

use std::collections::BTreeMap;

/// Most bytes that are held.
const BYTES_MAX: usize = 1 << 20;

/// Pages of one size, by their offset.
#[derive(Debug, Default)]
pub struct Pages {
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Pages {
    /// Whether no page is held.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Holds a write to a database with pages of this size. `false`: it is not a page, or too much
    /// would be held.
    #[must_use]
    pub fn push(&mut self, at: u64, page: &[u8], page_bytes: usize) -> bool {
        if page.len() != page_bytes || !at.is_multiple_of(page_bytes as u64) {
            return false;
        }
        let is_same_size = self.pages.values().next().is_none_or(|it| it.len() == page_bytes);
        let is_new = !self.pages.contains_key(&at);
        if !is_same_size || is_new && (self.pages.len() + 1) * page_bytes > BYTES_MAX {
            return false;
        }
        self.pages.insert(at, page.into());
        true
    }

    /// Where the last page ends; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.pages.last_key_value().map_or(0, |(at, page)| at + page.len() as u64)
    }

    /// Puts the bytes of held pages over `to`, which has the file's bytes at `at`. Returns whether
    /// held pages are all of it.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let end = at + to.len() as u64;
        let page_bytes = self.pages.values().next().map_or(0, |page| page.len() as u64);
        let mut count = 0;
        for (offset, page) in self.pages.range(at.saturating_sub(page_bytes)..end) {
            let (from, until) = (at.max(*offset), end.min(offset + page_bytes));
            if from < until {
                let within = |of: u64, base: u64| (of - base) as usize;
                let source = &page[within(from, *offset)..within(until, *offset)];
                to[within(from, at)..within(until, at)].copy_from_slice(source);
                count += source.len();
            }
        }
        count == to.len()
    }

    /// Drops the pages from `size` on. `false`: a page begins before and ends after that, so
    /// nothing was dropped.
    #[must_use]
    pub fn truncate(&mut self, size: u64) -> bool {
        let page_bytes = self.pages.values().next().map_or(1, |page| page.len() as u64);
        if !size.is_multiple_of(page_bytes) {
            return false;
        }
        self.pages.split_off(&size);
        true
    }

    /// Runs of adjacent pages: where each begins, and its bytes.
    pub fn runs(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, page) in &self.pages {
            match runs.last_mut() {
                Some((begin, run)) if *begin + run.len() as u64 == *at => {
                    run.extend_from_slice(page);
                }
                _ => runs.push((*at, page.to_vec())),
            }
        }
        runs
    }

    /// Drops all pages.
    pub fn clear(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_pages_of_one_size_are_held() {
        let mut pages = Pages::default();
        assert!(!pages.push(512, &[1; 100], 512) && !pages.push(100, &[1; 512], 512));
        assert!(pages.is_empty() && pages.end() == 0);
        assert!(pages.push(512, &[1; 512], 512));
        assert!(!pages.push(1024, &[1; 1024], 1024));
        assert_eq!(pages.end(), 1024);
    }

    #[test]
    fn no_more_is_held_than_a_mebibyte() {
        let mut pages = Pages::default();
        for number in 0..16 {
            assert!(pages.push(number << 16, &[1; 65_536], 65_536));
        }
        assert!(!pages.push(16 << 16, &[1; 65_536], 65_536));
        assert!(pages.push(3 << 16, &[2; 65_536], 65_536), "it is held already");
    }

    #[test]
    fn a_page_is_not_cut() {
        let mut pages = Pages::default();
        assert!(pages.push(512, &[1; 512], 512) && pages.push(1024, &[2; 512], 512));
        assert!(!pages.truncate(1100));
        assert_eq!(pages.end(), 1536);
        assert!(pages.truncate(1024));
        assert_eq!(pages.end(), 1024);
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        /// For any writes: what is read, and what the runs make of the file, is as if they had gone
        /// to the file.
        #[test]
        fn it_reads_as_the_file_would(
            writes in proptest::collection::vec(0..30_u64, 0..40),
            reads in proptest::collection::vec((0..20_000_u64, 1..3000_usize), 1..20),
        ) {
            let before: Vec<u8> = (0..16_384_u32).map(|at| (at / 77) as u8 | 0x80).collect();
            let (mut pages, mut wanted) = (Pages::default(), before.clone());
            for (value, number) in (1..).zip(writes) {
                let at = number as usize * 512;
                prop_assert!(pages.push(number * 512, &[value; 512], 512));
                wanted.resize(wanted.len().max(at + 512), 0);
                wanted[at..at + 512].fill(value);
            }
            for (at, len) in reads {
                let end = at as usize + len;
                let zeros = |bytes: &[u8]| vec![0; end.saturating_sub(bytes.len())];
                let pad = |bytes: &[u8]| [bytes, &zeros(bytes)].concat();
                let mut to = pad(&before)[at as usize..end].to_vec();
                pages.read(at, &mut to);
                prop_assert_eq!(&to, &pad(&wanted)[at as usize..end]);
            }
            let mut file = before;
            for (at, run) in pages.runs() {
                let end = at as usize + run.len();
                file.resize(file.len().max(end), 0);
                file[at as usize..end].copy_from_slice(&run);
            }
            prop_assert_eq!(file, wanted);
        }
    }
}
