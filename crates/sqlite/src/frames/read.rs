//! Reads a connection's files: the WAL's header, a frame's header, and the database's change
//! counter.

use std::ops::Range;

use crate::abi::real::Real;
use crate::failure::Failure;
use crate::format::wal::{self, FRAME_HEADER_BYTES, FrameHeader, HEADER_BYTES, Header};

/// A connection's files.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// The database.
    pub main: &'a Real,
    /// Its WAL.
    pub wal: &'a Real,
}

/// The WAL's header, if it has a valid one.
pub fn read_header(wal: &Real) -> Result<Option<Header>, Failure> {
    let mut bytes = [0; HEADER_BYTES];
    let count = wal.read(0, &mut bytes)?;
    Ok(Header::parse(&bytes[..count]))
}

/// The header of a frame, if the file is long enough.
pub fn frame_header(
    header: &Header,
    wal: &Real,
    number: u32,
) -> Result<Option<FrameHeader>, Failure> {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let count = wal.read(header.frame_at(number), &mut bytes)?;
    Ok((count == bytes.len()).then(|| FrameHeader::parse(&bytes)))
}

/// The change counter of the database file.
pub fn change_counter(main: &Real) -> Result<u32, Failure> {
    let mut header = [0; 28];
    main.read(0, &mut header)?;
    Ok(wal::change_counter(&header))
}

/// Writes the present content of the file again, so that the next sync covers it, whatever happened
/// to an earlier sync.
pub fn copy_onto_itself(wal: &Real, span: Range<u64>) -> Result<(), Failure> {
    let mut bytes = vec![0; 128 << 10];
    for at in span.clone().step_by(bytes.len()) {
        let left = usize::try_from(span.end - at).unwrap_or(usize::MAX);
        let piece = &mut bytes[..left.min(128 << 10)];
        wal.read(at, piece)?;
        wal.write(at, piece)?;
    }
    Ok(())
}
