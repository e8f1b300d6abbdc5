//! Helpers for experiments with other programs.

use fastrand::Rng;
use serde_json::Value;

use crate::error::Result;
use crate::lab::Device;
use crate::measure::{self, Key, Metric, Samples};
use crate::programs;
use crate::results::{ALL_HOME_KIB, Better, Outcome, Section, Verdict};
use crate::systems::{Asked, Running};
use crate::values::ValueKind;

/// Whether all of these programs are installed, each with its package. If not, the report says so.
pub fn are_installed(section: &mut Section, programs: &[(&str, &str)]) -> bool {
    let mut programs = programs.iter();
    is_there(section, programs.try_for_each(|(program, package)| programs::need(program, package)))
}

/// The same for an experiment that searched for a program itself.
pub fn is_there(section: &mut Section, found: Result<()>) -> bool {
    is_part_there(section, "the experiment", found)
}

/// The same for a part of an experiment.
pub fn is_part_there(section: &mut Section, part: &str, found: Result<()>) -> bool {
    found.inspect_err(|error| section.leave_out(part, &error.to_string())).is_ok()
}

/// Regions of OneJournal's journal that went home, as a count of a sample.
pub const CHECKPOINTS: &str = "checkpoints";

/// Commits that waited for room in OneJournal's journal, as a count of a sample.
pub const STALLS: &str = "stalls";

/// KiB that reached the journal, as a count of a sample.
pub const JOURNAL_KIB: &str = "journal KiB";

/// Counts of a sample, by their names.
type Named = Vec<(&'static str, f64)>;

/// Both so far; `None` of other systems.
fn waits(running: &Running) -> Result<Option<[f64; 2]>> {
    let both = |stat: Value| Some([stat[CHECKPOINTS].as_f64()?, stat[STALLS].as_f64()?]);
    Ok(running.stat()?.and_then(both))
}

/// Does `work`: its result, the requests to the devices, and what the journal did meanwhile, as
/// counts of a sample.
pub fn during<T>(running: &Running, work: impl FnOnce() -> Result<T>) -> Result<(T, Asked, Named)> {
    let (bytes_before, before) = (running.journal_bytes()?, waits(running)?);
    let (done, asked) = running.during(work)?;
    let bytes_after = running.journal_bytes()?;
    let mut counts = Vec::new();
    if let Some((before, after)) = bytes_before.zip(bytes_after) {
        counts.push((JOURNAL_KIB, (after - before) as f64 / 1024.0));
    }
    if let Some((before, after)) = before.zip(waits(running)?) {
        counts.extend([(CHECKPOINTS, after[0] - before[0]), (STALLS, after[1] - before[1])]);
    }
    Ok((done, asked, counts))
}

/// Measures each system once, in a shuffled order: a sample, and the requests to the devices.
/// `each` returns the measured value, and the number of operations by which the counts are divided.
pub fn round(
    rng: &mut Rng,
    running: &[Running],
    into: (&mut Samples, &Key, Metric),
    mut each: impl FnMut(&Running) -> Result<(f64, u64)>,
) -> Result<()> {
    let (samples, key, metric) = into;
    let mut order: Vec<&Running> = running.iter().collect();
    measure::in_turns(rng, &mut order, |_, running| {
        // Nothing of the case before is left to write.
        running.sync()?;
        let ((value, operations), asked, counts) = during(running, || each(running))?;
        samples.add(key, &running.name, metric, value);
        samples.count_asked(key, &running.name, metric, operations as usize, &asked);
        samples.count_named(key, &running.name, metric, 0, &counts);
        Ok(())
    })
}

/// The panel of a device; random values need no word.
pub fn panel(device: &Device, (kind, values): (ValueKind, &str)) -> String {
    match kind {
        ValueKind::Random => device.to_string(),
        _ => format!("{device}: {values}"),
    }
}

/// A program of one turn on one file system.
pub trait Turn {
    /// Does what is measured: the measured value, and the number of operations by which the counts
    /// are divided.
    fn work(&mut self) -> Result<(f64, u64)>;

    /// Ends it, so that it has no open file. What is returned removes its data.
    fn close(self) -> Result<Removal>;
}

/// Removes the data of a program that has ended.
pub type Removal = Box<dyn FnOnce() -> Result<()>>;

/// Like [`round`], with programs that `start` without latency. One more count,
/// [`ALL_HOME_KIB`], goes on until the program has ended and the file system is unmounted.
pub fn round_until_home<T: Turn>(
    rng: &mut Rng,
    running: &[Running],
    into: (&mut Samples, &Key, Metric),
    mut start: impl FnMut(&Running) -> Result<T>,
) -> Result<()> {
    let (samples, key, metric) = into;
    let mut order: Vec<&Running> = running.iter().collect();
    measure::in_turns(rng, &mut order, |_, running| {
        running.speed_up()?;
        let mut turn = start(running)?;
        running.sync()?;
        running.slow_down()?;
        let before = running.counts()?;
        let ((value, operations), asked, counts) = during(running, || turn.work())?;
        let remove = turn.close()?;
        let home_kib = running.all_home(before)?.write_bytes as f64 / 1024.0;
        remove()?;
        samples.add(key, &running.name, metric, value);
        samples.count_asked(key, &running.name, metric, operations as usize, &asked);
        samples.count_named(key, &running.name, metric, 0, &counts);
        samples.count_named(key, &running.name, metric, 0, &[(ALL_HOME_KIB, home_kib)]);
        Ok(())
    })
}

/// The speed that one system must have, as a multiple of another's.
pub struct Goal {
    pub key: Key,
    pub metric: Metric,
    pub ours: String,
    pub theirs: String,
    /// The paper's number.
    pub paper: &'static str,
    /// `None`: the ratio is only shown.
    pub wanted: Option<f64>,
}

impl Goal {
    /// Adds the verdict, unless one of the systems is missing.
    pub fn judge(&self, section: &mut Section, samples: &Samples) -> Result<()> {
        let Goal { key, metric, ours, theirs, .. } = self;
        let is_missing = |system: &str| samples.of(key, system, *metric).is_none();
        if is_missing(ours) || is_missing(theirs) {
            return Ok(());
        }
        let (left, right) = match metric.better {
            Better::Higher => (ours, theirs),
            Better::Lower => (theirs, ours),
        };
        let ratio = samples.ratio(key, *metric, left, right)?;
        let (place, found) = (format!("{}, {}", key.panel, key.case), ratio.of_medians);
        let (claim, outcome) = match self.wanted {
            Some(wanted) if found >= wanted => (format!("{wanted} times"), Outcome::Reached),
            Some(wanted) => (format!("{wanted} times"), Outcome::Missed),
            None => ("how many times".to_owned(), Outcome::Shown),
        };
        section.verdicts.push(Verdict {
            claim: format!("{place}: {ours} {claim} as fast as {theirs}"),
            paper: self.paper.to_owned(),
            measured: format!("{found:.2}"),
            outcome,
            sentence: format!(
                "{:.2} to {:.2} from round to round. {}",
                ratio.low,
                ratio.high,
                samples.costs(key, *metric, &[ours, theirs])
            ),
        });
        Ok(())
    }
}
