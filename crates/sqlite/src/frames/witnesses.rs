//! Finds the pages of the last frames of a WAL: witnesses that a database has all frames before a
//! base.

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::format::base::Witness;
use crate::format::page::page_at;
use crate::format::wal::{FRAME_HEADER_BYTES, FrameHeader, Header};

/// At most this many frames are looked at, and this many bytes.
const FRAMES_MAX: u32 = 64;
const BYTES_MAX: usize = 512 << 10;

/// The pages of the last frames of the WAL with this header, up to frame `last`, which ends a
/// transaction.
pub fn witnesses(header: &Header, wal: &Real, last: u32) -> Result<Vec<Witness>, Failure> {
    let mut frame = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let count = u32::try_from(BYTES_MAX / frame.len()).unwrap_or(0).clamp(1, FRAMES_MAX);
    let mut found: Vec<Witness> = Vec::new();
    for number in (last.saturating_sub(count) + 1..=last).rev() {
        let read = wal.read(header.frame_at(number), &mut frame)?;
        let page = FrameHeader::parse(&frame).page;
        // The last frame of a page counts.
        if read == frame.len() && !found.iter().any(|known| known.page == page) {
            found.push(Witness { page, crc: crc32c::crc32c(&frame[FRAME_HEADER_BYTES..]) });
        }
    }
    Ok(found)
}

/// Whether the database has these pages, except the pages of which `is_newer` says that they were
/// written later.
pub fn are_there(
    witnesses: &[Witness],
    page_bytes: usize,
    main: &Real,
    is_newer: impl Fn(u32) -> bool,
) -> Result<bool, Failure> {
    let mut page = vec![0; page_bytes];
    for witness in witnesses.iter().filter(|witness| !is_newer(witness.page)) {
        let read = main.read(page_at(witness.page, page_bytes), &mut page)?;
        if read < page.len() || crc32c::crc32c(&page) != witness.crc {
            return Ok(false);
        }
    }
    Ok(!witnesses.is_empty())
}
