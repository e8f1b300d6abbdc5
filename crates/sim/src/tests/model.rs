//! Long random sequences, compared with the model. The volume is closed, checked and opened again
//! in between.

use std::sync::Arc;

use crate::format::{Shape, formatted};
use crate::fsck::Fsck;
use crate::lockstep::step;
use crate::model::Model;
use crate::op::Op;
use crate::session::{Session, Setup};
use crate::tree::{Interner, read_tree};
use crate::workload::Workload;
use ext4::DataMode;
use onejournal_testing::{SimDevice, Survival, test_name, tier};

/// Operations between two complete comparisons.
const STRETCH: usize = 150;

struct Run {
    device: Arc<SimDevice>,
    model: Model,
    data_mode: DataMode,
    fsck: Fsck,
}

impl Run {
    /// Opens the volume, does the operations, compares everything, closes, runs e2fsck.
    fn stretch(&mut self, seed: u64, ops: &[Op]) -> Result<(), String> {
        let setup = Setup::new(self.data_mode, seed);
        let mut session =
            Session::open(self.device.clone(), setup).map_err(|e| format!("open: {e}"))?;
        for op in ops {
            step(&mut session, &mut self.model, op).map_err(|e| format!("{op}: {e}"))?;
        }
        let tree = read_tree(session.volume(), &mut Interner::default())?;
        let model = self.model.tree();
        if tree != model {
            return Err(tree.differences(&model, ["volume", "model"], 8));
        }
        session.close().map_err(|e| format!("close: {e}"))?;
        self.model.apply(&Op::Remount, None).expect("the model can always be remounted");
        self.fsck.check(&self.device.crash(Survival::Nothing))
    }
}

fn check(workload: Workload, data_mode: DataMode, shape: Shape, seed: u64, op_count: usize) {
    let formatted = formatted(shape).expect("mke2fs");
    let mut run = Run {
        device: Arc::new(SimDevice::from_image(formatted.image.clone(), 512)),
        model: Model::formatted(),
        data_mode,
        fsck: Fsck::new().expect("e2fsck"),
    };
    let ops = workload.ops(seed, op_count);
    for (index, stretch) in ops.chunks(STRETCH).enumerate() {
        if let Err(text) = run.stretch(seed * 1000 + index as u64, stretch) {
            panic!("{workload}:{seed}:{op_count} {data_mode:?} {shape:?}, stretch {index}: {text}");
        }
    }
}

fn check_all_shapes(name: &str, data_mode: DataMode) {
    for seed in tier::seeds(name, 2 * Shape::ALL.len()) {
        let shape = Shape::ALL[seed as usize % Shape::ALL.len()];
        check(Workload::Random, data_mode, shape, seed, 900);
    }
}

#[test]
fn random_operations_journal() {
    check_all_shapes(test_name!(), DataMode::Journal);
}

#[test]
fn random_operations_ordered() {
    check_all_shapes(test_name!(), DataMode::Ordered);
}

#[test]
fn every_workload_for_longer() {
    // All pairs of a workload and a mode, because 13 and 7 have no common divisor.
    for seed in tier::seeds(test_name!(), Workload::ALL.len() * DataMode::ALL.len()) {
        let workload = Workload::ALL[seed as usize % Workload::ALL.len()];
        let data_mode = DataMode::ALL[seed as usize % DataMode::ALL.len()];
        check(workload, data_mode, Shape::Usual, seed, 450);
    }
}

/// One workload that is long enough for the journal to fill up, wait for a checkpoint and reuse its
/// regions.
#[test]
fn the_journal_goes_round() {
    // With ordered data alone the records are so small that this would take a hundred times as
    // long.
    let formatted = formatted(Shape::Usual).expect("mke2fs");
    let device = Arc::new(SimDevice::from_image(formatted.image.clone(), 512));
    let mut session =
        Session::open(device, Setup::new(DataMode::Journal, 1)).expect("the volume opens");
    let mut model = Model::formatted();
    for op in Workload::Rounds.ops(1, 1500) {
        step(&mut session, &mut model, &op).expect("volume and model agree");
    }
    let stats = session.volume().journal().stats();
    assert!(stats.stalls > 0 && stats.home_bytes > 0, "{stats:?}");
}

/// Enough long names for an index of two levels.
#[test]
fn a_directory_with_a_deep_index() {
    let mut ops = vec![
        Op::MakeDir { path: "d".into(), mode: 0o755 },
        Op::Create { path: "d/file".into(), mode: 0o644 },
    ];
    let name = |number: u32| format!("d/{number:05}{}", "z".repeat(245));
    for number in 0..9000 {
        ops.push(Op::Link { from: "d/file".into(), to: name(number * 7919 % 9000) });
    }
    for number in (0..9000).step_by(3) {
        ops.push(Op::Unlink { path: name(number) });
    }
    let formatted = formatted(Shape::Usual).expect("mke2fs");
    let mut run = Run {
        device: Arc::new(SimDevice::from_image(formatted.image.clone(), 512)),
        model: Model::formatted(),
        data_mode: DataMode::Journal,
        fsck: Fsck::new().expect("e2fsck"),
    };
    for (index, stretch) in ops.chunks(6001).enumerate() {
        run.stretch(index as u64, stretch).unwrap_or_else(|text| panic!("stretch {index}: {text}"));
    }
}
