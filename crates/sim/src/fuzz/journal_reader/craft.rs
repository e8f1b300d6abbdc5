//! Makes a journal by the instructions of an input.
//!
//! ```text
//! input:   kind, regions, region size, header patches | record, record, ... (up to 32)
//! record:  what (one in stock, or written out), flags, [tid], [place], patches
//! ```
//! Unless its flags say otherwise, a record gets the incarnation, the next number and, after the
//! patches, the right checksum. The same holds for the header.

use journal::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORMAT_VERSION, HEADER_CLEAN, HEADER_MAGIC, HEADER_SLOT_BYTES,
    REGIONS_OFFSET, RawCheck, RawCommit, RawDescriptor, RawHeader, RawTag, WINDOW_BLOCKS_MAX,
    record_seed,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::stock::{self, COMMIT_BYTES, HOME_BLOCKS, UUID};
use crate::fuzz::input::Input;
use crate::fuzz::patch::Patch;

const BLOCK_BYTES: usize = 4096;
const INCARNATION: u64 = 0x11fe;
const RECORD_LIMIT: usize = 32;

/// The medium of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A device with small sectors.
    Block512,
    /// A device with large sectors.
    Block4096,
    /// NVRAM.
    Nvram,
}

/// A journal and the volume it belongs to.
pub struct Crafted {
    /// The medium of the journal.
    pub kind: Kind,
    /// Bytes of the volume.
    pub home: Vec<u8>,
    /// Bytes of the journal.
    pub journal: Vec<u8>,
}

impl Crafted {
    pub(super) fn with_home(&self, home: Vec<u8>) -> Crafted {
        Crafted { kind: self.kind, home, journal: self.journal.clone() }
    }
}

/// Makes the journal and the volume from the input.
pub fn craft(input: &mut Input<'_>) -> Crafted {
    let kind = [Kind::Block512, Kind::Block4096, Kind::Nvram][input.below(3)];
    let region_count = 2 + input.below(3);
    let region_bytes = (1 + input.below(6)) * BLOCK_BYTES;
    let regions_at = usize::try_from(REGIONS_OFFSET).expect("8 KiB");
    let mut writer = Writer {
        journal: vec![0; regions_at + region_count * region_bytes],
        step_bytes: match kind {
            Kind::Block512 => 512,
            Kind::Block4096 => 4096,
            Kind::Nvram => journal::NVRAM_STEP_BYTES,
        },
        region_bytes,
        region_count,
        region: 0,
        at: 0,
        tid: 1,
    };
    writer.headers(input);
    for _ in 0..RECORD_LIMIT {
        if input.is_empty() {
            break;
        }
        writer.record(input);
    }
    Crafted { kind, home: home_bytes(), journal: writer.journal }
}

/// The volume.
fn home_bytes() -> Vec<u8> {
    (0..HOME_BLOCKS * BLOCK_BYTES).map(|i| (i / 64 % 251) as u8).collect()
}

/// Records that the bytes at the start of `record`, which has `commit_at` bytes before its commit
/// record, were committed in that incarnation.
pub(super) fn is_certified(record: &[u8], commit_at: usize, incarnation: u64) -> bool {
    let Ok((commit, _)) = RawCommit::read_from_prefix(&record[commit_at..]) else { return false };
    commit.checksum.get() == checksum(&record[..commit_at], incarnation)
}

fn checksum(bytes: &[u8], incarnation: u64) -> u32 {
    crc32c::crc32c_append(record_seed(&UUID, incarnation), bytes)
}

struct Writer {
    journal: Vec<u8>,
    step_bytes: usize,
    region_bytes: usize,
    region_count: usize,
    /// The region of the next record.
    region: usize,
    at: usize,
    tid: u64,
}

