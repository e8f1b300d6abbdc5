//! Failures that were found, as short as possible.

use crate::case::{Case, JournalKind};
use crate::enumerate::{Effort, enumerate_recording};
use crate::op::{Op, RenameKind, Reserve, at};
use crate::recording::{Stage, record_ops};
use crate::workload::Workload;
use ext4::DataMode;

const BLOCK: usize = 4096;

/// Performs the operations in both data modes, with every crash.
fn check(ops: &[Op]) {
    for data_mode in DataMode::ALL {
        let case = Case {
            workload: Workload::Random,
            seed: 1,
            op_count: ops.len(),
            data_mode,
            journal: JournalKind::default(),
        };
        let recording = record_ops(case, ops, &Stage::sound()).expect("the run");
        if let Err(failure) = enumerate_recording(&recording, &Effort::default()) {
            panic!("{data_mode:?}: {failure}");
        }
    }
}

fn create(path: &str) -> Op {
    Op::Create { path: path.into(), mode: 0o644 }
}

fn write(path: &str, block: usize, block_count: usize) -> Op {
    let (offset, len_bytes) = ((block * BLOCK) as u64, block_count * BLOCK);
    Op::Write { target: at(path), offset, len_bytes, tag: 1 + block as u32 }
}

fn allocate(path: &str, how: Reserve, block_count: u64) -> Op {
    Op::Fallocate { target: at(path), how, offset: 0, len_bytes: block_count * BLOCK as u64 }
}

/// A file of three extents, and a volume with `free_count` free blocks.
fn nearly_full(free_count: u64) -> Vec<Op> {
    let mut ops = vec![create("f"), write("f", 0, 1), write("f", 2, 1), write("f", 4, 1)];
    ops.extend([create("room"), allocate("room", Reserve::KeepSize, free_count)]);
    for power in (0..=10).rev().chain([0]) {
        let path = format!("fill{}", ops.len());
        ops.extend([create(&path), allocate(&path, Reserve::KeepSize, 1 << power)]);
        ops.extend([
            create(&format!("{path}b")),
            allocate(&format!("{path}b"), Reserve::KeepSize, 1 << power),
        ]);
    }
    ops.extend([Op::Unlink { path: "room".into() }, Op::Sync]);
    ops
}

/// The last free block became data, and none was left for the tree node that would map it. The
/// write was cut short before that block, but the block stayed allocated and counted.
#[test]
fn regression_short_write_with_no_space_for_an_extent_node() {
    let mut ops = nearly_full(2);
    ops.extend([write("f", 0, 9), Op::Sync]);
    check(&ops);
}

/// The same in a reservation.
#[test]
fn regression_short_fallocate_with_no_space_for_an_extent_node() {
    let mut ops = nearly_full(2);
    ops.extend([allocate("f", Reserve::Extend, 9), Op::Sync]);
    check(&ops);
}

/// An `fdatasync` makes data that overwrite older data in place durable without a commit. The judge
/// took it for a promise that the removal before it is committed.
#[test]
fn regression_fdatasync_of_data_in_place_does_not_promise_earlier_changes_elsewhere() {
    let mut ops = vec![create("f"), write("f", 0, 2), create("other"), Op::Sync];
    ops.extend([Op::Unlink { path: "other".into() }, write("f", 0, 1)]);
    ops.push(Op::Fsync { target: at("f"), data_only: true });
    check(&ops);
}

/// The `fsync` found all changes of the file committed, and did not wait for the directory above
/// it.
#[test]
fn regression_fsync_covers_the_rename_of_a_directory_above() {
    let make_dir = |path: &str| Op::MakeDir { path: path.into(), mode: 0o755 };
    let fsync = |path: &str, data_only| Op::Fsync { target: at(path), data_only };
    for kind in [RenameKind::Replace, RenameKind::Exchange] {
        for data_only in [false, true] {
            let mut ops = vec![make_dir("a"), make_dir("a/b"), make_dir("c"), make_dir("d")];
            ops.extend([create("a/b/f"), write("a/b/f", 0, 1), fsync("a/b/f", false)]);
            // To another name, and to another parent.
            for (from, to) in [("a", "c"), ("c/b", "d")] {
                ops.push(Op::Rename { from: from.into(), to: to.into(), kind });
                let file = if to == "c" { "c/b/f" } else { "d/f" };
                ops.push(fsync(file, data_only));
            }
            check(&ops);
        }
    }
}

/// A directory that was renamed onto itself did not move. The judge took it for a promise that all
/// changes before it are committed.
#[test]
fn regression_fsync_after_a_rename_that_changes_nothing_does_not_promise_earlier_changes() {
    for kind in [RenameKind::Replace, RenameKind::Exchange] {
        let mut ops = vec![Op::MakeDir { path: "a".into(), mode: 0o755 }, create("f"), Op::Sync];
        ops.extend([create("other"), Op::Rename { from: "a".into(), to: "a".into(), kind }]);
        ops.push(Op::Fsync { target: at("f"), data_only: false });
        check(&ops);
    }
}

/// A rename that may not replace, of a directory into itself, to a name that exists: Linux reports
/// the name first.
#[test]
fn regression_a_name_that_exists_is_reported_before_a_loop() {
    let (from, to) = ("a".into(), "a/f".into());
    let make_dir = Op::MakeDir { path: "a".into(), mode: 0o755 };
    check(&[make_dir, create("a/f"), Op::Rename { from, to, kind: RenameKind::NoReplace }]);
}
