//! The bytes of the journal that recovery reads: those of each region, up to the header's reach.

use std::rc::Rc;

use device::AlignedBuf;

use crate::error::{JournalError, Result};
use crate::medium::Space;
use crate::record::Record;
use crate::ring::Header;

/// The regions' bytes, up to the header's reach.
pub(crate) struct RegionBytes<'a> {
    space: &'a Space,
    header: Header,
    /// By index.
    cached: Vec<Option<Rc<AlignedBuf>>>,
    cached_bytes: usize,
    /// Upper bound of `cached_bytes`. The other regions are read again.
    cached_bytes_max: usize,
}

impl<'a> RegionBytes<'a> {
    /// Keeps at most `cached_bytes_max` bytes in memory from the scan to the replay.
    pub(crate) fn new(
        space: &'a Space,
        header: Header,
        cached_bytes_max: usize,
    ) -> RegionBytes<'a> {
        let cached = vec![None; header.region_count as usize];
        RegionBytes { space, header, cached, cached_bytes: 0, cached_bytes_max }
    }

    pub(crate) fn read(&mut self, region_index: u32) -> Result<Rc<AlignedBuf>> {
        assert!(region_index < self.header.region_count, "the region is of this ring");
        let cached = &mut self.cached[region_index as usize];
        if let Some(region) = cached {
            return Ok(region.clone());
        }
        let len_bytes = usize::try_from(self.header.reached_bytes(region_index))
            .map_err(|_| JournalError::TooSmall("this machine cannot address a region".into()))?;
        assert!(len_bytes as u64 <= self.header.region_bytes, "a reach ends with its region");
        let mut buf = AlignedBuf::zeroed(len_bytes);
        self.space.read(self.header.region_offset(region_index), &mut buf)?;
        let region = Rc::new(buf);
        if self.cached_bytes + len_bytes <= self.cached_bytes_max {
            self.cached_bytes += len_bytes;
            *cached = Some(region.clone());
        }
        Ok(region)
    }

    /// How many blocks of their region records may copy from.
    pub(crate) fn window_blocks(&self) -> u32 {
        self.header.window_blocks
    }

    /// Where the region begins that has this offset of the space.
    pub(crate) fn region_start(&self, offset: u64) -> u64 {
        offset - (offset - self.header.region_offset(0)) % self.header.region_bytes
    }

    /// Calls `use_bytes` with the bytes of a record that was scanned.
    pub(crate) fn with_record<T>(
        &self,
        record: &Record,
        use_bytes: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        for (region_index, region) in (0..).zip(&self.cached) {
            let (Some(region), start) = (region, self.header.region_offset(region_index)) else {
                continue;
            };
            if (start..start + region.len() as u64).contains(&record.offset) {
                let at = (record.offset - start) as usize; // within memory
                return use_bytes(&region[at..at + record.record_bytes]);
            }
        }
        // Whole blocks: the medium's sectors may be larger than the step of the records.
        let before = record.offset % 4096;
        let at = before as usize; // less than a block
        let mut bytes = AlignedBuf::zeroed((at + record.record_bytes).next_multiple_of(4096));
        self.space.read(record.offset - before, &mut bytes)?;
        use_bytes(&bytes[at..at + record.record_bytes])
    }
}
