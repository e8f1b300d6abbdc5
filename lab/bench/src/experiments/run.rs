//! Runs one experiment or all, from the command line. Results are written after each.

use std::any::Any;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::{CALM, EXPERIMENTS, Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, Program};
use crate::measure::Samples;
use crate::report;
use crate::results::{self, Build, Machine, SCHEMA, Section, SectionFile};

/// How an experiment is run
#[derive(Args)]
pub struct RunArgs {
    /// Shrunk, to check that everything works (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// As much as the report needs
    #[arg(long)]
    full: bool,
    /// Rounds; 1 or 2 in a quick run, 5 in a full one
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Devices in place of those of the experiment: loop, memory, PRESET[+KEY=VALUE...], dir:PATH,
    /// block:PATH (its content is lost)
    #[arg(long, value_delimiter = ',')]
    device: Vec<Device>,
    /// Directory of the results; the report of all results in it is drawn again
    #[arg(long, default_value = "target/bench-results")]
    out: PathBuf,
    /// Where the scratch folder is made
    #[arg(long, env = "TMPDIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    /// With `all`: skip experiments that have results of the same build and scale already
    #[arg(long)]
    resume: bool,
}

/// Draws the report of a directory of results again
#[derive(Args)]
pub struct ReportArgs {
    /// The directory, with ID.json or ID.json.gz for each experiment
    dir: PathBuf,
    /// Where the report is written, in place of the directory
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also write the figures that README.md and docs/ of this directory quote
    #[arg(long, value_name = "ROOT")]
    documents: Option<PathBuf>,
}

type Done = Result<(), Box<dyn StdError>>;

/// Runs the experiment of a name.
pub fn run_one(id: &str, args: &RunArgs) -> Done {
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.id == id);
    run(&[experiment.expect("a subcommand is an experiment")], args)
}

/// Runs all.
pub fn run_all(args: &RunArgs) -> Done {
    run(&EXPERIMENTS.iter().collect::<Vec<_>>(), args)
}

/// Draws the report.
pub fn report(args: &ReportArgs) -> Done {
    let out = args.out.as_ref().unwrap_or(&args.dir);
    let files = read_described(&args.dir)?;
    report::write(out, &files)?;
    if let Some(root) = &args.documents {
        report::quoted::write(root, &files)?;
    }
    Ok(())
}

/// A note below results whose set-up or goal was described in other words when they were measured.
const DESCRIBED_LATER: &str =
    "The description was changed after this was measured. The verdicts were not.";

/// The results of a directory, in the order of the report, with the descriptions of this program:
/// a corrected sentence needs no new measurement.
pub fn read_described(dir: &Path) -> Result<Vec<SectionFile>> {
    let mut files = results::read_all(dir, EXPERIMENTS.iter().map(|experiment| experiment.id))?;
    for SectionFile { section, .. } in &mut files {
        let experiment = EXPERIMENTS.iter().find(|experiment| experiment.id == section.id);
        let Some(experiment) = experiment else { continue };
        if (&*section.about, &*section.goal) != (experiment.about, experiment.goal) {
            section.notes.push(DESCRIBED_LATER.to_owned());
        }
        experiment.describe(section);
    }
    Ok(files)
}

fn run(experiments: &[&Experiment], args: &RunArgs) -> Done {
    let rounds = args.rounds.map(|rounds| rounds as usize);
    let scale = Scale::new(!args.full, rounds, args.seed, args.device.clone());
    let lab = Lab::new(&args.scratch)?;
    let (machine, build) = (Machine::this(lab.scratch()), Build::this());
    let (mut failed, mut times) = (Vec::new(), Vec::new());
    for experiment in experiments {
        if args.resume && has_results(experiment, &scale, &build, args) {
            eprintln!("onejournal-bench: {} has results", experiment.id);
            continue;
        }
        let is_calm = CALM.contains(&experiment.id);
        let calm = scale.of_calm();
        let scale = if is_calm { &calm } else { &scale };
        let section = run_experiment(experiment, &lab, scale)?;
        failed.extend(section.error.as_ref().map(|_| experiment.id));
        times.push((experiment.id, section.seconds));
        let (schema, date) = (SCHEMA, date()?);
        let (machine, build) = (machine.clone(), build.clone());
        results::write(&args.out, &SectionFile { schema, date, machine, build, section })?;
        report::write(&args.out, &read_described(&args.out)?)?;
    }
    eprint!("{}", longest_first(times));
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {}; see the report", failed.join(", ")).into())
}

