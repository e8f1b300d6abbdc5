//! Boots of a machine, one after the other, each cut at many moments.

use std::sync::Arc;

use fastrand::Rng;
use onejournal_testing::Survival;

use super::check::{check, model_of, read_all};
use super::found::FoundStreams;
use super::host::{Images, Machine, Traces};
use super::model::Model;
use super::served::Served;
use super::workload::{Kind, Mix, Process, Workload};
use crate::Lsn;
use crate::host::Settings;

/// The kind of memory for lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Memory,
    Nvram,
}

/// How many crash states of a seed are checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) boot_count: usize,
    pub(super) step_count: usize,
    /// About how many crash states of one boot are checked.
    pub(super) state_count: usize,
    pub(super) mix: Mix,
}

const fn mix(kind: Kind) -> Mix {
    Mix { payload_bytes_max: 300 << 10, kind }
}

pub(super) const ANYTHING: Effort =
    Effort { boot_count: 4, step_count: 70, state_count: 120, mix: mix(Kind::Anything) };
pub(super) const FAULTS: Effort = Effort { mix: mix(Kind::Faults), ..ANYTHING };
pub(super) const STOPS: Effort = Effort { mix: mix(Kind::Stops), ..ANYTHING };
pub(super) const NARROW: Effort =
    Effort { boot_count: 8, step_count: 2, state_count: 60, mix: mix(Kind::Narrow) };
pub(super) const SERVED: Effort = Effort {
    boot_count: 3,
    step_count: 120,
    state_count: 30,
    mix: Mix { payload_bytes_max: 60 << 10, kind: Kind::Served },
};

/// Small chunks, and the smallest group log.
pub(super) fn small(medium: Medium) -> Settings {
    Settings { chunk_bytes: 8 << 10, group_bytes: 320 << 10, ..settings(medium, &mut Rng::new()) }
}

fn settings(medium: Medium, rng: &mut Rng) -> Settings {
    Settings {
        format: 1,
        uuid: String::new(),
        nvram: (medium == Medium::Nvram).then(|| "nvram".into()),
        durability: None,
        chunk_bytes: [8 << 10, 40 << 10][rng.usize(..2)],
        chunk_count: 16,
        segment_bytes: 64 << 10,
        group_bytes: [384 << 10, 1 << 20][rng.usize(..2)],
        directory: None,
        copied_from: Vec::new(),
        nvram_name: None,
    }
}

/// Runs and checks one seed. Returns how many states were checked. The error says how to replay the
/// first wrong one.
pub(super) fn run(medium: Medium, seed: u64, effort: Effort) -> Result<usize, String> {
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    let settings = settings(medium, &mut rng);
    let pool_bytes = usize::try_from(settings.pool_bytes()).expect("small");
    let payload_bytes_max = (pool_bytes / 2 - 64).min(effort.mix.payload_bytes_max);
    let mix = Mix { payload_bytes_max, ..effort.mix };
    let (mut images, mut model) = (Images::fresh(&settings), Model::default());
    let mut state_count = 0;
    for boot in 0..effort.boot_count {
        let machine = Machine::power_up(&settings, images.clone());
        machine.start_trace();
        let located = |text: String| format!("{medium:?} seed {seed} boot {boot}: {text}");
        let (process, found) = check(&machine, &model, u64::MAX).map_err(located)?;
        let located = |text: String| format!("{medium:?} seed {seed} boot {boot}: {text}");
        let known = model_of(&found, &model);
        let did = live(&machine, process, known, rng.fork(), &Effort { mix, ..effort });
        let did = did.map_err(located)?;
        let located = |text: String| format!("{medium:?} seed {seed} boot {boot}: {text}");
        let traces = machine.take_trace();
        let past = Past { settings: &settings, traces: &traces, model: &did };
        state_count += past.cut_everywhere(effort.state_count, &mut rng).map_err(located)?;
        let survival = any_survival(&mut rng);
        let mut cursor = traces.cursor();
        let moments = traces.moments();
        let cut = rng.choice(&moments[moments.len() / 2..]).copied().unwrap_or(u64::MAX);
        cursor.advance_to(cut);
        images = cursor.crash(survival);
        let located = |text: String| {
            format!("{medium:?} seed {seed} boot {boot} cut {cut} {survival:?}: {text}")
        };
        let last = Machine::power_up(&settings, images.clone());
        let (_, found) = check(&last, &did, cut).map_err(located)?;
        model = model_of(&found, &did);
    }
    Ok(state_count)
}

/// Runs the workload of one boot. Returns what was done.
fn live(
    machine: &Arc<Machine>,
    process: Process,
    known: Model,
    rng: Rng,
    effort: &Effort,
) -> Result<Model, String> {
    if effort.mix.kind == Kind::Served {
        process.host.die();
        let payload_bytes_max = effort.mix.payload_bytes_max;
        let mut served = Served::new(machine.clone(), known, rng, payload_bytes_max);
        served.run(effort.step_count)?;
        return Ok(served.model);
    }
    let mut workload = Workload::new(machine.clone(), process, known, rng, effort.mix);
    workload.run(effort.step_count);
    Ok(workload.model)
}

