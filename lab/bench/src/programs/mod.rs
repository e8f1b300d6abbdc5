//! Runs real programs in a directory of the file system under test, and parses their output.
//!
//! Each program has a module with two structures: one is its command line (`onejournal-bench
//! program NAME DIR`) and its parameters, the other its result. When `run` returns, no process and
//! no namespace of the program is left, and, unless it failed, no file in the directory. All
//! programs come from Debian's packages (`scripts/setup-bench`).

pub mod etcd;
pub mod fillsync;
pub mod fio;
pub mod gluster;
mod http;
pub mod latency;
pub mod mariadb;
pub mod network;
mod pace;
pub mod pgbench;
pub mod postgres;
pub mod postmark;
mod server;

use std::fmt::Debug;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::lab::{Program, interrupt, is_installed};

/// Runs a program on a directory and prints its numbers as JSON
#[derive(Args)]
pub struct ProgramArgs {
    #[command(subcommand)]
    program: Name,
}

#[derive(Subcommand)]
enum Name {
    Fio(fio::FioArgs),
    Postmark(postmark::PostmarkArgs),
    Pgbench(pgbench::PgbenchArgs),
    Mariadb(mariadb::MariadbArgs),
    Etcd(etcd::EtcdArgs),
    Gluster(gluster::GlusterArgs),
    Fillsync(fillsync::FillsyncArgs),
}

/// Runs it.
pub fn run(args: &ProgramArgs) -> Result<()> {
    interrupt::install()?;
    match &args.program {
        Name::Fio(args) => print(&fio::run(args)?),
        Name::Postmark(args) => print(&postmark::run(args)?),
        Name::Pgbench(args) => print(&pgbench::run(args)?),
        Name::Mariadb(args) => print(&mariadb::run(args)?),
        Name::Etcd(args) => print(&etcd::run(args)?),
        Name::Gluster(args) => print(&gluster::run(args)?),
        Name::Fillsync(args) => print(&fillsync::run(args)?),
    }
}

fn print(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(result).map_err(Error::json("a result"))?);
    Ok(())
}

/// An error that says what to install when a program is missing.
pub fn need(program: &str, package: &str) -> Result<()> {
    if is_installed(program) {
        return Ok(());
    }
    let text = format!("{program} is not installed: scripts/setup-bench installs {package}");
    Err(Error::other(text))
}

/// The error about unexpected output. It contains the end of the output, where the reason usually
/// is.
fn unparsable(program: &str, wanted: &str, output: &str) -> Error {
    const LINE_COUNT: usize = 25;
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let end = lines[lines.len().saturating_sub(LINE_COUNT)..].join("\n");
    Error::other(format!("{program} printed no {wanted}:\n{end}"))
}

/// `NAME=VALUE` for the environment of a program under test, for example
/// `LD_PRELOAD=libeatmydata.so`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

impl Variable {
    /// `program` with these variables in its environment.
    fn add(variables: &[Variable], program: Program) -> Program {
        variables
            .iter()
            .fold(program, |program, variable| program.env(&variable.name, &variable.value))
    }
}

impl std::fmt::Display for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl std::str::FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Variable, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Variable { name: name.into(), value: value.into() })
            }
            _ => Err("must be NAME=VALUE".to_owned()),
        }
    }
}
