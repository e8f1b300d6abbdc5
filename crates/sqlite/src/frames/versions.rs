//! The newest version of each page of a generation: the number of its frame, and the bytes of a few
//! pages.
//!
//! A transaction that makes the database smaller ends the versions of the pages beyond the new end:
//! a checkpoint may cut them off the database file. A page that comes back has no earlier version
//! in this generation.
//!
//! Invariant: what a process remembers is valid while the frames that it knows are not written
//! again. They are, if the process that logged them failed or died before SQLite counted them, and
//! a program without the extension does not announce that. But the checksum of a frame covers all
//! frames before it. So what is remembered is valid if the last frame that it covers still has the
//! remembered checksum.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::frames::{FramesHead, FramesWriter};
use crate::format::wal::{self, Checksum, FRAME_HEADER_BYTES, FrameHeader, Header, Salts};
use crate::frames::pending::Pending;
use crate::frames::read::{Files, frame_header};
use crate::frames::tail::Tail;
use crate::stream::header::StreamHeader;

/// The most bytes of pages that are remembered for one database.
const IMAGES_BYTES_MAX: usize = 64 << 10;
/// The most memory that is kept for the next record.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// What this process remembers of a generation. All of it can be computed again.
#[derive(Default)]
pub struct Versions {
    salts: Salts,
    /// The number of frames that it covers, and the checksum of the last.
    upto: u32,
    checksum: Checksum,
    frame_of: FxHashMap<u32, u32>,
    /// The largest page number of these.
    last_page: u32,
    /// The smallest size that the database had after a transaction of these frames. What its file
    /// has after that does not count.
    fewest_pages: Option<u32>,
    /// The change counter in this frame of page 1; 0 stands for the database file.
    counter: Option<(u32, u32)>,
    images: Images,
    /// Memory for a page that has to be read, and for a record.
    read: Vec<u8>,
    record: Vec<u8>,
}

impl Versions {
    /// Reads the logged frames that other connections wrote.
    pub fn catch_up(
        &mut self,
        header: &Header,
        wal: &Real,
        shared: &StreamHeader,
    ) -> Result<(), Failure> {
        if !self.is_right(header, wal, shared)? {
            let (salts, checksum) = (header.salts, header.checksum);
            *self = Versions { salts, checksum, ..Versions::default() };
        }
        while self.upto < shared.logged {
            let number = self.upto + 1;
            let frame = frame_header(header, wal, number)?
                .filter(|frame| frame.salts == header.salts)
                .ok_or_else(|| Failure::Damaged(format!("the WAL lacks its frame {number}")))?;
            self.put(&frame, number);
            self.end(&frame);
            (self.upto, self.checksum) = (number, frame.checksum);
        }
        Ok(())
    }

    /// Records that a page's newest version is in frame `number` now. Returns the previous frame.
    fn put(&mut self, frame: &FrameHeader, number: u32) -> Option<u32> {
        self.last_page = self.last_page.max(frame.page);
        self.frame_of.insert(frame.page, number)
    }

    /// Ends a transaction, if the frame does.
    fn end(&mut self, frame: &FrameHeader) {
        let pages = frame.commit_pages;
        if pages == 0 {
            return;
        }
        self.fewest_pages = Some(self.fewest_pages.map_or(pages, |fewest| fewest.min(pages)));
        if pages < self.last_page {
            self.frame_of.retain(|page, _| *page <= pages);
            self.last_page = pages;
        }
    }

    /// Whether the known frames are the first of the logged ones.
    fn is_right(
        &self,
        header: &Header,
        wal: &Real,
        shared: &StreamHeader,
    ) -> Result<bool, Failure> {
        if self.salts != header.salts || self.upto > shared.logged {
            return Ok(false);
        }
        if faults::is(Fault::TrustsVersions) {
            return Ok(true);
        }
        if self.upto == shared.logged {
            return Ok(self.checksum == shared.checksum);
        }
        if self.upto == 0 {
            return Ok(true);
        }
        let last = frame_header(header, wal, self.upto)?;
        Ok(last.is_some_and(|last| last.salts == self.salts && last.checksum == self.checksum))
    }

    /// Makes the record of the frames of `tail`. If anything fails from here to
    /// [`Versions::logged`], this value must not be used any more.
    pub fn encode(
        &mut self,
        header: &Header,
        files: Files<'_>,
        shared: &StreamHeader,
        tail: &Tail<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let (first, new) = (shared.logged + 1, &tail.frames[..]);
        let frame_bytes = header.page_bytes + FRAME_HEADER_BYTES;
        let head = FramesHead {
            salts: header.salts,
            page_bytes: header.page_bytes,
            change_counter: self.change_counter_after(header, files, new)?,
            first,
            checksum: tail.before,
            is_big_endian: header.is_big_endian,
        };
        self.read.resize(header.page_bytes, 0);
        let mut writer = FramesWriter::new(&head, std::mem::take(&mut self.record));
        for (frame, number) in new.chunks_exact(frame_bytes).zip(first..) {
            let (parsed, page) = (FrameHeader::parse(frame), &frame[FRAME_HEADER_BYTES..]);
            let base = match self.put(&parsed, number) {
                Some(before) if before >= first => {
                    let at = (before - first) as usize * frame_bytes + FRAME_HEADER_BYTES;
                    Some(&new[at..at + header.page_bytes])
                }
                Some(before) => match self.images.get(parsed.page, before) {
                    Some(image) => Some(image),
                    None => {
                        let at = header.frame_at(before) + FRAME_HEADER_BYTES as u64;
                        let count = files.wal.read(at, &mut self.read)?;
                        (count == self.read.len()).then_some(&self.read[..])
                    }
                },
                None if self.fewest_pages.is_some_and(|fewest| parsed.page > fewest) => None,
                None => {
                    let at = u64::from(parsed.page - 1) * header.page_bytes as u64;
                    let count = files.main.read(at, &mut self.read)?;
                    (count == self.read.len()).then_some(&self.read[..])
                }
            };
            writer.push(&parsed, base, page);
            self.end(&parsed);
        }
        Ok(writer.finish())
    }