fn any_survival(rng: &mut Rng) -> Survival {
    match rng.usize(..8) {
        index @ 0..4 => Survival::EXTREMES[index],
        _ => Survival::Random(rng.u64(..)),
    }
}

/// What was done in one boot.
struct Past<'a> {
    settings: &'a Settings,
    traces: &'a Traces,
    model: &'a Model,
}

impl Past<'_> {
    fn cut_everywhere(&self, wanted_count: usize, rng: &mut Rng) -> Result<usize, String> {
        let moments = self.traces.moments();
        let mut cursor = self.traces.cursor();
        let mut state_count = 0;
        for moment in &moments {
            if rng.usize(..moments.len()) * 2 >= wanted_count {
                continue;
            }
            cursor.advance_to(*moment);
            for _ in 0..2 {
                let survival = any_survival(rng);
                let images = cursor.crash(survival);
                let located = |text: String| format!("cut {moment} {survival:?}: {text}");
                state_count += self.check(images, *moment, rng).map_err(located)?;
            }
        }
        Ok(state_count)
    }

    fn check(&self, images: Images, moment: u64, rng: &mut Rng) -> Result<usize, String> {
        let machine = Machine::power_up(self.settings, images);
        let looks_twice = rng.u8(..12) == 0;
        if looks_twice {
            machine.start_trace();
        }
        let (process, mut found) = check(&machine, self.model, moment)?;
        if !looks_twice {
            return Ok(1);
        }
        let traces = machine.take_trace();
        let state_count = self.cut_recovery(&traces, &found, moment, rng)?;
        self.check_damage(&machine, &found, rng)?;
        machine.start_trace();
        self.append_to_all(&process, &mut found)?;
        let traces = machine.take_trace();
        let mut cursor = traces.cursor();
        cursor.advance_to(u64::MAX);
        let again = Machine::power_up(self.settings, cursor.crash(any_survival(rng)));
        same(&again, &found).map_err(|text| format!("appended after recovery: {text}"))?;
        Ok(state_count + 2)
    }

    /// Cuts the power during recovery at some moments, and after its end.
    fn cut_recovery(
        &self,
        traces: &Traces,
        found: &FoundStreams,
        moment: u64,
        rng: &mut Rng,
    ) -> Result<usize, String> {
        let moments = traces.moments();
        let mut cursor = traces.cursor();
        let mut state_count = 0;
        for cut in moments.iter().copied() {
            if cut != u64::MAX && rng.usize(..moments.len()) >= 6 {
                continue;
            }
            cursor.advance_to(cut);
            let survival = any_survival(rng);
            let located = |text: String| format!("recovery cut {cut} {survival:?}: {text}");
            let machine = Machine::power_up(self.settings, cursor.crash(survival));
            let (_, again) = check(&machine, self.model, moment).map_err(located)?;
            if again != *found {
                return Err(located("it finds something else".into()));
            }
            state_count += 1;
        }
        Ok(state_count)
    }

    /// Flips a bit before a record that followed durable ones. The damage must be reported.
    fn check_damage(
        &self,
        machine: &Machine,
        found: &FoundStreams,
        rng: &mut Rng,
    ) -> Result<(), String> {
        for (name, stream) in found {
            let Some(proof) = self.model.proof_of_damage(name, stream, rng) else { continue };
            machine.start_trace();
            let images = machine.take_trace().cursor().crash(Survival::Nothing);
            let damaged = Machine::power_up(self.settings, images);
            if !damaged.damage(name, proof) {
                continue;
            }
            let process = Process::join(&damaged).map_err(|e| e.to_string())?;
            match process.open(name) {
                Err(crate::LogError::Damaged { .. }) => {}
                _ => return Err(format!("stream {name}: damage at {proof} was not seen")),
            }
        }
        Ok(())
    }

    /// All streams can be written again, with larger USNs.
    fn append_to_all(&self, process: &Process, found: &mut FoundStreams) -> Result<(), String> {
        for (name, stream) in found {
            let text = |e: crate::LogError| format!("stream {name} after recovery: {e}");
            let lane = process.open(name).map_err(text)?.expect("it was found");
            let before = stream.clone();
            let lsn = process
                .service
                .with_writer(&lane, |writer, allocator| writer.append(allocator, b"once more"))
                .map_err(text)?;
            process.service.sync(&lane, Lsn(lsn.0)).map_err(text)?;
            *stream = read_all(&lane)?;
            stream.follows(&before).map_err(|e| format!("stream {name} after recovery: {e}"))?;
        }
        Ok(())
    }
}

/// Recovery finds exactly these streams.
fn same(machine: &Arc<Machine>, found: &FoundStreams) -> Result<(), String> {
    let process = Process::join(machine).map_err(|e| e.to_string())?;
    for (name, expected) in found {
        let lane = process.open(name).map_err(|e| format!("stream {name}: {e}"))?;
        let stream = read_all(&*lane.ok_or("it is gone")?)?;
        if stream != *expected {
            return Err(format!("stream {name} is another one"));
        }
    }
    Ok(())
}
