//! Records through encoding and decoding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::AlignedBuf;
use onejournal_testing::tier;
use zerocopy::FromBytes;

use super::codec::DeltaCodec;
use super::codec::extent::Ranges;
use super::codec::window::Window;
use super::contents::CHECKS_MAX;
use super::encode::{COMMIT_BYTES, DESCRIPTOR_BYTES, TAG_BYTES};
use super::interest::Interest;
use super::*;
use crate::format::*;
use crate::observer::BlockOwner;
use crate::types::{BLOCK_BYTES, BlockBytes, HomeBlock, Tid};

fn logged(form: Form, base: Option<u8>, change: impl Fn(&mut BlockBytes)) -> Logged {
    let mut version = [base.unwrap_or(0); BLOCK_BYTES];
    change(&mut version);
    let base = base.map(|byte| Arc::new([byte; BLOCK_BYTES]));
    Logged { version: Arc::new(version), base, form, owner: BlockOwner::NOBODY, is_fresh: false }
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
    };
    encode(contents, &encoding, &mut Held::new(0), buf);
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
    tag.apply(&record.payload(encoded.bytes).unwrap(), &mut block, &Window::new(0)).unwrap();
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
        };
        let mut buf = RecordBuf::new();
        encode(&contents, &encoding, &mut Held::new(0), &mut buf);
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

/// The forms of a block that another block copies with a header before it, and of a small change of
/// the first one.
fn forms_of_a_small_change(owner: BlockOwner) -> (u8, u8) {
    let mut random = fastrand::Rng::with_seed(1);
    let page: BlockBytes = std::array::from_fn(|_| random.u8(..));
    let mut copy = page;
    copy.rotate_right(24);
    let mut held = Held::new(WINDOW_BLOCKS_MAX);
    let mut form_of = |home, version, base: Option<BlockBytes>| {
        let (version, base) = (Arc::new(version), base.map(Arc::new));
        let logged = Logged { version, base, form: Form::Delta, owner, is_fresh: false };
        let blocks = [(HomeBlock(home), logged)].into();
        let no_revokes = BTreeSet::new();
        let contents = Contents { checks: &[], ..sample_contents(&blocks, &no_revokes) };
        let encoding = Encoding {
            incarnation: 42,
            checksum_seed: 1234,
            step_bytes: 512,
            delta_codec: DeltaCodec::Copies,
            pack: false,
            is_whole_in_region: &|_| false,
        };
        let mut buf = RecordBuf::new();
        encode(&contents, &encoding, &mut held, &mut buf);
        buf.encoded().changes[0].0
    };
    assert_eq!(form_of(1, copy, None), FORM_BLOCK);
    let mut changed = page;
    changed[2000..2008].copy_from_slice(b"a change");
    let first = form_of(2, changed, Some(page));
    let mut changed_again = changed;
    changed_again[2000] = b'A';
    (first, form_of(2, changed_again, Some(changed)))
}

#[test]
fn a_small_change_of_a_block_that_the_window_has_elsewhere_makes_it_whole_once() {
    assert_eq!(forms_of_a_small_change(BlockOwner(1)), (FORM_COPY, FORM_DELTA));
    assert_eq!(forms_of_a_small_change(BlockOwner::NOBODY), (FORM_DELTA, FORM_DELTA));
}

/// An engine and a recovery, which read the same records.
struct Pair {
    random: fastrand::Rng,
    /// What the blocks hold, as the engine knows.
    newest: BTreeMap<HomeBlock, Arc<BlockBytes>>,
    engine: Held,
    recovery: Window,
    forms: BTreeMap<u8, u32>,
}

impl Pair {
    /// A new version that has bytes of other blocks at other offsets, and some of its own.
    fn next_version(&mut self, home: HomeBlock) -> BlockBytes {
        let mut version = self.newest.get(&home).map_or([0; BLOCK_BYTES], |bytes| **bytes);
        let others: Vec<_> = self.newest.values().cloned().collect();
        for _ in 0..self.random.usize(1..4) {
            let len = self.random.usize(1..2500);
            let at = self.random.usize(..BLOCK_BYTES - len);
            if self.random.bool() && !others.is_empty() {
                let from = self.random.usize(..BLOCK_BYTES - len);
                let other = &others[self.random.usize(..others.len())];
                version[at..at + len].copy_from_slice(&other[from..from + len]);
            } else {
                let len = if self.random.bool() { len % 20 } else { len };
                version[at..at + len].iter_mut().for_each(|byte| *byte = self.random.u8(..));
            }
        }
        version
    }

