//! etcd: one member on loopback. Every put is an fdatasync of its write-ahead log.
//!
//! There are three measurements: puts by several clients through the member's HTTP gateway; etcd's
//! own `check perf`, which takes a minute; and the disk benchmark of etcd's documentation. The
//! benchmark is fio with an fdatasync after each 2,300 bytes. By the documentation, a disk is fast
//! enough if its 99th percentile is below 10 ms.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use servers::{SIGNALS, etcd};

use super::fio::{self, FioArgs, FioResult, Pattern, Sync};
use super::http::Connection;
use super::latency::Latency;
use super::{Variable, need, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program, interrupt};
use crate::values::{BASE64, Values, ValuesArgs};

/// Runs etcd in a directory
#[derive(Debug, Clone, Args)]
pub struct EtcdArgs {
    /// Where its data are
    pub dir: PathBuf,
    /// Clients, each with a put at a time
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// How long they put
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 256)]
    pub value_bytes: usize,
    #[command(flatten)]
    pub values: ValuesArgs,
    /// KiB that the disk benchmark writes
    #[arg(long, default_value_t = 22 << 10)]
    pub disk_kib: u64,
    /// Also run `etcdctl check perf`, for a minute
    #[arg(long)]
    pub check_perf: bool,
    /// NAME=VALUE for the environment of etcd and fio
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EtcdResult {
    pub puts: Puts,
    pub check_perf: Option<CheckPerf>,
    /// etcd's recommended disk benchmark; its verdict is about `sync.p99_ns`.
    pub disk: FioResult,
}

/// The puts of all clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Puts {
    pub count: u64,
    pub per_second: f64,
    pub latency: Latency,
    /// Syncs of the write-ahead log during the puts, as etcd counts them.
    pub wal_fsync: WalFsync,
}

/// From `etcd_disk_wal_fsync_duration_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WalFsync {
    pub count: u64,
    pub mean_ns: u64,
    /// The bound of the histogram that 99 % do not exceed; `None`: it is beyond the last bound.
    pub p99_below_ms: Option<f64>,
}

/// From `etcdctl check perf`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CheckPerf {
    pub passed: bool,
    pub writes_per_second: f64,
    pub slowest_s: f64,
}

/// The whole result.
pub fn run(args: &EtcdArgs) -> Result<EtcdResult> {
    let disk = disk_benchmark(&args.dir, args.disk_kib, &args.environment)?;
    let member = Member::start(&args.dir, &args.environment)?;
    let puts = member.put(args)?;
    let check_perf = if args.check_perf { Some(member.check_perf()?) } else { None };
    member.stop()?.remove()?;
    Ok(EtcdResult { puts, check_perf, disk })
}

/// fio as etcd's documentation has it.
pub fn disk_benchmark(dir: &Path, kib: u64, environment: &[Variable]) -> Result<FioResult> {
    fio::run(&FioArgs {
        dir: dir.to_owned(),
        files: 1,
        file_kib: kib,
        block_bytes: 2300,
        pattern: Pattern::Append,
        sync: Sync::Fdatasync(1),
        processes: 1,
        millis: 60_000,
        seed: 7,
        environment: environment.to_vec(),
    })
}

/// A cluster of one.
pub struct Member {
    data: PathBuf,
    client: SocketAddr,
    server: Child,
}

impl Member {
    /// Starts it with new data below `dir`.
    pub fn start(dir: &Path, environment: &[Variable]) -> Result<Member> {
        need("etcd", "etcd-server")?;
        let data = dir.join("etcd");
        let [client, peer] = free_addresses()?;
        let [clients, peers] = [client, peer].map(|address| format!("http://{address}"));
        let server = etcd::etcd(Command::new("etcd"), &data, [&clients, &peers]);
        let server = Variable::add(environment, Program::of(server)).args(["--log-level", "error"]);
        let server = server.serve(SIGNALS, &[])?;
        Ok(Member { data, client, server })
    }

    fn wal_histogram(&self) -> Result<Histogram> {
        Histogram::parse(&metrics(self.client).map_err(Error::io("etcd's metrics"))?)
    }

    fn check_perf(&self) -> Result<CheckPerf> {
        need("etcdctl", "etcd-client")?;
        // It fails when etcd is too slow, and that is a result.
        let script = "ETCDCTL_API=3 etcdctl --endpoints=$0 check perf || true";
        let output = Program::new("sh").args(["-c", script, &self.client.to_string()]).run()?;
        parse_check_perf(&output)
    }

