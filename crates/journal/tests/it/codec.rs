//! What the codecs promise, over random histories of a block: round trips, idempotence, refusal.

use onejournal_journal::codec::{CodecError, compress, extent, runs, xor_lzo};
use onejournal_journal::{BLOCK_BYTES, BlockBytes};
use proptest::collection::vec;
use proptest::prelude::*;

const SECTOR_BYTES: usize = 512;

/// Appends the step from one version to the next.
type Encode = fn(&BlockBytes, &BlockBytes, usize, &mut Vec<u8>) -> Option<usize>;
type Apply = fn(&mut BlockBytes, &[u8]) -> Result<(), CodecError>;

/// The codecs of the delta form.
const DELTAS: [(Encode, Apply); 2] =
    [(runs::encode, runs::apply), (xor_lzo::encode, xor_lzo::apply)];

/// One change of a block.
#[derive(Debug, Clone)]
enum Edit {
    /// New bytes.
    Write { at: usize, bytes: Vec<u8> },
    /// The same byte everywhere.
    Fill { at: usize, len: usize, byte: u8 },
    /// What a b-tree page does to make room: bytes move.
    Shift { at: usize, len: usize, by: usize },
    /// A counter.
    Increment { at: usize },
}

fn edit() -> impl Strategy<Value = Edit> {
    let (at, len) = (0..BLOCK_BYTES, 1..600usize);
    prop_oneof![
        (at.clone(), vec(any::<u8>(), 1..80)).prop_map(|(at, bytes)| Edit::Write { at, bytes }),
        (at.clone(), len.clone(), any::<u8>()).prop_map(|(at, len, byte)| Edit::Fill {
            at,
            len,
            byte
        }),
        (at.clone(), len, 1..40usize).prop_map(|(at, len, by)| Edit::Shift { at, len, by }),
        at.prop_map(|at| Edit::Increment { at }),
    ]
}

/// Makes the change, as much of it as is in the block; returns which bytes it wrote.
fn make(edit: &Edit, block: &mut BlockBytes) -> (usize, usize) {
    let fits = |at: usize, len: usize| len.min(BLOCK_BYTES - at);
    match edit {
        Edit::Write { at, bytes } => {
            let len = fits(*at, bytes.len());
            block[*at..at + len].copy_from_slice(&bytes[..len]);
            (*at, len)
        }
        Edit::Fill { at, len, byte } => {
            block[*at..at + fits(*at, *len)].fill(*byte);
            (*at, fits(*at, *len))
        }
        Edit::Shift { at, len, by } => {
            let to = (at + by).min(BLOCK_BYTES - 1);
            let len = fits(to, *len);
            block.copy_within(*at..at + len, to);
            (to, len)
        }
        Edit::Increment { at } => {
            block[*at] = block[*at].wrapping_add(1);
            (*at, 1)
        }
    }
}

/// A first version (empty, text, or noise) and some more.
fn history() -> impl Strategy<Value = Vec<BlockBytes>> {
    let kind = prop_oneof![Just(1u8), Just(16), Just(255)];
    (kind, any::<u64>(), vec(vec(edit(), 0..12), 1..5)).prop_map(|(symbols, seed, steps)| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut block: BlockBytes = std::array::from_fn(|_| random.u8(..symbols));
        let mut versions = vec![block];
        for edits in steps {
            for edit in &edits {
                make(edit, &mut block);
            }
            versions.push(block);
        }
        versions
    })
}

/// A block each sector of which comes from one of the versions.
fn torn(versions: &[BlockBytes], seed: u64) -> BlockBytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut block = versions[0];
    for at in (0..BLOCK_BYTES).step_by(SECTOR_BYTES) {
        let version = &versions[random.usize(..versions.len())];
        block[at..at + SECTOR_BYTES].copy_from_slice(&version[at..at + SECTOR_BYTES]);
    }
    block
}

