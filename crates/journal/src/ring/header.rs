//! The header: two slots written in turn, so that one of them is always whole.
//!
//! Both slots are written when an incarnation begins or ends. So damage to one slot never brings
//! back the header of another incarnation, or a *clean* flag that is no longer true. Both are also
//! written when a region is freed: its blocks may be reused without a revoke, so the older header
//! must not bring its records back.
//!
//! The header also says how far into the ring records reach. A header with a further reach is
//! written before the first record that would end after the reach. So recovery reads no further
//! than the reach. The reach grows by doubling, so filling a region takes a few header writes. If
//! one slot is not valid, a further reach may have been lost with it. Then every region counts as
//! reached.
//!
//! Invariants, asserted before a header is written:
//! 1. Its regions are a ring within the space, and its reach is in one of them.
//! 2. It replaces an older header of the same incarnation and shape, with a lower `sequence`, and
//!    names no earlier transaction.

use std::cmp::Ordering;

use device::AlignedBuf;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{JournalError, Result};
use crate::format::{
    FORMAT_VERSION, HEADER_CLEAN, HEADER_MAGIC, HEADER_SLOT_BYTES, REGIONS_OFFSET, RawHeader,
    WINDOW_BLOCKS_MAX, record_seed,
};
use crate::medium::{Medium, NVRAM_STEP_BYTES, Space};
use crate::record::Expect;
use crate::types::Tid;

/// An incarnation has at most this many regions. Recovery keeps one entry of memory for each.
pub(crate) const REGION_COUNT_MAX: u32 = 16;

/// The content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// UUID of the volume the journal belongs to.
    pub uuid: [u8; 16],
    /// Random number of this incarnation of the journal.
    pub incarnation: u64,
    /// Counts header writes.
    pub sequence: u64,
    /// Whether everything is home, so that the regions hold nothing to recover.
    pub clean: bool,
    /// Number of regions.
    pub region_count: u32,
    /// Size of a region in bytes.
    pub region_bytes: u64,
    /// The region recovery starts in.
    pub tail_region: u32,
    /// The transaction recovery starts with.
    pub tail_tid: Tid,
    /// No record of this incarnation ends after this offset of the space, in bytes, in the regions
    /// from the tail on around the ring.
    pub reach_offset: u64,
    /// Records of this incarnation begin at multiples of this many bytes: a power of two, 8 to
    /// 4096.
    pub step_bytes: usize,
    /// The place of the space on its medium when this incarnation began: `Space::layout_checksum`.
    pub layout_checksum: u32,
    /// Size of the space in bytes when this incarnation began.
    pub space_bytes: u64,
    /// The data in place of transactions up to this one are durable, and need no check.
    pub settled_tid: Tid,
    /// How many blocks of their region records may copy from: the last ones.
    pub window_blocks: u32,
}

/// What one header slot holds, or both together.
pub(crate) enum FoundHeader {
    /// A valid header of the volume.
    Ours(Header),
    /// A whole header that must not be used, with the reason.
    Refused(JournalError),
    /// No header: torn, or never written.
    None,
}

/// The first reach into a region is a sixteenth of the region, at least this.
const REACH_MIN_BYTES: u64 = 256 << 10;

impl Header {
    /// Whether the journal is in this incarnation, or was recovered after it and not opened since.
    pub fn is_of_incarnation(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
            || self.clean && self.incarnation == incarnation_after_recovery(incarnation)
    }

    /// What records of this incarnation agree with.
    pub(crate) fn expect(&self) -> Expect {
        Expect {
            incarnation: self.incarnation,
            checksum_seed: record_seed(&self.uuid, self.incarnation),
            step_bytes: self.step_bytes,
        }
    }

    /// Offset of a region in the space, in bytes.
    pub fn region_offset(&self, region_index: u32) -> u64 {
        REGIONS_OFFSET + u64::from(region_index) * self.region_bytes
    }

    /// The reach for records that end before `used_bytes` of a region: a sixteenth of the region,
    /// doubled until it covers them.
    pub(crate) fn reach_for(&self, region_index: u32, used_bytes: u64) -> u64 {
        let mut bytes = (self.region_bytes / 16).next_multiple_of(4096).max(REACH_MIN_BYTES);
        while bytes < used_bytes {
            bytes *= 2;
        }
        self.region_offset(region_index) + bytes.min(self.region_bytes)
    }

