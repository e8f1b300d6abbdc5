//! Several clients at once, each with its own directory. They append, replace files by renaming,
//! and sync, in a random interleaving.

use super::script::Script;
use crate::op::Op;

const CLIENT_COUNT: usize = 6;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 5, op_count);
    let mut log_bytes = [0u64; CLIENT_COUNT];
    let mut steps = [0usize; CLIENT_COUNT];
    for client in 0..CLIENT_COUNT {
        script.make_dir(&format!("c{client}"));
        script.create(&format!("c{client}/log"));
        script.create(&format!("c{client}/config"));
    }
    script.sync();
    while !script.is_full() {
        let client = script.rng.usize(..CLIENT_COUNT);
        let path = |name: &str| format!("c{client}/{name}");
        match steps[client] % 6 {
            0 | 1 => {
                let len_bytes = script.rng.usize(1..3000);
                script.write(&path("log"), log_bytes[client], len_bytes);
                log_bytes[client] += len_bytes as u64;
            }
            2 => script.fdatasync(&path("log")),
            3 => script.create(&path("config.new")),
            4 => {
                let len_bytes = script.rng.usize(1..9000);
                script.write(&path("config.new"), 0, len_bytes);
                if script.rng.bool() {
                    script.fsync(&path("config.new"));
                }
            }
            _ => script.rename(&path("config.new"), &path("config")),
        }
        steps[client] += 1;
        if script.rng.u8(..30) == 0 {
            script.checkpoint();
        }
    }
    script.ops
}
