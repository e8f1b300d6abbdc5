//! Runs a workload on the simulated device, and records its history and its trace.

use std::sync::Arc;

use device::{BlockDevice, Nvram};
use onejournal_testing::{SimDevice, SimNvram};

use crate::case::Case;
use crate::content::mix;
use crate::format::{Formatted, formatted};
use crate::history::History;
use crate::machine::{Images, Traces, Wraps};
use crate::op::Op;
use crate::recover::no_panic;
use crate::session::{Session, Setup};
use crate::tree::{Interner, read_tree};

/// Wraps the simulated device, between it and the file system.
pub type Wrap = dyn Fn(Arc<SimDevice>) -> Arc<dyn BlockDevice> + Sync;

/// The same for NVRAM.
pub type WrapNvram = dyn Fn(Arc<SimNvram>) -> Arc<dyn Nvram> + Sync;

/// The surroundings of runs.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The wrapper of the devices.
    pub wrap: &'a Wrap,
    /// The wrapper of NVRAM.
    pub wrap_nvram: &'a WrapNvram,
}

impl Stage<'_> {
    /// No wrappers.
    pub fn sound() -> Stage<'static> {
        Stage { wrap: &|device| device, wrap_nvram: &|nvram| nvram }
    }

    /// The options with which volumes of that run are opened.
    pub fn setup(&self, case: &Case) -> Setup {
        let mut setup = Setup::new(case.data_mode, case.seed);
        setup.codec = case.journal.codec;
        setup.checkpoint = case.journal.checkpoint;
        setup
    }
}

/// A run that was done.
pub struct Recording {
    /// The id of the run.
    pub case: Case,
    /// The volume with which it began.
    pub formatted: Arc<Formatted>,
    /// The media with which it began.
    pub fresh: Images,
    /// The options with which its volumes are opened, without the journal's medium.
    pub setup: Setup,
    /// What was done to the media. A mark *n* means that *n* operations had returned.
    pub trace: Traces,
    /// What was done, and what a crash may leave of it.
    pub history: History,
}

/// Size of a sector in this run.
pub fn sector_bytes(case: &Case) -> usize {
    if mix(case.seed ^ 0x77).is_multiple_of(4) { 4096 } else { 512 }
}

/// Sector size of the devices on which crashes of this run are recovered.
pub fn recovery_sector_bytes(case: &Case) -> usize {
    if case.seed.is_multiple_of(3) { 4096 } else { 512 }
}

/// Performs the run: opens a new volume, performs all operations, compares everything, closes.
pub fn record(case: Case, stage: &Stage<'_>) -> Result<Recording, String> {
    record_ops(case, &case.workload.ops(case.seed, case.op_count), stage)
}

/// [`record`] with these operations instead of the workload's.
pub fn record_ops(case: Case, ops: &[Op], stage: &Stage<'_>) -> Result<Recording, String> {
    let formatted = formatted(case.shape())?;
    let setup = stage.setup(&case);
    let fresh = Images::fresh(&case, &formatted, setup.region_count())?;
    let machine = fresh.power_up(sector_bytes(&case));
    let device = &machine.device;
    machine.start_trace();
    let wraps = Wraps { device: stage.wrap, nvram: stage.wrap_nvram };
    let mut history = History::new(&case);
    no_panic("the run", || {
        let wrapped = (stage.wrap)(device.clone());
        let mut session = Session::open(wrapped, setup.with_journal(machine.journal(&wraps)))
            .map_err(|e| format!("does not open: {e}"))?;
        for op in ops {
            let failed = history.step(&mut session, op).map_err(|e| with_tail(e, &history))?;
            if let Some(error) = failed {
                return Err(with_tail(format!("{op}: {error}"), &history));
            }
            device.mark(history.len() as u64);
        }
        compare(&session, &history).map_err(|e| with_tail(e, &history))?;
        session.close().map_err(|e| format!("does not close: {e}"))
    })?;
    history.push_closed();
    device.mark(history.len() as u64);
    Ok(Recording { case, formatted, fresh, setup, trace: machine.take_trace(), history })
}

/// Compares the volume with the model.
pub fn compare(session: &Session, history: &History) -> Result<(), String> {
    let tree = read_tree(session.volume(), &mut Interner::default())?;
    let model = history.model().tree();
    if tree == model {
        return Ok(());
    }
    let differences = tree.differences(&model, ["volume", "model"], 8);
    Err(format!("the volume differs from the model:\n{differences}"))
}

fn with_tail(text: String, history: &History) -> String {
    let start = history.len().saturating_sub(12);
    format!("{text}\n  the last operations:\n{}", history.print(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::JournalKind;
    use crate::workload::Workload;

    #[test]
    fn a_few_seeds_have_every_pair_of_sectors() {
        let case = |seed| Case {
            workload: Workload::Random,
            seed,
            op_count: 0,
            data_mode: ext4::DataMode::Auto,
            journal: JournalKind::default(),
        };
        let pair = |seed| (sector_bytes(&case(seed)), recovery_sector_bytes(&case(seed)));
        for wanted in [(512, 512), (512, 4096), (4096, 512), (4096, 4096)] {
            assert!((0..8).any(|seed| pair(seed) == wanted), "{wanted:?}");
        }
    }
}