    /// Bytes at the start of a region that may hold records.
    pub fn reached_bytes(&self, region_index: u32) -> u64 {
        let last = self.reached_region();
        match self.distance(region_index).cmp(&self.distance(last)) {
            Ordering::Less => self.region_bytes,
            Ordering::Equal => self.reach_offset - self.region_offset(last),
            Ordering::Greater => 0,
        }
    }

    /// The number of regions from the tail to this one.
    fn distance(&self, region_index: u32) -> u32 {
        (region_index + self.region_count - self.tail_region) % self.region_count
    }

    fn reached_region(&self) -> u32 {
        let index = (self.reach_offset - REGIONS_OFFSET - 1) / self.region_bytes;
        u32::try_from(index).expect("the reach is within a region")
    }

    /// This header with a reach over all regions.
    fn reaching_everything(self) -> Header {
        let last = (self.tail_region + self.region_count - 1) % self.region_count;
        Header { reach_offset: self.region_offset(last) + self.region_bytes, ..self }
    }

    /// Panics unless this header may be written over `older`: it has the same incarnation and
    /// shape, and names no older state.
    pub(crate) fn assert_replaces(&self, older: &Header) {
        let (new, old) = (self.sequence, older.sequence);
        assert!(new > old, "header {new} would replace header {old}");
        let goes_on = self.tail_tid >= older.tail_tid && self.settled_tid >= older.settled_tid;
        assert!(goes_on, "header {new} goes back in history");
        let Header { sequence, tail_region, tail_tid, reach_offset, settled_tid, .. } = *self;
        let same = Header { sequence, tail_region, tail_tid, reach_offset, settled_tid, ..*older };
        assert!(*self == same, "header {new} is of another incarnation or shape");
    }

    /// Writes the header durably to the slot that is next in turn.
    pub(crate) fn write(&self, space: &Space) -> Result<()> {
        assert!(self.has_sound_shape(), "a header is written that would be refused: {self:?}");
        assert!(self.space_bytes <= space.len_bytes(), "a header describes more than its space");
        self.store(space)
    }

    fn store(&self, space: &Space) -> Result<()> {
        let offset = self.sequence % 2 * HEADER_SLOT_BYTES;
        let header_bytes = size_of::<RawHeader>();
        let mut buf = AlignedBuf::zeroed(match space.medium() {
            Medium::Nvram(_) => header_bytes.next_multiple_of(NVRAM_STEP_BYTES),
            Medium::Block(_) => HEADER_SLOT_BYTES as usize,
        });
        buf[..header_bytes].copy_from_slice(self.to_raw().as_bytes());
        space.write_durable(offset, &buf)
    }

    /// Writes the header durably to both slots, the older one first. Returns the header as it is
    /// after that.
    pub(crate) fn write_both(&self, space: &Space) -> Result<Header> {
        self.write(space)?;
        let again = Header { sequence: self.sequence + 1, ..*self };
        again.write(space)?;
        Ok(again)
    }

    /// The newest valid header of the volume `uuid`, or why there is none.
    pub fn read(space: &Space, uuid: &[u8; 16]) -> Result<Header> {
        match Header::find(space, uuid)? {
            FoundHeader::Ours(header) => Ok(header),
            FoundHeader::Refused(why) => Err(why),
            FoundHeader::None => Err(JournalError::NoHeader),
        }
    }

    /// What the two slots hold. An error if they could not be read.
    pub(crate) fn find(space: &Space, uuid: &[u8; 16]) -> Result<FoundHeader> {
        if space.len_bytes() < REGIONS_OFFSET {
            return Err(JournalError::TooSmall("no room for the headers".into()));
        }
        let (mut newest, mut slot_count): (Option<Header>, _) = (None, 0);
        for slot in 0..2 {
            let mut buf = AlignedBuf::zeroed(HEADER_SLOT_BYTES as usize);
            space.read(slot * HEADER_SLOT_BYTES, &mut buf)?;
            let header = match Self::parse(&buf, uuid) {
                FoundHeader::Ours(header) => header,
                FoundHeader::None => continue,
                // A whole slot that cannot be used may be the newer one: nothing is known then.
                refused @ FoundHeader::Refused(_) => return Ok(refused),
            };
            slot_count += 1;
            if newest.is_none_or(|n| n.sequence < header.sequence) {
                newest = Some(header);
            }
        }
        let newest = if slot_count < 2 { newest.map(Header::reaching_everything) } else { newest };
        Ok(newest.map_or(FoundHeader::None, FoundHeader::Ours))
    }

