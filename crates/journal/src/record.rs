//! One transaction as bytes: encoded for a commit, decoded for recovery.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use device::AlignedBuf;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::codec::copy::{ReadSource, Sources};
use crate::codec::{CodecError, compress};
use crate::data_checks::{BLOCKS_MAX, CHECKS_MAX, DataCheck};
use crate::faults::{self, Fault};
use crate::form::{self, Change, form_name};
use crate::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, RawCheck, RawCommit, RawDescriptor, RawTag,
};
use crate::options::DeltaCodec;
use crate::running::Logged;
use crate::{BLOCK_BYTES, BlockBytes, HomeBlock, Tid};

const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();
const TAG_BYTES: usize = size_of::<RawTag>();
const COMMIT_BYTES: usize = size_of::<RawCommit>();
const REVOKE_BYTES: usize = 8;
const CHECK_BYTES: usize = size_of::<RawCheck>();

/// A larger payload is not compressed, because compressing it would take longer than writing it.
pub(crate) const PACK_LIMIT_BYTES: usize = 32 << 10;

/// The most bytes of a record with this many blocks and revokes, without the padding.
pub(crate) fn max_bytes(block_count: usize, revoke_count: usize) -> usize {
    DESCRIPTOR_BYTES
        + block_count * (TAG_BYTES + BLOCK_BYTES)
        + revoke_count * REVOKE_BYTES
        + CHECKS_MAX * CHECK_BYTES
        + COMMIT_BYTES
}

/// What a record is made of.
pub(crate) struct Contents<'a> {
    pub tid: Tid,
    pub time_ns: u64,
    pub blocks: &'a BTreeMap<HomeBlock, Logged>,
    pub revokes: &'a BTreeSet<HomeBlock>,
    /// At most [`CHECKS_MAX`].
    pub checks: &'a [DataCheck],
}

/// How a record is encoded.
pub(crate) struct Encoding<'a> {
    pub incarnation: u64,
    pub checksum_seed: u32,
    pub step_bytes: usize,
    pub delta_codec: DeltaCodec,
    pub pack: bool,
    /// Whether the region of the record already has a whole record of the block.
    pub is_whole_in_region: &'a dyn Fn(HomeBlock) -> bool,
    /// What the region of the record already holds, for copies.
    pub sources: &'a Sources,
}

/// Memory in which records are encoded. It is reused for the next record, because fresh pages cost
/// more than the encoding.
pub(crate) struct RecordBuf {
    record: AlignedBuf,
    /// One change, or a compressed payload.
    scratch: Vec<u8>,
    changes: Vec<(u8, usize)>,
    /// Bytes of the record that was encoded last.
    record_bytes: usize,
}

impl RecordBuf {
    /// A larger buffer is not reused.
    const REUSED_BYTES_MAX: usize = 1 << 20;

    pub(crate) fn new() -> RecordBuf {
        RecordBuf {
            record: AlignedBuf::zeroed(0),
            scratch: Vec::new(),
            changes: Vec::new(),
            record_bytes: 0,
        }
    }

    /// The record that was encoded last.
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        Encoded { bytes: &self.record[..self.record_bytes], changes: &self.changes }
    }

    /// Makes room for `len_bytes` bytes. They may hold the bytes of an earlier record.
    fn make_room(&mut self, len_bytes: usize) {
        if self.record.len() < len_bytes || self.record.len() > Self::REUSED_BYTES_MAX {
            self.record = AlignedBuf::zeroed(len_bytes.next_power_of_two());
        }
    }
}

/// An encoded record.
pub(crate) struct Encoded<'a> {
    /// Padded with zeros to a multiple of `step_bytes`.
    pub bytes: &'a [u8],
    /// For each block, in order: the form, and the bytes of the change including its tag.
    pub changes: &'a [(u8, usize)],
}

impl Encoded<'_> {
    /// Where in the uncompressed payload the block's bytes are as they are, for each block that is
    /// logged in this way: its index, and the offset.
    pub(crate) fn blocks_as_they_are(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut end = 0;
        let places = self.changes.iter().enumerate().map(move |(index, (form, len_bytes))| {
            let start = end;
            end += len_bytes - TAG_BYTES;
            (index, *form, start)
        });
        places.filter(|(_, form, _)| *form == FORM_BLOCK).map(|(index, _, start)| (index, start))
    }
}

