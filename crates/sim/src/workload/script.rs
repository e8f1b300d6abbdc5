//! Short calls to write the lists of operations of this module.

use fastrand::Rng;

use crate::content::mix;
use crate::op::{Op, RenameKind, Reserve, Target};

/// A growing list of operations.
pub(super) struct Script {
    pub(super) ops: Vec<Op>,
    pub(super) rng: Rng,
    limit: usize,
}

impl Script {
    /// An empty list with room for `limit` operations. `salt` makes the workloads differ.
    pub(super) fn new(seed: u64, salt: u64, limit: usize) -> Script {
        Script { ops: Vec::new(), rng: Rng::with_seed(mix(seed ^ salt << 48)), limit }
    }

    pub(super) fn is_full(&self) -> bool {
        self.ops.len() >= self.limit
    }

    pub(super) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn tag(&self) -> u32 {
        u32::try_from(self.ops.len()).expect("lists are short") + 1
    }

    pub(super) fn create(&mut self, path: &str) {
        self.push(Op::Create { path: path.into(), mode: 0o644 });
    }

    pub(super) fn make_dir(&mut self, path: &str) {
        self.push(Op::MakeDir { path: path.into(), mode: 0o755 });
    }

    pub(super) fn unlink(&mut self, path: &str) {
        self.push(Op::Unlink { path: path.into() });
    }

    pub(super) fn link(&mut self, from: &str, to: &str) {
        self.push(Op::Link { from: from.into(), to: to.into() });
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let (from, to) = (from.into(), to.into());
        self.push(Op::Rename { from, to, kind: RenameKind::Replace });
    }

    pub(super) fn write(&mut self, path: &str, offset: u64, len_bytes: usize) {
        let (target, tag) = (Target::Path(path.into()), self.tag());
        self.push(Op::Write { target, offset, len_bytes, tag });
    }

    /// Makes a write durable, and writes the same bytes to another file, at the same offset.
    pub(super) fn write_twice(&mut self, path: &str, other: &str, offset: u64, len_bytes: usize) {
        let tag = self.tag();
        self.write(path, offset, len_bytes);
        self.fsync(path);
        self.push(Op::Write { target: Target::Path(other.into()), offset, len_bytes, tag });
    }

    pub(super) fn write_open(&mut self, slot: u32, offset: u64, len_bytes: usize) {
        let (target, tag) = (Target::Open(slot), self.tag());
        self.push(Op::Write { target, offset, len_bytes, tag });
    }

    pub(super) fn write_atomic(&mut self, path: &str, pieces: Vec<(u64, usize)>) {
        let (target, tag) = (Target::Path(path.into()), self.tag());
        self.push(Op::WriteAtomic { target, pieces, tag });
    }

    pub(super) fn truncate(&mut self, path: &str, size_bytes: u64) {
        self.push(Op::Truncate { target: Target::Path(path.into()), size_bytes });
    }

    pub(super) fn fallocate(&mut self, path: &str, how: Reserve, offset: u64, len_bytes: u64) {
        let target = Target::Path(path.into());
        self.push(Op::Fallocate { target, how, offset, len_bytes });
    }

    pub(super) fn open(&mut self, path: &str, slot: u32) {
        self.push(Op::Open { path: path.into(), slot });
    }

    pub(super) fn close(&mut self, slot: u32) {
        self.push(Op::Close { slot });
    }

    pub(super) fn fsync(&mut self, path: &str) {
        self.push(Op::Fsync { target: Target::Path(path.into()), data_only: false });
    }

    pub(super) fn fdatasync(&mut self, path: &str) {
        self.push(Op::Fsync { target: Target::Path(path.into()), data_only: true });
    }

    pub(super) fn sync(&mut self) {
        self.push(Op::Sync);
    }

    pub(super) fn checkpoint(&mut self) {
        self.push(Op::Checkpoint);
    }
}
