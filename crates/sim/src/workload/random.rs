//! All operations, on names that mostly exist, and at offsets near block boundaries.

use ext4::{FileKind, XattrFlags};
use fastrand::Rng;

use super::script::Script;
use crate::model::Model;
use crate::op::{Op, RenameKind, Reserve, Target};

/// Largest offset of a write.
const OFFSET_MAX: u64 = 150_000;
const SLOT_COUNT: u32 = 4;
const DEPTH_MAX: usize = 3;
/// A name that no operation makes.
const NOTHING: &str = "nothing";

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    ops_from(Model::formatted(), 0, seed, op_count)
}

/// Operations that fit the content of `model`. Names and contents are made from numbers above
/// `number`.
pub fn ops_from(model: Model, number: u32, seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 1, op_count);
    let mut chooser = Chooser { model, number };
    // How often something is synced differs from run to run.
    let sync_eighths = [0, 1, 2, 4][script.rng.usize(..4)];
    while !script.is_full() {
        let op = if script.rng.u8(..8) < sync_eighths {
            chooser.sync_op(&mut script.rng)
        } else {
            chooser.change_op(&mut script.rng)
        };
        let _ = chooser.model.apply(&op, None);
        script.push(op);
    }
    script.ops
}

/// Chooses operations that fit the existing files.
struct Chooser {
    model: Model,
    number: u32,
}

impl Chooser {
    fn paths(&self, wanted: impl Fn(FileKind) -> bool) -> Vec<String> {
        let paths = self.model.paths().into_iter();
        paths.filter(|(_, kind)| wanted(*kind)).map(|(path, _)| path).collect()
    }

    fn any(&self, rng: &mut Rng) -> String {
        let paths = self.paths(|_| true);
        if paths.is_empty() { NOTHING.into() } else { rng.choice(paths).unwrap_or_default() }
    }

    fn file(&self, rng: &mut Rng) -> String {
        let files = self.paths(|kind| kind == FileKind::Regular);
        rng.choice(files).unwrap_or_else(|| NOTHING.into())
    }

    /// A directory; the root is the empty path.
    fn dir(&self, rng: &mut Rng) -> String {
        let mut dirs = self.paths(|kind| kind == FileKind::Directory);
        dirs.retain(|path| path.split('/').count() < DEPTH_MAX);
        dirs.push(String::new());
        rng.choice(dirs).unwrap_or_default()
    }

    /// A directory other than the root.
    fn old_dir(&self, rng: &mut Rng) -> String {
        let dirs = self.paths(|kind| kind == FileKind::Directory);
        rng.choice(dirs).unwrap_or_else(|| NOTHING.into())
    }

