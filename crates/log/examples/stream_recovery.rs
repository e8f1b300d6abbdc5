//! What the recovery of a stream costs: `stream_recovery DIR`, a directory on the disk to measure.
//! Two streams of 64 MiB; the memory goes, NVRAM (a directory in /dev/shm) stays, and one of them
//! is opened and read.

use std::path::{Path, PathBuf};
use std::time::Instant;

use device::Durability;
use onejournal::{HEADER_BYTES, Log, Lsn, Options};

type Failure = Box<dyn std::error::Error>;

const STREAM_BYTES: usize = 64 << 20;
const RECORD_BYTES: usize = 1000;

fn main() -> Result<(), Failure> {
    let disk = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: stream_recovery DIR")?;
    let disk = disk.join("stream-recovery");
    let memory = PathBuf::from(format!("/dev/shm/stream-recovery-{}", std::process::id()));
    std::fs::create_dir_all(&disk)?;
    std::fs::create_dir_all(memory.join("nvram"))?;
    let measured = measure(&disk, &memory);
    std::fs::remove_dir_all(&memory)?;
    std::fs::remove_dir_all(&disk)?;
    measured
}

fn measure(disk: &Path, memory: &Path) -> Result<(), Failure> {
    let nvram = memory.join("nvram");
    let options = Options {
        nvram: Some(nvram.clone()),
        durability: Some(Durability::Process),
        memory: memory.to_owned(),
        ..Options::default()
    };
    let log = Log::open(disk, &options)?;
    for name in ["recovered", "other"] {
        let stream = log.stream(name)?;
        let payload = [7; RECORD_BYTES - HEADER_BYTES];
        for _ in 0..STREAM_BYTES / RECORD_BYTES {
            stream.append(&payload)?;
        }
    }
    drop(log);
    for entry in std::fs::read_dir(memory)? {
        let path = entry?.path();
        if path.is_dir() && path != nvram {
            std::fs::remove_dir_all(path)?;
        }
    }
    let before = read_bytes();
    let begin = Instant::now();
    let log = Log::open(disk, &options)?;
    let stream = log.stream("recovered")?;
    let (opened, read) = (begin.elapsed(), read_bytes() - before);
    let mut count = 0;
    for record in stream.read_from(Lsn(0))? {
        record?;
        count += 1;
    }
    println!(
        "recovery of a stream of 64 MiB: {:.0} ms, {:.1} MiB read; then {count} records read in \
         {:.0} ms",
        opened.as_secs_f64() * 1e3,
        read as f64 / (1 << 20) as f64,
        (begin.elapsed() - opened).as_secs_f64() * 1e3
    );
    Ok(())
}

/// Bytes that this process has asked its files for.
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}