    fn to_raw(self) -> RawHeader {
        let mut raw = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U32::new(FORMAT_VERSION),
            checksum: U32::new(0),
            flags: U32::new(if self.clean { HEADER_CLEAN } else { 0 }),
            uuid: self.uuid,
            incarnation: U64::new(self.incarnation),
            sequence: U64::new(self.sequence),
            region_bytes: U64::new(self.region_bytes),
            region_count: U32::new(self.region_count),
            tail_region: U32::new(self.tail_region),
            tail_tid: U64::new(self.tail_tid.0),
            reach_offset: U64::new(self.reach_offset),
            step_bytes: U32::new(u32::try_from(self.step_bytes).expect("a step is 4096 at most")),
            layout_checksum: U32::new(self.layout_checksum),
            space_bytes: U64::new(self.space_bytes),
            settled_tid: U64::new(self.settled_tid.0),
            window_blocks: U32::new(self.window_blocks),
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        raw
    }

    fn parse(slot: &[u8], uuid: &[u8; 16]) -> FoundHeader {
        let Ok((raw, _)) = RawHeader::read_from_prefix(slot) else { return FoundHeader::None };
        let unsummed = RawHeader { checksum: U32::new(0), ..raw };
        if raw.magic.get() != HEADER_MAGIC
            || raw.checksum.get() != crc32c::crc32c(unsummed.as_bytes())
        {
            return FoundHeader::None;
        }
        if raw.version.get() != FORMAT_VERSION {
            let text = format!("its format version is {}", raw.version.get());
            return FoundHeader::Refused(JournalError::Incompatible(text));
        }
        if raw.uuid != *uuid {
            return FoundHeader::Refused(JournalError::OtherVolume);
        }
        let header = Header {
            uuid: raw.uuid,
            incarnation: raw.incarnation.get(),
            sequence: raw.sequence.get(),
            clean: raw.flags.get() & HEADER_CLEAN != 0,
            region_count: raw.region_count.get(),
            region_bytes: raw.region_bytes.get(),
            tail_region: raw.tail_region.get(),
            tail_tid: Tid(raw.tail_tid.get()),
            reach_offset: raw.reach_offset.get(),
            step_bytes: usize::try_from(raw.step_bytes.get()).unwrap_or(0), // 0 is refused
            layout_checksum: raw.layout_checksum.get(),
            space_bytes: raw.space_bytes.get(),
            settled_tid: Tid(raw.settled_tid.get()),
            window_blocks: raw.window_blocks.get(),
        };
        match header.check_shape() {
            Ok(()) => FoundHeader::Ours(header),
            Err(why) => FoundHeader::Refused(why),
        }
    }

    /// Checks that what recovery relies on has not changed since this incarnation began. If it has,
    /// records could be missing without a trace, so the journal is refused. A *clean* journal has
    /// no records, and may be at any place.
    pub(crate) fn check_surroundings(&self, space: &Space) -> Result<()> {
        if self.clean {
            return Ok(());
        }
        if space.len_bytes() < self.space_bytes {
            return Err(JournalError::Incompatible(format!(
                "it had {} bytes when it was written, and now it has {}; nothing was changed. Was \
                 the file or device that holds it made shorter, or copied in part? Recover with \
                 all of it",
                self.space_bytes,
                space.len_bytes()
            )));
        }
        if space.layout_checksum(self.space_bytes) != self.layout_checksum {
            let why = "it is not where it was written; nothing was changed. Was the journal inode \
                       changed, or the volume put together from several copies? Recover the volume \
                       as it was when it was mounted last";
            return Err(JournalError::Incompatible(why.into()));
        }
        Ok(())
    }

