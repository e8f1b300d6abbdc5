//! GlusterFS with its brick on the file system under test: many processes that write small records
//! synchronously through several clients.
//!
//! All processes (the management daemon, the brick's server and the clients) run in namespaces of
//! their own for network, mounts and processes. Each client has one more network namespace on a
//! virtual bridge. So no port and no path of the machine is used, and nothing outlives the
//! namespaces. `unshare` starts this program again inside them ([`world`]).

mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::fio::FioResult;
use super::{Variable, need};
use crate::error::{Error, Result};
use crate::lab::Program;

/// Time limit for starting and stopping everything.
const GRACE: Duration = Duration::from_secs(300);

/// Runs GlusterFS on a brick in a directory
#[derive(Debug, Clone, Args)]
pub struct GlusterArgs {
    /// Where the brick is made
    pub dir: PathBuf,
    /// Clients, each with a mount and a network namespace
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// Processes of each client, each with a file of its own
    #[arg(long, default_value_t = 10)]
    pub processes: u32,
    /// Bytes of a record
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: u64,
    /// Records of each process at most
    #[arg(long, default_value_t = 65_000)]
    pub records: u64,
    /// End after this time
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// NAME=VALUE for the servers' environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
    /// The namespaces are there
    #[arg(long, hide = true)]
    pub inside: bool,
}

impl GlusterArgs {
    /// The defaults, with the brick in `dir`.
    pub fn on(dir: &Path) -> GlusterArgs {
        GlusterArgs {
            dir: dir.to_owned(),
            clients: 4,
            processes: 10,
            record_bytes: 1024,
            records: 65_000,
            seconds: 5,
            environment: Vec::new(),
            inside: false,
        }
    }
}

/// Runs all of it.
pub fn run(args: &GlusterArgs) -> Result<FioResult> {
    if args.inside {
        return world::run(args);
    }
    let programs = [
        ("glusterd", "glusterfs-server"),
        ("gluster", "glusterfs-server"),
        ("glusterfsd", "glusterfs-server"),
        ("glusterfs", "glusterfs-client"),
        ("fio", "fio"),
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
    ];
    for (program, package) in programs {
        need(program, package)?;
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::other("GlusterFS needs root, for mounts and namespaces"));
    }
    let this = std::env::current_exe().map_err(Error::io("this program's path"))?;
    let number = |name: &str, number: u64| [format!("--{name}"), number.to_string()];
    let output = Program::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--"])
        .arg(this)
        .args(["program", "gluster", "--inside"])
        .args(number("clients", args.clients.into()))
        .args(number("processes", args.processes.into()))
        .args(number("record-bytes", args.record_bytes))
        .args(number("records", args.records))
        .args(number("seconds", args.seconds))
        .args(args.environment.iter().map(|variable| format!("--env={variable}")))
        .arg(&args.dir)
        .time_limit(Duration::from_secs(args.seconds) + GRACE)
        .run()?;
    serde_json::from_str(&output).map_err(Error::json("GlusterFS's result"))
}