/// Encodes a record into the buffer; [`RecordBuf::encoded`] has it.
pub(crate) fn encode(contents: &Contents<'_>, encoding: &Encoding<'_>, buf: &mut RecordBuf) {
    let (block_count, revoke_count) = (contents.blocks.len(), contents.revokes.len());
    let max_bytes = max_bytes(block_count, revoke_count);
    assert!(encoding.step_bytes.is_power_of_two(), "a record ends at a multiple of the step");
    buf.make_room(max_bytes.next_multiple_of(encoding.step_bytes));
    let RecordBuf { record, scratch, changes, .. } = buf;
    changes.clear();
    let revokes_at = DESCRIPTOR_BYTES + block_count * TAG_BYTES;
    let checks_at = revokes_at + revoke_count * REVOKE_BYTES;
    let payload_at = checks_at + contents.checks.len() * CHECK_BYTES;
    let mut tags = Writer { buf: record, at: DESCRIPTOR_BYTES };
    let mut payload_end = payload_at;
    for (home, logged) in contents.blocks {
        scratch.clear();
        let change = Change {
            form: &logged.form,
            version: &logged.version,
            base: logged.base.as_deref(),
            is_whole_in_region: &|| (encoding.is_whole_in_region)(*home),
            sources: encoding.sources,
        };
        let form = change.encode(encoding.delta_codec, scratch);
        let change = if form == FORM_BLOCK { logged.version.as_slice() } else { &scratch[..] };
        assert!(change.len() <= BLOCK_BYTES, "a change is no larger than its block");
        tags.put(&raw_tag(*home, form, change.len()));
        tags.buf[payload_end..payload_end + change.len()].copy_from_slice(change);
        payload_end += change.len();
        changes.push((form, TAG_BYTES + change.len()));
    }
    for home in contents.revokes {
        tags.put(&U64::new(home.0));
    }
    for check in contents.checks {
        tags.put(&RawCheck {
            home: U64::new(check.home.0),
            block_count: U32::new(check.block_count),
            checksum: U32::new(check.checksum),
        });
    }
    assert_eq!(tags.at, payload_at, "tags, revokes and checks have the size that was reserved");
    let record_bytes = |payload_bytes: usize| {
        (payload_at + payload_bytes + COMMIT_BYTES).next_multiple_of(encoding.step_bytes)
    };
    let payload = &mut record[payload_at..payload_end];
    let unpacked_bytes = if encoding.pack { pack(payload, scratch, record_bytes) } else { None };
    let commit_at = unpacked_bytes.map_or(payload_end, |_| payload_at + scratch.len());
    let used = commit_at + COMMIT_BYTES;
    assert!(used <= max_bytes, "a record is no larger than was reckoned with");
    assert!(changes.len() == block_count, "each block has one change");
    let descriptor = RawDescriptor {
        magic: U32::new(DESCRIPTOR_MAGIC),
        tag_count: count(block_count),
        incarnation: U64::new(encoding.incarnation),
        tid: U64::new(contents.tid.0),
        time_ns: U64::new(contents.time_ns),
        revoke_count: count(revoke_count),
        payload_bytes: count(commit_at - payload_at),
        used_bytes: count(used),
        unpacked_bytes: count(unpacked_bytes.unwrap_or(0)),
        check_count: count(contents.checks.len()),
    };
    Writer { buf: record, at: 0 }.put(&descriptor);
    let commit = RawCommit {
        magic: U32::new(COMMIT_MAGIC),
        checksum: U32::new(crc32c::crc32c_append(encoding.checksum_seed, &record[..commit_at])),
        tid: U64::new(contents.tid.0),
    };
    Writer { buf: record, at: commit_at }.put(&commit);
    let record_bytes = record_bytes(commit_at - payload_at);
    record[used..record_bytes].fill(0);
    buf.record_bytes = record_bytes;
}

fn count(n: usize) -> U32 {
    U32::new(u32::try_from(n).expect("a record is smaller than 4 GiB"))
}

