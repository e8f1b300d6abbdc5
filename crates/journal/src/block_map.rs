//! Hash maps by home block. Block numbers come from the volume's allocator and not from an
//! attacker, so one multiplication is enough to spread them. The standard hasher would take a large
//! part of the time of a lookup.

use rustc_hash::FxHashMap;

use crate::types::HomeBlock;

/// A hash map by home block.
pub(crate) type BlockMap<V> = FxHashMap<HomeBlock, V>;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn blocks_at_any_stride_are_spread_over_the_buckets() {
        for stride_log2 in 0..20 {
            let mut counts = [0u32; 256];
            for n in 0..4096u64 {
                let hash = rustc_hash::FxBuildHasher.hash_one(HomeBlock(n << stride_log2));
                counts[hash as usize % 256] += 1;
            }
            let most = counts.iter().max().unwrap();
            assert!(*most < 64, "stride 2^{stride_log2}: {most} in a bucket, 16 on average");
        }
    }
}
