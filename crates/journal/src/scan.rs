//! Scan: which records of the journal make up history, and how it ends.
//!
//! Records follow each other in a region; where the next one is not valid, history goes on at the
//! start of the next region, or it has ended. The end is *torn* (or simply the end) when no record
//! of a later transaction of this life exists anywhere; otherwise acknowledged history lies behind
//! a hole and the journal is *damaged*: commits are written one after the other, so a later one
//! proves that this one was once whole.

use std::rc::Rc;

use device::AlignedBuf;

use crate::format::{DESCRIPTOR_MAGIC, record_seed};
use crate::header::Header;
use crate::options::Broken;
use crate::record::{self, Decoded, Record};
use crate::{Result, Space, Tid};

/// How history ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing valid follows: what may be there was never acknowledged.
    Tail,
    /// The transaction that should follow is not readable, but a later one is.
    Damaged {
        /// The first transaction that is missing.
        missing: Tid,
        /// A later one that is whole.
        found: Tid,
        /// Where that lies in the journal, in bytes.
        found_offset: u64,
    },
    /// The next record is whole but holds something that this version does not know.
    Unknown {
        /// Which transaction.
        tid: Tid,
        /// What is not known.
        what: String,
    },
}

/// The history found in a journal.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The header it started from.
    pub header: Header,
    /// Whole records, in order.
    pub records: Vec<Record>,
    /// How they end.
    pub end: End,
    /// Where the next record would lie, in bytes from the start of the journal.
    pub end_offset: u64,
}

/// Reads the journal's history. Changes nothing.
pub fn scan(space: &Space, uuid: &[u8; 16]) -> Result<Scan> {
    scan_with(space, uuid, Broken::Nothing)
}

pub(crate) fn scan_with(space: &Space, uuid: &[u8; 16], broken: Broken) -> Result<Scan> {
    let header = Header::read(space, uuid)?;
    let reader = Reader {
        space,
        header,
        checksum_seed: record_seed(uuid, header.life),
        ignore_checksum: broken == Broken::ChecksumIgnored,
    };
    reader.scan()
}

/// What the scan does next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Take,
    GoToNextRegion,
    EndOfHistory,
    Damaged,
    Unknown,
}

/// What is found at a place where the next transaction could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The transaction that is expected.
    Expected,
    /// It, but not readable by this version.
    Unknown,
    /// Anything else.
    Nothing,
}

/// The whole decision of the scan. `here`: at the end of the last record; `next`: at the start of
/// the next region; `later`: a record of the expected or a later transaction lies elsewhere.
fn decide(here: Found, next: Found, later: bool) -> Step {
    match (here, next, later) {
        (Found::Expected, _, _) => Step::Take,
        (Found::Unknown, _, _) => Step::Unknown,
        (Found::Nothing, Found::Expected | Found::Unknown, _) => Step::GoToNextRegion,
        (Found::Nothing, Found::Nothing, true) => Step::Damaged,
        (Found::Nothing, Found::Nothing, false) => Step::EndOfHistory,
    }
}

struct Reader<'a> {
    space: &'a Space,
    header: Header,
    checksum_seed: u32,
    ignore_checksum: bool,
}