    /// Whether the regions are a ring within the space, and reach and step are possible.
    fn has_sound_shape(&self) -> bool {
        let regions_bytes = u64::from(self.region_count).checked_mul(self.region_bytes);
        let end = regions_bytes.and_then(|bytes| bytes.checked_add(REGIONS_OFFSET));
        let fits = end.is_some_and(|end| end <= self.space_bytes);
        let whole = self.region_bytes.is_multiple_of(4096) && self.region_bytes > 0;
        let reaches = end
            .is_some_and(|end| (REGIONS_OFFSET + 1..=end).contains(&self.reach_offset))
            && self.reach_offset.is_multiple_of(4096);
        let is_ring = (2..=REGION_COUNT_MAX).contains(&self.region_count)
            && self.tail_region < self.region_count;
        let steps = self.step_bytes.is_power_of_two() && (8..=4096).contains(&self.step_bytes);
        let has_window = self.window_blocks <= WINDOW_BLOCKS_MAX;
        fits && whole && reaches && is_ring && steps && has_window
    }

    fn check_shape(&self) -> Result<()> {
        // No journal counts that far; what is below can be counted up from without overflow.
        let countable = self.sequence < 1 << 62 && (1..1 << 62).contains(&self.tail_tid.0);
        if !countable || !self.has_sound_shape() {
            return Err(JournalError::Damaged(format!(
                "its header describes {} regions of {} bytes, tail {}, reach {}, step {}, in {} \
                 bytes",
                self.region_count,
                self.region_bytes,
                self.tail_region,
                self.reach_offset,
                self.step_bytes,
                self.space_bytes
            )));
        }
        Ok(())
    }
}

