//! A volume whose journal is not empty is given to e2fsck and to the kernel. Whether they refuse it
//! or not, everything that was promised must be there afterwards.

use std::process::Command;

use crate::case::{Case, JournalKind};
use crate::fsck::Fsck;
use crate::kernel::Mounted;
use crate::machine::Images;
use crate::recording::{Recording, Stage, record, sector_bytes};
use crate::recover::{read_back, recover};
use crate::tree::Interner;
use crate::workload::Workload;
use ext4::DataMode;
use onejournal_testing::{Image, Survival, can_mount_ext4, test_name, tier};

/// Recovers what the other programs left, and judges it.
fn check(recording: &Recording, image: Image, cut: usize, fsck: &mut Fsck) -> Result<(), String> {
    let sector_bytes = sector_bytes(&recording.case);
    let recovered = recover(&Images::whole(image), sector_bytes, &recording.setup, 0)?;
    fsck.check(&recovered.images.device)?;
    let interner = &mut Interner::default();
    let tree = read_back(&recovered.images.device, sector_bytes, &recording.setup, interner)?;
    let acked = recording.trace.marks_before(cut).next_back().unwrap_or(0);
    let acked = usize::try_from(acked).expect("a count");
    recording.history.judge(&tree, tree.fingerprint(), acked).map(drop)
}

/// Gives the crashes at each `step`th cut of a run to `meddle`, checks the result, and counts
/// refusals.
fn meddle_with(
    workload: Workload,
    seed: u64,
    step: usize,
    meddle: impl Fn(&Image) -> (bool, Image),
) -> usize {
    let case = Case {
        workload,
        seed,
        op_count: 40,
        data_mode: DataMode::Journal,
        journal: JournalKind::default(),
    };
    let recording = record(case, &Stage::sound()).expect("the run");
    let mut fsck = Fsck::new().expect("e2fsck");
    let mut refused = 0;
    let cuts = recording.trace.cuts().step_by(step).enumerate();
    for (_, cut) in cuts.filter(|(at, _)| tier::takes(seed, *at)) {
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random(cut as u64)] {
            let crashed = recording.trace.crash(cut, survival).device;
            let (is_refused, left) = meddle(&crashed);
            if is_refused {
                refused += 1;
                assert!(left == crashed, "{case}@cut={cut} {survival:?}: refused, but changed");
            }
            if let Err(text) = check(&recording, left, cut, &mut fsck) {
                panic!("{case}@cut={cut} {survival:?}, refused: {is_refused}: {text}");
            }
        }
    }
    refused
}

#[test]
fn e2fsck_refuses_a_volume_in_use_or_leaves_it_whole() {
    let repair = |image: &Image| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        image.write_to(file.as_file()).expect("the file is written");
        let output = Command::new("e2fsck").args(["-f", "-y"]).arg(file.path()).output();
        let code = output.expect("e2fsck").status.code();
        let bytes = std::fs::read(file.path()).expect("the file is read");
        (code.is_none_or(|code| code >= 8), Image::from_bytes(&bytes))
    };
    let seeds = tier::seeds_of_states(test_name!(), 1);
    let refused: usize = seeds.map(|seed| meddle_with(Workload::Writers, seed, 2, repair)).sum();
    assert!(refused > tier::count(20), "only {refused} refused");
}

#[test]
fn the_kernel_refuses_a_volume_in_use_or_leaves_it_whole() {
    if !can_mount_ext4() {
        return;
    }
    let mount = |image: &Image| match Mounted::mount(image) {
        Err(_) => (true, image.clone()),
        Ok(mounted) => (false, Image::from_bytes(&mounted.unmount().expect("unmount"))),
    };
    let seeds = tier::seeds_of_states(test_name!(), 1);
    let refused: usize = seeds.map(|seed| meddle_with(Workload::Sqlite, seed, 4, mount)).sum();
    assert!(refused > tier::count(10), "only {refused} refused");
}
