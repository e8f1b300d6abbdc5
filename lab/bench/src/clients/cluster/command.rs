//! The subcommand: starts the members, answers lines, and stops the members.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::engine::Engine;
use super::etcd::Etcd;
use super::members::Cluster;
use super::messages::Request;
use crate::error::{Error, Result};
use crate::lab::interrupt;

/// A cluster with a member for each directory; answers lines of JSON
///
/// In namespaces of its own: unshare --net --pid --fork --kill-child -- onejournal-bench cluster
#[derive(Args)]
pub struct ClusterArgs {
    #[arg(value_enum)]
    engine: Name,
    /// The members' directories, which are made
    #[arg(required = true, num_args = 1..=9)]
    dirs: Vec<PathBuf>,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Etcd,
}

/// Runs until the end of standard input.
pub fn run(args: &ClusterArgs) -> Result<()> {
    interrupt::install()?;
    let engine: &dyn Engine = match args.engine {
        Name::Etcd => &Etcd,
    };
    let mut cluster = Cluster::start(engine, &args.dirs)?;
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Error::io("input"))?;
        say(&answer(&mut cluster, &line)?)?;
    }
    cluster.stop()
}

fn answer(cluster: &mut Cluster<'_>, line: &str) -> Result<String> {
    let answer = match serde_json::from_str(line).map_err(Error::json(line))? {
        Request::Leader => serde_json::to_string(&cluster.leader()?),
        Request::Load(load) => serde_json::to_string(&cluster.load(&load)?),
    };
    answer.map_err(Error::json("an answer"))
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    let said = writeln!(output, "{line}").and_then(|()| output.flush());
    said.map_err(Error::io("output"))
}
