//! What a database's stream holds.
//!
//! ```text
//! record:  | u8 kind | u8 version | u8 packed | u8 0 | u32 body bytes | body, with LZ4 if packed |
//! base:    | salts 8 | u32 page bytes | u32 change counter | u32 frames | checksum 8 | u32 count
//!          | count times: salts 8, u32 frames |
//! frames:  | salts 8 | u32 page bytes | u32 change counter | u32 first frame | checksum 8 | u8 byte order
//!          | u32 count | count times: u32 page, u32 commit pages, checksum 8, u8 form, u32 bytes, bytes |
//! pages:   see `batch::record`; home: see `home`
//! ```
//!
//! Little endian; the log's own record around it has length and CRC32C. A *base* voids everything before
//! it. What the fields mean is said at the structs.
//!
//! A frame carries the checksum that SQLite has in the frame's header already, and no other one of its page: that of the
//! page by itself comes out of it and of the one before (`wal::page_checksum`), whatever recovery finds of other pages.

use journal::codec::compress;

use crate::failure::Failure;
use crate::format::home;
use crate::format::page::Form;
use crate::format::pages as batch;
use crate::format::wal::{self, Checksum, FrameHeader, Salts};

const VERSION: u8 = 1;
/// Number of the kind of frames.
const FRAMES: u8 = 6;
const HEADER_BYTES: usize = 8;

/// A body is at most this: 16 MiB of the log's record hold it also when it does not pack.
const BODY_BYTES_MAX: usize = 15 << 20;

/// How a generation of the WAL stands, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is about to begin; the database holds all before it, durably.
    Begin,
    /// The file itself holds its first frames, durably.
    Durable,
    /// There is none: the database holds everything, durably.
    Closed,
}

/// A generation that a WAL file may show after a power cut instead of the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// Its salts.
    pub salts: Salts,
    /// Frames it had, at most.
    pub frames: u32,
}

/// A record that voids all before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// What happened.
    pub kind: Kind,
    /// The generation; zeros in [`Kind::Closed`].
    pub salts: Salts,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Change counter of the database file at that time.
    pub change_counter: u32,
    /// Frames that the file holds durably ([`Kind::Durable`]).
    pub frames: u32,
    /// Checksum of the last of them.
    pub checksum: Checksum,
    /// Since the file was last durable, oldest first.
    pub stale: Vec<Stale>,
}

impl Base {
    /// That of [`Kind::Closed`].
    pub fn closed() -> Base {
        let (kind, salts, checksum) = (Kind::Closed, [0; 8], [0; 2]);
        let stale = Vec::new();
        Base { kind, salts, page_bytes: 0, change_counter: 0, frames: 0, checksum, stale }
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Number of the page.
    pub page: u32,
    /// As in the frame's header.
    pub commit_pages: u32,
    /// As in the frame's header: up to and with this frame.
    pub checksum: Checksum,
    /// Of the page by itself.
    page_checksum: Checksum,
    is_big_endian: bool,
    /// How `bytes` are to be read.
    pub form: Form,
    /// The page, encoded.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Whether `page` is what the frame holds.
    pub fn holds(&self, page: &[u8]) -> bool {
        wal::checksum(self.is_big_endian, [0; 2], page) == self.page_checksum
    }
}

/// What precedes the frames of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesHead {
    /// The generation.
    pub salts: Salts,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The database's change counter behind the last frame.
    pub change_counter: u32,
    /// Number of the first frame.
    pub first: u32,
    /// Checksum of the frame before the first, or of the WAL's header.
    pub checksum: Checksum,
    /// Whether the WAL's checksums are over big-endian words.
    pub is_big_endian: bool,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Voids all before it.
    Base(Base),
    /// Frames of one generation; the bytes behind the head, to be read with [`frames`].
    Frames(FramesHead, Vec<u8>),
    /// Pages of a transaction in a rollback mode; the bytes behind the head.
    Pages(batch::Head, Vec<u8>),
    /// The database holds what the records before this LSN say, durably.
    Home(u64),
}

