//! One transaction as bytes: encoding for commit, decoding for recovery.

use std::collections::{BTreeMap, BTreeSet};

use device::AlignedBuf;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, RawCommit, RawDescriptor, RawTag};
use crate::{BLOCK_BYTES, BlockRef, HomeBlock, Tid};

const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();
const TAG_BYTES: usize = size_of::<RawTag>();
const COMMIT_BYTES: usize = size_of::<RawCommit>();
const REVOKE_BYTES: usize = 8;

/// Bytes of a record of so many blocks and revokes, without the padding to a sector.
pub(crate) fn used_bytes(block_count: usize, revoke_count: usize) -> usize {
    DESCRIPTOR_BYTES
        + block_count * (TAG_BYTES + BLOCK_BYTES)
        + revoke_count * REVOKE_BYTES
        + COMMIT_BYTES
}

/// What a record is made of.
pub(crate) struct Contents<'a> {
    pub tid: Tid,
    pub time_ns: u64,
    pub blocks: &'a BTreeMap<HomeBlock, BlockRef>,
    pub revokes: &'a BTreeSet<HomeBlock>,
}

/// Memory that records are encoded in, kept from one to the next: fresh pages cost more than the
/// encoding.
pub(crate) struct RecordBuf(AlignedBuf);

impl RecordBuf {
    /// More than this is not kept.
    const KEPT_BYTES: usize = 1 << 20;

    pub(crate) fn new() -> RecordBuf {
        RecordBuf(AlignedBuf::zeroed(0))
    }

    /// Bytes with whatever an earlier record left in them.
    fn take(&mut self, len_bytes: usize) -> &mut [u8] {
        if self.0.len() < len_bytes || self.0.len() > Self::KEPT_BYTES {
            self.0 = AlignedBuf::zeroed(len_bytes.next_power_of_two());
        }
        &mut self.0[..len_bytes]
    }
}

/// Encodes a record, padded with zeros to whole sectors.
pub(crate) fn encode<'a>(
    contents: &Contents,
    life: u64,
    checksum_seed: u32,
    sector_bytes: usize,
    buf: &'a mut RecordBuf,
) -> &'a [u8] {
    let used = used_bytes(contents.blocks.len(), contents.revokes.len());
    let buf = buf.take(used.next_multiple_of(sector_bytes));
    let mut writer = Writer { buf, at: 0 };
    writer.put(&descriptor(contents, life, used));
    for home in contents.blocks.keys() {
        writer.put(&block_tag(*home));
    }
    for home in contents.revokes {
        writer.put(&U64::new(home.0));
    }
    for block in contents.blocks.values() {
        writer.put(block.as_ref());
    }
    let body_bytes = writer.at;
    let commit = RawCommit {
        magic: U32::new(COMMIT_MAGIC),
        checksum: U32::new(crc32c::crc32c_append(checksum_seed, &writer.buf[..body_bytes])),
        tid: U64::new(contents.tid.0),
    };
    writer.put(&commit);
    assert_eq!(writer.at, used, "a record has the size that was reserved for it");
    buf[used..].fill(0);
    buf
}

struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put<T: IntoBytes + zerocopy::Immutable + ?Sized>(&mut self, value: &T) {
        let bytes = value.as_bytes();
        self.buf[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

fn descriptor(contents: &Contents, life: u64, used: usize) -> RawDescriptor {
    let count = |n: usize| U32::new(u32::try_from(n).expect("a record is smaller than 4 GiB"));
    RawDescriptor {
        magic: U32::new(DESCRIPTOR_MAGIC),
        tag_count: count(contents.blocks.len()),
        life: U64::new(life),
        tid: U64::new(contents.tid.0),
        time_ns: U64::new(contents.time_ns),
        revoke_count: count(contents.revokes.len()),
        payload_bytes: count(contents.blocks.len() * BLOCK_BYTES),
        used_bytes: count(used),
        reserved: U32::new(0),
    }
}

fn block_tag(home: HomeBlock) -> RawTag {
    RawTag {
        home: U64::new(home.0),
        stored_bytes: U32::new(BLOCK_BYTES as u32),
        offset: U16::new(0),
        len: U16::new(BLOCK_BYTES as u16),
        form: FORM_BLOCK,
        flags: 0,
        reserved: [0; 6],
    }
}

/// A tag as recovery and `dump` see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The home block.
    pub home: HomeBlock,
    /// Record form (see `docs/format/journal.md`).
    pub form: u8,
    /// First byte of the block that the change covers.
    pub offset: u16,
    /// Bytes of the block that the change covers.
    pub len: u16,
    /// Bytes of its payload.
    pub stored_bytes: u32,
    /// Where the payload lies, in bytes from the start of the record.
    pub payload_offset: usize,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The transaction.
    pub tid: Tid,
    /// When it was committed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Where the record lies, in bytes from the start of the journal space.
    pub offset: u64,
    /// Size on the medium in bytes, padding included.
    pub record_bytes: usize,
    /// Changes.
    pub tags: Vec<Tag>,
    /// Home blocks whose older changes must not be replayed.
    pub revokes: Vec<HomeBlock>,
}

/// What the start of some bytes is.
pub(crate) enum Decoded {
    /// A whole record.
    Record(Record),
    /// A whole record, but with something this version does not know.
    Unknown(Tid, String),
    /// Nothing that was ever committed in this life.
    Nothing,
}

/// What a record of this journal must agree with.
pub(crate) struct Expect {
    pub life: u64,
    pub checksum_seed: u32,
    pub sector_bytes: usize,
    /// Only to see a check fail.
    pub ignore_checksum: bool,
}

/// Decodes the record at the start of `bytes`, which lie at `offset` of the space.
pub(crate) fn decode(bytes: &[u8], offset: u64, expect: &Expect) -> Decoded {
    let Some(parts) = Parts::find(bytes, expect.life) else { return Decoded::Nothing };
    if !expect.ignore_checksum && !parts.is_committed(bytes, expect.checksum_seed) {
        return Decoded::Nothing;
    }
    match parts.record(bytes, offset, expect.sector_bytes) {
        Ok(record) => Decoded::Record(record),
        Err(text) => Decoded::Unknown(Tid(parts.descriptor.tid.get()), text),
    }
}

/// Where the parts of a record lie.
struct Parts {
    descriptor: RawDescriptor,
    revokes_at: usize,
    payload_at: usize,
    commit_at: usize,
}

impl Parts {
    /// Finds the parts if the bytes begin with a descriptor of this life that fits into them.
    fn find(bytes: &[u8], life: u64) -> Option<Parts> {
        let (descriptor, _) = RawDescriptor::read_from_prefix(bytes).ok()?;
        if descriptor.magic.get() != DESCRIPTOR_MAGIC || descriptor.life.get() != life {
            return None;
        }
        let count = |field: U32| usize::try_from(field.get()).ok();
        let tags_bytes = count(descriptor.tag_count)?.checked_mul(TAG_BYTES)?;
        let revokes_at = DESCRIPTOR_BYTES.checked_add(tags_bytes)?;
        let revokes_bytes = count(descriptor.revoke_count)?.checked_mul(REVOKE_BYTES)?;
        let payload_at = revokes_at.checked_add(revokes_bytes)?;
        let commit_at = payload_at.checked_add(count(descriptor.payload_bytes)?)?;
        let used = commit_at.checked_add(COMMIT_BYTES)?;
        let agrees = used == count(descriptor.used_bytes)? && used <= bytes.len();
        agrees.then_some(Parts { descriptor, revokes_at, payload_at, commit_at })
    }

    fn is_committed(&self, bytes: &[u8], checksum_seed: u32) -> bool {
        let Ok((commit, _)) = RawCommit::read_from_prefix(&bytes[self.commit_at..]) else {
            return false;
        };
        commit.magic.get() == COMMIT_MAGIC
            && commit.tid == self.descriptor.tid
            && commit.checksum.get()
                == crc32c::crc32c_append(checksum_seed, &bytes[..self.commit_at])
    }

    fn record(&self, bytes: &[u8], offset: u64, sector_bytes: usize) -> Result<Record, String> {
        let mut payload_offset = self.payload_at;
        let mut tags = Vec::new();
        for raw in bytes[DESCRIPTOR_BYTES..self.revokes_at].chunks_exact(TAG_BYTES) {
            let raw = RawTag::read_from_bytes(raw).expect("the chunk has the size of a tag");
            let tag = check_tag(&raw, payload_offset)?;
            payload_offset += tag.stored_bytes as usize;
            tags.push(tag);
        }
        if payload_offset != self.commit_at {
            return Err("the payloads do not add up to what the descriptor says".into());
        }
        let revokes = bytes[self.revokes_at..self.payload_at].chunks_exact(REVOKE_BYTES);
        let revokes = revokes
            .map(|raw| U64::read_from_bytes(raw).expect("the chunk has the size of a revoke"))
            .map(|home| HomeBlock(home.get()))
            .collect();
        Ok(Record {
            tid: Tid(self.descriptor.tid.get()),
            time_ns: self.descriptor.time_ns.get(),
            offset,
            record_bytes: (self.commit_at + COMMIT_BYTES).next_multiple_of(sector_bytes),
            tags,
            revokes,
        })
    }
}

fn check_tag(raw: &RawTag, payload_offset: usize) -> Result<Tag, String> {
    let tag = Tag {
        home: HomeBlock(raw.home.get()),
        form: raw.form,
        offset: raw.offset.get(),
        len: raw.len.get(),
        stored_bytes: raw.stored_bytes.get(),
        payload_offset,
    };
    let whole = tag.offset == 0
        && usize::from(tag.len) == BLOCK_BYTES
        && tag.stored_bytes as usize == BLOCK_BYTES;
    match tag.form {
        FORM_BLOCK if whole && raw.flags == 0 => Ok(tag),
        FORM_BLOCK => Err(format!("the tag of {} is not that of a whole block", tag.home)),
        form => Err(format!("{} has the unknown record form {form}", tag.home)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn sample() -> (BTreeMap<HomeBlock, BlockRef>, BTreeSet<HomeBlock>) {
        let blocks = [(3, 1u8), (9, 2)].map(|(n, byte)| (HomeBlock(n), Arc::new([byte; 4096])));
        (blocks.into(), [HomeBlock(77)].into())
    }

    fn decode_with(bytes: &[u8], life: u64, checksum_seed: u32) -> Decoded {
        let expect = Expect { life, checksum_seed, sector_bytes: 512, ignore_checksum: false };
        decode(bytes, 8192, &expect)
    }

    fn sample_record() -> AlignedBuf {
        let (blocks, revokes) = sample();
        let contents = Contents { tid: Tid(5), time_ns: 6, blocks: &blocks, revokes: &revokes };
        AlignedBuf::from_slice(encode(&contents, 42, 1234, 512, &mut RecordBuf::new()))
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let bytes = sample_record();
        let Decoded::Record(record) = decode_with(&bytes, 42, 1234) else { panic!("not decoded") };
        assert_eq!((record.tid, record.time_ns, record.offset), (Tid(5), 6, 8192));
        assert_eq!(record.record_bytes, bytes.len());
        assert_eq!(record.revokes, [HomeBlock(77)]);
        assert_eq!(record.tags.iter().map(|t| t.home.0).collect::<Vec<_>>(), [3, 9]);
        assert_eq!(bytes[record.tags[1].payload_offset], 2);
    }

    #[test]
    fn nothing_of_an_earlier_record_stays_in_the_buffer() {
        let mut buf = RecordBuf::new();
        buf.take(16384).fill(0xff);
        let (blocks, revokes) = sample();
        let contents = Contents { tid: Tid(5), time_ns: 6, blocks: &blocks, revokes: &revokes };
        assert_eq!(encode(&contents, 42, 1234, 512, &mut buf), &sample_record()[..]);
    }

    #[test]
    fn any_changed_byte_outside_of_the_padding_is_noticed() {
        let good = sample_record();
        let used = used_bytes(2, 1);
        for at in (0..used).step_by(7).chain(used - COMMIT_BYTES..used) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(matches!(decode_with(&bad, 42, 1234), Decoded::Nothing), "byte {at}");
        }
    }

    #[test]
    fn another_life_another_volume_and_a_short_record_are_nothing() {
        let bytes = sample_record();
        assert!(matches!(decode_with(&bytes, 43, 1234), Decoded::Nothing));
        assert!(matches!(decode_with(&bytes, 42, 1235), Decoded::Nothing));
        assert!(matches!(decode_with(&bytes[..8192], 42, 1234), Decoded::Nothing));
        assert!(matches!(decode_with(&[], 42, 1234), Decoded::Nothing));
    }

    #[test]
    fn a_valid_record_of_an_unknown_form_is_not_nothing() {
        let mut bytes = sample_record();
        bytes[DESCRIPTOR_BYTES + 16] = 200;
        let body = used_bytes(2, 1) - COMMIT_BYTES;
        let checksum = crc32c::crc32c_append(1234, &bytes[..body]);
        bytes[body + 4..body + 8].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(decode_with(&bytes, 42, 1234), Decoded::Unknown(..)));
    }

    #[test]
    fn garbage_never_panics() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = sample_record()[..512].to_vec();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(0..60);
                bytes[at] = random.u8(..);
            }
            decode_with(&bytes, 42, 1234);
        }
    }
}
