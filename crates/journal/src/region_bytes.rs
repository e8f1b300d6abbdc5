//! What recovery reads of the journal: of each region what the header's reach covers, once.

use std::rc::Rc;

use device::AlignedBuf;

use crate::header::Header;
use crate::record::Record;
use crate::{JournalError, Result, Space};

/// So much of the journal stays in memory from the scan to the replay; what lies behind that is read again.
const KEPT_LIMIT_BYTES: usize = 256 << 20;

/// The regions' bytes, as far as the header reaches.
pub(crate) struct RegionBytes<'a> {
    space: &'a Space,
    header: Header,
    /// By index.
    kept: Vec<Option<Rc<AlignedBuf>>>,
    kept_bytes: usize,
}

impl<'a> RegionBytes<'a> {
    pub(crate) fn new(space: &'a Space, header: Header) -> RegionBytes<'a> {
        let kept = vec![None; header.region_count as usize];
        RegionBytes { space, header, kept, kept_bytes: 0 }
    }

    pub(crate) fn read(&mut self, region_index: u32) -> Result<Rc<AlignedBuf>> {
        assert!(region_index < self.header.region_count, "the region is of this ring");
        let kept = &mut self.kept[region_index as usize];
        if let Some(region) = kept {
            return Ok(region.clone());
        }
        let len_bytes = usize::try_from(self.header.reached_bytes(region_index))
            .map_err(|_| JournalError::TooSmall("this machine cannot address a region".into()))?;
        assert!(len_bytes as u64 <= self.header.region_bytes, "a reach ends with its region");
        let mut buf = AlignedBuf::zeroed(len_bytes);
        self.space.read(self.header.region_offset(region_index), &mut buf)?;
        let region = Rc::new(buf);
        if self.kept_bytes + len_bytes <= KEPT_LIMIT_BYTES {
            self.kept_bytes += len_bytes;
            *kept = Some(region.clone());
        }
        Ok(region)
    }

    /// Hands the bytes of a record that was scanned to `use_bytes`.
    pub(crate) fn with_record<T>(
        &self,
        record: &Record,
        use_bytes: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        for (region_index, region) in (0..).zip(&self.kept) {
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
