//! Name hashes of indexed directories: legacy, half MD4 and TEA, each over signed or unsigned
//! characters.
//!
//! A hash has two parts: `major` orders the index (its lowest bit is always clear, the index uses
//! it for continued leaves), `minor` only orders names that share the major one.

use crate::error::{Error, Result};

/// Hash of a name, ordered as the index orders names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameHash {
    pub major: u32,
    pub minor: u32,
}

/// The function, as `hash_version` of an index root or `s_def_hash_version` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashVersion {
    Legacy,
    HalfMd4,
    Tea,
}

impl HashVersion {
    /// From its number on disk. 3 to 5 are the unsigned forms, which exist in memory only.
    pub(crate) fn from_disk(number: u8) -> Result<HashVersion> {
        match number {
            0 => Ok(HashVersion::Legacy),
            1 => Ok(HashVersion::HalfMd4),
            2 => Ok(HashVersion::Tea),
            other => Err(Error::corrupt(format!("hash version {other}"), "a directory index")),
        }
    }

    /// Its number on disk.
    pub(crate) fn to_disk(self) -> u8 {
        match self {
            HashVersion::Legacy => 0,
            HashVersion::HalfMd4 => 1,
            HashVersion::Tea => 2,
        }
    }
}

/// A hash function with the volume's seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHasher {
    pub version: HashVersion,
    /// Whether characters above 127 count as positive numbers (`EXT2_FLAGS_UNSIGNED_HASH`).
    pub unsigned: bool,
    /// `s_hash_seed`; all zeros means the built-in start values.
    pub seed: [u32; 4],
}

const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The largest major value is the end mark of a directory stream; names never have it.
const END_MARK: u32 = 0xffff_fffe;

impl NameHasher {
    /// The hash of `name`.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => self.half_md4(name),
            HashVersion::Tea => self.tea(name),
        };
        let major = match major & !1 {
            END_MARK => END_MARK - 2,
            other => other,
        };
        NameHash { major, minor }
    }

    fn character(&self, byte: u8) -> u32 {
        if self.unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    fn start(&self) -> [u32; 4] {
        if self.seed == [0; 4] { START } else { self.seed }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let product = self.character(byte).wrapping_mul(7_152_373);
            let mut next = before.wrapping_add(last ^ product);
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    fn half_md4(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.start();
        for_each_chunk(name, 32, |rest| half_md4_round(&mut state, &self.words(rest)));
        (state[1], state[2])
    }

    fn tea(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.start();
        for_each_chunk(name, 16, |rest| tea_round(&mut state, &self.words(rest)));
        (state[0], state[1])
    }

    /// `rest` as N big-endian words. Missing bytes are filled with the length of `rest`.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let len = u32::try_from(rest.len()).expect("names have at most 255 bytes");
        let pad = (len | len << 8) * 0x0001_0001;
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            for &byte in bytes {
                *word = (*word << 8).wrapping_add(self.character(byte));
            }
        }
        words
    }
}

/// Calls `each` with the rest of the name before each chunk, because the padding depends on the
/// whole rest.
fn for_each_chunk(name: &[u8], chunk_bytes: usize, mut each: impl FnMut(&[u8])) {
    let mut rest = name;
    while !rest.is_empty() {
        each(rest);
        rest = &rest[chunk_bytes.min(rest.len())..];
    }
}