fn has_results(experiment: &Experiment, scale: &Scale, build: &Build, args: &RunArgs) -> bool {
    let found = results::read(&args.out, experiment.id);
    found.ok().flatten().is_some_and(|file| {
        let settings = scale_settings(scale);
        let is_same =
            |(name, value): &(&str, String)| file.section.settings.get(*name) == Some(value);
        // With changes that are not committed, the same revision may be another build.
        let is_committed = !build.revision.is_empty() && !build.revision.ends_with('+');
        let is_whole = file.section.error.is_none() && settings.iter().all(is_same);
        is_whole && is_committed && file.build == *build
    })
}

fn scale_settings(scale: &Scale) -> Vec<(&'static str, String)> {
    let mut settings = vec![("scale", scale.name().to_owned()), ("seed", scale.seed.to_string())];
    settings.extend(scale.wanted_rounds().map(|rounds| ("rounds", rounds.to_string())));
    settings
}

/// Runs an experiment and returns its section, also if it fails. An error only after a signal.
fn run_experiment(experiment: &Experiment, lab: &Lab, scale: &Scale) -> Result<Section> {
    eprintln!("onejournal-bench: {}", experiment.id);
    let mut section = experiment.section();
    section.sizes = experiment.sizes.iter().map(|size| scale.beside_paper(size)).collect();
    for (name, value) in scale_settings(scale) {
        section.set(name, value);
    }
    let mut samples = Samples::default();
    let start = Instant::now();
    let run = || (experiment.run)(lab, scale, &mut section, &mut samples);
    let done = catch_unwind(AssertUnwindSafe(run));
    let done = done.unwrap_or_else(|panic| Err(Error::other(panic_text(panic.as_ref()))));
    samples.write_to(&mut section);
    section.seconds = start.elapsed().as_secs_f64();
    match done {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => {
            eprintln!("onejournal-bench: {} failed: {error}", experiment.id);
            section.error = Some(error.to_string());
        }
        Ok(()) => eprintln!("onejournal-bench: {}: {:.0} s", experiment.id, section.seconds),
    }
    Ok(section)
}

/// A line for each of these experiments and their seconds, and one for their sum.
fn longest_first(mut times: Vec<(&str, f64)>) -> String {
    let all: f64 = times.iter().map(|(_, seconds)| seconds).sum();
    times.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    times.push(("all", all));
    times.iter().map(|(id, seconds)| format!("{seconds:>8.0} s  {id}\n")).collect()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("?"))
}

fn date() -> Result<String> {
    Ok(Program::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).run()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of results that were stored with these words in place of `about`.
    fn described(experiment: &Experiment, about: &str) -> Section {
        let dir = tempfile::tempdir().unwrap();
        let mut section = experiment.section();
        section.about = about.to_owned();
        section.paper_claim = "What the paper does not say.".to_owned();
        section.seconds = 7.0;
        let (machine, build) = (Machine::this(Path::new("/")), Build::this());
        let date = "2026-01-31 13:00".to_owned();
        let file = SectionFile { schema: SCHEMA, date, machine, build, section };
        results::write(dir.path(), &file).unwrap();
        let mut files = read_described(dir.path()).unwrap();
        assert_eq!(files.len(), 1);
        files.remove(0).section
    }

    #[test]
    fn times_of_a_run_begin_with_the_longest() {
        let lines = longest_first(vec![("short", 1.4), ("long", 1200.0)]);
        assert_eq!(lines, "    1200 s  long\n       1 s  short\n    1201 s  all\n");
    }

    #[test]
    fn a_corrected_description_needs_no_new_measurement() {
        let experiment = &EXPERIMENTS[0];
        let expected = Section { seconds: 7.0, ..experiment.section() };
        assert_eq!(described(experiment, experiment.about), expected);
        let notes = vec![DESCRIBED_LATER.to_owned()];
        assert_eq!(described(experiment, "Something else."), Section { notes, ..expected });
    }
}
