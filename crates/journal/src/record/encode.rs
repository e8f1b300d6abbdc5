//! A record as bytes, for a commit.

use device::AlignedBuf;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::codec::window::{Entry, Known};
use super::codec::{DeltaCodec, compress};
use super::contents::{CHECKS_MAX, Contents, Logged};
use super::form::{self, Change, Outcome};
use super::held::Held;
use crate::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, RawCheck, RawCommit, RawDescriptor, RawTag,
};
use crate::types::{BLOCK_BYTES, HomeBlock};

pub(super) const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();
pub(super) const TAG_BYTES: usize = size_of::<RawTag>();
pub(super) const COMMIT_BYTES: usize = size_of::<RawCommit>();
pub(super) const REVOKE_BYTES: usize = 8;
pub(super) const CHECK_BYTES: usize = size_of::<RawCheck>();

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

/// How a record is encoded.
pub(crate) struct Encoding<'a> {
    pub incarnation: u64,
    pub checksum_seed: u32,
    pub step_bytes: usize,
    pub delta_codec: DeltaCodec,
    pub pack: bool,
    /// Whether the region of the record already has a whole record of the block.
    pub is_whole_in_region: &'a dyn Fn(HomeBlock) -> bool,
}

/// Memory in which records are encoded. It is reused for the next record, because fresh pages cost
/// more than the encoding.
pub(crate) struct RecordBuf {
    pub(super) record: AlignedBuf,
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
    pub(super) fn make_room(&mut self, len_bytes: usize) {
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

/// Encodes a record into the buffer; [`RecordBuf::encoded`] has it. `held` has what the region of
/// the record holds, and gets the record's blocks.
pub(crate) fn encode(
    contents: &Contents<'_>,
    encoding: &Encoding<'_>,
    held: &mut Held,
    buf: &mut RecordBuf,
) {
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
        let (form, change) = encode_block(*home, logged, encoding, held, scratch);
        tags.put(&raw_tag(*home, form, change.len()));
        tags.buf[payload_end..payload_end + change.len()].copy_from_slice(change);
        payload_end += change.len();
        changes.push((form, TAG_BYTES + change.len()));
    }
    contents.revokes.iter().for_each(|home| tags.put(&U64::new(home.0)));
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

/// The form and the bytes of a change, in `scratch` or the version itself. Adds it to the window.
fn encode_block<'a>(
    home: HomeBlock,
    logged: &'a Logged,
    encoding: &Encoding<'_>,
    held: &mut Held,
    scratch: &'a mut Vec<u8>,
) -> (u8, &'a [u8]) {
    scratch.clear();
    let is_searched = held.interest.is_searched(logged.owner);
    let change = Change {
        home,
        owner: logged.owner,
        form: &logged.form,
        version: &logged.version,
        base: logged.base.as_deref(),
        is_whole_in_region: &|| (encoding.is_whole_in_region)(home),
        window: &held.window,
        is_searched,
    };
    let Outcome { form, search } = change.encode(encoding.delta_codec, scratch);
    let change = if form == FORM_BLOCK { logged.version.as_slice() } else { scratch.as_slice() };
    assert!(change.len() <= BLOCK_BYTES, "a change is no larger than its block");
    if let Some(found) = search {
        let found = found.and_then(|slot| held.window.owner(slot));
        held.interest.note(logged.owner, found);
    }
    let (owner, version, known) = (logged.owner, logged.version.clone(), Known::ALL);
    let new = Entry { home, owner, version, known };
    form::note_encoded(&mut held.window, new, logged.base.as_ref(), (form, change), is_searched);
    (form, change)
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
