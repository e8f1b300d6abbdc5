//! Blocks whose use changes: blocks of directories, attributes and symlink targets are freed, and
//! file data reuse them at once, because there are no others. Old records of those blocks in the
//! journal must not come back.

use ext4::XattrFlags;

use super::script::Script;
use crate::op::{Op, Reserve, Target};

const KIB: u64 = 1 << 10;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 8, op_count);
    take_all_but(&mut script, 140 * KIB);
    let mut round = 0;
    while !script.is_full() {
        let directory_count = 2 + script.rng.usize(..4);
        for index in 0..directory_count {
            script.make_dir(&format!("d{index}"));
            let path = format!("s{index}");
            script.push(Op::Symlink { path, target_bytes: 900 });
        }
        script.create("x");
        let (target, name) = (Target::Path("x".into()), "user.large".into());
        let flags = XattrFlags::Any;
        script.push(Op::SetXattr { target, name, len_bytes: 3000, tag: round, flags });
        script.sync();
        for index in 0..directory_count {
            script.push(Op::RemoveDir { path: format!("d{index}") });
            script.unlink(&format!("s{index}"));
        }
        script.unlink("x");
        match script.rng.u8(..3) {
            0 => script.fsync(""),
            _ => script.sync(),
        }
        script.create("data");
        let len_bytes = script.rng.usize(40_000..120_000);
        script.write("data", 0, len_bytes);
        script.fsync("data");
        script.write("data", 4096, 9000);
        script.fdatasync("data");
        script.unlink("data");
        script.sync();
        round += 1;
    }
    script.ops
}

/// Fills the whole volume except `free_bytes`.
pub(super) fn take_all_but(script: &mut Script, free_bytes: u64) {
    script.create("room");
    script.fallocate("room", Reserve::KeepSize, 0, free_bytes);
    for (index, kib) in [4096, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4].iter().enumerate()
    {
        let path = format!("fill{index}");
        script.create(&path);
        script.fallocate(&path, Reserve::KeepSize, 0, kib * KIB);
    }
    script.unlink("room");
    script.sync();
}
