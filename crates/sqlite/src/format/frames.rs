//! The record *frames*: frames of one generation of the WAL, each with the bytes that changed.
//!
//! ```text
//! frames:  | salts 8 | u32 page bytes | u32 change counter | u32 first frame | checksum 8
//!          | u8 byte order | u32 count
//!          | count times: u32 page, u32 commit pages, checksum 8, u32 base crc, u8 form, u32 bytes, bytes |
//! ```
//!
//! A frame's only checksum is SQLite's, from the frame's header in the WAL. It covers the page and
//! all frames before it. The checksum of the page alone is computed from it and from the checksum
//! of the frame before (`wal::page_checksum`), so recovery can check each page by itself.

use crate::failure::Failure;
use crate::format::codec::{Items, Take, begin, put, u32_of};
use crate::format::page::Form;
use crate::format::wal::{self, Checksum, FrameHeader, Salts};

/// Number of the kind.
pub const KIND: u8 = 6;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Number of the page.
    pub page: u32,
    /// The database's size in pages after a commit, as in the frame's header.
    pub commit_pages: u32,
    /// The checksum of the frame's header, up to and including this frame.
    pub checksum: Checksum,
    /// The checksum of the page alone.
    page_checksum: Checksum,
    is_big_endian: bool,
    /// CRC32C of the version of the page that the frame was logged against; 0 if there was none.
    base_crc: u32,
    /// How `bytes` are to be read.
    pub form: Form,
    /// The page, encoded.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Whether `page` is the content of the frame.
    pub fn holds(&self, page: &[u8]) -> bool {
        wal::checksum(self.is_big_endian, [0; 2], page) == self.page_checksum
    }

    /// Whether `page` is the version that the frame was logged against.
    pub fn is_based_on(&self, page: &[u8]) -> bool {
        self.base_crc != 0 && crc32c::crc32c(page) == self.base_crc
    }

    /// Whether the frame was logged without an earlier version of the page.
    pub fn has_no_base(&self) -> bool {
        self.base_crc == 0
    }
}

/// What precedes the frames of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesHead {
    /// The generation.
    pub salts: Salts,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The database's change counter after the last frame.
    pub change_counter: u32,
    /// Number of the first frame.
    pub first: u32,
    /// Checksum of the frame before the first, or of the WAL's header.
    pub checksum: Checksum,
    /// Whether the WAL's checksums are over big-endian words.
    pub is_big_endian: bool,
}

/// The frames after the head of a record.
pub fn frames<'a>(head: &FramesHead, bytes: &'a [u8]) -> Result<Vec<Frame<'a>>, Failure> {
    let mut take = Take(bytes);
    take.frames(head).ok_or_else(|| Failure::Damaged("a record's frames are cut short".into()))
}

/// Makes a record of frames.
pub struct FramesWriter(Items);

impl FramesWriter {
    /// A record without frames yet, in the memory of `buffer`.
    pub fn new(head: &FramesHead, buffer: Vec<u8>) -> FramesWriter {
        let mut body = begin(buffer);
        body.extend_from_slice(&head.salts);
        put(&mut body, u32_of(head.page_bytes));
        put(&mut body, head.change_counter);
        put(&mut body, head.first);
        put(&mut body, head.checksum[0]);
        put(&mut body, head.checksum[1]);
        body.push(u8::from(head.is_big_endian));
        FramesWriter(Items::after(body))
    }

    /// Adds the frame with this header: `page` against `base`.
    pub fn push(&mut self, frame: &FrameHeader, base: Option<&[u8]>, page: &[u8]) {
        let [s0, s1] = frame.checksum;
        let base_crc = base.map_or(0, crc32c::crc32c);
        self.0.push(&[frame.page, frame.commit_pages, s0, s1, base_crc], base, page);
    }

    /// The record's bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0.finish(KIND)
    }
}

impl<'a> Take<'a> {
    pub(crate) fn head(&mut self) -> Option<FramesHead> {
        let salts = self.salts()?;
        let page_bytes = self.page_bytes().filter(|bytes| *bytes > 0)?;
        let (change_counter, first) = (self.u32()?, self.u32()?);
        let checksum = [self.u32()?, self.u32()?];
        let is_big_endian = match self.bytes(1)?[0] {
            0 => false,
            1 => true,
            _ => return None,
        };
        let head = FramesHead { salts, page_bytes, change_counter, first, checksum, is_big_endian };
        Some(head).filter(|head| head.first > 0)
    }

    pub(crate) fn frames(&mut self, head: &FramesHead) -> Option<Vec<Frame<'a>>> {
        let (mut frames, mut before) = (Vec::new(), head.checksum);
        let FramesHead { salts, page_bytes, is_big_endian, .. } = *head;
        for _ in 0..self.u32()? {
            let (page, commit_pages) = (self.u32()?, self.u32()?);
            let checksum = [self.u32()?, self.u32()?];
            let header = FrameHeader { page, commit_pages, salts, checksum };
            let page_checksum = wal::page_checksum(is_big_endian, before, &header, page_bytes);
            before = checksum;
            let base_crc = self.u32()?;
            let (form, bytes) = self.encoded_page()?;
            frames.push(Frame {
                page,
                commit_pages,
                checksum,
                page_checksum,
                is_big_endian,
                base_crc,
                form,
                bytes,
            });
        }
        (self.0.is_empty() && frames.iter().all(|frame| frame.page > 0)).then_some(frames)
    }
}
