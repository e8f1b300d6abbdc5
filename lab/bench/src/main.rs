//! `onejournal-bench` measures OneJournal and its peers. It has these subcommands:
//!
//! - the experiments ([`experiments::EXPERIMENTS`]), `all` of them, and the `report` of their
//!   results;
//! - `device` is an emulated disk in a file, with the latency of a preset (crate `drive`);
//! - `control` resets its counters, changes it, cuts its power
//!   ([`onejournal_testing::drive::Command`]);
//! - clients that the experiments start as processes of their own ([`clients`]);
//! - `program` runs another program, such as fio, in a directory ([`programs`]);
//! - `tpcc` is TPC-C on SQLite, a client, too ([`tpcc`]).
//!
//! [`lab`] sets up and takes down, [`systems`] are measured, [`measure`] measures, [`results`]
//! stores the results, and [`report`] draws them.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   experiments/                   each one: description, function, section of the report
//!   measure/ tpcc/                 turns of the systems, and samples; TPC-C on SQLite
//!   systems/ clients/ report/      what is measured, the programs that use it, the report
//!   programs/ results/             other programs, such as fio; the results as JSON
//!   lab/                           sets up and takes down
//!   device error values
//! ```

mod clients;
mod device;
mod error;
mod experiments;
mod lab;
mod measure;
mod programs;
mod report;
mod results;
mod systems;
mod tpcc;
mod values;

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use experiments::{EXPERIMENTS, ReportArgs, RunArgs};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All experiments, and their report
    All(RunArgs),
    Report(ReportArgs),
    Device(device::DeviceArgs),
    Control(device::ControlArgs),
    Append(clients::append::AppendArgs),
    Cluster(clients::cluster::ClusterArgs),
    Replay(clients::replay::ReplayArgs),
    Ringd(clients::ring::RingdArgs),
    Sqlite(clients::sqlite::SqliteArgs),
    Streams(clients::streams::StreamsArgs),
    Entries(clients::entries::EntriesArgs),
    Program(programs::ProgramArgs),
    Tpcc(tpcc::TpccArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onejournal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let experiment = |experiment: &experiments::Experiment| {
        RunArgs::augment_args(clap::Command::new(experiment.id)).about(experiment.title)
    };
    let matches =
        Arguments::command().subcommands(EXPERIMENTS.iter().map(experiment)).get_matches();
    if let Some((name, matches)) = matches.subcommand()
        && EXPERIMENTS.iter().any(|experiment| experiment.id == name)
    {
        let args = RunArgs::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
        return experiments::run_one(name, &args);
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.command {
        Command::All(args) => experiments::run_all(&args),
        Command::Report(args) => experiments::report(&args),
        Command::Device(args) => device::run(&args),
        Command::Control(args) => device::control(&args),
        Command::Append(args) => Ok(clients::append::run(&args)?),
        Command::Cluster(args) => Ok(clients::cluster::run(&args)?),
        Command::Replay(args) => Ok(clients::replay::run(&args)?),
        Command::Ringd(args) => Ok(clients::ring::run(&args)?),
        Command::Sqlite(args) => clients::sqlite::run(&args),
        Command::Streams(args) => Ok(clients::streams::run(&args)?),
        Command::Entries(args) => clients::entries::run(&args),
        Command::Program(args) => Ok(programs::run(&args)?),
        Command::Tpcc(args) => tpcc::run(&args),
    }
}
