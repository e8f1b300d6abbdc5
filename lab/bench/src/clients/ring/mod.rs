//! xLog's layout, rebuilt from its paper, to compare lanes with it: one ring in NVRAM for all
//! clients, one logger thread that puts the records in order, an IPC request for each record, a
//! flush worker, and a log file for each client. (The paper's worker flushes periodically, this one
//! when enough bytes are valid.)
//!
//! ```text
//! ring: | head u32 | valid bytes u32 | records, around the end:
//!                                      length u32, client u32, number u64, crc32c u32, payload |
//! ```
//!
//! Head and number of valid bytes change together, by one store of eight bytes, which makes a
//! record valid. The ring is for measurements only: it has no recovery and trusts its clients.
//! [`Service`] is the ring without IPC, as the paper measured it ("native"). [`run`] serves it on a
//! Unix socket.

mod layout;
mod server;
mod service;

use std::path::PathBuf;

use clap::Args;

pub use server::RingClient;
pub use service::Service;

use crate::error::Result;

/// Serve xLog's central ring until standard input ends
#[derive(Args)]
pub struct RingdArgs {
    /// The ring, a file on NVRAM or a tmpfs; made
    #[arg(long)]
    ring: PathBuf,
    /// Where the clients' log files are made
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    listen: PathBuf,
    #[command(flatten)]
    size: RingSize,
    /// Number of clients; it answers after all have connected
    #[arg(long, default_value_t = 1)]
    clients: u32,
}

/// Sizes of a ring.
#[derive(Args, Clone, Copy)]
pub struct RingSize {
    /// Size of the ring (the paper's: 10 MB)
    #[arg(
        long,
        default_value_t = 10 << 20,
        value_parser = clap::value_parser!(u32).range(1 << 20..=1 << 30)
    )]
    ring_bytes: u32,
    /// The worker flushes at this number of valid bytes
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    high_bytes: u32,
}

/// Prints `ready`, serves, and flushes the rest at the end of its input.
pub fn run(args: &RingdArgs) -> Result<()> {
    server::run(args)
}
