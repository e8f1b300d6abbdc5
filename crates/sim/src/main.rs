//! `sim`: enumerates crashes of the file system until it is stopped, or repeats one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use ext4::DataMode;
use onejournal_sim::case::{Case, Id, JournalKind, mode_of};
use onejournal_sim::enumerate::{Effort, Failure, Tally, enumerate, replay};
use onejournal_sim::recording::{Stage, record};
use onejournal_sim::shrink::shrink;
use onejournal_sim::workload::Workload;

/// Cuts the power at every write of a workload, recovers, and checks the result.
///
/// If a check fails, exits with 1 and prints the id of the crash; `--replay ID` repeats it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Seed: the same number gives the same runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after this many distinct crash states
    #[arg(long, default_value_t = 100_000)]
    states: usize,
    /// Only this workload: random, sqlite, directory, exhaustion, writers, truncate, orphans,
    /// reuse, rounds, modes, atomic
    #[arg(long)]
    workload: Option<Workload>,
    /// Only this data mode, as in -o data=
    #[arg(long, value_parser = mode_of)]
    mode: Option<DataMode>,
    /// Only these journals: volume, nvram or device, each with a codec of deltas if it is not
    /// the usual one: nvram,nvram:xor-lzo
    #[arg(long, value_delimiter = ',')]
    journal: Vec<JournalKind>,
    /// Operations in each run, instead of the usual number for the workload
    #[arg(long)]
    ops: Option<usize>,
    /// Random crash states for each cut, beside the four extremes
    #[arg(long, default_value_t = 4)]
    random: u32,
    /// Threads
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Repeat one run or crash
    #[arg(long, value_name = "ID")]
    replay: Option<Id>,
    /// With --replay: print the operations of the run first
    #[arg(long, requires = "replay")]
    print: bool,
    /// With --replay: find the shortest list of operations that fails as well
    #[arg(long, requires = "replay")]
    shrink: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.replay {
        Some(id) if arguments.shrink => shrink_one(id, &arguments),
        Some(id) => replay_one(id, arguments.print),
        None => explore(&arguments),
    };
    match done {
        Ok(tally) => {
            println!("ok: {tally}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAILED {failure}\nagain: sim --replay {}", failure.id);
            ExitCode::FAILURE
        }
    }
}

fn replay_one(id: Id, print: bool) -> Result<Tally, Box<Failure>> {
    if print {
        match record(id.case, &Stage::sound()) {
            Ok(recording) => print!("{}", recording.history.print(0)),
            Err(what) => println!("{what}"),
        }
    }
    replay(id, &Stage::sound())
}

fn shrink_one(id: Id, arguments: &Arguments) -> Result<Tally, Box<Failure>> {
    let effort = Effort {
        random_count: arguments.random,
        worker_count: arguments.workers,
        ..Effort::default()
    };
    match shrink(id.case, &effort, &Stage::sound()) {
        None => Ok(Tally::default()),
        Some((ops, failure)) => {
            ops.iter().for_each(|op| println!("  {op}"));
            Err(Box::new(Failure { id, ..failure }))
        }
    }
}

/// Tries all workloads, modes and journals in turn, with another seed each time.
fn explore(arguments: &Arguments) -> Result<Tally, Box<Failure>> {
    let workloads = arguments.workload.map_or(Workload::ALL.to_vec(), |one| vec![one]);
    let modes = arguments.mode.map_or(DataMode::ALL.to_vec(), |mode| vec![mode]);
    let journals = match &arguments.journal[..] {
        [] => JournalKind::all(),
        some => some.to_vec(),
    };
    let mut sum = Tally::default();
    let mut shown = Instant::now();
    let started = Instant::now();
    for round in 0.. {
        let both = workloads.iter().flat_map(|workload| modes.iter().map(move |m| (*workload, *m)));
        for (number, (workload, data_mode)) in both.enumerate() {
            // Each round has another journal for each pair, so that a short run sees all journals.
            let turn = usize::try_from(round).unwrap_or(0) + number;
            let case = Case {
                workload,
                seed: arguments.seed.wrapping_add(round),
                op_count: arguments.ops.unwrap_or(workload.usual_op_count()),
                data_mode,
                journal: journals[turn % journals.len()],
            };
            let effort = Effort {
                random_count: arguments.random,
                worker_count: arguments.workers,
                state_limit: arguments.states - sum.distinct,
                ..Effort::default()
            };
            sum.add(&enumerate(case, &effort, &Stage::sound())?);
            if shown.elapsed() > Duration::from_secs(5) {
                println!("{:4} s: {sum}", started.elapsed().as_secs());
                shown = Instant::now();
            }
            if sum.distinct >= arguments.states {
                return Ok(sum);
            }
        }
    }
    unreachable!("the rounds do not end")
}
