//! Many streams of small synchronous writes, each in a file of its own: the workload of Okeanos'
//! figures 1 and 4.
//!
//! `write` runs a thread for each stream. A stream writes one record at a time and waits until it
//! is durable. With an interval, record k is due at `start + phase + k * interval`. The phases are
//! spread evenly over one interval, so that the load is steady. A stream that is late writes at
//! once and skips nothing. Records that are not written when the time is over are not written at
//! all, and the counts show that. Latency is measured from the beginning of the call and,
//! separately, from when the record was due.
//!
//! Records are random bytes, so that no layer below can compress them, or English words.

mod files;
mod reader;
mod writer;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::error::Result;

/// Many streams of synchronous writes, each in its own file; prints JSON
#[derive(Args)]
pub struct StreamsArgs {
    #[command(subcommand)]
    command: StreamsCommand,
}

#[derive(Subcommand)]
enum StreamsCommand {
    /// Make the files, for writes at random places
    Prepare(PrepareArgs),
    /// Write, for a time or a number of records
    Write(WriteArgs),
    /// Read the files one after the other
    Read(ReadArgs),
}

#[derive(Args)]
struct PrepareArgs {
    dir: PathBuf,
    /// Streams, a file each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Size of each file
    #[arg(long, default_value_t = 1 << 20)]
    file_bytes: u64,
}

#[derive(Args)]
struct WriteArgs {
    dir: PathBuf,
    /// Streams, a thread each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Size of a record; 125 bytes a second are 1 Kb/s
    #[arg(long, default_value_t = 125, value_parser = clap::value_parser!(u32).range(1..))]
    record_bytes: u32,
    /// Milliseconds between the records of a stream; 0: as fast as it can
    #[arg(long, default_value_t = 1000)]
    interval_ms: u64,
    /// End after this number of seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// End after this number of records of each stream, if that is earlier
    #[arg(long)]
    records: Option<u64>,
    #[arg(long, value_enum, default_value = "append")]
    place: Destination,
    #[arg(long, value_enum, default_value = "dsync")]
    sync: SyncCall,
    /// Records of English words in place of random bytes
    #[arg(long)]
    text: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct ReadArgs {
    dir: PathBuf,
    /// Bytes of a read
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    request_bytes: u32,
}

/// Where a record goes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Destination {
    /// After the stream's end
    Append,
    /// Anywhere in the file, which `prepare` made
    Random,
}

/// What makes a record durable.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SyncCall {
    /// O_DSYNC
    Dsync,
    /// O_SYNC
    Sync,
    /// fdatasync after each record
    Fdatasync,
    /// fsync after each record
    Fsync,
    /// Nothing
    None,
}

/// Does what the arguments say.
pub fn run(args: &StreamsArgs) -> Result<()> {
    let result = match &args.command {
        StreamsCommand::Prepare(args) => return files::prepare(args),
        StreamsCommand::Write(args) => serde_json::to_string_pretty(&writer::run(args)?),
        StreamsCommand::Read(args) => serde_json::to_string_pretty(&reader::run(args)?),
    };
    println!("{}", result.expect("plain numbers"));
    Ok(())
}
