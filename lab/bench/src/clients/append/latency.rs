//! Appends a number of records as fast as it can.

use std::time::Instant;

use serde::Serialize;

use super::RunArgs;
use super::target::Target;
use crate::clients::random_bytes;
use crate::error::Result;
use crate::programs::latency::Latency;

/// The measured times.
#[derive(Debug, Serialize)]
struct Appended {
    record_bytes: u32,
    records: u64,
    /// Until the last append returned.
    seconds: f64,
    bytes_per_s: f64,
    /// Until all records were in files, too.
    flushed_seconds: f64,
    latency: Option<Latency>,
}

/// Prints the measured times.
pub fn run(args: &RunArgs) -> Result<()> {
    let mut target = Target::open(&args.target)?;
    let mut payload = random_bytes(args.record_bytes as usize, 1);
    let mut latencies = Vec::new();
    let start = Instant::now();
    for record in 0..args.records {
        if args.new_bytes {
            payload = random_bytes(payload.len(), record);
        }
        let begin = Instant::now();
        target.append(&payload)?;
        latencies.push(begin.elapsed().as_nanos() as u64);
    }
    let seconds = start.elapsed().as_secs_f64();
    target.flush()?;
    let flushed_seconds = start.elapsed().as_secs_f64();
    let appended = Appended {
        record_bytes: args.record_bytes,
        records: args.records,
        seconds,
        bytes_per_s: (args.records * u64::from(args.record_bytes)) as f64 / seconds,
        flushed_seconds,
        latency: Latency::of(latencies),
    };
    println!("{}", serde_json::to_string_pretty(&appended).expect("plain numbers"));
    Ok(())
}
