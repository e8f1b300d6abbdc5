//! What all records of a database's stream have in common: their header, numbers, and lists of
//! encoded pages.
//!
//! ```text
//! record:  | u8 kind | u8 version | u8 packed | u8 0 | u32 body bytes | body, with LZ4 if packed |
//! ```
//!
//! Numbers are little endian. The log's own record around this one has a length and a CRC32C.

use journal::codec::compress;

use crate::format::page::{self, Form};
use crate::format::wal::Salts;

pub(crate) const VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 8;

/// The largest body. A record of the log (16 MiB) has room for it even if it cannot be compressed.
pub(crate) const BODY_BYTES_MAX: usize = 15 << 20;

/// The list in a record of frames or pages, after the head. It has the count, and for each item the
/// numbers of its kind, the form, and the bytes.
pub(crate) struct Items {
    /// The record so far, with room for its header.
    body: Vec<u8>,
    count_at: usize,
    count: u32,
}

impl Items {
    /// An empty list after a head.
    pub(crate) fn after(mut body: Vec<u8>) -> Items {
        let count_at = body.len();
        put(&mut body, 0);
        Items { body, count_at, count: 0 }
    }

    /// Adds an item: `page` against `base`.
    pub(crate) fn push(&mut self, numbers: &[u32], base: Option<&[u8]>, page: &[u8]) {
        numbers.iter().for_each(|number| put(&mut self.body, *number));
        let form_at = self.body.len();
        self.body.extend_from_slice(&[0; 5]);
        let form = page::encode(base, page, &mut self.body);
        let bytes = u32_of(self.body.len() - form_at - 5);
        self.body[form_at] = form as u8;
        self.body[form_at + 1..form_at + 5].copy_from_slice(&bytes.to_le_bytes());
        self.count += 1;
    }

    /// The record of this kind.
    pub(crate) fn finish(mut self, kind: u8) -> Vec<u8> {
        let count = self.count.to_le_bytes();
        self.body[self.count_at..self.count_at + 4].copy_from_slice(&count);
        finish(kind, self.body)
    }
}

/// A record's header, to be filled in later, with capacity for most bodies.
pub(crate) fn empty() -> Vec<u8> {
    begin(Vec::with_capacity(1024))
}

/// The same, in the memory of `buffer`.
pub(crate) fn begin(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.extend_from_slice(&[0; HEADER_BYTES]);
    buffer
}

/// Completes a record whose body follows the space for the header.
pub(crate) fn finish(kind: u8, mut record: Vec<u8>) -> Vec<u8> {
    let body_bytes = u32_of(record.len() - HEADER_BYTES);
    let is_packed = pack(&mut record);
    record[..4].copy_from_slice(&[kind, VERSION, u8::from(is_packed), 0]);
    record[4..HEADER_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
    record
}

/// Compresses the body, if that makes it smaller. Returns whether it does.
fn pack(record: &mut Vec<u8>) -> bool {
    if record.len() < HEADER_BYTES + compress::MIN_BYTES {
        return false;
    }
    let mut packed = vec![0; HEADER_BYTES];
    let gains = compress::compress_if_gain(&record[HEADER_BYTES..], &mut packed);
    if gains {
        *record = packed;
    }
    gains
}

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// A length as a record stores it.
pub(crate) fn u32_of(number: usize) -> u32 {
    u32::try_from(number).expect("a record is small")
}

/// Reads from the front; `None` at the end.
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn salts(&mut self) -> Option<Salts> {
        self.bytes(8)?.try_into().ok()
    }

    pub(crate) fn page_bytes(&mut self) -> Option<usize> {
        let bytes = self.u32()? as usize;
        let is_sound = bytes == 0 || bytes.is_power_of_two() && (512..=65536).contains(&bytes);
        is_sound.then_some(bytes)
    }

    /// A page of [`Items`]: form and bytes.
    pub(crate) fn encoded_page(&mut self) -> Option<(Form, &'a [u8])> {
        let form = Form::from_number(self.bytes(1)?[0])?;
        let count = self.u32()? as usize;
        Some((form, self.bytes(count)?))
    }
}
