//! Canaries: each fault must be found, because a check that never fails is worthless. Their seeds
//! are fixed, and each search begins with a run that finds the fault today.

use std::sync::Arc;

use crate::case::{Case, JournalKind};
use crate::enumerate::{Effort, enumerate};
use crate::liar::{Lie, UnfencedNvram};
use crate::recording::Stage;
use crate::shrink::shrink;
use crate::workload::Workload;
use device::Nvram;
use ext4::DataMode;
use onejournal_testing::{SimDevice, SimNvram};

/// The most crash states until a fault must be found.
const STATE_LIMIT: usize = 3000;

/// Runs the workloads until one fails, and returns the failure.
fn find(stage: &Stage<'_>, workloads: &[Workload]) -> Option<String> {
    find_on(stage, workloads, JournalKind::default(), [DataMode::Journal, DataMode::Ordered])
}

/// The same with a journal of that kind, in these modes.
fn find_on(
    stage: &Stage<'_>,
    workloads: &[Workload],
    journal: JournalKind,
    modes: [DataMode; 2],
) -> Option<String> {
    find_from(1, stage, workloads, journal, modes)
}

/// The same from this seed on.
fn find_from(
    first_seed: u64,
    stage: &Stage<'_>,
    workloads: &[Workload],
    journal: JournalKind,
    modes: [DataMode; 2],
) -> Option<String> {
    let mut distinct = 0;
    for seed in first_seed.. {
        for workload in workloads {
            for data_mode in modes {
                let op_count = workload.usual_op_count() * 2;
                let case = Case { workload: *workload, seed, op_count, data_mode, journal };
                let state_limit = STATE_LIMIT - distinct;
                match enumerate(case, &Effort { state_limit, ..Effort::default() }, stage) {
                    Ok(tally) => distinct += tally.distinct,
                    Err(failure) => return Some(failure.to_string()),
                }
                if distinct >= STATE_LIMIT {
                    return None;
                }
            }
        }
    }
    None
}

fn lying(lie: Lie) -> Option<String> {
    let wrap = move |device: Arc<SimDevice>| lie.wrap(device);
    let mut stage = Stage::sound();
    stage.wrap = &wrap;
    find(&stage, &[Workload::Writers, Workload::Random])
}

#[test]
fn a_device_that_drops_flushes_is_found_out() {
    let failure = lying(Lie::FlushDropped).expect("it must be found");
    println!("{failure}");
}

#[test]
fn a_device_that_acknowledges_durable_writes_early_is_found_out() {
    let failure = lying(Lie::DurableWriteCached).expect("it must be found");
    println!("{failure}");
}

#[test]
fn nvram_whose_fences_do_nothing_is_found_out() {
    let wrap = |nvram: Arc<SimNvram>| -> Arc<dyn Nvram> { Arc::new(UnfencedNvram(nvram)) };
    let stage = Stage { wrap_nvram: &wrap, ..Stage::sound() };
    let nvram = "nvram".parse().expect("a kind of journal");
    let failure = find_on(&stage, &[Workload::Writers], nvram, [DataMode::Journal, DataMode::Auto]);
    let failure = failure.expect("it must be found");
    println!("{failure}");
    assert!(failure.contains(":nvram:runs@cut="), "the id says where the journal is: {failure}");
}

#[test]
fn a_failing_run_is_made_short() {
    let wrap = |device: Arc<SimDevice>| Lie::DurableWriteCached.wrap(device);
    let mut stage = Stage::sound();
    stage.wrap = &wrap;
    let workload = Workload::Writers;
    let case = Case {
        workload,
        seed: 1,
        op_count: 40,
        data_mode: DataMode::Journal,
        journal: JournalKind::default(),
    };
    let (ops, failure) = shrink(case, &Effort::default(), &stage).expect("it fails");
    assert!(ops.len() <= 2, "{failure}\n{ops:?}");
}

mod faulty_engines {
    use super::*;
    use journal::Fault;

    fn is_found(fault: Fault) {
        let workloads = [Workload::Writers, Workload::Reuse, Workload::Random];
        let failure = fault::with(fault, || find(&Stage::sound(), &workloads));
        println!("{fault:?}: {:.300}", failure.clone().unwrap_or_default());
        assert!(failure.is_some(), "{fault:?} must be found within {STATE_LIMIT} states");
    }

