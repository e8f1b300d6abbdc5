//! A client that appends records durably, one after the other: to a lane of the log service, to
//! xLog's central ring (through its service, or in the same process), and to a file with a sync
//! after each write. xLog's figures 3 and 4 compare the ring in the same process with the file.
//!
//! `run` measures the latency of each append. `burst` answers the lines `append NS` and `checksum
//! NS` with the number of appends, or of checksums, which share nothing. The burst begins at that
//! time of the system's clock, so that two processes can begin together.

mod burst;
mod latency;
mod target;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::clients::ring::RingSize;
use crate::error::Result;

/// Appends records durably; prints JSON
#[derive(Args)]
pub struct AppendArgs {
    #[command(subcommand)]
    command: AppendCommand,
}

#[derive(Subcommand)]
enum AppendCommand {
    /// Append a number of records and print how long it took
    Run(RunArgs),
    /// Append for a moment, at the times read from standard input
    Burst(BurstArgs),
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    record_bytes: u32,
    #[arg(long, default_value_t = 1000)]
    records: u64,
    /// New random bytes in each record, which takes time between the appends
    #[arg(long)]
    new_bytes: bool,
}

#[derive(Args)]
struct BurstArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    record_bytes: u32,
    /// Length of a burst
    #[arg(long, default_value_t = 1500)]
    burst_us: u64,
}

/// Where records are appended.
#[derive(Args)]
struct TargetArgs {
    #[arg(value_enum)]
    to: To,
    /// The socket; of a file, its path; of `native`, the folder for the log file
    path: PathBuf,
    /// Name of the stream, for `lane`
    #[arg(long, default_value = "bench")]
    stream: String,
    /// The ring, for `native`: a file on NVRAM or a tmpfs, made
    #[arg(long, required_if_eq("to", "native"))]
    ring: Option<PathBuf>,
    #[command(flatten)]
    ring_size: RingSize,
}

/// A way to make a record durable.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    /// A lane of the log service, through its daemon
    Lane,
    /// xLog's ring, through its service
    Ring,
    /// xLog's ring in this process
    Native,
    /// A new file, fsync after each record
    Fsync,
    /// A new file, fdatasync after each record
    Fdatasync,
}

/// Does what the arguments say.
pub fn run(args: &AppendArgs) -> Result<()> {
    match &args.command {
        AppendCommand::Run(args) => latency::run(args),
        AppendCommand::Burst(args) => burst::run(args),
    }
}