/// The three rounds of MD4 (RFC 1320), each over eight words instead of sixteen.
fn half_md4_round(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let select: Mix = |x, y, z| z ^ (x & (y ^ z));
    let majority: Mix = |x, y, z| (x & y).wrapping_add((x ^ y) & z);
    let parity: Mix = |x, y, z| x ^ y ^ z;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (select, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (majority, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (parity, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, &word) in order.iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
            // The roles rotate: what was computed last is mixed into the next.
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen cycles of the Tiny Encryption Algorithm with the input as its key.
fn tea_round(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut left, mut right, mut sum) = (state[0], state[1], 0_u32);
    let mix = |value: u32, sum: u32, first: u32, second: u32| {
        (value << 4).wrapping_add(first)
            ^ value.wrapping_add(sum)
            ^ (value >> 5).wrapping_add(second)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(mix(right, sum, key[0], key[1]));
        right = right.wrapping_add(mix(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&[u8]; 5] = [
        b"a",
        b"hello",
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEF",
        "caf\u{e9}".as_bytes(),
        b"\xff\xfe\xe9\x80zz",
    ];

    /// UUID 76a3c2d1-0f4e-4b8a-9c5d-e1f203948576 as four little-endian words.
    const SEED: [u32; 4] = [0xd1c2_a376, 0x8a4b_4e0f, 0xf2e1_5d9c, 0x7685_9403];

    fn check(version: HashVersion, unsigned: bool, seed: [u32; 4], expected: [(u32, u32); 5]) {
        let hasher = NameHasher { version, unsigned, seed };
        for (name, (major, minor)) in NAMES.iter().zip(expected) {
            assert_eq!(hasher.hash(name), NameHash { major, minor }, "{version:?} {name:x?}");
        }
    }

    // The expected values are what `debugfs -R "dx_hash -h VERSION -s SEED NAME"` prints.

    #[test]
    fn legacy_as_debugfs() {
        let same = [(0xe74b_53e2, 0), (0x3225_2546, 0), (0x9e1e_e7c8, 0)];
        let [a, b, c] = same;
        check(HashVersion::Legacy, false, SEED, [a, b, c, (0x96ca_5a2c, 0), (0x0921_e25c, 0)]);
        check(HashVersion::Legacy, true, SEED, [a, b, c, (0x6dde_4230, 0), (0xc9e5_fafe, 0)]);
    }

    #[test]
    fn half_md4_as_debugfs() {
        let a = (0x46a1_ac36, 0xd2e1_e13e);
        let b = (0xa8df_e82a, 0xb50c_afca);
        let c = (0x1c10_fc80, 0xd516_d432);
        let signed = [a, b, c, (0x69ae_b1d4, 0xeeae_3ef1), (0xf1cb_29a0, 0x644d_66a7)];
        let unsigned = [a, b, c, (0xce68_c552, 0xb858_13fa), (0xa8bf_0246, 0x57f0_041f)];
        check(HashVersion::HalfMd4, false, SEED, signed);
        check(HashVersion::HalfMd4, true, SEED, unsigned);
    }

    #[test]
    fn half_md4_without_seed_as_debugfs() {
        let expected = [
            (0xd5fa_7d7a, 0xacb4_8187),
            (0x1746_da32, 0x4200_13b5),
            (0xb5e8_8e80, 0x16cd_70db),
            (0xfb9c_5e5c, 0x0573_e8b8),
            (0xb8f0_95ce, 0xa3f8_792d),
        ];
        check(HashVersion::HalfMd4, false, [0; 4], expected);
    }

    #[test]
    fn tea_as_debugfs() {
        let a = (0x0add_a1f2, 0xdac6_db96);
        let b = (0x21dd_9b78, 0x1d1e_6f5d);
        let c = (0x00d4_9a26, 0x8ac0_e192);
        let signed = [a, b, c, (0x9352_88f4, 0xa801_b4f9), (0x3350_0300, 0x4922_5dc3)];
        let unsigned = [a, b, c, (0x89d2_5bec, 0x9894_9558), (0x5450_9892, 0xced7_ed6e)];
        check(HashVersion::Tea, false, SEED, signed);
        check(HashVersion::Tea, true, SEED, unsigned);
    }

    #[test]
    fn unknown_versions_are_refused() {
        for number in 0..=2 {
            assert_eq!(HashVersion::from_disk(number).unwrap().to_disk(), number);
        }
        assert!(HashVersion::from_disk(3).is_err());
    }
}
