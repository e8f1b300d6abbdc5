//! pgbench: PostgreSQL's TPC-B-like transactions by several clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::latency::Latency;
use super::postgres::{Cluster, program_dir};
use super::{Variable, unparsable};
use crate::error::{Error, Result};

/// Time limit for making the tables or ending a run.
const GRACE: Duration = Duration::from_secs(600);

/// Runs pgbench on a PostgreSQL cluster in a directory
#[derive(Debug, Clone, Args)]
pub struct PgbenchArgs {
    /// Where the cluster is made
    pub dir: PathBuf,
    /// Branches: 100,000 accounts each
    #[arg(long, default_value_t = 10)]
    pub scale: u32,
    /// Clients, each with a connection and a transaction at a time
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// Duration of each round
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// NAME=VALUE for the server's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// What one round measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PgbenchResult {
    pub transactions: u64,
    pub transactions_per_second: f64,
    pub latency: Latency,
    /// Bytes that the server wrote to its write-ahead log, and the number of its syncs.
    pub wal_bytes: i64,
    pub wal_syncs: i64,
}

/// An error when PostgreSQL is not installed.
pub fn need() -> Result<()> {
    program_dir().map(drop)
}

/// A cluster with pgbench's tables, for any number of rounds.
pub struct Session {
    cluster: Cluster,
}

/// One round, with setup and cleanup.
pub fn run(args: &PgbenchArgs) -> Result<PgbenchResult> {
    let session = Session::start(&args.dir, args.scale, &args.environment)?;
    let result = session.round(args.clients, args.seconds)?;
    session.finish()?;
    Ok(result)
}

impl Session {
    /// Makes cluster and tables.
    pub fn start(dir: &Path, scale: u32, environment: &[Variable]) -> Result<Session> {
        let cluster = Cluster::create(dir, environment)?;
        let options = ["-i", "-q", "-s", &scale.to_string(), "postgres"];
        cluster.client("pgbench").args(options).time_limit(GRACE).run()?;
        Ok(Session { cluster })
    }

    /// Runs the transactions for some time.
    pub fn round(&self, clients: u32, seconds: u64) -> Result<PgbenchResult> {
        let logs = TempDir::new().map_err(Error::io("a temporary folder"))?;
        let before = self.wal()?;
        let output = self
            .cluster
            .client("pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", "1"])
            .args(["-T", &seconds.to_string(), "-l", "--log-prefix"])
            .arg(logs.path().join("log"))
            .arg("postgres")
            .time_limit(Duration::from_secs(seconds) + GRACE)
            .run()?;
        let after = self.wal()?;
        let samples_ns = read_logs(logs.path())?;
        let (transactions, transactions_per_second) = parse(&output)?;
        if samples_ns.len() as u64 != transactions {
            return Err(unparsable("pgbench", "log of all transactions", &output));
        }
        let latency = Latency::of(samples_ns);
        Ok(PgbenchResult {
            transactions,
            transactions_per_second,
            latency: latency.ok_or_else(|| unparsable("pgbench", "transactions", &output))?,
            wal_bytes: after.0 - before.0,
            wal_syncs: after.1 - before.1,
        })
    }

    /// Bytes and syncs of the write-ahead log since the beginning.
    fn wal(&self) -> Result<(i64, i64)> {
        // Sessions hand their counts in when they end or when they are idle.
        let query = "select wal_bytes, wal_sync from pg_stat_wal";
        match self.cluster.numbers(query)?[..] {
            [bytes, syncs] => Ok((bytes, syncs)),
            _ => Err(Error::other(format!("{query}: not two columns"))),
        }
    }

    /// Checks that no transaction was done by halves, stops the server, and removes the cluster.
    pub fn finish(self) -> Result<()> {
        let sums = self.cluster.numbers(
            "select (select sum(abalance) from pgbench_accounts), \
             (select sum(bbalance) from pgbench_branches), \
             (select sum(tbalance) from pgbench_tellers), \
             (select coalesce(sum(delta), 0) from pgbench_history)",
        )?;
        if sums.iter().any(|sum| *sum != sums[0]) {
            return Err(Error::other(format!("pgbench's balances differ: {sums:?}")));
        }
        self.cluster.stop()
    }
}

/// The number of transactions, and of transactions each second.
fn parse(output: &str) -> Result<(u64, f64)> {
    let field = |name: &str| {
        let value = output.lines().find_map(|line| line.strip_prefix(name));
        let word = value.and_then(|value| value.split_whitespace().next());
        word.ok_or_else(|| unparsable("pgbench", name, output))
    };
    let transactions = field("number of transactions actually processed: ")?;
    let transactions = transactions
        .parse()
        .map_err(|_| unparsable("pgbench", "number of transactions", output))?;
    let rate = field("tps = ")?.parse().map_err(|_| unparsable("pgbench", "tps", output))?;
    if field("number of failed transactions: ")? != "0" {
        return Err(unparsable("pgbench", "success of all transactions", output));
    }
    Ok((transactions, rate))
}

/// The third field of each line is the transaction's time in microseconds.
fn read_logs(dir: &Path) -> Result<Vec<u64>> {
    let mut samples_ns = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::at(dir))?.flatten() {
        let text = fs::read_to_string(entry.path()).map_err(Error::at(&entry.path()))?;
        for line in text.lines() {
            let time_us = line.split(' ').nth(2).and_then(|time| time.parse::<u64>().ok());
            samples_ns.push(time_us.ok_or_else(|| unparsable("pgbench", "times", line))? * 1000);
        }
    }
    Ok(samples_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: TPC-B (sort of)>
number of transactions actually processed: 1234
number of failed transactions: 0 (0.000%)
latency average = 1.620 ms
tps = 617.5 (without initial connection time)
";

    #[test]
    fn numbers_of_a_report() {
        assert_eq!(parse(OUTPUT).unwrap(), (1234, 617.5));
        let failed = OUTPUT.replace("transactions: 0", "transactions: 2");
        assert!(parse(&failed).is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn times_of_all_threads() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("log.1"), "0 1 1500 0 1 2\n1 1 700 0 1 3\n").unwrap();
        fs::write(dir.path().join("log.1.1"), "0 1 20 0 1 2\n").unwrap();
        let mut found = read_logs(dir.path()).unwrap();
        found.sort_unstable();
        assert_eq!(found, [20_000, 700_000, 1_500_000]);
        fs::write(dir.path().join("log.1.2"), "0 1 failed 0 1 2\n").unwrap();
        assert!(read_logs(dir.path()).is_err());
    }
}
