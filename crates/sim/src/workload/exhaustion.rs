//! A volume that becomes full: writes fail, space is freed, and writes continue.

use super::script::Script;
use crate::op::{Op, Reserve};

const MIB: u64 = 1 << 20;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 4, op_count);
    script.make_dir("full");
    // All but a little is taken at once; what is left fills up step by step.
    for (name, mib) in [("a", 4), ("b", 3), ("c", 2)] {
        let path = format!("full/{name}");
        script.create(&path);
        script.fallocate(&path, Reserve::Extend, 0, mib * MIB);
    }
    script.sync();
    let mut round = 0;
    while !script.is_full() {
        let path = format!("full/small{}", round % 5);
        script.create(&path);
        for _ in 0..3 {
            let offset = script.rng.u64(..64) * 4096;
            script.write(&path, offset, 200_000);
        }
        match script.rng.u8(..6) {
            0 => script.fsync(&path),
            1 => script.fallocate("full/c", Reserve::Extend, MIB, 3 * MIB),
            2 => script.fallocate("full/b", Reserve::KeepSize, 3 * MIB, MIB),
            3 => script.push(Op::Symlink { path: format!("full/l{round}"), target_bytes: 900 }),
            _ => script.sync(),
        }
        match script.rng.u8(..4) {
            0 => script.unlink(&path),
            1 => {
                let size_bytes = script.rng.u64(..MIB);
                script.truncate("full/c", size_bytes);
            }
            2 => script.fallocate("full/a", Reserve::Punch, round % 4 * MIB, MIB / 2),
            _ => {}
        }
        round += 1;
    }
    script.ops
}