/// Compresses the payload in its place, if that makes the record smaller and is worth the time.
/// Returns the size before that. The compressed bytes are in `scratch`, too. `record_bytes`: the
/// size of the record with a payload of so many bytes.
fn pack(
    payload: &mut [u8],
    scratch: &mut Vec<u8>,
    record_bytes: impl Fn(usize) -> usize,
) -> Option<usize> {
    scratch.clear();
    let unpacked_record_bytes = record_bytes(payload.len());
    if payload.len() > PACK_LIMIT_BYTES
        || unpacked_record_bytes == record_bytes(0)
        || !compress::compress_if_gain(payload, scratch)
        || unpacked_record_bytes == record_bytes(scratch.len())
    {
        return None;
    }
    payload[..scratch.len()].copy_from_slice(scratch);
    Some(payload.len())
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

fn raw_tag(home: HomeBlock, form: u8, stored_bytes: usize) -> RawTag {
    let stored_bytes = u16::try_from(stored_bytes).expect("a change is no larger than its block");
    RawTag { home: U64::new(home.0), stored_bytes: U16::new(stored_bytes), form, reserved: 0 }
}

/// A tag as recovery and `dump` see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The home block.
    pub home: HomeBlock,
    /// Record form (see `docs/format/journal.md`).
    pub form: u8,
    /// Bytes of the change.
    pub stored_bytes: usize,
    /// Where the change begins, in bytes from the start of the decompressed payload.
    pub payload_offset: usize,
}

impl Tag {
    /// Whether the record holds all of the block, so that replay needs nothing earlier.
    pub fn is_whole(&self) -> bool {
        form::is_whole(self.form)
    }

    /// Makes the new version from the previous one. `payload` is that of the record, decompressed;
    /// `read` reads earlier records of its region.
    pub(crate) fn apply(
        &self,
        payload: &[u8],
        block: &mut BlockBytes,
        read: &mut ReadSource<'_>,
    ) -> Result<(), CodecError> {
        let change = &payload[self.payload_offset..self.payload_offset + self.stored_bytes];
        form::apply(self.form, change, block, read)
    }
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The transaction.
    pub tid: Tid,
    /// When it was committed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Where the record begins, in bytes from the start of the journal space.
    pub offset: u64,
    /// Size on the medium in bytes, padding included.
    pub record_bytes: usize,
    /// Where the payload begins, in bytes from the start of the record.
    pub payload_at: usize,
    /// Bytes of the payload in the record.
    pub payload_bytes: usize,
    /// Bytes of the decompressed payload, if it is compressed.
    pub unpacked_bytes: Option<usize>,
    /// Changes.
    pub tags: Vec<Tag>,
    /// Home blocks whose older changes must not be replayed.
    pub revokes: Vec<HomeBlock>,
    /// Checksums of the data that the transaction wrote in place.
    pub checks: Vec<DataCheck>,
}

impl Record {
    /// The decompressed payload. `bytes` are those of the record.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
        let stored = &bytes[self.payload_at..self.payload_at + self.payload_bytes];
        let Some(unpacked_bytes) = self.unpacked_bytes else { return Ok(Cow::Borrowed(stored)) };
        let mut unpacked = Vec::new();
        compress::decompress(stored, unpacked_bytes, &mut unpacked)?;
        Ok(Cow::Owned(unpacked))
    }
}

/// What some bytes begin with.
pub(crate) enum Decoded {
    /// A whole record.
    Record(Record),
    /// A whole record with something that this version does not know.
    Unknown(Tid, String),
    /// Nothing that was ever committed in this incarnation.
    Nothing,
}

/// The transaction of the record that these bytes claim to be, if they begin like a record.
pub(crate) fn claimed_tid(bytes: &[u8]) -> Option<Tid> {
    if !bytes.starts_with(&DESCRIPTOR_MAGIC.to_le_bytes()) {
        return None;
    }
    let (descriptor, _) = RawDescriptor::read_from_prefix(bytes).ok()?;
    Some(Tid(descriptor.tid.get()))
}

/// What a record of this journal must agree with.
pub(crate) struct Expect {
    pub incarnation: u64,
    pub checksum_seed: u32,
    pub step_bytes: usize,
}

/// Decodes the record at the start of `bytes`, which are at `offset` of the space.
pub(crate) fn decode(bytes: &[u8], offset: u64, expect: &Expect) -> Decoded {
    let Some(parts) = Parts::find(bytes, expect.incarnation) else { return Decoded::Nothing };
    if !parts.is_committed(bytes, expect.checksum_seed) && !faults::is(Fault::ChecksumIgnored) {
        return Decoded::Nothing;
    }
    match parts.record(bytes, offset, expect.step_bytes) {
        Ok(record) => Decoded::Record(record),
        Err(text) => Decoded::Unknown(Tid(parts.descriptor.tid.get()), text),
    }
}

