//! Files of different data modes that reuse each other's blocks, because there are no others.
//! (FAST'14 §2.2: what one mode left in the journal must not come back in a file of another mode.)

use ext4::DataMode;

use super::reuse::take_all_but;
use super::script::Script;
use crate::op::{Op, Target};

const KIB: u64 = 1 << 10;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 9, op_count);
    take_all_but(&mut script, 180 * KIB);
    while !script.is_full() {
        for path in ["first", "second"] {
            let mode = any_mode(&mut script);
            script.create(path);
            set_mode(&mut script, path, mode);
            fill(&mut script, path);
            if script.rng.u8(..3) == 0 {
                let mode = any_mode(&mut script);
                set_mode(&mut script, path, mode);
                fill(&mut script, path);
            }
            script.unlink(path);
            if script.rng.bool() {
                script.sync();
            }
        }
    }
    script.ops
}

fn any_mode(script: &mut Script) -> DataMode {
    DataMode::ALL[script.rng.usize(..DataMode::ALL.len())]
}

fn set_mode(script: &mut Script, path: &str, mode: DataMode) {
    script.push(Op::SetMode { target: Target::Path(path.into()), mode });
}

/// Large and small writes, over each other, with and without syncs.
fn fill(script: &mut Script, path: &str) {
    let len_bytes = script.rng.usize(66_000..110_000);
    script.write(path, 0, len_bytes);
    for _ in 0..script.rng.usize(1..4) {
        match script.rng.u8(..4) {
            0 => script.fsync(path),
            1 => script.fdatasync(path),
            2 => script.checkpoint(),
            _ => {}
        }
        let offset = script.rng.u64(..60_000);
        let len_bytes = if script.rng.bool() { script.rng.usize(1..600) } else { 9000 };
        script.write(path, offset, len_bytes);
    }
    if script.rng.bool() {
        script.fdatasync(path);
    }
}
