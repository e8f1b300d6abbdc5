//! Hash maps by home block. Block numbers are no secret and come from the volume's allocator, so one
//! multiplication spreads them, where the standard hasher would be a good part of a lookup.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::HomeBlock;

/// A hash map by home block.
pub(crate) type BlockMap<V> = HashMap<HomeBlock, V, BuildHasherDefault<BlockHasher>>;

#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a home block is one number");
    }

    /// 2^64 over the golden ratio; its upper half, the better mixed one, goes into the lower one too, which chooses
    /// the bucket: a shard of the cache has every 16th block only.
    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_at_any_stride_are_spread_over_the_buckets() {
        for stride_log2 in 0..20 {
            let mut counts = [0u32; 256];
            for n in 0..4096u64 {
                let mut hasher = BlockHasher::default();
                hasher.write_u64(n << stride_log2);
                counts[hasher.finish() as usize % 256] += 1;
            }
            let most = counts.iter().max().unwrap();
            assert!(*most < 64, "stride 2^{stride_log2}: {most} in a bucket, 16 on average");
        }
    }
}
