//! Replays the trace of a database's redo log, with many instances at the same time: Okeanos'
//! figure 5b.
//!
//! A *trace* ([`trace`]) holds the writes and syncs of a database server on its log. Four traces
//! are built in ([`builtin`]). `prepare` makes each instance's log as the server found it:
//! existing, of full size, and written. `run` plays the trace on all of them at once, with a thread
//! for each, as fast as the disk allows, or with the server's pauses. A *flush* is a sync together
//! with the writes since the previous sync: a committing transaction waits for it.

mod builtin;
mod player;
mod trace;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::error::{Error, Result};
use trace::Trace;

/// Replays the redo log of a database, many instances at a time; prints JSON
#[derive(Args)]
#[command(after_help = builtin::help())]
pub struct ReplayArgs {
    #[command(subcommand)]
    command: ReplayCommand,
}

#[derive(Subcommand)]
enum ReplayCommand {
    /// Make the log files
    Prepare(PlayArgs),
    /// Replay the trace on each of them
    Run(PlayArgs),
    /// Print what the trace holds
    Facts {
        /// A built-in trace, or a file
        trace: String,
    },
}

#[derive(Args)]
struct PlayArgs {
    /// A built-in trace, or a file
    trace: String,
    /// Where the log files are
    dir: PathBuf,
    /// Logs, a thread each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    instances: u32,
    /// Replay only this number of calls
    #[arg(long)]
    calls: Option<usize>,
    /// Keep the pauses of the trace
    #[arg(long)]
    paced: bool,
}

/// Does what the arguments say.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let result = match &args.command {
        ReplayCommand::Prepare(args) => return player::prepare(args, &args.trace()?),
        ReplayCommand::Run(args) => {
            serde_json::to_string_pretty(&player::run(args, &args.trace()?)?)
        }
        ReplayCommand::Facts { trace } => serde_json::to_string_pretty(&load(trace)?.facts()),
    };
    println!("{}", result.expect("plain numbers"));
    Ok(())
}

impl PlayArgs {
    fn trace(&self) -> Result<Trace> {
        let mut trace = load(&self.trace)?;
        trace.calls.truncate(self.calls.unwrap_or(usize::MAX));
        Ok(trace)
    }
}

fn load(name: &str) -> Result<Trace> {
    let text = match builtin::text(name) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(name).map_err(Error::io(format!(
            "{name}, which is no built-in trace ({})",
            builtin::names()
        )))?,
    };
    text.parse().map_err(|error| Error::other(format!("{name}: {error}")))
}
