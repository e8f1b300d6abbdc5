//! Failing media: every write, flush and read of a few runs fails, one at a time.

use crate::case::{Case, JournalKind};
use crate::faults::{Flip, Struck, check_bit_flip, check_fault};
use crate::fsck::Fsck;
use crate::workload::Workload;
use device::Operation;
use ext4::DataMode;

const WORKLOADS: [Workload; 4] =
    [Workload::Random, Workload::Writers, Workload::Orphans, Workload::Sqlite];

fn case(workload: Workload, seed: u64, data_mode: DataMode) -> Case {
    Case {
        workload,
        seed,
        op_count: workload.usual_op_count(),
        data_mode,
        journal: JournalKind::default(),
    }
}

/// Makes each `step`th operation of that kind fail, in runs of every workload.
fn fail_each(operation: Operation, step: usize) {
    let mut fsck = Fsck::new().expect("e2fsck");
    let mut struck = 0;
    for (index, workload) in WORKLOADS.into_iter().enumerate() {
        for data_mode in DataMode::ALL {
            let case = case(workload, 40, data_mode);
            for skip in (index as u64..).step_by(step) {
                match check_fault(case, operation, skip, &mut fsck) {
                    Ok(Struck::Handled) => struck += 1,
                    Ok(Struck::Never) => break,
                    Err(text) => panic!("{case}, {operation} {skip} fails: {text}"),
                }
            }
        }
    }
    println!("{operation}: {struck} faults");
    assert!(struck >= 20, "only {struck} faults struck");
}

#[test]
fn a_failed_write_is_never_acknowledged() {
    fail_each(Operation::Write, 5);
}

#[test]
fn a_failed_flush_is_never_acknowledged() {
    fail_each(Operation::Flush, 1);
}

#[test]
fn a_failed_read_fails_one_operation() {
    fail_each(Operation::Read, 3);
}

#[test]
fn a_flipped_bit_before_the_tail_is_refused_as_damage() {
    let mut fsck = Fsck::new().expect("e2fsck");
    let mut refused = 0;
    for seed in 0..12 {
        for workload in [Workload::Writers, Workload::Directory, Workload::Sqlite] {
            let case = case(workload, seed, DataMode::Journal);
            match check_bit_flip(case, seed, &mut fsck) {
                Ok(Flip::Refused) => refused += 1,
                Ok(Flip::NothingToFlip) => {}
                Err(text) => panic!("{case}, flip {seed}: {text}"),
            }
        }
    }
    assert!(refused >= 15, "only {refused} bits were flipped");
}
