//! fio: writes of one size to one file for each process, with a sync after each N of them.
//!
//! With several files fio's `fsync=N` would sync a file other than the one that it has just
//! written. So N writes and their sync go to one file, and the next ones to another.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::latency::Latency;
use super::{Variable, need, unparsable};
use crate::error::{Error, Result};
use crate::lab::Program;

/// Time limit for laying out and ending.
const GRACE: Duration = Duration::from_secs(300);

/// Runs fio in a directory
#[derive(Debug, Clone, Args)]
pub struct FioArgs {
    /// Where the files are made
    pub dir: PathBuf,
    /// Size of each file in KiB
    #[arg(long, default_value_t = 64 << 10)]
    pub file_kib: u64,
    /// Files of each process; with several, the next one is chosen after each sync
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
    /// Size of each write in bytes
    #[arg(long, default_value_t = 4096)]
    pub block_bytes: u64,
    /// What is written where
    #[arg(long, value_enum, default_value_t = Pattern::Overwrite)]
    pub pattern: Pattern,
    /// never | fsync=N | fdatasync=N (after every N writes) | o_sync (each write)
    #[arg(long, default_value_t = Sync::Fsync(1))]
    pub sync: Sync,
    /// Processes that write at the same time
    #[arg(long, default_value_t = 1)]
    pub processes: u32,
    /// End after this number of milliseconds; an appended file may be full earlier
    #[arg(long, default_value_t = 5000)]
    pub millis: u64,
    /// Seed of places and bytes: the same seed writes the same bytes to the same places
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// NAME=VALUE for fio's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// What is written where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Random blocks of an existing file
    Overwrite,
    /// A new file from its beginning to its end
    Append,
}

/// When writes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    Never,
    Fsync(u32),
    Fdatasync(u32),
    /// The file is opened with `O_SYNC`.
    EachWrite,
}

impl FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Sync, String> {
        let every = |count: &str| match count.parse() {
            Ok(0) | Err(_) => Err(format!("{count}: must be a number above 0")),
            Ok(count) => Ok(count),
        };
        match text.split_once('=') {
            None if text == "never" => Ok(Sync::Never),
            None if text == "o_sync" => Ok(Sync::EachWrite),
            Some(("fsync", count)) => Ok(Sync::Fsync(every(count)?)),
            Some(("fdatasync", count)) => Ok(Sync::Fdatasync(every(count)?)),
            _ => Err("must be never, fsync=N, fdatasync=N or o_sync".to_owned()),
        }
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sync::Never => f.write_str("never"),
            Sync::Fsync(count) => write!(f, "fsync={count}"),
            Sync::Fdatasync(count) => write!(f, "fdatasync={count}"),
            Sync::EachWrite => f.write_str("o_sync"),
        }
    }
}

/// What fio measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FioResult {
    pub writes: u64,
    pub seconds: f64,
    /// Writes each second; the time includes the syncs.
    pub iops: f64,
    /// Latencies of writes, without the sync that follows.
    pub write: Latency,
    pub syncs: u64,
    /// Latencies of syncs that were calls of their own.
    pub sync: Option<Latency>,
}

/// Runs fio in its directory.
pub fn run(args: &FioArgs) -> Result<FioResult> {
    run_in(std::slice::from_ref(&args.dir), args)
}

/// The same with the processes spread over `dirs`.
pub fn run_in(dirs: &[PathBuf], args: &FioArgs) -> Result<FioResult> {
    need("fio", "fio")?;
    if args.pattern == Pattern::Overwrite {
        lay_out(dirs, args)?;
    }
    let result = measure(dirs, args)?;
    for file in files(dirs, args) {
        std::fs::remove_file(&file).map_err(Error::at(&file))?;
    }
    Ok(result)
}

/// Makes the files that will be overwritten.
pub fn lay_out(dirs: &[PathBuf], args: &FioArgs) -> Result<()> {
    for file in files(dirs, args) {
        fill(&file, args.file_kib << 10).map_err(Error::at(&file))?;
    }
    Ok(())
}

/// What fio opens beside its files, and more.
const OTHER_OPEN_FILES: u32 = 1024;

