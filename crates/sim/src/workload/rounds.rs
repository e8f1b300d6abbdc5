//! Many commits of many blocks, so that the journal fills its regions and reuses them.

use super::script::Script;
use crate::op::Op;

const FILE_COUNT: u64 = 3;
/// Number of rounds for which a symlink exists; each symlink has a block of its own.
const ROUND_COUNT: usize = 3;
const SYMLINKS: usize = 6;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 9, op_count);
    for number in 0..FILE_COUNT {
        script.create(&format!("file{number}"));
    }
    script.create("same");
    let mut round = 0;
    while !script.is_full() {
        let path = format!("file{}", script.rng.u64(..FILE_COUNT));
        let (offset, len_bytes) = (script.rng.u64(..8) * 4096, script.rng.usize(60_000..160_000));
        if script.rng.bool() {
            // As a database and its journal: the same bytes in two places.
            script.write_twice(&path, "same", offset, len_bytes);
        } else {
            script.write(&path, offset, len_bytes);
        }
        for number in 0..SYMLINKS {
            if round >= ROUND_COUNT {
                script.unlink(&format!("link{}-{number}", round - ROUND_COUNT));
            }
            script.push(Op::Symlink { path: format!("link{round}-{number}"), target_bytes: 1000 });
        }
        if round % 2 == 0 {
            // Never touched again: a checkpoint has to bring it home.
            script.create(&format!("keep{round}"));
            script.write(&format!("keep{round}"), 0, 5000);
            script.push(Op::Symlink { path: format!("keep-link{round}"), target_bytes: 2000 });
        }
        match script.rng.u8(..8) {
            0 => script.truncate(&path, 0),
            1 => {
                script.unlink(&path);
                script.create(&path);
            }
            _ => {}
        }
        if script.rng.u8(..4) == 0 {
            script.sync();
        } else {
            script.fsync(&path);
        }
        round += 1;
    }
    script.ops
}
