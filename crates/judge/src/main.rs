//! `onejournal-judge`: records mounted runs, cuts them, recovers, and judges.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use onejournal_judge::campaign::{self, Plan, Tally};
use onejournal_judge::case::Case;
use onejournal_judge::crash::Fault;
use onejournal_judge::databases::{self, Outcome};
use onejournal_judge::host::Programs;
use onejournal_judge::obstacle::obstacle;
use onejournal_judge::open_fuse;
use onejournal_judge::scenario::{SCENARIOS, Scenario};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// The command under test (default: the one beside this program)
    #[arg(long, global = true)]
    onejournal: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Records runs and judges crash images of them
    Run {
        /// Images to judge, over all runs
        #[arg(long, default_value_t = 1000)]
        images: usize,
        /// Images for each run
        #[arg(long, default_value_t = 60)]
        images_per_run: usize,
        /// Seed of the first run; each further run has the next number
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only these kinds of runs
        #[arg(long)]
        scenario: Vec<String>,
        /// Fault of the disks
        #[arg(long, value_enum, default_value_t = Lie::None)]
        fault: Lie,
        /// Do not cut recoveries by commands
        #[arg(long)]
        whole_commands: bool,
        /// Where runs with failures are kept
        #[arg(long, default_value = "target/judge")]
        keep: PathBuf,
    },
    /// Judges crash images of database engines, and runs the canaries of their load
    Databases {
        /// Images of each kind of run
        #[arg(long, default_value_t = 20)]
        images: usize,
        /// Seed of the first run of each kind
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only kinds of runs whose names begin so
        #[arg(long)]
        only: Vec<String>,
        /// Where runs with failures are kept
        #[arg(long, default_value = "target/judge")]
        keep: PathBuf,
    },
    /// A process of a run, started by the judge
    #[command(hide = true)]
    Worker,
    /// Repeat what a failure printed
    Replay {
        run: PathBuf,
        case: Case,
        /// Write the crashed volume to this file as well
        #[arg(long)]
        image: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Lie {
    None,
    DropsFlushes,
    DropsFences,
    TearsDurable,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onejournal-judge: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let beside = std::env::current_exe()?.with_file_name("onejournal");
    let programs = Programs {
        onejournal: arguments.onejournal.unwrap_or(beside),
        worker: vec![std::env::current_exe()?.into(), "worker".into()],
    };
    if !matches!(arguments.command, Command::Worker) && open_fuse::is_needed() {
        let again: Vec<OsString> = std::iter::once(std::env::current_exe()?.into())
            .chain(std::env::args_os().skip(1))
            .collect();
        return Ok(open_fuse::run(&again)?.success());
    }
    match arguments.command {
        Command::Worker => {
            onejournal_judge::worker::run()?;
            Ok(true)
        }
        Command::Replay { run, case, image } => {
            campaign::replay(&programs, &run, &case, image.as_deref())?;
            println!("as it must be");
            Ok(true)
        }
        Command::Databases { images, seed, only, keep } => {
            let (fault, image_count) = (Fault::Honest, images);
            let plan = Plan { programs, image_count, fault, cuts_commands: true, keep };
            Ok(judge_databases(&plan, &only, seed))
        }
        Command::Run { images, images_per_run, seed, scenario, fault, whole_commands, keep } => {
            let fault = match fault {
                Lie::None => Fault::Honest,
                Lie::DropsFlushes => Fault::DropsFlushes,
                Lie::DropsFences => Fault::DropsFences,
                Lie::TearsDurable => Fault::TearsDurable,
            };
            let image_count = images_per_run;
            let plan = Plan { programs, image_count, fault, cuts_commands: !whole_commands, keep };
            let named: Result<Vec<_>, _> =
                scenario.iter().map(|name| Scenario::named(name)).collect();
            let mut scenarios = named?;
            if scenarios.is_empty() {
                scenarios = SCENARIOS.iter().collect();
            }
            Ok(judge_all(&plan, &scenarios, images, seed))
        }
    }
}

/// Returns whether every image passed.
fn judge_all(plan: &Plan, scenarios: &[&'static Scenario], image_count: usize, seed: u64) -> bool {
    let (mut tally, mut failure_count) = (Tally::default(), 0);
    let is_able = |scenario: &&&'static Scenario| match obstacle(scenario) {
        None => true,
        Some(why) => {
            println!("{}: skipped: {why}", scenario.name);
            false
        }
    };
    let able: Vec<&Scenario> = scenarios.iter().filter(is_able).copied().collect();
    for (scenario, seed) in able.into_iter().cycle().zip(seed..) {
        match campaign::judge(plan, scenario, seed) {
            Ok((one, failures)) => {
                tally.add(one);
                failure_count += failures.len();
                println!("{} (seed {seed}): {one}; {} failures", scenario.name, failures.len());
                failures.iter().for_each(|failure| println!("{failure}"));
            }
            Err(text) => {
                failure_count += 1;
                tally.runs += 1;
                println!("{text}");
            }
        }
        // Runs that cannot be recorded bring no images.
        if tally.images >= image_count || failure_count > image_count {
            break;
        }
    }
    println!("{tally}; {failure_count} failures");
    failure_count == 0
}

/// Returns whether every image passed and every canary was found out. What cannot run here is
/// skipped.
fn judge_databases(plan: &Plan, names: &[String], seed: u64) -> bool {
    let [scenarios, canaries] = databases::chosen(names);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let report = |text: &str| println!("{text}");
    let mut count = |name: &str, outcome: Outcome| match outcome {
        Outcome::Passed(figures) => {
            println!("{name}: {figures}");
            passed += 1;
        }
        Outcome::Failed(figures) => {
            println!("{name}: FAILED: {figures}");
            failed += 1;
        }
        Outcome::Skipped(why) => {
            println!("{name}: skipped: {why}");
            skipped += 1;
        }
    };
    for scenario in scenarios {
        let outcome = databases::check(plan, scenario, plan.image_count, seed, report);
        count(scenario.name, outcome);
    }
    for scenario in canaries {
        let outcome = databases::check_canary(plan, scenario, seed, report);
        count(&format!("{} (canary: a torn page must be found)", scenario.name), outcome);
    }
    println!("{passed} kinds of runs passed, {failed} failed, {skipped} skipped");
    failed == 0
}
