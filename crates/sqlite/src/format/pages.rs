//! The record of a transaction of pages. `record` describes the header around it.
//!
//! ```text
//! pages:  | u32 page bytes | u32 change counter before | u32 change counter after
//!         | u32 pages before | u32 pages after | u32 count
//!         | count times: u32 page, u32 CRC32C of the page, u8 form, u32 bytes, bytes |
//! ```

use crate::failure::Failure;
use crate::format::codec::{Items, Take, empty, put, u32_of};
use crate::format::page::Form;

/// What precedes the pages of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The database's change counter before the transaction.
    pub counter_before: u32,
    /// The change counter after the transaction.
    pub counter_after: u32,
    /// Pages of the database before the transaction. Bytes of the file after them count as zeros.
    pub pages_before: u32,
    /// Pages of the database after the transaction.
    pub pages_after: u32,
}

/// The transactions of a period: the head of each, and the bytes after the head.
pub type Batches = Vec<(Head, Vec<u8>)>;

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// Its number.
    pub number: u32,
    /// CRC32C of the page.
    pub crc: u32,
    /// How `bytes` are to be read.
    pub form: Form,
    /// The page, encoded.
    pub bytes: &'a [u8],
}

/// Number of the kind.
pub const KIND: u8 = 5;

/// Makes a record of pages.
pub struct Writer(Items);

impl Writer {
    /// A record without pages yet.
    pub fn new(head: &Head) -> Writer {
        let mut body = empty();
        put(&mut body, u32_of(head.page_bytes));
        put(&mut body, head.counter_before);
        put(&mut body, head.counter_after);
        put(&mut body, head.pages_before);
        put(&mut body, head.pages_after);
        Writer(Items::after(body))
    }

    /// Adds page `number` against `base`, the page in the file. `None`: it is beyond the end of the
    /// database.
    pub fn push(&mut self, number: u32, base: Option<&[u8]>, page: &[u8]) {
        self.0.push(&[number, crc32c::crc32c(page)], base, page);
    }

    /// The record's bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0.finish(KIND)
    }
}

/// The head of a body; the bytes after it are for [`pages`].
pub fn head(take: &mut Take<'_>) -> Option<Head> {
    let page_bytes = take.page_bytes().filter(|bytes| *bytes > 0)?;
    let [counter_before, counter_after] = [take.u32()?, take.u32()?];
    let [pages_before, pages_after] = [take.u32()?, take.u32()?];
    Some(Head { page_bytes, counter_before, counter_after, pages_before, pages_after })
}

/// The pages after the head of a record.
pub fn pages(bytes: &[u8]) -> Result<Vec<Page<'_>>, Failure> {
    let mut take = Take(bytes);
    let found = read_pages(&mut take).filter(|_| take.0.is_empty());
    found.ok_or_else(|| Failure::Damaged("a record's pages are cut short".into()))
}

fn read_pages<'a>(take: &mut Take<'a>) -> Option<Vec<Page<'a>>> {
    let mut pages = Vec::new();
    for _ in 0..take.u32()? {
        let (number, crc) = (take.u32()?, take.u32()?);
        let (form, bytes) = take.encoded_page()?;
        pages.push(Page { number, crc, form, bytes });
    }
    pages.iter().all(|page| page.number > 0).then_some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Record;

    const HEAD: Head = Head {
        page_bytes: 512,
        counter_before: 7,
        counter_after: 8,
        pages_before: 2,
        pages_after: 3,
    };

    #[test]
    fn golden_bytes() {
        let mut writer = Writer::new(&HEAD);
        let (old, mut new) = ([1; 512], [1; 512]);
        new[100] = 2;
        writer.push(1, Some(&old), &new);
        writer.push(3, None, &[0; 512]);
        let bytes = writer.finish();
        let mut golden = vec![5, 1, 0, 0, 59, 0, 0, 0];
        for number in [512, 7, 8, 2, 3, 2, 1, crc32c::crc32c(&new)] {
            golden.extend_from_slice(&u32::to_le_bytes(number));
        }
        // Form, bytes, and of the only 4 KiB a list of 4 bytes.
        golden.extend_from_slice(&[1, 6, 0, 0, 0, 4, 0, 101, 1, 2, 0]);
        for number in [3, crc32c::crc32c(&[0; 512])] {
            golden.extend_from_slice(&u32::to_le_bytes(number));
        }
        golden.extend_from_slice(&[2, 3, 0, 0, 0, 1, 0, 0]);
        assert_eq!(bytes, golden);
        let Record::Pages(head, rest) = Record::parse(&bytes).expect("valid") else { panic!() };
        assert_eq!(head, HEAD);
        let found = pages(&rest).expect("valid");
        assert_eq!((found[0].number, found[0].form), (1, Form::Delta));
        assert_eq!((found[1].number, found[1].form), (3, Form::Sparse));
        assert!(pages(&rest[..rest.len() - 1]).is_err());
    }
}
