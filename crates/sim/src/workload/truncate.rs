//! Large files, written in pieces and whole, which are cut and grown again.

use super::script::Script;
use crate::op::{Op, Reserve};

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 6, op_count);
    script.create("large");
    script.create("sparse");
    while !script.is_full() {
        // One block in two: many extents, so that the tree has depth.
        for index in 0..10 {
            let block = script.rng.u64(..100) * 2 + index % 2 * 200;
            let len_bytes = script.rng.usize(1..4097);
            script.write("sparse", block * 4096, len_bytes);
        }
        script.write("large", 0, 700_000);
        script.fsync("large");
        let (large, sparse) = (script.rng.u64(..700_000), script.rng.u64(..1_600_000));
        script.truncate("large", large);
        script.truncate("sparse", sparse);
        if script.rng.bool() {
            script.sync();
        }
        script.truncate("large", 800_000);
        script.fallocate("sparse", Reserve::Punch, 4096, 300_000);
        script.write("sparse", 5000, 20_000);
        script.fsync("sparse");
        script.truncate("large", 0);
        script.checkpoint();
    }
    script.ops
}
