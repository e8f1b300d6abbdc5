//! `onejournal-bench`: what OneJournal is measured on, and by whom. A subcommand each:
//!
//! - `device` is an emulated disk in a file, with the latency of a preset ([`device`]);
//! - `control` resets its counters, changes it, cuts its power ([`device::control`]);
//! - `append` appends records durably: lanes, xLog's ring, files ([`clients::append`]);
//! - `ringd` serves xLog's ring ([`clients::ring`]);
//! - `streams` writes many streams of small records, and reads them ([`clients::streams`]);
//! - `replay` plays the redo log of a database on many files ([`clients::replay`]);
//! - `sqlite` does the transactions it is told to, with a SQLite that knows atomic writes ([`sqlite`]).

mod clients;
mod device;
mod error;
mod sqlite;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Append(clients::append::AppendArgs),
    Device(device::DeviceArgs),
    Control(device::ControlArgs),
    Replay(clients::replay::ReplayArgs),
    Ringd(clients::ring::RingdArgs),
    Sqlite(sqlite::SqliteArgs),
    Streams(clients::streams::StreamsArgs),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Append(args) => clients::append::run(&args).map_err(Into::into),
        Command::Device(args) => device::run(&args),
        Command::Control(args) => device::control(&args),
        Command::Replay(args) => clients::replay::run(&args).map_err(Into::into),
        Command::Ringd(args) => clients::ring::run(&args).map_err(Into::into),
        Command::Sqlite(args) => sqlite::run(&args),
        Command::Streams(args) => clients::streams::run(&args).map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onejournal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