impl Reader<'_> {
    fn scan(&self) -> Result<Scan> {
        let mut scan = Scan {
            header: self.header,
            records: Vec::new(),
            end: End::Tail,
            end_offset: self.header.region_offset(self.header.tail_region),
        };
        if self.header.clean {
            return Ok(scan);
        }
        let mut region_index = self.header.tail_region;
        let mut region = Rc::new(self.read_region(region_index)?);
        let mut next_region: Option<Rc<AlignedBuf>> = None;
        let mut at = 0usize;
        let mut expected = self.header.tail_tid;
        let mut regions_left = self.header.region_count - 1;
        loop {
            scan.end_offset = self.header.region_offset(region_index) + at as u64;
            let here = self.decode(&region[at..], scan.end_offset);
            let next_index = (region_index + 1) % self.header.region_count;
            let mut next = Found::Nothing;
            let mut later = None;
            let found_here = classify(&here, expected);
            if found_here == Found::Nothing {
                if regions_left > 0 && at > 0 {
                    let read = next_region.insert(Rc::new(self.read_region(next_index)?));
                    let offset = self.header.region_offset(next_index);
                    next = classify(&self.decode(read, offset), expected);
                }
                if next == Found::Nothing {
                    let here = Some((region_index, region.clone()));
                    let next = next_region.clone().map(|region| (next_index, region));
                    later = self.find_later(expected, &[here, next])?;
                }
            }
            match decide(found_here, next, later.is_some()) {
                Step::Take => {
                    let Decoded::Record(record) = here else { unreachable!("it was classified") };
                    at += record.record_bytes;
                    expected = expected.next();
                    scan.records.push(record);
                    at = at.min(region.len());
                }
                Step::GoToNextRegion => {
                    region_index = next_index;
                    region = next_region.take().expect("it was looked at");
                    regions_left -= 1;
                    at = 0;
                }
                Step::EndOfHistory => return Ok(scan),
                Step::Unknown => {
                    let Decoded::Unknown(_, what) = here else { unreachable!("classified") };
                    scan.end = End::Unknown { tid: expected, what };
                    return Ok(scan);
                }
                Step::Damaged => {
                    let (found, found_offset) = later.expect("damage is decided by a later one");
                    scan.end = End::Damaged { missing: expected, found, found_offset };
                    return Ok(scan);
                }
            }
        }
    }

    fn decode(&self, bytes: &[u8], offset: u64) -> Decoded {
        record::decode(
            bytes,
            offset,
            &record::Expect {
                life: self.header.life,
                checksum_seed: self.checksum_seed,
                step_bytes: self.space.step_bytes(),
                ignore_checksum: self.ignore_checksum,
            },
        )
    }

    fn read_region(&self, region_index: u32) -> Result<AlignedBuf> {
        let len_bytes = usize::try_from(self.header.region_bytes).map_err(|_| {
            crate::JournalError::TooSmall("this machine cannot address a region".into())
        })?;
        let mut buf = AlignedBuf::zeroed(len_bytes);
        self.space.read(self.header.region_offset(region_index), &mut buf)?;
        Ok(buf)
    }

    /// Looks everywhere for a whole record of `expected` or a later transaction. `in_memory`: regions that need
    /// not be read for it, with their indices.
    fn find_later(
        &self,
        expected: Tid,
        in_memory: &[Option<(u32, Rc<AlignedBuf>)>],
    ) -> Result<Option<(Tid, u64)>> {
        let magic = DESCRIPTOR_MAGIC.to_le_bytes();
        // 512: a device with such sectors may have been copied to one with larger ones.
        let step_bytes = self.space.step_bytes().min(512);
        for region_index in 0..self.header.region_count {
            let known = in_memory.iter().flatten().find(|(index, _)| *index == region_index);
            let region = match known {
                Some((_, region)) => region.clone(),
                None => Rc::new(self.read_region(region_index)?),
            };
            for at in (0..region.len()).step_by(step_bytes) {
                if !region[at..].starts_with(&magic) {
                    continue;
                }
                let offset = self.header.region_offset(region_index) + at as u64;
                let tid = match self.decode(&region[at..], offset) {
                    Decoded::Record(record) => record.tid,
                    Decoded::Unknown(tid, _) => tid,
                    Decoded::Nothing => continue,
                };
                if tid >= expected {
                    return Ok(Some((tid, offset)));
                }
            }
        }
        Ok(None)
    }
}

fn classify(decoded: &Decoded, expected: Tid) -> Found {
    match decoded {
        Decoded::Record(record) if record.tid == expected => Found::Expected,
        Decoded::Unknown(tid, _) if *tid == expected => Found::Unknown,
        _ => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of the decision, in one table.
    #[test]
    fn the_decision_table() {
        use Found::*;
        let table = [
            (Expected, Expected, true, Step::Take),
            (Expected, Expected, false, Step::Take),
            (Expected, Unknown, true, Step::Take),
            (Expected, Unknown, false, Step::Take),
            (Expected, Nothing, true, Step::Take),
            (Expected, Nothing, false, Step::Take),
            (Unknown, Expected, true, Step::Unknown),
            (Unknown, Expected, false, Step::Unknown),
            (Unknown, Unknown, true, Step::Unknown),
            (Unknown, Unknown, false, Step::Unknown),
            (Unknown, Nothing, true, Step::Unknown),
            (Unknown, Nothing, false, Step::Unknown),
            (Nothing, Expected, true, Step::GoToNextRegion),
            (Nothing, Expected, false, Step::GoToNextRegion),
            (Nothing, Unknown, true, Step::GoToNextRegion),
            (Nothing, Unknown, false, Step::GoToNextRegion),
            (Nothing, Nothing, true, Step::Damaged),
            (Nothing, Nothing, false, Step::EndOfHistory),
        ];
        assert_eq!(table.len(), 3 * 3 * 2);
        for (here, next, later, step) in table {
            assert_eq!(decide(here, next, later), step, "{here:?} {next:?} {later}");
        }
    }
}