    /// Puts of all clients for a time.
    pub fn put(&self, args: &EtcdArgs) -> Result<Puts> {
        let before = self.wal_histogram()?;
        let (latency, seconds) = put_all(self.client, args)?;
        let wal_fsync = self.wal_histogram()?.since(&before)?;
        let per_second = latency.count as f64 / seconds;
        Ok(Puts { count: latency.count, per_second, latency, wal_fsync })
    }

    /// Stops it.
    pub fn stop(self) -> Result<Data> {
        self.server.stop()?;
        Ok(Data(self.data))
    }
}

/// What a member leaves.
pub struct Data(PathBuf);

impl Data {
    /// Removes it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.0).map_err(Error::at(&self.0))
    }
}

/// What a member says of itself, in the format of Prometheus.
pub fn metrics(member: SocketAddr) -> std::io::Result<String> {
    Connection::open(member)?.get("/metrics")
}

/// A client with a connection of its own.
pub struct Client {
    connection: Connection,
    values: Values,
    value_bytes: usize,
}

impl Client {
    /// Connects to a member.
    pub fn connect(
        member: SocketAddr,
        values: Values,
        value_bytes: usize,
    ) -> std::io::Result<Client> {
        Ok(Client { connection: Connection::open(member)?, values, value_bytes })
    }

    /// Puts a new key. Returns the time of the request.
    pub fn put(&mut self) -> std::io::Result<Duration> {
        let body = put_request(&mut self.values, self.value_bytes);
        let begin = Instant::now();
        self.connection.post("/v3/kv/put", &body)?;
        Ok(begin.elapsed())
    }
}

/// Loopback ports that were free a moment ago.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = |listener: &TcpListener| listener.local_addr();
    let both = bind().and_then(|one| bind().map(|other| (one, other)));
    let (one, other) = both.map_err(Error::io("a free port"))?;
    let both = address(&one).and_then(|one| address(&other).map(|other| [one, other]));
    both.map_err(Error::io("a free port"))
}

/// All clients' puts, and the time from the first to the last.
fn put_all(server: SocketAddr, args: &EtcdArgs) -> Result<(Latency, f64)> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(args.seconds);
    let samples_ns = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..args.clients)
            .map(|number| {
                let values = args.values.generator_of(u64::from(number));
                scope.spawn(move || put_until(end, server, values, args.value_bytes))
            })
            .collect();
        let joined = clients.into_iter().map(|client| client.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    interrupt::check()?;
    let seconds = begin.elapsed().as_secs_f64();
    let latency = Latency::of(samples_ns.concat());
    Ok((latency.ok_or_else(|| Error::other("etcd: no put was finished"))?, seconds))
}

/// One client. Returns the time of each put.
fn put_until(
    end: Instant,
    server: SocketAddr,
    values: Values,
    value_bytes: usize,
) -> Result<Vec<u64>> {
    let put = || -> std::io::Result<Vec<u64>> {
        let mut client = Client::connect(server, values, value_bytes)?;
        let mut samples_ns = Vec::new();
        while Instant::now() < end && interrupt::check().is_ok() {
            samples_ns.push(client.put()?.as_nanos() as u64);
        }
        Ok(samples_ns)
    };
    put().map_err(Error::io("a put into etcd"))
}

/// Keys and values are in base64, as a request has them.
fn put_request(values: &mut Values, value_bytes: usize) -> String {
    let (key, value) = (base64(&values.next(12)), base64(&values.next(value_bytes)));
    format!(r#"{{"key":"{key}","value":"{value}"}}"#)
}

/// In base64 (RFC 4648), with padding.
fn base64(text: &str) -> String {
    let mut letters = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let six = (bits >> (18 - 6 * index) & 63) as usize;
            letters.push(if index > three.len() { '=' } else { char::from(BASE64[six]) });
        }
    }
    letters
}

/// Counts of a Prometheus histogram: for each bound, the number of values that do not exceed it.
#[derive(Debug, Clone, PartialEq)]
struct Histogram {
    buckets: Vec<(f64, u64)>,
    sum_s: f64,
    count: u64,
}

