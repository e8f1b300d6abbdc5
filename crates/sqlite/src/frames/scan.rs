//! Scans a WAL file: its header, and all frames whose checksums form one chain from it.

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::format::wal::{Checksum, FRAME_HEADER_BYTES, FrameHeader, Header};
use crate::frames::read::read_header;

/// The content of a WAL file.
pub struct Scan {
    /// Its header.
    pub header: Header,
    /// The frames of the valid chain.
    pub frames: Vec<FrameHeader>,
}

impl Scan {
    /// `None` if it has no valid header.
    pub fn read(wal: &Real) -> Result<Option<Scan>, Failure> {
        let Some(header) = read_header(wal)? else { return Ok(None) };
        let mut scan = Scan { header, frames: Vec::new() };
        let mut checksum = header.checksum;
        let mut frame = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
        for number in 1..=header.frames_before(wal.size()?) {
            wal.read(header.frame_at(number), &mut frame)?;
            let parsed = FrameHeader::parse(&frame);
            checksum = header.frame_checksum(checksum, &frame);
            if parsed.salts != header.salts || parsed.checksum != checksum || parsed.page == 0 {
                break;
            }
            scan.frames.push(parsed);
        }
        Ok(Some(scan))
    }

    /// How many these are.
    pub fn valid(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("counted with 32 bits")
    }

    /// Frames up to the last one that ends a transaction.
    pub fn committed(&self) -> u32 {
        let last = self.frames.iter().rposition(|frame| frame.commit_pages > 0);
        last.map_or(0, |index| u32::try_from(index + 1).expect("counted with 32 bits"))
    }

    /// Checksum of frame `number`, or of the header.
    pub fn checksum(&self, number: u32) -> Checksum {
        match number {
            0 => self.header.checksum,
            number => self.frames[number as usize - 1].checksum,
        }
    }
}