    /// A name that is mostly new.
    fn name(&mut self, rng: &mut Rng) -> String {
        if rng.u8(..12) == 0 {
            let old = self.any(rng);
            if old != NOTHING {
                return old;
            }
        }
        let dir = self.dir(rng);
        self.number += 1;
        let mut name = format!("{}{}", ["f", "x", "name"][rng.usize(..3)], self.number);
        if rng.u8(..10) == 0 {
            name += &"y".repeat(rng.usize(..250));
        }
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    fn file_target(&self, rng: &mut Rng) -> Target {
        let slots = self.model.open_slots();
        match rng.choice(slots) {
            Some(slot) if rng.u8(..4) == 0 => Target::Open(slot),
            _ => Target::Path(self.file(rng)),
        }
    }

    fn target(&self, rng: &mut Rng) -> Target {
        if rng.bool() { self.file_target(rng) } else { Target::Path(self.any(rng)) }
    }

    fn sync_op(&mut self, rng: &mut Rng) -> Op {
        match rng.u8(..16) {
            0..6 => Op::Fsync { target: self.file_target(rng), data_only: false },
            6..9 => Op::Fsync { target: self.file_target(rng), data_only: true },
            9..11 => Op::Fsync { target: Target::Path(self.dir(rng)), data_only: false },
            11..14 => Op::Sync,
            14 => Op::Checkpoint,
            _ if self.number.is_multiple_of(2) => Op::Restart,
            _ => Op::Remount,
        }
    }

    fn change_op(&mut self, rng: &mut Rng) -> Op {
        match rng.u8(..40) {
            0..6 => Op::Create { path: self.name(rng), mode: 0o640 + rng.u16(..8) },
            6..9 => Op::MakeDir { path: self.name(rng), mode: 0o750 },
            9 => {
                Op::Symlink { path: self.name(rng), target_bytes: [5, 59, 60, 900][rng.usize(..4)] }
            }
            10 => self.special(rng),
            11 | 12 => Op::Link { from: self.any(rng), to: self.name(rng) },
            13..16 => Op::Unlink { path: self.any(rng) },
            16 => Op::RemoveDir { path: self.old_dir(rng) },
            17..20 => self.rename(rng),
            20..28 => self.write(rng),
            28..31 => Op::Truncate { target: self.file_target(rng), size_bytes: place(rng) },
            31..34 => self.fallocate(rng),
            34 => self.set_attr(rng),
            35 | 36 => self.set_xattr(rng),
            37 => Op::RemoveXattr { target: self.target(rng), name: xattr_name(rng) },
            38 => Op::Open { path: self.file(rng), slot: rng.u32(..SLOT_COUNT) },
            _ => Op::Close { slot: rng.u32(..SLOT_COUNT) },
        }
    }

    fn special(&mut self, rng: &mut Rng) -> Op {
        let kinds = [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
        let kind = kinds[rng.usize(..4)];
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let rdev = if is_device { [0x0103, 0x1234_5678][rng.usize(..2)] } else { 0 };
        Op::Special { path: self.name(rng), kind, rdev }
    }

    fn rename(&mut self, rng: &mut Rng) -> Op {
        let (to_old, to_new) = (self.any(rng), self.name(rng));
        let (kind, to) = match rng.u8(..6) {
            0 => (RenameKind::Exchange, to_old),
            1 => (RenameKind::NoReplace, to_new),
            2 | 3 => (RenameKind::Replace, to_old),
            _ => (RenameKind::Replace, to_new),
        };
        Op::Rename { from: self.any(rng), to, kind }
    }

    fn write(&mut self, rng: &mut Rng) -> Op {
        let len_bytes = match rng.u8(..8) {
            0..3 => rng.usize(1..300),
            3..6 => rng.usize(1..9000),
            6 => 4096 * rng.usize(1..4),
            _ => rng.usize(1..120_000),
        };
        self.number += 1;
        let (target, offset) = (self.file_target(rng), place(rng));
        Op::Write { target, offset, len_bytes, tag: self.number }
    }

    fn fallocate(&mut self, rng: &mut Rng) -> Op {
        let how = match rng.u8(..8) {
            0 | 1 => Reserve::Extend,
            2 => Reserve::KeepSize,
            3..6 => Reserve::Punch,
            6 => Reserve::Zero { keep_size: true },
            _ => Reserve::Zero { keep_size: false },
        };
        let (target, offset, len_bytes) = (self.file_target(rng), place(rng), rng.u64(1..60_000));
        Op::Fallocate { target, how, offset, len_bytes }
    }

    fn set_attr(&mut self, rng: &mut Rng) -> Op {
        let target = self.target(rng);
        let mode = matches!(&target, Target::Path(_)).then_some(0o600 + rng.u16(..64));
        let (uid, gid) = (rng.bool().then(|| rng.u32(..)), rng.bool().then(|| rng.u32(..100_000)));
        match self.is_symlink(&target) {
            true => Op::SetAttr { target, mode: None, uid, gid },
            false => Op::SetAttr { target, mode, uid: uid.map(|uid| uid >> 1), gid },
        }
    }

    fn is_symlink(&self, target: &Target) -> bool {
        let Target::Path(path) = target else { return false };
        self.model.paths().iter().any(|(p, kind)| p == path && *kind == FileKind::Symlink)
    }

    /// User attributes exist on files and directories only.
    fn set_xattr(&mut self, rng: &mut Rng) -> Op {
        let target =
            if rng.u8(..4) == 0 { Target::Path(self.dir(rng)) } else { self.file_target(rng) };
        let flags = match rng.u8(..8) {
            0 => XattrFlags::Create,
            1 => XattrFlags::Replace,
            _ => XattrFlags::Any,
        };
        self.number += 1;
        let len_bytes = [0, 3, 30, 120, 700, 2500][rng.usize(..6)];
        Op::SetXattr { target, name: xattr_name(rng), len_bytes, tag: self.number, flags }
    }
}

fn xattr_name(rng: &mut Rng) -> String {
    ["user.a", "user.longer-name", "trusted.t", "security.s"][rng.usize(..4)].into()
}

/// A size or offset: often at a block's edge, mostly small.
fn place(rng: &mut Rng) -> u64 {
    let block = rng.u64(..OFFSET_MAX / 4096) / [1, 8][rng.usize(..2)];
    match rng.u8(..6) {
        0 | 1 => block * 4096,
        2 => block * 4096 + 4095,
        3 => block * 4096 + 1,
        4 => rng.u64(..300),
        _ => block * 4096 + rng.u64(..4096),
    }
}