/// Runs fio; the files stay.
pub fn measure(dirs: &[PathBuf], args: &FioArgs) -> Result<FioResult> {
    // All files of a job are open, which may be more than the usual limit of 1,024.
    let open = args.files + OTHER_OPEN_FILES;
    let program = Program::new("prlimit").args([&format!("--nofile={open}"), "fio"]);
    let program = Variable::add(&args.environment, program);
    let limit = Duration::from_millis(args.millis) + GRACE;
    parse(&program.args(arguments(dirs, args)?).time_limit(limit).run()?)
}

/// As fio spreads and names its files. Several files of a job are in one directory.
fn files(dirs: &[PathBuf], args: &FioArgs) -> Vec<PathBuf> {
    let jobs = dirs.iter().cycle().zip(0..args.processes);
    let of_job = |(dir, job): (&PathBuf, u32)| -> Vec<PathBuf> {
        match args.files {
            1 => vec![dir.join(format!("fio.{job}"))],
            count => (0..count).map(|file| dir.join(format!("fio.{job}.{file}"))).collect(),
        }
    };
    jobs.flat_map(of_job).collect()
}

/// Makes a durable file of random bytes, so that none of its writes falls into the measured time.
fn fill(path: &Path, size_bytes: u64) -> std::io::Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut random = fastrand::Rng::with_seed(7);
    let mut file = File::create(path)?;
    let mut left_bytes = size_bytes as usize;
    let mut piece = vec![0; PIECE_BYTES];
    while left_bytes > 0 {
        let count = left_bytes.min(PIECE_BYTES);
        random.fill(&mut piece[..count]);
        file.write_all(&piece[..count])?;
        left_bytes -= count;
    }
    file.sync_all()
}

fn arguments(dirs: &[PathBuf], args: &FioArgs) -> Result<Vec<String>> {
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    if dirs.iter().any(|dir| dir.contains(':')) {
        return Err(Error::other("fio takes no directory with a colon in its name"));
    }
    if args.files > 1 && dirs.len() > 1 {
        return Err(Error::other("several files of a process are in one directory"));
    }
    let rw = match args.pattern {
        Pattern::Overwrite => "randwrite",
        Pattern::Append => "write",
    };
    let mut arguments = vec![
        "--name=fio".to_owned(),
        format!("--directory={}", dirs.join(":")),
        format!("--filename_format=fio.$jobnum{}", if args.files > 1 { ".$filenum" } else { "" }),
        format!("--rw={rw}"),
        format!("--bs={}", args.block_bytes),
        format!("--size={}k", args.file_kib * u64::from(args.files)),
        format!("--numjobs={}", args.processes),
        format!("--runtime={}ms", args.millis),
        "--ioengine=psync".to_owned(),
        format!("--randseed={}", args.seed),
        // Every byte is new: otherwise a journal of deltas would be flattered.
        "--refill_buffers=1".to_owned(),
        "--group_reporting".to_owned(),
        "--output-format=json".to_owned(),
    ];
    if args.files > 1 {
        arguments.push(format!("--nrfiles={}", args.files));
        let operations = operations_at_a_time(args.sync);
        arguments.push(format!("--file_service_type=random:{operations}"));
    }
    match args.pattern {
        Pattern::Overwrite => arguments.push("--time_based".to_owned()),
        Pattern::Append => {
            arguments.extend(["--create_on_open=1", "--fallocate=none"].map(String::from));
        }
    }
    match args.sync {
        Sync::Never => {}
        Sync::EachWrite => arguments.push("--sync=1".to_owned()),
        Sync::Fsync(_) | Sync::Fdatasync(_) => arguments.push(format!("--{}", args.sync)),
    }
    Ok(arguments)
}

/// The writes to a file and, if there is one, their sync.
fn operations_at_a_time(sync: Sync) -> u32 {
    match sync {
        Sync::Fsync(count) | Sync::Fdatasync(count) => count + 1,
        Sync::Never | Sync::EachWrite => 1,
    }
}

