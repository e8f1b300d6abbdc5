//! Reads the streams' files, one after the other, each from its beginning to its end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use serde::Serialize;

use super::{ReadArgs, files};
use crate::clients::nanos;
use crate::error::{Error, Result};
use crate::programs::latency::Latency;

/// What was read.
#[derive(Debug, Serialize)]
pub struct Read {
    pub files: usize,
    pub bytes: u64,
    pub request_bytes: u32,
    pub seconds: f64,
    pub bytes_per_s: f64,
    /// Times of single reads.
    pub latency: Option<Latency>,
}

/// Reads everything with one thread.
pub fn run(args: &ReadArgs) -> Result<Read> {
    let paths = files::all(&args.dir)?;
    if paths.is_empty() {
        return Err(Error::other(format!("{} has no streams", args.dir.display())));
    }
    let mut buf = vec![0; args.request_bytes as usize];
    let mut latencies = Vec::new();
    let (mut bytes, start) = (0, Instant::now());
    for path in &paths {
        let file = File::open(path).map_err(Error::at(path))?;
        let size = file.metadata().map_err(Error::at(path))?.len();
        let mut at = 0;
        while at < size {
            let begin = Instant::now();
            let len_bytes = file.read_at(&mut buf, at).map_err(Error::at(path))? as u64;
            latencies.push(nanos(begin.elapsed()));
            if len_bytes == 0 {
                return Err(Error::other(format!("{} ends at {at}, not {size}", path.display())));
            }
            at += len_bytes;
        }
        bytes += size;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Read {
        files: paths.len(),
        bytes,
        request_bytes: args.request_bytes,
        seconds,
        bytes_per_s: bytes as f64 / seconds,
        latency: Latency::of(latencies),
    })
}