/// Where the parts of a record begin.
struct Parts {
    descriptor: RawDescriptor,
    revokes_at: usize,
    checks_at: usize,
    payload_at: usize,
    commit_at: usize,
}

impl Parts {
    /// Finds the parts if the bytes begin with a descriptor of this incarnation that fits into
    /// them.
    fn find(bytes: &[u8], incarnation: u64) -> Option<Parts> {
        let (descriptor, _) = RawDescriptor::read_from_prefix(bytes).ok()?;
        if descriptor.magic.get() != DESCRIPTOR_MAGIC || descriptor.incarnation.get() != incarnation
        {
            return None;
        }
        let count = |field: U32| usize::try_from(field.get()).ok();
        let tags_bytes = count(descriptor.tag_count)?.checked_mul(TAG_BYTES)?;
        let revokes_at = DESCRIPTOR_BYTES.checked_add(tags_bytes)?;
        let revokes_bytes = count(descriptor.revoke_count)?.checked_mul(REVOKE_BYTES)?;
        let checks_at = revokes_at.checked_add(revokes_bytes)?;
        let checks_bytes = count(descriptor.check_count)?.checked_mul(CHECK_BYTES)?;
        let payload_at = checks_at.checked_add(checks_bytes)?;
        let commit_at = payload_at.checked_add(count(descriptor.payload_bytes)?)?;
        let used = commit_at.checked_add(COMMIT_BYTES)?;
        let agrees = used == count(descriptor.used_bytes)? && used <= bytes.len();
        agrees.then_some(Parts { descriptor, revokes_at, checks_at, payload_at, commit_at })
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

    fn record(&self, bytes: &[u8], offset: u64, step_bytes: usize) -> Result<Record, String> {
        let mut payload_end = 0;
        let mut tags = Vec::new();
        for raw in bytes[DESCRIPTOR_BYTES..self.revokes_at].chunks_exact(TAG_BYTES) {
            let raw = RawTag::read_from_bytes(raw).expect("the chunk has the size of a tag");
            let tag = check_tag(&raw, payload_end)?;
            payload_end += tag.stored_bytes;
            tags.push(tag);
        }
        let revokes = bytes[self.revokes_at..self.checks_at].chunks_exact(REVOKE_BYTES);
        let revokes = revokes
            .map(|raw| U64::read_from_bytes(raw).expect("the chunk has the size of a revoke"))
            .map(|home| HomeBlock(home.get()))
            .collect();
        let checks: Vec<DataCheck> = bytes[self.checks_at..self.payload_at]
            .chunks_exact(CHECK_BYTES)
            .map(|raw| RawCheck::read_from_bytes(raw).expect("the chunk has the size of a check"))
            .map(|raw| DataCheck {
                home: HomeBlock(raw.home.get()),
                block_count: raw.block_count.get(),
                checksum: raw.checksum.get(),
            })
            .collect();
        check_sizes(&checks)?;
        let unpacked_bytes = self.descriptor.unpacked_bytes.get() as usize;
        let record = Record {
            tid: Tid(self.descriptor.tid.get()),
            time_ns: self.descriptor.time_ns.get(),
            offset,
            record_bytes: (self.commit_at + COMMIT_BYTES).next_multiple_of(step_bytes),
            payload_at: self.payload_at,
            payload_bytes: self.commit_at - self.payload_at,
            unpacked_bytes: (unpacked_bytes > 0).then_some(unpacked_bytes),
            tags,
            revokes,
            checks,
        };
        let payload = record.payload(bytes).map_err(|error| format!("its payload: {error}"))?;
        if payload_end != payload.len() {
            return Err("the changes do not add up to the payload".into());
        }
        for tag in &record.tags {
            let change = &payload[tag.payload_offset..tag.payload_offset + tag.stored_bytes];
            form::check(tag.form, change).map_err(|error| format!("{}: {error}", tag.home))?;
        }
        Ok(record)
    }
}

/// Bounds what recovery reads.
fn check_sizes(checks: &[DataCheck]) -> Result<(), String> {
    let blocks: u64 = checks.iter().map(|check| u64::from(check.block_count)).sum();
    if checks.len() > CHECKS_MAX || blocks > BLOCKS_MAX {
        return Err(format!("it has {} checks of {blocks} blocks of data", checks.len()));
    }
    if let Some(check) =
        checks.iter().find(|check| check.home.0 > u64::MAX / BLOCK_BYTES as u64 / 2)
    {
        return Err(format!("it has a check of {}", check.home));
    }
    Ok(())
}

fn check_tag(raw: &RawTag, payload_offset: usize) -> Result<Tag, String> {
    let tag = Tag {
        home: HomeBlock(raw.home.get()),
        form: raw.form,
        stored_bytes: usize::from(raw.stored_bytes.get()),
        payload_offset,
    };
    if form_name(tag.form).is_none() || raw.reserved != 0 {
        return Err(format!("{} has the unknown record form {}", tag.home, tag.form));
    }
    if tag.form == FORM_BLOCK && tag.stored_bytes != BLOCK_BYTES {
        return Err(format!("the change of {} is not a whole block", tag.home));
    }
    Ok(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::codec::extent::Ranges;
    use crate::format::{FORM_DELTA, FORM_EXTENT, FORM_SPARSE, FORM_XOR_LZO};
    use crate::{BlockOwner, Form};
    use onejournal_testing::tier;

    fn logged(form: Form, base: Option<u8>, change: impl Fn(&mut BlockBytes)) -> Logged {
        let mut version = [base.unwrap_or(0); BLOCK_BYTES];
        change(&mut version);
        let base = base.map(|byte| Arc::new([byte; BLOCK_BYTES]));
        Logged {
            version: Arc::new(version),
            base,
            form,
            owner: BlockOwner::NOBODY,
            is_fresh: false,
        }
    }

    fn sample() -> (BTreeMap<HomeBlock, Logged>, BTreeSet<HomeBlock>) {
        let whole = |byte| logged(Form::Block, None, |block| block.fill(byte));
        ([(HomeBlock(3), whole(1)), (HomeBlock(9), whole(2))].into(), [HomeBlock(77)].into())
    }

    const CHECK: DataCheck = DataCheck { home: HomeBlock(50), block_count: 3, checksum: 0xabcd };

    fn sample_contents<'a>(
        blocks: &'a BTreeMap<HomeBlock, Logged>,
        revokes: &'a BTreeSet<HomeBlock>,
    ) -> Contents<'a> {
        Contents { tid: Tid(5), time_ns: 6, blocks, revokes, checks: &[CHECK] }
    }