fn encoded(encode: Encode, base: &BlockBytes, new: &BlockBytes) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(encode(base, new, usize::MAX, &mut out), Some(out.len()));
    out
}

/// Applies every step of the history to `block`.
fn replay(encode: Encode, apply: Apply, versions: &[BlockBytes], block: &mut BlockBytes) {
    for step in versions.windows(2) {
        apply(block, &encoded(encode, &step[0], &step[1])).expect("what was encoded is applied");
    }
}

/// Whether replaying the history gives its last version from any block that a checkpoint or a torn
/// write of it can have left at home, and again after that.
fn is_idempotent(encode: Encode, apply: Apply, versions: &[BlockBytes], seed: u64) -> bool {
    let last = versions.last().expect("there is a version");
    let mut starts = versions.to_vec();
    starts.push(torn(versions, seed));
    starts.iter_mut().all(|block| {
        (0..2).all(|_| {
            replay(encode, apply, versions, block);
            block == last
        })
    })
}

proptest! {
    #![proptest_config(onejournal_testing::proptest_config!(256))]

    #[test]
    fn a_delta_makes_the_new_version(versions in history()) {
        for (encode, apply) in DELTAS {
            let mut block = versions[0];
            for step in versions.windows(2) {
                let bytes = encoded(encode, &step[0], &step[1]);
                apply(&mut block, &bytes).expect("it is applied");
                prop_assert!(block == step[1]);
                // The budget is exact.
                let mut out = Vec::new();
                prop_assert_eq!(encode(&step[0], &step[1], bytes.len() - 1, &mut out), None);
                prop_assert!(out.is_empty());
                prop_assert!(encode(&step[0], &step[1], bytes.len(), &mut out).is_some());
            }
        }
    }

    #[test]
    fn runs_are_idempotent(versions in history(), seed: u64) {
        prop_assert!(is_idempotent(runs::encode, runs::apply, &versions, seed));
    }

    #[test]
    fn extents_of_what_was_written_are_idempotent(
        first in history(), steps in vec(vec(edit(), 0..20), 1..4), seed: u64
    ) {
        let mut versions = vec![first[0]];
        let mut lists = Vec::new();
        for edits in steps {
            let mut block = versions[versions.len() - 1];
            let mut ranges = extent::Ranges::new();
            for edit in &edits {
                let (at, len) = make(edit, &mut block);
                ranges.insert(at, len);
            }
            let mut bytes = Vec::new();
            prop_assert!(extent::encode(&ranges, &block, usize::MAX, &mut bytes).is_some());
            prop_assert_eq!(runs::check(&bytes), Ok(ranges.covered_bytes()));
            lists.push(bytes);
            versions.push(block);
        }
        for mut block in [versions[0], versions[versions.len() - 1], torn(&versions, seed)] {
            lists.iter().for_each(|bytes| runs::apply(&mut block, bytes).expect("it is applied"));
            prop_assert!(block == versions[versions.len() - 1]);
        }
    }

    #[test]
    fn a_payload_is_what_it_was(versions in history()) {
        let payload = versions.concat();
        let mut bytes = b"before".to_vec();
        if !compress::compress_if_gain(&payload, &mut bytes) {
            prop_assert_eq!(&bytes, b"before");
            return Ok(());
        }
        let bytes = &bytes[6..];
        prop_assert!(bytes.len() <= payload.len() - payload.len() / compress::GAIN_DIVISOR);
        let mut out = b"before".to_vec();
        prop_assert!(compress::decompress(bytes, payload.len() - 1, &mut out).is_err());
        prop_assert!(compress::decompress(bytes, payload.len() + 1, &mut out).is_err());
        prop_assert_eq!(&out, b"before");
        prop_assert_eq!(compress::decompress(bytes, payload.len(), &mut out), Ok(()));
        prop_assert_eq!(&out[6..], payload);
    }

    #[test]
    fn whatever_is_cut_short_or_longer_is_refused(versions in history()) {
        for (encode, apply) in DELTAS {
            let mut bytes = encoded(encode, &versions[0], &versions[1]);
            let mut block = versions[0];
            for len in 0..bytes.len() {
                prop_assert!(apply(&mut block, &bytes[..len]).is_err());
            }
            bytes.push(0);
            prop_assert!(apply(&mut block, &bytes).is_err());
            prop_assert!(block == versions[0], "refused bytes change nothing");
        }
    }

    #[test]
    fn noise_and_damage_never_panic_and_change_nothing_when_refused(
        versions in history(), noise in vec(any::<u8>(), 0..200),
        flips in vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
    ) {
        for (encode, apply) in DELTAS {
            let mut damaged = encoded(encode, &versions[0], &versions[1]);
            for (at, bits) in &flips {
                let at = at.index(damaged.len());
                damaged[at] ^= bits;
            }
            for bytes in [&damaged, &noise] {
                let mut block = versions[0];
                if apply(&mut block, bytes).is_err() {
                    prop_assert!(block == versions[0]);
                }
            }
        }
        for expected_bytes in [0, 1, noise.len() * 3, BLOCK_BYTES, usize::MAX] {
            let mut out = Vec::new();
            let refused = compress::decompress(&noise, expected_bytes, &mut out).is_err();
            prop_assert_eq!(out.len(), if refused { 0 } else { expected_bytes });
        }
    }

    #[test]
    fn a_list_that_is_accepted_sets_as_many_bytes_as_check_says(bytes in lists()) {
        let (mut zeros, mut ones) = ([0; BLOCK_BYTES], [0xff; BLOCK_BYTES]);
        let result = runs::apply(&mut zeros, &bytes);
        prop_assert_eq!(runs::apply(&mut ones, &bytes), result.clone());
        let set_bytes = zeros.iter().zip(&ones).filter(|(a, b)| a == b).count();
        prop_assert_eq!(runs::check(&bytes).unwrap_or(0), set_bytes);
        prop_assert_eq!(runs::check(&bytes).map(drop), result);
    }
}