    /// Records that the frames of `tail` were logged with `record`.
    pub fn logged(&mut self, tail: &Tail<'_>, record: Vec<u8>) {
        (self.upto, self.checksum) = (tail.last, tail.checksum);
        self.record = record;
        self.record.clear();
        self.record.shrink_to(RECORD_BYTES_MAX);
    }

    /// Remembers the pages of the frames `numbers`, which were just logged, if `pending` kept them.
    /// `pending` is not needed after that.
    pub fn remember(
        &mut self,
        header: &Header,
        numbers: RangeInclusive<u32>,
        pending: &mut Pending,
    ) {
        let frame_bytes = header.page_bytes + FRAME_HEADER_BYTES;
        let is_kept = pending.written().start == header.frame_at(*numbers.start());
        let Some(kept) = pending.bytes().filter(|_| is_kept) else { return };
        if numbers.clone().count() > Images::slots(header.page_bytes) {
            return;
        }
        if kept.len() == frame_bytes {
            let page = FrameHeader::parse(kept).page;
            return self.images.take(page, *numbers.start(), pending.take());
        }
        for (frame, number) in kept.chunks_exact(frame_bytes).zip(numbers) {
            self.images.put(FrameHeader::parse(frame).page, number, frame);
        }
    }

    /// The database's change counter after the frames `new`.
    fn change_counter_after(
        &mut self,
        header: &Header,
        files: Files<'_>,
        new: &[u8],
    ) -> Result<u32, Failure> {
        let frame_bytes = FRAME_HEADER_BYTES + header.page_bytes;
        let is_first = |frame: &&[u8]| FrameHeader::parse(frame).page == 1;
        if let Some(frame) = new.chunks_exact(frame_bytes).rev().find(is_first) {
            return Ok(wal::change_counter(&frame[FRAME_HEADER_BYTES..]));
        }
        let number = self.frame_of.get(&1).copied().unwrap_or(0);
        if let Some((known, counter)) = self.counter
            && known == number
        {
            return Ok(counter);
        }
        let mut database_header = [0; 28];
        match number {
            0 => files.main.read(0, &mut database_header)?,
            number => {
                let at = header.frame_at(number) + FRAME_HEADER_BYTES as u64;
                files.wal.read(at, &mut database_header)?
            }
        };
        self.counter = Some((number, wal::change_counter(&database_header)));
        Ok(wal::change_counter(&database_header))
    }
}

/// The bytes of the pages that were logged last.
#[derive(Default)]
struct Images {
    images: Vec<Image>,
    /// The page that is replaced next.
    next: usize,
}

struct Image {
    page: u32,
    frame: u32,
    /// The frame, with its header.
    bytes: Vec<u8>,
}

impl Images {
    fn slots(page_bytes: usize) -> usize {
        IMAGES_BYTES_MAX / page_bytes
    }

    /// The page as it is in that frame.
    fn get(&self, page: u32, frame: u32) -> Option<&[u8]> {
        let found = self.images.iter().find(|image| image.page == page && image.frame == frame);
        found.map(|image| &image.bytes[FRAME_HEADER_BYTES..])
    }

    fn put(&mut self, page: u32, frame: u32, bytes: &[u8]) {
        let slot = self.slot(page, frame, bytes.len() - FRAME_HEADER_BYTES);
        slot.clear();
        slot.extend_from_slice(bytes);
    }

    /// The same. `bytes` has the previous content of the image's memory.
    fn take(&mut self, page: u32, frame: u32, bytes: &mut Vec<u8>) {
        let page_bytes = bytes.len() - FRAME_HEADER_BYTES;
        if bytes.capacity() > 2 * bytes.len() {
            return self.put(page, frame, bytes);
        }
        std::mem::swap(self.slot(page, frame, page_bytes), bytes);
    }

    /// The place for the bytes of the page in that frame.
    fn slot(&mut self, page: u32, frame: u32, page_bytes: usize) -> &mut Vec<u8> {
        let slots = Images::slots(page_bytes);
        let known = self.images.iter().position(|image| image.page == page);
        let index = match known {
            Some(index) => index,
            None if self.images.len() < slots => {
                self.images.push(Image { page, frame, bytes: Vec::new() });
                self.images.len() - 1
            }
            None => {
                self.next = (self.next + 1) % slots;
                self.next
            }
        };
        let image = &mut self.images[index];
        (image.page, image.frame) = (page, frame);
        &mut image.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_that_of_its_frame_and_there_are_only_so_many() {
        let mut images = Images::default();
        let frame = |number: u32| vec![number as u8; FRAME_HEADER_BYTES + 4096];
        for number in 1..100_u32 {
            match number % 3 {
                0 => images.put(number % 40, number, &frame(number)),
                _ => images.take(number % 40, number, &mut frame(number)),
            }
        }
        let kept: Vec<u32> =
            (1..100).filter(|number| images.get(number % 40, *number).is_some()).collect();
        assert_eq!(kept.len(), Images::slots(4096));
        assert!(kept.contains(&99) && images.images.len() == kept.len());
        assert!(kept.iter().all(|n| images.get(n % 40, *n) == Some(&[*n as u8; 4096])));
        images.put(99 % 40, 100, &frame(0));
        assert_eq!(images.get(99 % 40, 99), None);
        assert_eq!(images.get(99 % 40, 100), Some(&[0; 4096][..]));
    }
}