    fn encode_with<'a>(
        codec: DeltaCodec,
        is_whole_in_region: bool,
        contents: &Contents<'_>,
        buf: &'a mut RecordBuf,
    ) -> Encoded<'a> {
        let encoding = Encoding {
            incarnation: 42,
            checksum_seed: 1234,
            step_bytes: 512,
            delta_codec: codec,
            pack: true,
            is_whole_in_region: &|_| is_whole_in_region,
            sources: &Sources::new(0),
        };
        encode(contents, &encoding, buf);
        buf.encoded()
    }

    /// Encodes one change, decodes it, and applies it to its base.
    fn through_a_record(codec: DeltaCodec, in_region: bool, logged: &Logged) -> (u8, usize) {
        let blocks = [(HomeBlock(3), logged.clone())].into();
        let contents = Contents {
            tid: Tid(5),
            time_ns: 6,
            blocks: &blocks,
            revokes: &BTreeSet::new(),
            checks: &[],
        };
        let mut buf = RecordBuf::new();
        let encoded = encode_with(codec, in_region, &contents, &mut buf);
        let Decoded::Record(record) = decode_with(encoded.bytes, 42, 1234) else { panic!() };
        let [tag] = record.tags[..] else { panic!("one tag") };
        assert_eq!(encoded.changes, [(tag.form, TAG_BYTES + tag.stored_bytes)]);
        let mut block = logged.base.as_deref().copied().unwrap_or([0xEE; BLOCK_BYTES]);
        let mut none = |_, _: &mut [u8]| panic!("there is no earlier record");
        tag.apply(&record.payload(encoded.bytes).unwrap(), &mut block, &mut none).unwrap();
        assert!(block == *logged.version);
        (tag.form, tag.stored_bytes)
    }

    #[test]
    fn the_smallest_allowed_form_is_taken() {
        use DeltaCodec::{Runs, Whole, XorLzo};
        let three = |block: &mut BlockBytes| block[100..103].fill(9);
        let most = |block: &mut BlockBytes| block[..3500].fill(9);
        let mut ranges = Ranges::new();
        ranges.insert(90, 30);
        let through = through_a_record;
        assert_eq!(through(Runs, false, &logged(Form::Block, Some(1), three)).0, FORM_BLOCK);
        assert_eq!(through(Runs, false, &logged(Form::Delta, Some(1), three)), (FORM_DELTA, 6));
        let extent = logged(Form::Extent(ranges), Some(1), three);
        assert_eq!(through(Runs, false, &extent), (FORM_EXTENT, 33));
        assert_eq!(through(Runs, false, &logged(Form::Delta, None, three)), (FORM_SPARSE, 6));
        let fresh = Logged { base: None, ..extent.clone() };
        assert_eq!(through(Runs, false, &fresh).0, FORM_BLOCK);
        for base in [Some(1), None] {
            let whole = |form| logged(form, base, most);
            assert_eq!(through(Runs, false, &whole(Form::Delta)).0, FORM_BLOCK);
            let all = Form::Extent(Ranges::whole());
            assert_eq!(through(Runs, false, &whole(all)).0, FORM_BLOCK);
        }
        assert_eq!(through(XorLzo, true, &logged(Form::Delta, Some(1), three)).0, FORM_XOR_LZO);
        assert_eq!(through(XorLzo, false, &logged(Form::Delta, Some(1), three)).0, FORM_BLOCK);
        assert_eq!(through(XorLzo, true, &logged(Form::Delta, None, three)).0, FORM_BLOCK);
        assert_eq!(through(XorLzo, true, &extent).0, FORM_EXTENT);
        for base in [Some(1), None] {
            assert_eq!(through(Whole, true, &logged(Form::Delta, base, three)).0, FORM_BLOCK);
        }
        assert_eq!(through(Whole, true, &extent).0, FORM_EXTENT);
    }

    fn decode_with(bytes: &[u8], incarnation: u64, checksum_seed: u32) -> Decoded {
        let expect = Expect { incarnation, checksum_seed, step_bytes: 512 };
        decode(bytes, 8192, &expect)
    }

    fn sample_record() -> AlignedBuf {
        let (blocks, revokes) = sample();
        let contents = sample_contents(&blocks, &revokes);
        let mut buf = RecordBuf::new();
        AlignedBuf::from_slice(encode_with(DeltaCodec::Runs, false, &contents, &mut buf).bytes)
    }

    #[test]
    fn an_encoded_record_is_decoded() {
        let bytes = sample_record();
        let Decoded::Record(record) = decode_with(&bytes, 42, 1234) else { panic!("not decoded") };
        assert_eq!((record.tid, record.time_ns, record.offset), (Tid(5), 6, 8192));
        assert_eq!(record.record_bytes, bytes.len());
        assert_eq!(record.revokes, [HomeBlock(77)]);
        assert_eq!(record.checks, [CHECK]);
        assert_eq!(record.tags.iter().map(|t| t.home.0).collect::<Vec<_>>(), [3, 9]);
        let payload = record.payload(&bytes).unwrap();
        assert_eq!((payload.len(), payload[record.tags[1].payload_offset]), (8192, 2));
        // Two blocks of one byte each: packed.
        assert_eq!((record.unpacked_bytes, bytes.len()), (Some(8192), 512));
    }

    /// Compression that does not make the record smaller would only cost time, at recovery, too.
    #[test]
    fn a_payload_that_saves_no_step_is_not_packed() {
        let is_packed = |changed_bytes: usize, random_bytes: usize, step_bytes: usize| {
            let mut random = fastrand::Rng::with_seed(1);
            let mut version = [0; BLOCK_BYTES];
            version[..changed_bytes].fill(9);
            random.fill(&mut version[..random_bytes]);
            let logged = Logged {
                version: Arc::new(version),
                base: None,
                form: Form::Block,
                owner: BlockOwner::NOBODY,
                is_fresh: false,
            };
            let logged = if changed_bytes == BLOCK_BYTES {
                logged
            } else {
                Logged { base: Some(Arc::new([0; BLOCK_BYTES])), form: Form::Delta, ..logged }
            };
            let (blocks, no_revokes) = ([(HomeBlock(3), logged)].into(), BTreeSet::new());
            let contents = Contents { checks: &[], ..sample_contents(&blocks, &no_revokes) };
            let encoding = Encoding {
                incarnation: 42,
                checksum_seed: 1234,
                step_bytes,
                delta_codec: DeltaCodec::Runs,
                pack: true,
                is_whole_in_region: &|_| false,
                sources: &Sources::new(0),
            };
            let mut buf = RecordBuf::new();
            encode(&contents, &encoding, &mut buf);
            let decoded = decode_with(buf.encoded().bytes, 42, 1234);
            let Decoded::Record(record) = decoded else { panic!() };
            record.unpacked_bytes.is_some()
        };
        assert!(is_packed(1000, 0, 512), "one step instead of three");
        assert!(!is_packed(1000, 0, 4096), "one step as it is");
        assert!(is_packed(BLOCK_BYTES, 3000, 512), "fewer steps");
        assert!(is_packed(BLOCK_BYTES, 3000, 4096), "one step instead of two");
        assert!(!is_packed(1700, 1400, 1024), "two steps in both ways");
    }

    #[test]
    fn nothing_of_an_earlier_record_stays_in_the_buffer() {
        let mut buf = RecordBuf::new();
        buf.make_room(16384);
        buf.record.fill(0xff);
        let (blocks, revokes) = sample();
        let contents = sample_contents(&blocks, &revokes);
        let encoded = encode_with(DeltaCodec::Runs, false, &contents, &mut buf);
        assert_eq!(encoded.bytes, &sample_record()[..]);
    }

    #[test]
    fn any_changed_byte_outside_of_the_padding_is_noticed() {
        let good = sample_record();
        let used = RawDescriptor::read_from_prefix(&good).unwrap().0.used_bytes.get() as usize;
        for at in 0..used {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(matches!(decode_with(&bad, 42, 1234), Decoded::Nothing), "byte {at}");
        }
    }

    #[test]
    fn another_incarnation_another_volume_and_a_short_record_are_nothing() {
        let bytes = sample_record();
        assert!(matches!(decode_with(&bytes, 43, 1234), Decoded::Nothing));
        assert!(matches!(decode_with(&bytes, 42, 1235), Decoded::Nothing));
        assert!(matches!(decode_with(&bytes[..100], 42, 1234), Decoded::Nothing));
        assert!(matches!(decode_with(&[], 42, 1234), Decoded::Nothing));
    }

    #[test]
    fn a_valid_record_of_an_unknown_form_is_not_nothing() {
        let mut bytes = sample_record();
        bytes[DESCRIPTOR_BYTES + 10] = 200;
        let (descriptor, _) = RawDescriptor::read_from_prefix(&bytes).unwrap();
        let body = descriptor.used_bytes.get() as usize - COMMIT_BYTES;
        let checksum = crc32c::crc32c_append(1234, &bytes[..body]);
        bytes[body + 4..body + 8].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(decode_with(&bytes, 42, 1234), Decoded::Unknown(..)));
    }

    #[test]
    fn checks_of_more_than_a_transaction_may_check_are_not_taken() {
        let (blocks, revokes) = sample();
        let of = |block_count| DataCheck { block_count, ..CHECK };
        let beyond = DataCheck { home: HomeBlock(u64::MAX), ..CHECK };
        for (checks, is_known) in [
            (&[of(1024)][..], true),
            (&[of(1023), of(2)], false),
            (&[of(u32::MAX), of(u32::MAX)], false),
            (&[beyond], false),
            (&[of(1); CHECKS_MAX], true),
        ] {
            let contents = Contents { checks, ..sample_contents(&blocks, &revokes) };
            let mut buf = RecordBuf::new();
            let encoded = encode_with(DeltaCodec::Runs, false, &contents, &mut buf);
            let decoded = decode_with(encoded.bytes, 42, 1234);
            assert_eq!(matches!(decoded, Decoded::Record(_)), is_known, "{checks:?}");
            assert!(!matches!(decoded, Decoded::Nothing));
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut random = fastrand::Rng::with_seed(tier::seed_of(module_path!()));
        for _ in 0..tier::count(20_000) {
            let mut bytes: Vec<u8> = sample_record().to_vec();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(0..60);
                bytes[at] = random.u8(..);
            }
            decode_with(&bytes, 42, 1234);
        }
    }
}
