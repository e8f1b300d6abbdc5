//! `onejournal-bench`: what OneJournal is measured on, and by whom. A subcommand each:
//!
//! - `device` is an emulated disk in a file, with the latency of a preset ([`device`]);
//! - `control` resets its counters, changes it, cuts its power ([`device::control`]);
//! - `sqlite` does the transactions it is told to, with a SQLite that knows atomic writes ([`sqlite`]);
//! - `tpcc` is TPC-C on SQLite ([`tpcc`]).

mod device;
mod sqlite;
mod tpcc;

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
    Device(device::DeviceArgs),
    Control(device::ControlArgs),
    Sqlite(sqlite::SqliteArgs),
    Tpcc(tpcc::TpccArgs),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Device(args) => device::run(&args),
        Command::Control(args) => device::control(&args),
        Command::Sqlite(args) => sqlite::run(&args),
        Command::Tpcc(args) => tpcc::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onejournal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