/// The incarnation after recovery. No record belongs to it.
pub(crate) fn incarnation_after_recovery(incarnation: u64) -> u64 {
    incarnation.wrapping_add(1)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // One extent is a list of extents too.
mod tests {
    use super::*;
    use device::MemoryDevice;
    use std::sync::Arc;

    fn space() -> Space {
        Space::new(Arc::new(MemoryDevice::new(1 << 20, 512)), vec![0..1 << 20]).unwrap()
    }

    fn header(sequence: u64) -> Header {
        Header {
            uuid: [7; 16],
            incarnation: 99,
            sequence,
            clean: false,
            region_count: 4,
            region_bytes: 65536,
            tail_region: 1,
            tail_tid: Tid(5),
            reach_offset: REGIONS_OFFSET + 65536 + 4096,
            step_bytes: 512,
            layout_checksum: 17,
            space_bytes: 1 << 20,
            settled_tid: Tid(0),
            window_blocks: 0,
        }
    }

    #[test]
    fn the_newer_of_two_slots_counts_and_a_torn_one_does_not() {
        let space = space();
        header(4).write(&space).unwrap();
        header(5).write(&space).unwrap();
        assert_eq!(Header::read(&space, &[7; 16]).unwrap(), header(5));
        space.write(HEADER_SLOT_BYTES, &[0xff; 512]).unwrap();
        let alone = Header::read(&space, &[7; 16]).unwrap();
        assert_eq!(alone, header(4).reaching_everything());
        space.write(0, &[0; 512]).unwrap();
        assert!(matches!(Header::read(&space, &[7; 16]), Err(JournalError::NoHeader)));
    }

    #[test]
    fn a_foreign_journal_is_told_apart_from_a_damaged_one() {
        let space = space();
        header(4).write(&space).unwrap();
        assert!(matches!(Header::read(&space, &[8; 16]), Err(JournalError::OtherVolume)));
    }

    /// The scan has one entry of memory for each region. A header with 973,054,980 regions took 7.8
    /// GB.
    #[test]
    fn regression_a_crafted_number_of_regions_is_refused() {
        let space = space();
        for (count, is_whole) in [(16, true), (17, false), (973_054_980, false)] {
            let space_bytes = REGIONS_OFFSET + u64::from(count) * 4096;
            let crafted = Header {
                region_count: count,
                region_bytes: 4096,
                tail_region: 0,
                reach_offset: REGIONS_OFFSET + 4096,
                space_bytes,
                ..header(4)
            };
            crafted.store(&space).unwrap();
            assert_eq!(Header::read(&space, &[7; 16]).is_ok(), is_whole, "{count} regions");
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let space = space();
        for bad in [
            Header { region_count: 1, ..header(4) },
            Header { region_bytes: 1 << 40, ..header(4) },
            Header { region_bytes: !4095, ..header(4) },
            Header { tail_region: 4, ..header(4) },
            Header { region_bytes: 0, ..header(4) },
            Header { tail_tid: Tid(u64::MAX), ..header(4) },
            Header { tail_tid: Tid(0), ..header(4) },
            Header { sequence: u64::MAX - 1, ..header(4) },
            Header { reach_offset: 0, ..header(4) },
            Header { reach_offset: REGIONS_OFFSET, ..header(4) },
            Header { reach_offset: REGIONS_OFFSET + 512, ..header(4) },
            Header { reach_offset: REGIONS_OFFSET + 4 * 65536 + 4096, ..header(4) },
            Header { step_bytes: 0, ..header(4) },
            Header { step_bytes: 4, ..header(4) },
            Header { step_bytes: 768, ..header(4) },
            Header { step_bytes: 8192, ..header(4) },
            Header { space_bytes: REGIONS_OFFSET + 4 * 65536 - 1, ..header(4) },
        ] {
            bad.store(&space).unwrap();
            assert!(matches!(Header::read(&space, &[7; 16]), Err(JournalError::Damaged(_))));
        }
    }

    #[test]
    fn a_header_that_would_be_refused_is_never_written() {
        let space = space();
        header(4).write(&space).unwrap();
        for bad in [
            Header { region_count: 1, ..header(5) },
            Header { tail_region: 4, ..header(5) },
            Header { reach_offset: REGIONS_OFFSET, ..header(5) },
            Header { space_bytes: (1 << 20) + 4096, ..header(5) },
        ] {
            let write = std::panic::AssertUnwindSafe(|| bad.write(&space));
            assert!(std::panic::catch_unwind(write).is_err(), "{bad:?}");
        }
        let found = Header::read(&space, &[7; 16]).unwrap();
        assert_eq!(found, header(4).reaching_everything());
    }

    #[test]
    fn an_incarnation_is_continued_only_where_it_was_written() {
        let device = Arc::new(MemoryDevice::new(1 << 20, 512));
        let space = |extents: Vec<_>| Space::new(device.clone(), extents).unwrap();
        let made = space(vec![0..65536, 131072..524288]);
        let space_bytes = made.len_bytes();
        let layout_checksum = made.layout_checksum(space_bytes);
        let header = Header { space_bytes, layout_checksum, ..header(4) };
        for (same, extents) in [
            (true, vec![0..65536, 131072..524288]),
            (true, vec![0..4096, 4096..65536, 131072..524288]),
            (true, vec![0..65536, 131072..1 << 20]), // It has grown.
            (false, vec![0..65536, 131072..520192]),
            (false, vec![0..458752]),
            (false, vec![0..65536, 135168..1 << 20]),
            (false, vec![4096..69632, 131072..524288]),
        ] {
            let found = header.check_surroundings(&space(extents.clone()));
            assert_eq!(found.is_ok(), same, "{extents:?}");
            assert!(
                !matches!(found, Err(ref error) if !matches!(error, JournalError::Incompatible(_)))
            );
            let clean = Header { clean: true, ..header };
            clean.check_surroundings(&space(extents)).expect("nothing depends on it");
        }
    }

    #[test]
    fn the_reach_is_counted_around_the_ring() {
        let reached = |header: &Header| [0, 1, 2, 3].map(|region| header.reached_bytes(region));
        assert_eq!(reached(&header(4)), [0, 4096, 0, 0]);
        let into_first = Header { reach_offset: REGIONS_OFFSET + 8192, ..header(4) };
        assert_eq!(reached(&into_first), [8192, 65536, 65536, 65536]);
        let end_of_third = Header { reach_offset: REGIONS_OFFSET + 3 * 65536, ..header(4) };
        assert_eq!(reached(&end_of_third), [0, 65536, 65536, 0]);
        assert_eq!(reached(&header(4).reaching_everything()), [65536; 4]);
    }

    #[test]
    fn the_reach_doubles_up_to_the_end_of_its_region() {
        let header = Header { region_bytes: 16 << 20, ..header(4) };
        let reach = |used_bytes| header.reach_for(2, used_bytes) - header.region_offset(2);
        assert_eq!([0, 1 << 20, (1 << 20) + 1].map(reach), [1 << 20, 1 << 20, 2 << 20]);
        assert_eq!([5 << 20, 9 << 20, 16 << 20].map(reach), [8 << 20, 16 << 20, 16 << 20]);
        let small = Header { region_bytes: 140 * 4096, ..header };
        assert_eq!(small.reach_for(0, 1), REGIONS_OFFSET + REACH_MIN_BYTES);
        assert_eq!(small.reach_for(0, 530_000), REGIONS_OFFSET + 140 * 4096);
    }
}
