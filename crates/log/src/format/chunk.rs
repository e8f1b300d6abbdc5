//! A chunk of the pool: the memory for one span of a stream, which the writer maps.
//!
//! ```text
//! | header 4 KiB: stream, span | data: bytes [ordinal * data_bytes, (ordinal + 1) * data_bytes) |
//! ```
//!
//! Each chunk is a file of its own, so the daemon can give a client exactly its own chunks. A chunk
//! becomes zeros before it gets its header, so no byte of its earlier use can be read or taken for
//! a record.
//!
//! A stream may get a chunk in the middle of a span. The chunk then holds nothing of the records
//! before. Its header has the LSN from which on it counts.

use std::sync::Arc;

use device::Nvram;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::faults::{self, Fault};
use crate::format::record::Identity;
use crate::{Result, StreamId};

/// Where a chunk's data begins.
pub(crate) const DATA_OFFSET: u64 = 4096;

/// "OJCHUNK1" in little endian.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"OJCHUNK1");

/// The header as it is stored.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawChunk {
    pub(crate) magic: U64,
    pub(crate) salt: U64,
    pub(crate) ordinal: U64,
    pub(crate) first_lsn: U64,
    pub(crate) stream: U32,
    pub(crate) crc: U32,
}

const _: () = assert!(size_of::<RawChunk>() == 40);

/// The span that a chunk is allocated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) stream: StreamId,
    /// The stream's salt.
    pub(crate) salt: u64,
    /// Which span of the stream, counted in chunks from the stream's beginning.
    pub(crate) ordinal: u64,
    /// LSN from which on the chunk holds the stream. The bytes before it are in the log files.
    pub(crate) first: u64,
}

impl Allocation {
    fn seal(&self) -> RawChunk {
        let mut raw = RawChunk {
            magic: U64::new(MAGIC),
            salt: U64::new(self.salt),
            ordinal: U64::new(self.ordinal),
            first_lsn: U64::new(self.first),
            stream: U32::new(self.stream.0),
            crc: U32::new(0),
        };
        raw.crc = U32::new(crc32c::crc32c(raw.as_bytes()));
        raw
    }

    /// What the chunk is allocated for. `None`: it is free.
    pub(crate) fn read(chunk: &dyn Nvram) -> Result<Option<Allocation>> {
        let mut bytes = [0; size_of::<RawChunk>()];
        chunk.read(0, &mut bytes)?;
        let raw: RawChunk = zerocopy::transmute!(bytes);
        let unsummed = RawChunk { crc: U32::new(0), ..raw };
        let is_allocated =
            raw.magic.get() == MAGIC && raw.crc.get() == crc32c::crc32c(unsummed.as_bytes());
        Ok(is_allocated.then(|| Allocation {
            stream: StreamId(raw.stream.get()),
            salt: raw.salt.get(),
            ordinal: raw.ordinal.get(),
            first: raw.first_lsn.get(),
        }))
    }

    /// Makes the chunk zeros, durably, and then allocates it.
    pub(crate) fn write(&self, chunk: &dyn Nvram) -> Result<()> {
        if !faults::is(Fault::ChunkNotZeroed) {
            write_zeros(chunk, 0)?;
        }
        Ok(chunk.write_durable(0, &[self.seal().as_bytes()])?)
    }

    /// Frees the chunk, durably.
    pub(crate) fn end(chunk: &dyn Nvram) -> Result<()> {
        Ok(chunk.write_durable(0, &[&[0; size_of::<RawChunk>()]])?)
    }
}

/// Zeros from `at` to the end of the chunk, durably.
pub(crate) fn write_zeros(chunk: &dyn Nvram, mut at: u64) -> Result<()> {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while at < chunk.len_bytes() {
        let count = (chunk.len_bytes() - at).min(ZEROS.len() as u64);
        let count = usize::try_from(count).expect("16 KiB at most");
        chunk.write_durable(at, &[&ZEROS[..count]])?;
        at += count as u64;
    }
    Ok(())
}

/// A chunk that holds a span of a stream.
#[derive(Clone)]
pub(crate) struct LaneChunk {
    pub(crate) ordinal: u64,
    pub(crate) memory: Arc<dyn Nvram>,
}

/// The parts of [`from`, `from + len_bytes`) by chunk: ordinal, offset in the chunk, length.
pub(crate) fn parts(from: u64, len_bytes: usize, data_bytes: u64) -> impl Iterator<Item = Part> {
    let mut at = from;
    let end = from + len_bytes as u64;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let within = at % data_bytes;
            let count = (data_bytes - within).min(end - at);
            let part = Part {
                ordinal: at / data_bytes,
                offset: DATA_OFFSET + within,
                len_bytes: usize::try_from(count).expect("not more than asked for"),
            };
            at += count;
            part
        })
    })
}

/// A part of a span that is in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) ordinal: u64,
    /// Where in the chunk, in bytes.
    pub(crate) offset: u64,
    pub(crate) len_bytes: usize,
}

impl Identity {
    /// The allocation of span `ordinal` to this stream, which counts from `first` on.
    pub(crate) fn allocation(&self, ordinal: u64, first: u64) -> Allocation {
        Allocation { stream: self.stream, salt: self.salt, ordinal, first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MappedNvram;

    #[test]
    fn a_loan_is_read_back_and_ends() {
        let chunk = MappedNvram::in_memory(64 << 10).expect("memory");
        chunk.store(5000, b"left over").expect("store");
        assert_eq!(Allocation::read(&chunk).expect("read"), None);
        let allocation = Allocation { stream: StreamId(3), salt: 99, ordinal: 12, first: 700 };
        allocation.write(&chunk).expect("allocate");
        assert_eq!(Allocation::read(&chunk).expect("read"), Some(allocation));
        let mut data = [1; 16];
        chunk.read(5000, &mut data).expect("read");
        assert_eq!(data, [0; 16], "nothing of its earlier use");
        Allocation::end(&chunk).expect("end");
        assert_eq!(Allocation::read(&chunk).expect("read"), None);
    }

    #[test]
    fn golden_bytes() {
        let raw = Allocation { stream: StreamId(3), salt: 2, ordinal: 1, first: 4 }.seal();
        let mut golden =
            b"OJCHUNK1\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\0\0\0".to_vec();
        let mut summed = golden.clone();
        summed.extend_from_slice(&[0; 4]);
        golden.extend_from_slice(&crc32c::crc32c(&summed).to_le_bytes());
        assert_eq!(raw.as_bytes(), golden);
    }

    #[test]
    fn a_span_is_cut_at_chunks() {
        let found: Vec<_> =
            parts(90, 120, 100).map(|p| (p.ordinal, p.offset - DATA_OFFSET, p.len_bytes)).collect();
        assert_eq!(found, [(0, 90, 10), (1, 0, 100), (2, 0, 10)]);
        assert_eq!(parts(90, 0, 100).count(), 0);
    }
}