    fn change(&mut self, home: HomeBlock) -> Logged {
        if self.random.u8(..8) == 0 {
            // It was written in place.
            let version = Arc::new(self.next_version(home));
            self.newest.insert(home, version);
        }
        let version = Arc::new(self.next_version(home));
        let base = self.newest.insert(home, version.clone()).filter(|_| self.random.u8(..5) > 0);
        let form = if self.random.u8(..5) > 0 { Form::Delta } else { Form::Block };
        let owner = BlockOwner(self.random.u64(..3));
        Logged { version, base, form, owner, is_fresh: false }
    }

    fn commit(&mut self) {
        let homes: BTreeSet<_> =
            (0..self.random.usize(1..5)).map(|_| HomeBlock(self.random.u64(..30))).collect();
        let blocks = homes.into_iter().map(|home| (home, self.change(home))).collect();
        let no_revokes = BTreeSet::new();
        let contents = Contents { checks: &[], ..sample_contents(&blocks, &no_revokes) };
        let is_whole_in_region = self.random.bool();
        let encoding = Encoding {
            incarnation: 42,
            checksum_seed: 1234,
            step_bytes: 512,
            delta_codec: DeltaCodec::Copies,
            pack: self.random.bool(),
            is_whole_in_region: &|_| is_whole_in_region,
        };
        let mut buf = RecordBuf::new();
        encode(&contents, &encoding, &mut self.engine, &mut buf);
        let bytes = buf.encoded().bytes;
        let Decoded::Record(record) = decode_with(bytes, 42, 1234) else { panic!() };
        let payload = record.payload(bytes).expect("it was packed here");
        for tag in &record.tags {
            let logged = &blocks[&tag.home];
            // A mixture of the versions, as a checkpoint that was cut leaves it.
            let mut block = logged.base.as_deref().copied().unwrap_or([7; BLOCK_BYTES]);
            let at = self.random.usize(..BLOCK_BYTES);
            block[at..].copy_from_slice(&logged.version[at..]);
            tag.apply(&payload, &mut block, &self.recovery).expect("its sources are there");
            assert!(block == *logged.version, "{} in form {}", tag.home, tag.form);
            tag.note(&payload, &mut self.recovery).expect("its sources are there");
            *self.forms.entry(tag.form).or_default() += 1;
        }
        record.tags.iter().for_each(|tag| self.compare(tag.home));
    }

    /// Recovery has what the engine may copy from a block, in the same slot.
    fn compare(&self, home: HomeBlock) {
        let (engine, recovery) = (&self.engine.window, &self.recovery);
        let slot = engine.newest(home);
        assert_eq!(recovery.newest(home), slot, "{home}");
        let Some(slot) = slot else { return };
        for at in 0..BLOCK_BYTES {
            let known = engine.read(slot, at, 1);
            assert!(known.is_none() || recovery.read(slot, at, 1) == known, "{home} at {at}");
        }
    }
}

#[test]
fn recovery_has_all_sources_of_the_engine() {
    for count_max in [5, 40, WINDOW_BLOCKS_MAX] {
        let mut pair = Pair {
            random: fastrand::Rng::with_seed(tier::seed_of(module_path!())),
            newest: BTreeMap::new(),
            engine: Held::new(count_max),
            recovery: Window::new(count_max),
            forms: BTreeMap::new(),
        };
        // Owners rest now and then.
        pair.engine.interest = Interest::new(2);
        (0..tier::count(1500)).for_each(|_| pair.commit());
        println!("{count_max}: {:?}", pair.forms);
        for form in [FORM_DELTA, FORM_COPY, FORM_PATCH] {
            assert!(pair.forms[&form] > 10, "form {form} occurs");
        }
    }
}
