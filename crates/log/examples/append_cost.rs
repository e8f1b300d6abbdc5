//! What an append costs: `append_cost DIR [NVRAM]`. Interleaves lanes with write + fdatasync on a file in
//! the same directory, and prints medians, ratios, and bytes written to disk for a byte logged.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use device::Durability;
use log::{Log, Options};

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path: PathBuf = arguments.next().ok_or("usage: append_cost DIR [NVRAM]")?.into();
    let nvram: Option<PathBuf> = arguments.next().map(PathBuf::from);
    let durability = nvram.is_some().then_some(Durability::Process);
    let options = Options { nvram, durability, ..Options::default() };
    std::fs::create_dir_all(&path)?;
    let log = Log::open(path.join("log"), &options)?;
    let stream = log.stream("bench")?;
    println!("{:>8} {:>12} {:>14} {:>8}", "bytes", "append ns", "write+sync ns", "ratio");
    for len_bytes in [100, 1000, 10_000, 100_000] {
        let payload = vec![7; len_bytes];
        let file =
            OpenOptions::new().create(true).write(true).truncate(true).open(path.join("plain"))?;
        let (mut appends, mut plain, mut at) = (Vec::new(), Vec::new(), 0);
        for _ in 0..20 {
            for _ in 0..200.min(20_000_000 / len_bytes) {
                let begin = Instant::now();
                let lsn = stream.append(&payload)?;
                stream.sync(lsn)?;
                appends.push(begin.elapsed().as_nanos() as u64);
            }
            for _ in 0..10 {
                let begin = Instant::now();
                file.write_all_at(&payload, at)?;
                file.sync_data()?;
                plain.push(begin.elapsed().as_nanos() as u64);
                at += len_bytes as u64;
            }
        }
        let (ours, theirs) = (median(appends), median(plain));
        println!("{len_bytes:>8} {ours:>12} {theirs:>14} {:>8.1}", theirs as f64 / ours as f64);
    }
    println!("{}", serde_json::to_string_pretty(&log.stat())?);
    Ok(())
}