impl Histogram {
    fn parse(metrics: &str) -> Result<Histogram> {
        const NAME: &str = "etcd_disk_wal_fsync_duration_seconds_";
        let lines = || metrics.lines().filter_map(|line| line.strip_prefix(NAME));
        let missing = || unparsable("etcd", NAME, metrics);
        let value = |name: &str| lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        let buckets = lines().filter_map(|line| {
            let (bound, count) = line.strip_prefix("bucket{le=\"")?.split_once("\"} ")?;
            Some((bound.parse().ok()?, count.parse().ok()?))
        });
        let count: f64 = value("count ").ok_or_else(missing)?;
        let sum_s = value("sum ").ok_or_else(missing)?;
        Ok(Histogram { buckets: buckets.collect(), sum_s, count: count as u64 })
    }

    fn since(&self, before: &Histogram) -> Result<WalFsync> {
        let count = self.count - before.count;
        if count == 0 || self.buckets.len() != before.buckets.len() {
            return Err(Error::other("etcd counted no sync of its log"));
        }
        let within = self.buckets.iter().zip(&before.buckets);
        let p99 = within
            .map(|((bound_s, after), (_, before))| (*bound_s, after - before))
            .find(|(_, within)| within * 100 >= count * 99);
        let mean_ns = ((self.sum_s - before.sum_s) / count as f64 * 1e9) as u64;
        let p99_below_ms = p99.map(|(bound_s, _)| bound_s * 1e3).filter(|ms| ms.is_finite());
        Ok(WalFsync { count, mean_ns, p99_below_ms })
    }
}

fn parse_check_perf(output: &str) -> Result<CheckPerf> {
    let number_after = |words: &str| -> Result<f64> {
        let rest = output.split_once(words).map(|(_, rest)| rest);
        let end =
            |rest: &str| rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest.and_then(|rest| rest[..end(rest)].parse().ok());
        number.ok_or_else(|| unparsable("etcdctl check perf", words, output))
    };
    // For example `PASS: Throughput is 150 writes/s`, or `FAIL: Throughput too low: 90 writes/s`.
    let throughput =
        number_after("Throughput is ").or_else(|_| number_after("Throughput too low: "));
    let slowest = number_after("Slowest request took ")
        .or_else(|_| number_after("Slowest request took too long: "));
    Ok(CheckPerf {
        passed: !output.contains("FAIL"),
        writes_per_second: throughput?,
        slowest_s: slowest?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: [u64; 3], sum_s: f64) -> Histogram {
        let [one, two, all] = counts;
        Histogram::parse(&format!(
            "# HELP x\n\
             etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"0.001\"}} {one}\n\
             etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"0.002\"}} {two}\n\
             etcd_disk_wal_fsync_duration_seconds_bucket{{le=\"+Inf\"}} {all}\n\
             etcd_disk_wal_fsync_duration_seconds_sum {sum_s}\n\
             etcd_disk_wal_fsync_duration_seconds_count {all}\n"
        ))
        .unwrap()
    }

    #[test]
    fn the_log_s_syncs_between_two_looks() {
        let before = histogram([5, 5, 5], 0.005);
        let found = histogram([105, 204, 205], 0.405).since(&before).unwrap();
        assert_eq!((found.count, found.p99_below_ms), (200, Some(2.0)));
        assert!((1_999_999..=2_000_001).contains(&found.mean_ns), "{}", found.mean_ns);
        let slow = histogram([5, 10, 205], 9.0).since(&before).unwrap();
        assert_eq!(slow.p99_below_ms, None);
        assert!(before.since(&before).is_err());
        assert!(Histogram::parse("").is_err());
    }

    #[test]
    fn base64_has_the_standard_s_vectors() {
        let vectors = [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (text, letters) in vectors {
            assert_eq!(base64(text), letters);
        }
    }

    #[test]
    fn verdicts_of_check_perf() {
        let output = "60 / 60 Booo! 100.00% 1m0s\nPASS: Throughput is 150 writes/s\n\
                      PASS: Slowest request took 0.05s\nPASS: Stddev is 0.001s\nPASS\n";
        let found = parse_check_perf(output).unwrap();
        let expected = CheckPerf { passed: true, writes_per_second: 150.0, slowest_s: 0.05 };
        assert_eq!(found, expected);
        let output =
            "FAIL: Throughput too low: 41 writes/s\nSlowest request took too long: 2.5s\nFAIL\n";
        let found = parse_check_perf(output).unwrap();
        let expected = CheckPerf { passed: false, writes_per_second: 41.0, slowest_s: 2.5 };
        assert_eq!(found, expected);
        assert!(parse_check_perf("Error: timeout").is_err());
    }
}