/// Bytes that often are a list of runs.
fn lists() -> impl Strategy<Value = Vec<u8>> {
    let run = (0..300usize, vec(any::<u8>(), 0..150));
    (vec(run, 0..30), vec(any::<u8>(), 0..2)).prop_map(|(runs, rest)| {
        let varint = |n: usize| match u8::try_from(n) {
            Ok(low @ ..0x80) => vec![low],
            _ => vec![n as u8 | 0x80, (n >> 7) as u8],
        };
        let mut bytes = Vec::new();
        for (gap, data) in runs {
            bytes.extend([varint(gap + 1), varint(data.len()), data].concat());
        }
        bytes.push(0);
        bytes.extend(rest);
        bytes
    })
}

/// A history in which bytes change and change back.
fn there_and_back() -> Vec<BlockBytes> {
    let mut versions = vec![[0; BLOCK_BYTES]; 3];
    versions[1][700..720].fill(1);
    versions[2][3000] = 2;
    versions
}

#[test]
fn runs_bring_a_byte_back() {
    for seed in 0..50 {
        assert!(is_idempotent(runs::encode, runs::apply, &there_and_back(), seed));
    }
}

#[test]
fn canary_the_check_sees_that_xor_is_not_idempotent() {
    assert!(!is_idempotent(xor_lzo::encode, xor_lzo::apply, &there_and_back(), 1));
}

#[test]
fn canary_the_check_sees_a_list_that_misses_a_byte() {
    /// Says that the block's last changed byte has not changed.
    fn forgetful(a: &BlockBytes, b: &BlockBytes, most: usize, out: &mut Vec<u8>) -> Option<usize> {
        let mut new = *b;
        if let Some(last) = (0..BLOCK_BYTES).rfind(|at| a[*at] != b[*at]) {
            new[last] = a[last];
        }
        runs::encode(a, &new, most, out)
    }
    assert!(!is_idempotent(forgetful, runs::apply, &there_and_back(), 1));
}