impl Record {
    /// Reads what [`encode_base`] or [`FramesWriter::finish`] made.
    pub fn parse(bytes: &[u8]) -> Result<Record, Failure> {
        let damaged = || Failure::Damaged("a record of the log is none of this extension".into());
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(damaged)?;
        if header[1] != VERSION {
            let text = format!("a record of the log has version {}", header[1]);
            return Err(Failure::Damaged(text));
        }
        let body_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let mut unpacked = Vec::new();
        let body = match header[2] {
            0 if body.len() == body_bytes => body,
            1 if body_bytes <= BODY_BYTES_MAX => {
                compress::decompress(body, body_bytes, &mut unpacked).map_err(|_| damaged())?;
                &unpacked
            }
            _ => return Err(damaged()),
        };
        let mut take = Take(body);
        let record = match header[0] {
            1 => take.base(Kind::Begin).map(Record::Base),
            2 => take.base(Kind::Durable).map(Record::Base),
            3 => take.base(Kind::Closed).map(Record::Base),
            batch::KIND => batch::head(&mut take).map(|head| Record::Pages(head, take.0.to_vec())),
            FRAMES => take.head().map(|head| Record::Frames(head, take.0.to_vec())),
            home::KIND => home::upto(&mut take).map(Record::Home),
            _ => None,
        };
        record.ok_or_else(damaged)
    }
}

/// The frames behind the head of a record.
pub fn frames<'a>(head: &FramesHead, bytes: &'a [u8]) -> Result<Vec<Frame<'a>>, Failure> {
    let mut take = Take(bytes);
    take.frames(head).ok_or_else(|| Failure::Damaged("a record's frames are cut short".into()))
}

/// The bytes of a base.
pub fn encode_base(base: &Base) -> Vec<u8> {
    let kind = match base.kind {
        Kind::Begin => 1,
        Kind::Durable => 2,
        Kind::Closed => 3,
    };
    let mut body = empty();
    body.extend_from_slice(&base.salts);
    put(&mut body, u32_of(base.page_bytes));
    put(&mut body, base.change_counter);
    put(&mut body, base.frames);
    put(&mut body, base.checksum[0]);
    put(&mut body, base.checksum[1]);
    put(&mut body, u32_of(base.stale.len()));
    for stale in &base.stale {
        body.extend_from_slice(&stale.salts);
        put(&mut body, stale.frames);
    }
    finish(kind, body)
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
        FramesWriter(Items::behind(body))
    }

    /// Adds the frame with this header: `page` against `base`.
    pub fn push(&mut self, frame: &FrameHeader, base: Option<&[u8]>, page: &[u8]) {
        let [s0, s1] = frame.checksum;
        self.0.push(&[frame.page, frame.commit_pages, s0, s1], base, page);
    }

    /// The record's bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0.finish(FRAMES)
    }
}

/// What a record of frames or of pages has behind its head: how many there are, and each with numbers of its kind,
/// form, bytes.
pub(crate) struct Items {
    /// Behind room for the record's header.
    body: Vec<u8>,
    count_at: usize,
    count: u32,
}

impl Items {
    /// None yet, behind a head.
    pub(crate) fn behind(mut body: Vec<u8>) -> Items {
        let count_at = body.len();
        put(&mut body, 0);
        Items { body, count_at, count: 0 }
    }