    /// The same with an external journal, or with DJFS' codec.
    fn is_found_on(fault: Fault, journal: &str) {
        let workloads = [Workload::Writers, Workload::Reuse, Workload::Rounds];
        let kind = journal.parse().expect("a kind of journal");
        let modes = [DataMode::Delta, DataMode::Ordered];
        let failure = fault::with(fault, || find_on(&Stage::sound(), &workloads, kind, modes));
        println!("{fault:?} {journal}: {:.300}", failure.clone().unwrap_or_default());
        assert!(failure.is_some(), "{fault:?} must be found within {STATE_LIMIT} states");
    }

    #[test]
    fn a_broken_engine_is_found_out_with_its_journal_on_nvram() {
        for fault in [
            Fault::ChecksumIgnored,
            Fault::HomeBeforeCommit,
            Fault::CommitNotDurable,
            Fault::CheckpointNotFlushed,
        ] {
            is_found_on(fault, "nvram");
        }
    }

    #[test]
    fn a_broken_engine_is_found_out_with_the_codec_of_djfs() {
        for journal in ["volume:xor-lzo", "nvram:xor-lzo", "nvram:xor-lzo:early"] {
            is_found_on(Fault::XorWithoutBase, journal);
        }
    }

    #[test]
    fn a_broken_engine_is_found_out_with_copies() {
        for journal in ["nvram:copies", "volume:copies"] {
            let kind = journal.parse().expect("a kind of journal");
            let find = || find_on(&Stage::sound(), &[Workload::Rounds], kind, [DataMode::Delta; 2]);
            let failure = fault::with(Fault::CopyBesideSource, find).expect("it must be found");
            println!("{journal}: {failure:.300}");
        }
    }

    /// A write in several transactions, in every mode whose aligned pages are atomic.
    #[test]
    fn a_page_in_several_operations_is_found_out() {
        for mode in DataMode::ALL.into_iter().filter(|mode| mode.is_atomic()) {
            let (workloads, kind) = ([Workload::Pages], JournalKind::default());
            let find = || find_from(2, &Stage::sound(), &workloads, kind, [mode; 2]);
            let failure = fault::with(ext4::Fault::WriteInBlocks, find);
            println!("{mode:?}: {:.300}", failure.clone().unwrap_or_default());
            assert!(failure.is_some(), "{mode:?}: it must be found");
        }
    }

    #[test]
    fn pins_that_are_not_handed_over_are_found_out() {
        let find = || find(&Stage::sound(), &[Workload::Orphans]);
        let failure = fault::with(ext4::Fault::PinsLost, find).expect("it must be found");
        println!("{failure:.300}");
    }

    #[test]
    fn ignoring_checksums_is_found_out() {
        is_found(Fault::ChecksumIgnored);
    }

    #[test]
    fn going_home_before_the_commit_is_found_out() {
        is_found(Fault::HomeBeforeCommit);
    }

    #[test]
    fn dropping_revokes_is_found_out() {
        let (kind, modes) = (JournalKind::default(), [DataMode::Ordered, DataMode::Journal]);
        let find = || find_on(&Stage::sound(), &[Workload::Reuse], kind, modes);
        let failure = fault::with(Fault::RevokesDropped, find).expect("it must be found");
        println!("{failure:.300}");
    }

    #[test]
    fn commits_that_are_not_durable_are_found_out() {
        is_found(Fault::CommitNotDurable);
    }

    #[test]
    fn checkpoints_that_are_not_flushed_are_found_out() {
        is_found(Fault::CheckpointNotFlushed);
    }

    #[test]
    fn a_run_that_is_written_home_although_it_is_not_fresh_is_found_out() {
        let (workloads, kind) = ([Workload::Rounds, Workload::Reuse], JournalKind::default());
        let find = || find_on(&Stage::sound(), &workloads, kind, [DataMode::Delta; 2]);
        let failure = fault::with(Fault::HeldRunsInPlace, find).expect("it must be found");
        println!("{failure:.300}");
    }

    #[test]
    fn a_record_that_is_taken_without_its_data_is_found_out() {
        let workloads = [Workload::Truncate, Workload::Zeroes];
        let modes = [DataMode::Auto; 2];
        let kind = JournalKind::default();
        let find = || find_on(&Stage::sound(), &workloads, kind, modes);
        let failure = fault::with(Fault::ChecksIgnored, find).expect("it must be found");
        println!("{failure:.300}");
    }
}
