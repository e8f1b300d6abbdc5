//! The bytes of a file, shared, with their hash.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::FxHasher;

/// Immutable bytes with their hash: cheap to copy and to compare.
#[derive(Clone)]
pub struct Content {
    bytes: Arc<Vec<u8>>,
    hash: u64,
}

impl Content {
    /// Takes `bytes` in.
    pub fn new(bytes: Vec<u8>) -> Content {
        let mut hasher = FxHasher::default();
        hasher.write(&bytes);
        Content { hash: hasher.finish(), bytes: Arc::new(bytes) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A 64-bit hash of the bytes, the same in every run.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Default for Content {
    fn default() -> Self {
        Content::new(Vec::new())
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) || self.bytes == other.bytes
    }
}

impl Eq for Content {}

/// The bytes that the write with this `tag` puts at `offset`. They are never zero, and differ for
/// every tag and place. So a byte that is found on the volume shows which write it came from.
pub fn pattern(tag: u32, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len_bytes + 8);
    let mut word = offset / 8;
    let skip = usize::try_from(offset % 8).expect("below 8");
    while out.len() < len_bytes + skip {
        let mixed = mix(u64::from(tag) << 40 ^ word);
        out.extend(mixed.to_le_bytes().map(|byte| byte.max(1)));
        word += 1;
    }
    out.drain(..skip);
    out.truncate(len_bytes);
    out
}

/// Scrambles a number (splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_depends_on_tag_and_place_and_holds_no_zero() {
        let whole = pattern(3, 0, 100);
        assert_eq!(pattern(3, 13, 50), whole[13..63]);
        assert_ne!(pattern(4, 0, 100), whole);
        assert!(pattern(9, 0, 100_000).iter().all(|&byte| byte != 0));
    }
}
