//! Scan: finds the records of the journal that make up history, and how history ends.
//!
//! Records follow each other in a region. Where the next record is not valid, history continues at
//! the start of the next region, or it has ended. If no record of a later transaction of this
//! incarnation follows before the header's reach, this is simply the end, perhaps with a *torn*
//! record. Otherwise the journal is *damaged*: commits are written one after the other, so a later
//! record proves that the missing one was once whole and was acknowledged.

use std::rc::Rc;

use super::region_bytes::RegionBytes;
use crate::error::Result;
use crate::medium::Space;
use crate::memory::MemoryLimits;
use crate::record::{self, Decoded, Record};
use crate::ring::Header;
use crate::types::Tid;

/// How history ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing valid follows. Anything that may be there was never acknowledged.
    Tail,
    /// The expected transaction is not readable, but a later one is.
    Damaged {
        /// The first transaction that is missing.
        missing: Tid,
        /// A later one that is whole.
        found: Tid,
        /// Its offset in the journal, in bytes.
        found_offset: u64,
    },
    /// The next record is whole, but holds something that this version does not know.
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
    /// The whole records, in order.
    pub records: Vec<Record>,
    /// How they end.
    pub end: End,
    /// Where the next record would begin, in bytes from the start of the journal.
    pub end_offset: u64,
}

/// Reads the journal's history. Changes nothing.
pub fn scan(space: &Space, uuid: &[u8; 16]) -> Result<Scan> {
    Ok(scan_regions(space, uuid, &MemoryLimits::default())?.0)
}

/// [`scan`], with the bytes that it has read.
pub(crate) fn scan_regions<'a>(
    space: &'a Space,
    uuid: &[u8; 16],
    memory: &MemoryLimits,
) -> Result<(Scan, RegionBytes<'a>)> {
    let header = Header::read(space, uuid)?;
    header.check_surroundings(space)?;
    let expect = header.expect();
    let regions = RegionBytes::new(space, header, memory.recovery_cached_bytes());
    let mut reader = Reader { header, expect, regions };
    let scan = reader.scan()?;
    Ok((scan, reader.regions))
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

/// What is found at a place where the expected transaction could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordKind {
    /// The transaction that is expected.
    Expected,
    /// The expected transaction, but not readable by this version.
    Unknown,
    /// Anything else.
    Nothing,
}

/// The complete decision of the scan. `here`: the place after the last record. `next`: the start of
/// the next region. `later`: whether a record of the expected or a later transaction follows.
fn decide(here: RecordKind, next: RecordKind, later: bool) -> Step {
    match (here, next, later) {
        (RecordKind::Expected, _, _) => Step::Take,
        (RecordKind::Unknown, _, _) => Step::Unknown,
        (RecordKind::Nothing, RecordKind::Expected | RecordKind::Unknown, _) => {
            Step::GoToNextRegion
        }
        (RecordKind::Nothing, RecordKind::Nothing, true) => Step::Damaged,
        (RecordKind::Nothing, RecordKind::Nothing, false) => Step::EndOfHistory,
    }
}

struct Reader<'a> {
    header: Header,
    expect: record::Expect,
    regions: RegionBytes<'a>,
}

impl Reader<'_> {
    fn scan(&mut self) -> Result<Scan> {
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
        let mut region = self.regions.read(region_index)?;
        let mut next_region = None;
        let mut at = 0usize;
        let mut expected = self.header.tail_tid;
        let mut regions_left = self.header.region_count - 1;
        loop {
            scan.end_offset = self.header.region_offset(region_index) + at as u64;
            let here = self.decode(&region[at..], scan.end_offset);
            let next_index = (region_index + 1) % self.header.region_count;
            let mut next = RecordKind::Nothing;
            let mut later = None;
            let found_here = classify(&here, expected);
            if found_here == RecordKind::Nothing {
                if regions_left > 0 && at > 0 {
                    let read: &Rc<_> = next_region.insert(self.regions.read(next_index)?);
                    let offset = self.header.region_offset(next_index);
                    next = classify(&self.decode(read, offset), expected);
                }
                if next == RecordKind::Nothing {
                    later = self.find_later(expected, region_index, at, regions_left)?;
                }
            }
            match decide(found_here, next, later.is_some()) {
                Step::Take => {
                    let Decoded::Record(record) = here else { unreachable!("it was classified") };
                    assert!(record.tid == expected, "only the expected transaction is taken");
                    at += record.record_bytes;
                    assert!(at.is_multiple_of(self.expect.step_bytes), "records are whole steps");
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
        record::decode(bytes, offset, &self.expect)
    }

    /// Looks for a whole record of `expected` or a later transaction after the end of history: from
    /// `at` on in its region, then in the regions that follow.
    fn find_later(
        &mut self,
        expected: Tid,
        end_region: u32,
        at: usize,
        regions_left: u32,
    ) -> Result<Option<(Tid, u64)>> {
        for distance in 0..=regions_left {
            let region_index = (end_region + distance) % self.header.region_count;
            let region = self.regions.read(region_index)?;
            let start = if distance == 0 { at } else { 0 };
            for at in (start..region.len()).step_by(self.expect.step_bytes) {
                // An earlier transaction proves nothing, whole or not.
                if record::claimed_tid(&region[at..]).is_none_or(|tid| tid < expected) {
                    continue;
                }
                let offset = self.header.region_offset(region_index) + at as u64;
                match self.decode(&region[at..], offset) {
                    Decoded::Record(Record { tid, .. }) | Decoded::Unknown(tid, _) => {
                        return Ok(Some((tid, offset)));
                    }
                    Decoded::Nothing => {}
                }
            }
        }
        Ok(None)
    }
}

fn classify(decoded: &Decoded, expected: Tid) -> RecordKind {
    match decoded {
        Decoded::Record(record) if record.tid == expected => RecordKind::Expected,
        Decoded::Unknown(tid, _) if *tid == expected => RecordKind::Unknown,
        _ => RecordKind::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of the decision, in one table.
    #[test]
    fn the_decision_table() {
        use RecordKind::*;
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
