//! Failing media: every write, flush and read of a few runs fails, one at a time. The gate makes a
//! fifth of them fail.

use crate::case::{Case, JournalKind};
use crate::faults::{Flip, Struck, check_bit_flip, check_fault};
use crate::fsck::Fsck;
use crate::workload::Workload;
use device::Operation;
use ext4::DataMode;
use onejournal_testing::{test_name, tier};

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
fn fail_each(name: &str, operation: Operation, step: usize) {
    let mut fsck = Fsck::new().expect("e2fsck");
    let mut struck = 0;
    for seed in tier::seeds_of_states(name, 1) {
        let cases = WORKLOADS.into_iter().flat_map(|workload| {
            DataMode::ALL.into_iter().map(move |data_mode| case(workload, seed, data_mode))
        });
        for (nth, case) in (0u64..).zip(cases) {
            // Other operations of each run.
            let skips = (nth % step as u64..).step_by(step).enumerate();
            for (_, skip) in skips.filter(|(at, _)| tier::takes(seed + nth, *at)) {
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
    fail_each(test_name!(), Operation::Write, 5);
}

#[test]
fn a_failed_flush_is_never_acknowledged() {
    fail_each(test_name!(), Operation::Flush, 1);
}

#[test]
fn a_failed_read_fails_one_operation() {
    fail_each(test_name!(), Operation::Read, 3);
}

#[test]
fn a_flipped_bit_before_the_tail_is_refused_as_damage() {
    let mut fsck = Fsck::new().expect("e2fsck");
    let mut refused = 0;
    let workloads = [Workload::Writers, Workload::Directory, Workload::Sqlite];
    for seed in tier::seeds(test_name!(), 36) {
        let case = case(workloads[seed as usize % 3], seed, DataMode::Journal);
        match check_bit_flip(case, seed, &mut fsck) {
            Ok(Flip::Refused) => refused += 1,
            Ok(Flip::NothingToFlip) => {}
            Err(text) => panic!("{case}, flip {seed}: {text}"),
        }
    }
    println!("{refused} bits were flipped");
    assert!(refused >= tier::count(15), "only {refused} bits were flipped");
}