    /// Adds one: `page` against `base`.
    pub(crate) fn push(&mut self, numbers: &[u32], base: Option<&[u8]>, page: &[u8]) {
        numbers.iter().for_each(|number| put(&mut self.body, *number));
        let form_at = self.body.len();
        self.body.extend_from_slice(&[0; 5]);
        let form = crate::format::page::encode(base, page, &mut self.body);
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

/// A record's header, to be filled in, and room for what most bodies take.
pub(crate) fn empty() -> Vec<u8> {
    begin(Vec::with_capacity(1024))
}

/// The same in the memory of `buffer`.
fn begin(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.extend_from_slice(&[0; HEADER_BYTES]);
    buffer
}

/// The record of a body that lies behind its header.
pub(crate) fn finish(kind: u8, mut record: Vec<u8>) -> Vec<u8> {
    let body_bytes = u32_of(record.len() - HEADER_BYTES);
    let is_packed = pack(&mut record);
    record[..4].copy_from_slice(&[kind, VERSION, u8::from(is_packed), 0]);
    record[4..HEADER_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
    record
}

/// Packs a body that lies behind its header, if that makes it smaller; whether it does.
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

/// A length as a record has it.
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

    fn salts(&mut self) -> Option<Salts> {
        self.bytes(8)?.try_into().ok()
    }

    pub(crate) fn page_bytes(&mut self) -> Option<usize> {
        let bytes = self.u32()? as usize;
        let is_sound = bytes == 0 || bytes.is_power_of_two() && (512..=65536).contains(&bytes);
        is_sound.then_some(bytes)
    }

    fn base(&mut self, kind: Kind) -> Option<Base> {
        let salts = self.salts()?;
        let page_bytes = self.page_bytes()?;
        let (change_counter, frames) = (self.u32()?, self.u32()?);
        let checksum = [self.u32()?, self.u32()?];
        let mut stale = Vec::new();
        for _ in 0..self.u32()? {
            stale.push(Stale { salts: self.salts()?, frames: self.u32()? });
        }
        Some(Base { kind, salts, page_bytes, change_counter, frames, checksum, stale })
    }

    fn head(&mut self) -> Option<FramesHead> {
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

    /// A page of [`Items`]: form and bytes.
    pub(crate) fn encoded_page(&mut self) -> Option<(Form, &'a [u8])> {
        let form = Form::from_number(self.bytes(1)?[0])?;
        let count = self.u32()? as usize;
        Some((form, self.bytes(count)?))
    }

    fn frames(&mut self, head: &FramesHead) -> Option<Vec<Frame<'a>>> {
        let (mut frames, mut before) = (Vec::new(), head.checksum);
        let FramesHead { salts, page_bytes, is_big_endian, .. } = *head;
        for _ in 0..self.u32()? {
            let (page, commit_pages) = (self.u32()?, self.u32()?);
            let checksum = [self.u32()?, self.u32()?];
            let header = FrameHeader { page, commit_pages, salts, checksum };
            let page_checksum = wal::page_checksum(is_big_endian, before, &header, page_bytes);
            before = checksum;
            let (form, bytes) = self.encoded_page()?;
            frames.push(Frame {
                page,
                commit_pages,
                checksum,
                page_checksum,
                is_big_endian,
                form,
                bytes,
            });
        }
        (self.0.is_empty() && frames.iter().all(|frame| frame.page > 0)).then_some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base() -> Base {
        Base {
            kind: Kind::Begin,
            salts: *b"saltsalt",
            page_bytes: 4096,
            change_counter: 7,
            frames: 3,
            checksum: [1, 2],
            stale: vec![Stale { salts: *b"oldsalts", frames: 9 }],
        }
    }

    #[test]
    fn golden_bytes() {
        let golden = [
            &[1, 1, 0, 0, 44, 0, 0, 0][..],
            b"saltsalt\0\x10\0\0\x07\0\0\0\x03\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0oldsalts\x09\0\0\0",
        ]
        .concat();
        assert_eq!(encode_base(&base()), golden);
        assert_eq!(Record::parse(&golden).expect("valid"), Record::Base(base()));
    }

    #[test]
    fn frames_are_read_back() {
        let head = FramesHead {
            salts: *b"saltsalt",
            page_bytes: 1024,
            change_counter: 1,
            first: 5,
            checksum: [3, 4],
            is_big_endian: true,
        };
        let mut writer = FramesWriter::new(&head, vec![7; 3]);
        let (old, mut new) = (vec![1; 1024], vec![1; 1024]);
        new[100] = 2;
        let mut checksum = head.checksum;
        let mut checksums = Vec::new();
        for (page, commit_pages, base) in [(3_u32, 0_u32, Some(&old[..])), (9, 10, None)] {
            let front = [page.to_be_bytes(), commit_pages.to_be_bytes()].concat();
            checksum = wal::checksum(true, wal::checksum(true, checksum, &front), &new);
            checksums.push(checksum);
            let salts = head.salts;
            writer.push(&FrameHeader { page, commit_pages, salts, checksum }, base, &new);
        }
        let bytes = writer.finish();
        let Record::Frames(found, rest) = Record::parse(&bytes).expect("valid") else { panic!() };
        assert_eq!(found, head);
        let found = frames(&head, &rest).expect("valid");
        assert_eq!((found[0].page, found[0].form, found[1].commit_pages), (3, Form::Delta, 10));
        assert_eq!(found.iter().map(|frame| frame.checksum).collect::<Vec<_>>(), checksums);
        assert!(found.iter().all(|frame| frame.holds(&new) && !frame.holds(&old)));
        assert!(frames(&head, &rest[..rest.len() - 1]).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_panic(mut bytes: Vec<u8>, kind in 0..8u8, packed in 0..3u8) {
            if bytes.len() >= 3 {
                (bytes[0], bytes[1], bytes[2]) = (kind, VERSION, packed);
            }
            if let Ok(Record::Frames(head, rest)) = Record::parse(&bytes) {
                let _ = frames(&head, &rest);
            }
        }
    }
}
