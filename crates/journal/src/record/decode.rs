//! Bytes as a record, for recovery.

use std::borrow::Cow;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::codec::window::Window;
use super::codec::{CodecError, compress};
use super::contents::{BLOCKS_MAX, CHECKS_MAX, DataCheck};
use super::encode::{CHECK_BYTES, COMMIT_BYTES, DESCRIPTOR_BYTES, REVOKE_BYTES, TAG_BYTES};
use super::form::{self, form_name};
use crate::faults::{self, Fault};
use crate::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, RawCheck, RawCommit, RawDescriptor, RawTag,
};
use crate::types::{BLOCK_BYTES, BlockBytes, HomeBlock, Tid};

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

    /// The bytes of the change. `payload` is that of the record, decompressed.
    fn change<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        &payload[self.payload_offset..self.payload_offset + self.stored_bytes]
    }

    /// Makes the new version from the previous one. `window` has what its region holds before it.
    pub(crate) fn apply(
        &self,
        payload: &[u8],
        block: &mut BlockBytes,
        window: &Window,
    ) -> Result<(), CodecError> {
        form::apply(self.form, self.change(payload), (self.home, block), window)
    }

    /// Adds the change to what its region holds.
    pub(crate) fn note(&self, payload: &[u8], window: &mut Window) -> Result<(), CodecError> {
        form::note_decoded(window, self.home, (self.form, self.change(payload)))
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

/// What all records of an incarnation agree with.
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
            form::check(tag.form, tag.change(&payload))
                .map_err(|error| format!("{}: {error}", tag.home))?;
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