impl Writer {
    fn headers(&mut self, input: &mut Input<'_>) {
        let flags = input.u8();
        let tail_region = usize::from(flags >> 1 & 3) % self.region_count;
        self.region = tail_region;
        let mut raw = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U32::new(FORMAT_VERSION),
            checksum: U32::new(0),
            flags: U32::new(if flags & 0xc0 == 0xc0 { HEADER_CLEAN } else { 0 }),
            uuid: UUID,
            incarnation: U64::new(INCARNATION),
            sequence: U64::new(4),
            region_bytes: U64::new(self.region_bytes as u64),
            region_count: U32::new(u32::try_from(self.region_count).expect("few")),
            tail_region: U32::new(u32::try_from(tail_region).expect("few")),
            tail_tid: U64::new(self.tid),
            reach_offset: U64::new(self.reach_offset(tail_region)),
            step_bytes: U32::new(u32::try_from(self.step_bytes).expect("4096 at most")),
            layout_checksum: U32::new(self.layout_checksum()),
            space_bytes: U64::new(self.journal.len() as u64),
            settled_tid: U64::new(0),
            window_blocks: U32::new(WINDOW_BLOCKS_MAX),
        };
        // Bits 3 to 5: patches of slot 0, of slot 1, and whether they are sealed.
        for slot in 0..2 {
            raw.sequence = U64::new(4 + slot as u64);
            raw.checksum = U32::new(0);
            let mut bytes = raw.as_bytes().to_vec();
            if flags >> (3 + slot) & 1 == 1 {
                patches(input, &mut bytes);
            }
            if flags >> 5 & 1 == 0 {
                bytes[8..12].fill(0);
                let sum = crc32c::crc32c(&bytes);
                bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            let start = slot * usize::try_from(HEADER_SLOT_BYTES).expect("4 KiB");
            self.journal[start..start + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// The layout: one extent from the start of the medium.
    fn layout_checksum(&self) -> u32 {
        let bounds = [0, self.journal.len() as u64];
        bounds.iter().fold(0, |sum, bound| crc32c::crc32c_append(sum, &bound.to_le_bytes()))
    }

    /// A reach over all regions.
    fn reach_offset(&self, tail_region: usize) -> u64 {
        let last = (tail_region + self.region_count - 1) % self.region_count;
        REGIONS_OFFSET + ((last + 1) * self.region_bytes) as u64
    }

    fn record(&mut self, input: &mut Input<'_>) {
        let stock = stock::records();
        let what = usize::from(input.u8());
        let flags = input.u8();
        let mut bytes = match stock.get(what % 32) {
            Some(bytes) => bytes.clone(),
            None => written_out(input),
        };
        if flags & 1 == 1 {
            self.tid = match input.u8() {
                255 => input.u64(),
                tid => u64::from(tid),
            };
        }
        if flags & 2 == 2 {
            self.region = input.below(self.region_count);
            self.at = usize::from(input.u16()) % self.region_bytes / 8 * 8;
        }
        put(&mut bytes, 8, INCARNATION);
        put(&mut bytes, 16, self.tid);
        if flags & 4 == 4 {
            patches(input, &mut bytes);
        }
        if flags & 8 == 0 {
            seal(&mut bytes);
        }
        self.place(&bytes);
        self.tid = self.tid.wrapping_add(1);
    }

    /// Puts a record after the last one, or at the start of the next region. It is cut off at the
    /// end of the region.
    fn place(&mut self, bytes: &[u8]) {
        if self.at > 0 && self.at + bytes.len() > self.region_bytes {
            self.region = (self.region + 1) % self.region_count;
            self.at = 0;
        }
        let start = usize::try_from(REGIONS_OFFSET).expect("8 KiB")
            + self.region * self.region_bytes
            + self.at;
        let count = bytes.len().min(self.journal.len() - start);
        self.journal[start..start + count].copy_from_slice(&bytes[..count]);
        self.at = (self.at + bytes.len()).next_multiple_of(self.step_bytes).min(self.region_bytes);
        self.at %= self.region_bytes;
    }
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn patches(input: &mut Input<'_>, bytes: &mut [u8]) {
    for _ in 0..1 + input.below(8) {
        Patch::read(input).apply(bytes);
    }
}

/// Gives the commit record at the end of `record` the right checksum.
fn seal(record: &mut [u8]) {
    let commit_at = record.len() - COMMIT_BYTES;
    let tid = U64::read_from_bytes(&record[16..24]).expect("eight bytes");
    let incarnation = U64::read_from_bytes(&record[8..16]).expect("eight bytes");
    let commit = RawCommit {
        magic: U32::new(COMMIT_MAGIC),
        checksum: U32::new(checksum(&record[..commit_at], incarnation.get())),
        tid,
    };
    record[commit_at..].copy_from_slice(commit.as_bytes());
}

/// A record whose tags, revokes, checks and payload are all in the input.
fn written_out(input: &mut Input<'_>) -> Vec<u8> {
    let (tag_count, revoke_count) = (input.below(5), input.below(4));
    let check_count = input.below(3);
    let unpacked_bytes = match input.u8() {
        0..128 => 0,
        128..255 => u32::from(input.u16()),
        255 => input.u32(),
    };
    let mut tags = Vec::new();
    let mut payload = Vec::new();
    for _ in 0..tag_count {
        let home = input.u8();
        let form = input.u8();
        let count = usize::from(input.u8());
        let change = input.take(count);
        payload.extend_from_slice(change);
        let tag = RawTag {
            home: U64::new(u64::from(home) % (HOME_BLOCKS as u64 + 1)),
            stored_bytes: U16::new(u16::try_from(change.len()).expect("below 256")),
            form: form % 7,
            reserved: 0,
        };
        tags.extend_from_slice(tag.as_bytes());
    }
    for _ in 0..revoke_count {
        tags.extend_from_slice(U64::new(u64::from(input.u8())).as_bytes());
    }
    for _ in 0..check_count {
        tags.extend_from_slice(check(input).as_bytes());
    }
    let used = size_of::<RawDescriptor>() + tags.len() + payload.len() + COMMIT_BYTES;
    let descriptor = RawDescriptor {
        magic: U32::new(DESCRIPTOR_MAGIC),
        tag_count: U32::new(u32::try_from(tag_count).expect("few")),
        incarnation: U64::new(0),
        tid: U64::new(0),
        time_ns: U64::new(0),
        revoke_count: U32::new(u32::try_from(revoke_count).expect("few")),
        payload_bytes: U32::new(u32::try_from(payload.len()).expect("few")),
        used_bytes: U32::new(u32::try_from(used).expect("few")),
        unpacked_bytes: U32::new(unpacked_bytes),
        check_count: U32::new(u32::try_from(check_count).expect("few")),
    };
    let mut bytes = descriptor.as_bytes().to_vec();
    bytes.extend(tags);
    bytes.extend(payload);
    bytes.resize(used, 0);
    bytes
}

/// A check of up to three blocks, mostly with the checksum that they have at first.
fn check(input: &mut Input<'_>) -> RawCheck {
    let (start, count) = (input.below(HOME_BLOCKS + 1), input.below(4));
    let bytes = start * BLOCK_BYTES..(start + count) * BLOCK_BYTES;
    let checksum = home_bytes().get(bytes).map_or(0, crc32c::crc32c);
    RawCheck {
        home: U64::new(start as u64),
        block_count: U32::new(u32::try_from(count).expect("few")),
        checksum: U32::new(if input.u8() < 200 { checksum } else { input.u32() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::MemoryDevice;
    use journal::{Space, scan};
    use std::sync::Arc;

    #[test]
    fn records_in_stock_are_history_again_when_they_are_sealed() {
        // Small sectors, three regions of six blocks; the first four records, as they are.
        let instructions = [0, 1, 5, 0, 0, 0, 1, 0, 2, 0, 3, 0];
        let crafted = craft(&mut Input::new(&instructions));
        let end = crafted.journal.len() as u64;
        let device = Arc::new(MemoryDevice::from_bytes(crafted.journal, 512));
        let space = Space::new(device, std::iter::once(0..end).collect()).unwrap();
        let scan = scan(&space, &UUID).unwrap();
        assert_eq!(scan.records.len(), 4);
        assert_eq!(scan.records[3].revokes.len(), 1);
    }
}
