//! A directory that grows out of its first block, gets an index, splits leaves, and shrinks.

use super::script::Script;
use crate::op::Op;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 3, op_count);
    script.make_dir("d");
    script.create("d/file");
    script.sync();
    let mut names: Vec<String> = Vec::new();
    let mut number = 0;
    while !script.is_full() {
        let shrinks = names.len() > 70 || (names.len() > 20 && script.rng.u8(..8) == 0);
        if shrinks && script.rng.bool() {
            let name = names.swap_remove(script.rng.usize(..names.len()));
            script.unlink(&name);
        } else {
            // Long names: a block holds about fifteen of them.
            let filler = "n".repeat(script.rng.usize(150..=230));
            let name = format!("d/{number:03}-{filler}");
            number += 1;
            match script.rng.u8(..6) {
                0 => script.create(&name),
                1 => script.push(Op::Symlink { path: name.clone(), target_bytes: 20 }),
                2 if !names.is_empty() => {
                    let old = names.swap_remove(script.rng.usize(..names.len()));
                    script.rename(&old, &name);
                }
                _ => script.link("d/file", &name),
            }
            names.push(name);
        }
        match script.rng.u8(..24) {
            0..3 => script.fsync("d"),
            3 => script.sync(),
            4 => script.checkpoint(),
            _ => {}
        }
    }
    script.ops
}
