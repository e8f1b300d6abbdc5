//! Files that are used after they have lost their names: written, synced, closed, or deleted by the
//! crash.

use super::script::Script;
use crate::op::Op;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 7, op_count);
    script.make_dir("d");
    let mut open: Vec<u32> = Vec::new();
    let mut number = 0;
    while !script.is_full() {
        let path = format!("d/f{number}");
        script.create(&path);
        let len_bytes = script.rng.usize(1..60_000);
        script.write(&path, 0, len_bytes);
        script.open(&path, number);
        open.push(number);
        match script.rng.u8(..3) {
            0 => {
                script.create("d/other");
                script.rename("d/other", &path);
            }
            _ => script.unlink(&path),
        }
        let offset = script.rng.u64(..40_000);
        script.write_open(number, offset, 5000);
        number += 1;
        match script.rng.u8(..5) {
            0 => script.sync(),
            1 => script.fsync("d"),
            2 => {
                let target = crate::op::Target::Open(number - 1);
                script.push(Op::Fsync { target, data_only: false });
            }
            3 => script.checkpoint(),
            _ => {}
        }
        if open.len() > 3 || script.rng.u8(..3) == 0 {
            let slot = open.remove(script.rng.usize(..open.len()));
            script.close(slot);
        }
        match script.rng.u8(..10) {
            0 => {
                open.clear();
                script.push(Op::Remount);
            }
            1 => {
                script.push(Op::Restart);
                for slot in &open {
                    script.write_open(*slot, offset, 3000);
                }
            }
            _ => {}
        }
    }
    script.ops
}