/// The result in fio's JSON. Warnings may precede it.
pub fn parse(output: &str) -> Result<FioResult> {
    let unparsable = |wanted: &str| unparsable("fio", wanted, output);
    let json = output.find('{').map(|at| &output[at..]).ok_or_else(|| unparsable("JSON"))?;
    let report: Report = serde_json::from_str(json).map_err(|e| unparsable(&e.to_string()))?;
    let [job] = &report.jobs[..] else { return Err(unparsable("single group of jobs")) };
    if job.error != 0 {
        return Err(unparsable("success: errno is in the job's error field"));
    }
    let write = job.write.clat_ns.latency().ok_or_else(|| unparsable("writes"))?;
    let sync = job.sync.lat_ns.latency();
    // `sync.total_ios` stays 0 with group_reporting.
    let syncs = sync.map_or(0, |sync| sync.count);
    Ok(FioResult {
        writes: job.write.total_ios,
        seconds: job.write.runtime as f64 / 1e3,
        iops: job.write.iops,
        write,
        syncs,
        sync,
    })
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    write: Writes,
    sync: Syncs,
}

#[derive(Deserialize)]
struct Writes {
    total_ios: u64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    clat_ns: Times,
}

#[derive(Deserialize)]
struct Syncs {
    lat_ns: Times,
}

#[derive(Deserialize)]
struct Times {
    max: u64,
    mean: f64,
    #[serde(rename = "N")]
    count: u64,
    percentile: Option<Percentiles>,
}

#[derive(Deserialize)]
struct Percentiles {
    #[serde(rename = "50.000000")]
    p50: u64,
    #[serde(rename = "95.000000")]
    p95: u64,
    #[serde(rename = "99.000000")]
    p99: u64,
    #[serde(rename = "99.900000")]
    p999: u64,
}

impl Times {
    fn latency(&self) -> Option<Latency> {
        let percentile = self.percentile.as_ref().filter(|_| self.count > 0)?;
        Some(Latency {
            count: self.count,
            mean_ns: self.mean as u64,
            p50_ns: percentile.p50,
            p95_ns: percentile.p95,
            p99_ns: percentile.p99,
            p999_ns: percentile.p999,
            max_ns: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_sync() {
        for text in ["never", "fsync=1", "fdatasync=64", "o_sync"] {
            assert_eq!(text.parse::<Sync>().unwrap().to_string(), text);
        }
        for text in ["", "fsync", "fsync=0", "fdatasync=x", "sync=1"] {
            assert!(text.parse::<Sync>().is_err(), "{text}");
        }
    }

    fn report(error: i32, count: u64, sync_count: u64) -> String {
        let percentile = r#"{"50.000000": 3, "95.000000": 4, "99.000000": 5, "99.900000": 6}"#;
        let syncs =
            if sync_count > 0 { format!(r#", "percentile": {percentile}"#) } else { String::new() };
        format!(
            r#"fio: a warning
{{"jobs": [{{"error": {error},
  "write": {{"total_ios": {count}, "iops": 50.5, "runtime": 1980,
            "clat_ns": {{"min": 1, "max": 9, "mean": 2.5, "N": {count}, "percentile": {percentile}}}}},
  "sync": {{"total_ios": 0, "lat_ns": {{"min": 0, "max": 0, "mean": 0.0, "N": {sync_count}{syncs}}}}}}}]}}"#
        )
    }

    #[test]
    fn numbers_of_a_report() {
        let result = parse(&report(0, 100, 0)).unwrap();
        assert_eq!((result.writes, result.syncs, result.sync), (100, 0, None));
        assert_eq!((result.iops, result.seconds), (50.5, 1.98));
        assert_eq!((result.write.p50_ns, result.write.p999_ns, result.write.max_ns), (3, 6, 9));
        let result = parse(&report(0, 100, 25)).unwrap();
        assert_eq!((result.syncs, result.sync.unwrap().p99_ns), (25, 5));
    }

    #[test]
    fn a_failed_run_has_no_numbers() {
        assert!(parse(&report(28, 100, 0)).is_err());
        assert!(parse(&report(0, 0, 0)).is_err());
        assert!(parse("fio: nothing").is_err());
    }
}
