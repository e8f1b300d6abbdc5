//! Large files whose parts are zeroed, punched out or cut off, and written again, at once or in
//! pieces. Data must not be written in place over blocks that a crash brings back.

use super::script::Script;
use crate::op::{Op, Reserve};

const LEN_BYTES: u64 = 600_000;
/// Size of a piece that `auto` writes in place only after much was appended.
const PIECE_BYTES: usize = 64 << 10;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 12, op_count);
    let paths = ["first", "second"];
    paths.iter().for_each(|path| script.create(path));
    while !script.is_full() {
        let path = paths[script.rng.usize(..2)];
        script.write(path, 0, LEN_BYTES as usize);
        sync(&mut script, path);
        let (offset, len_bytes) = (script.rng.u64(..60_000), script.rng.u64(1..LEN_BYTES));
        match script.rng.u8(..6) {
            0 => script.truncate(path, offset),
            1 => script.fallocate(path, Reserve::Punch, offset, len_bytes),
            2 => script.fallocate(path, Reserve::Zero { keep_size: false }, offset, len_bytes),
            _ => script.fallocate(path, Reserve::Zero { keep_size: true }, 0, LEN_BYTES),
        }
        script.create("small");
        if script.rng.bool() {
            let len_bytes = script.rng.usize(300_000..LEN_BYTES as usize);
            script.write(path, 0, len_bytes);
        } else {
            (0..6).for_each(|at| script.write(path, at * PIECE_BYTES as u64, PIECE_BYTES));
        }
        sync(&mut script, path);
        script.unlink("small");
    }
    script.ops
}

/// Syncs a file: after that, more of its data go through the journal.
fn sync(script: &mut Script, path: &str) {
    match script.rng.u8(..8) {
        0 => script.fsync(path),
        1 => script.checkpoint(),
        2..6 => script.sync(),
        _ => {}
    }
}
