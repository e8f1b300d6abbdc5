//! The journal's space: a list of byte extents on a medium, seen as one linear space.

use std::ops::Range;
use std::sync::Arc;

use device::BlockDevice;

use super::flushes::Flushes;
use super::media::Medium;
use crate::error::{JournalError, Result};

/// The linear byte space of a journal.
#[derive(Clone)]
pub struct Space {
    medium: Medium,
    extents: Vec<Range<u64>>,
    len_bytes: u64,
    /// The flushes of the medium, if it is a block device.
    flushes: Arc<Flushes>,
}

impl Space {
    /// The bytes of `extents` (byte ranges of `device`, each made of whole 4 KiB blocks), in order.
    pub fn new(device: Arc<dyn BlockDevice>, extents: Vec<Range<u64>>) -> Result<Space> {
        Space::on(Medium::Block(device), extents)
    }

    /// The bytes of `extents` (byte ranges of `medium`, each made of whole 4 KiB blocks), in order.
    pub fn on(medium: Medium, extents: Vec<Range<u64>>) -> Result<Space> {
        let mut len_bytes = 0u64;
        for extent in &extents {
            let whole = extent.start.is_multiple_of(4096) && extent.end.is_multiple_of(4096);
            if extent.start >= extent.end || extent.end > medium.len_bytes() || !whole {
                let text = format!("bytes {}..{} cannot hold a journal", extent.start, extent.end);
                return Err(JournalError::Incompatible(text));
            }
            len_bytes += extent.end - extent.start;
        }
        let flushes = Arc::default();
        Ok(Space { medium, extents: merge(extents), len_bytes, flushes })
    }

    /// The flushes of the device `home`. They are those of the journal's medium, if both share a
    /// cache.
    pub(crate) fn flushes_of(&self, home: &Arc<dyn BlockDevice>) -> Arc<Flushes> {
        if self.shares_disk_with(home) { self.flushes.clone() } else { Arc::default() }
    }

    /// Whether the medium and `home` are on one disk.
    pub(crate) fn shares_disk_with(&self, home: &Arc<dyn BlockDevice>) -> bool {
        matches!(&self.medium, Medium::Block(device) if share_a_cache(device, home))
    }

    /// Size of the space in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The medium that holds the space.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The step of an incarnation that begins now: see [`Medium::step_bytes`]. Existing records
    /// have the step of their header.
    pub fn step_bytes(&self) -> usize {
        self.medium.step_bytes()
    }

    /// CRC32C of the place of the first `len_bytes` bytes of the space on the medium: start and end
    /// of each extent. Adjacent extents count as one.
    pub(crate) fn layout_checksum(&self, len_bytes: u64) -> u32 {
        let (mut checksum, mut left_bytes) = (0, len_bytes);
        for extent in &self.extents {
            let count = left_bytes.min(extent.end - extent.start);
            if count > 0 {
                for bound in [extent.start, extent.start + count] {
                    checksum = crc32c::crc32c_append(checksum, &bound.to_le_bytes());
                }
            }
            left_bytes -= count;
        }
        assert!(left_bytes == 0, "the checksum is of bytes in the space");
        checksum
    }

    /// Fills `buf` from `offset` of the space.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut rest = buf;
        for piece in self.pieces(offset, rest.len()) {
            let (part, tail) = rest.split_at_mut(length(&piece));
            self.medium.read(piece.start, part)?;
            rest = tail;
        }
        assert!(rest.is_empty(), "the pieces are all of the span");
        Ok(())
    }

    /// Writes `data` at `offset` of the space. The data are durable after a flush of the medium.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in self.pieces(offset, data.len()) {
            let (part, tail) = rest.split_at(length(&piece));
            self.medium.write(piece.start, part)?;
            rest = tail;
        }
        assert!(rest.is_empty(), "the pieces are all of the span");
        Ok(())
    }

    /// Writes `data` at `offset` of the space and returns when it is durable: with one durable
    /// write, or, if the span crosses from one extent to the next, one for each piece. (Several
    /// writes and one flush would be wrong: another thread's failed flush could lose the writes,
    /// and the later flush would report success. If a durable write of the device is a write and a
    /// flush, no other flush comes between the two.)
    pub fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in self.pieces(offset, data.len()) {
            let (part, tail) = rest.split_at(length(&piece));
            self.write_piece_durable(piece.start, part)?;
            rest = tail;
        }
        assert!(rest.is_empty(), "the pieces are all of the span");
        Ok(())
    }

    fn write_piece_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.medium.assert_whole_steps(offset, data.len());
        match &self.medium {
            Medium::Nvram(_) => self.medium.write_durable(offset, data),
            Medium::Block(device) => match device.write_fua(offset, data) {
                Some(written) => Ok(written?),
                None => self.flushes.alone(|| self.medium.write_durable(offset, data)),
            },
        }
    }

    /// Writes zeros from `start` (a multiple of 4096) on, durably.
    pub(crate) fn write_zeros_from(&self, start: u64) -> Result<()> {
        assert!(start.is_multiple_of(4096), "zeros are written in whole blocks");
        let mut base = 0;
        for extent in &self.extents {
            let from = extent.start + start.saturating_sub(base);
            if from < extent.end {
                self.medium.write_zeros(from, extent.end)?;
            }
            base += extent.end - extent.start;
        }
        Ok(())
    }

    /// The ranges of the medium for a span of the space. Panics if the span is outside, which is a
    /// bug.
    fn pieces(&self, offset: u64, len_bytes: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut wanted = offset..offset + len_bytes as u64;
        assert!(wanted.end <= self.len_bytes, "span {wanted:?} outside of the journal");
        let mut base = 0;
        self.extents.iter().filter_map(move |extent| {
            let size = extent.end - extent.start;
            let starts_here = wanted.start < base + size && wanted.start < wanted.end;
            let from = extent.start + wanted.start.saturating_sub(base);
            base += size;
            if !starts_here {
                return None;
            }
            let count = (wanted.end - wanted.start).min(extent.end - from);
            wanted.start += count;
            Some(from..from + count)
        })
    }
}

/// Whether the two are one device, or are on one disk.
fn share_a_cache(one: &Arc<dyn BlockDevice>, other: &Arc<dyn BlockDevice>) -> bool {
    Arc::ptr_eq(one, other) || one.caches().iter().any(|cache| other.caches().contains(cache))
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Joins adjacent extents.
fn merge(extents: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(extents.len());
    for extent in extents {
        match merged.last_mut() {
            Some(last) if last.end == extent.start => last.end = extent.end,
            _ => merged.push(extent),
        }
    }
    merged
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // One extent is a list of extents too.
mod tests {
    use super::*;
    use device::MemoryDevice;

    #[test]
    fn a_span_over_two_extents_reads_back() {
        let device = Arc::new(MemoryDevice::new(64 * 4096, 512));
        let space = Space::new(device.clone(), vec![8192..16384, 40960..49152]).unwrap();
        let data: Vec<u8> = (0..8192u32).map(|i| (i / 32) as u8).collect();
        space.write_durable(4096, &data).unwrap();
        let mut back = vec![0; 8192];
        space.read(4096, &mut back).unwrap();
        assert_eq!(back, data);
        assert_eq!(device.to_bytes()[40960..45056], data[4096..]);
    }

    #[test]
    fn extents_outside_of_the_device_are_refused() {
        let device = Arc::new(MemoryDevice::new(4096, 512));
        assert!(Space::new(device.clone(), vec![0..8192]).is_err());
        assert!(Space::new(device, vec![0..100]).is_err());
    }
}
