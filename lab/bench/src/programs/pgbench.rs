//! pgbench: PostgreSQL's own load, transactions by several clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::latency::Latency;
use super::postgres::{Cluster, ClusterSettings, Stopped};
use super::{Variable, pace, unparsable};
use crate::error::{Error, Result};
use crate::lab::interrupt;
use crate::values::{ValueKind, Values};

/// How often a changed setting is looked for before that is an error.
const LOOK_COUNT_MAX: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(20);
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
    /// What a transaction is
    #[arg(long, value_enum, default_value_t = Script::TpcbLike)]
    pub script: Script,
    /// Without full_page_writes: torn pages are not repaired
    #[arg(long)]
    pub no_full_page_writes: bool,
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

/// One of pgbench's own transactions, under its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Script {
    /// Updates an account, a teller and a branch. Clients wait for each other's branches.
    #[default]
    TpcbLike,
    /// Updates an account. Clients rarely meet.
    SimpleUpdate,
}

impl Script {
    fn name(self) -> &'static str {
        match self {
            Script::TpcbLike => "tpcb-like",
            Script::SimpleUpdate => "simple-update",
        }
    }

    /// Sums that are equal if no transaction was done by halves.
    fn sums(self) -> &'static str {
        match self {
            Script::TpcbLike => {
                "select (select sum(abalance) from pgbench_accounts), \
                 (select sum(bbalance) from pgbench_branches), \
                 (select sum(tbalance) from pgbench_tellers), \
                 (select coalesce(sum(delta), 0) from pgbench_history)"
            }
            Script::SimpleUpdate => {
                "select (select sum(abalance) from pgbench_accounts), \
                 (select coalesce(sum(delta), 0) from pgbench_history)"
            }
        }
    }
}

/// Cluster, tables and transactions of a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup<'a> {
    /// Branches.
    pub scale: u32,
    /// Per cent of a page that is filled at first; 0: all of it, as pgbench does by itself. The
    /// rest holds the new versions of its rows.
    pub fill_percent: u32,
    pub script: Script,
    /// What the fillers of its rows are.
    pub fillers: ValueKind,
    pub cluster: ClusterSettings<'a>,
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
    /// Transactions of the slowest quarter of a second, as a part of the median quarter's. `None`
    /// of a short round.
    pub slowest_window: Option<f64>,
}

/// A cluster with pgbench's tables, for any number of rounds.
pub struct Session {
    cluster: Cluster,
    script: Script,
}

/// One round, with setup and cleanup.
pub fn run(args: &PgbenchArgs) -> Result<PgbenchResult> {
    let cluster = ClusterSettings { environment: &args.environment, ..Default::default() };
    let setup = Setup { scale: args.scale, script: args.script, cluster, ..Default::default() };
    let session = Session::start(&args.dir, &setup)?;
    session.write_full_pages(!args.no_full_page_writes)?;
    let result = session.round(args.clients, args.seconds)?;
    session.finish()?;
    Ok(result)
}

impl Session {
    /// Makes cluster and tables.
    pub fn start(dir: &Path, setup: &Setup<'_>) -> Result<Session> {
        let cluster = Cluster::create(dir, setup.cluster)?;
        let session = Session { cluster, script: setup.script };
        session.make(&["-I", "dt"], setup.fill_percent)?;
        let rows = rows(setup.scale, setup.fillers);
        session.cluster.execute(&rows.each_ref().map(String::as_str))?;
        session.make(&["-I", "vp"], 0)?;
        Ok(session)
    }

    /// Runs steps of pgbench's initialization.
    fn make(&self, steps: &[&str], fill_percent: u32) -> Result<()> {
        let mut make = self.cluster.client("pgbench").args(["-i", "-q"]).args(steps);
        if fill_percent > 0 {
            make = make.args(["-F", &fill_percent.to_string()]);
        }
        make.arg("postgres").time_limit(GRACE).run().map(drop)
    }

    /// Sets `full_page_writes`, and makes a checkpoint, from which on it holds.
    pub fn write_full_pages(&self, is_on: bool) -> Result<()> {
        let setting = format!("alter system set full_page_writes = {is_on}");
        self.cluster.execute(&[&setting, "select pg_reload_conf()"])?;
        let query = "select full_page_writes::int from pg_control_checkpoint()";
        for _ in 0..LOOK_COUNT_MAX {
            self.checkpoint()?;
            if self.cluster.numbers(query)? == [i64::from(is_on)] {
                return Ok(());
            }
            // The process that makes checkpoints has not read the settings yet.
            interrupt::check()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Error::other(format!("PostgreSQL does not take over: {setting}")))
    }

    /// Makes a checkpoint: all changed pages are on the device.
    pub fn checkpoint(&self) -> Result<()> {
        self.cluster.execute(&["checkpoint"]).map(drop)
    }

    /// The server's version, such as 15.
    pub fn major_version(&self) -> Result<i64> {
        let numbers = self.cluster.numbers("show server_version_num")?;
        numbers.first().map(|number| number / 10_000).ok_or_else(|| Error::other("no version"))
    }

    /// Runs the transactions for some time.
    pub fn round(&self, clients: u32, seconds: u64) -> Result<PgbenchResult> {
        self.run(clients, ["-T", &seconds.to_string()], Duration::from_secs(seconds) + GRACE)
    }

    /// Runs so many transactions of each client.
    pub fn transactions(&self, clients: u32, of_each: u64) -> Result<PgbenchResult> {
        self.run(clients, ["-t", &of_each.to_string()], GRACE)
    }

    fn run(&self, clients: u32, length: [&str; 2], limit: Duration) -> Result<PgbenchResult> {
        let logs = TempDir::new().map_err(Error::io("a temporary folder"))?;
        let before = self.wal()?;
        let output = self
            .cluster
            .client("pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", "1"])
            .args(["-b", self.script.name()])
            .args(length)
            .args(["-l", "--log-prefix"])
            .arg(logs.path().join("log"))
            .arg("postgres")
            .time_limit(limit)
            .run()?;
        let after = self.wal()?;
        let samples = read_logs(logs.path())?;
        let (samples_ns, ends_us): (Vec<u64>, Vec<u64>) = samples.into_iter().unzip();
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
            slowest_window: pace::slowest_window(&ends_us),
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
        self.check()?;
        self.stop()?.remove()
    }

    /// Checks that no transaction was done by halves. This reads all tables, and marks in their
    /// pages which transactions have committed.
    pub fn check(&self) -> Result<()> {
        let sums = self.cluster.numbers(self.script.sums())?;
        if sums.iter().any(|sum| *sum != sums[0]) {
            return Err(Error::other(format!("pgbench's balances differ: {sums:?}")));
        }
        Ok(())
    }

    /// Stops the server.
    pub fn stop(self) -> Result<Stopped> {
        self.cluster.stop()
    }

    /// Stops the server and starts it again, with something between.
    pub fn restarted(
        self,
        settings: ClusterSettings<'_>,
        between: impl FnOnce() -> Result<()>,
    ) -> Result<Session> {
        let script = self.script;
        let stopped = self.stop()?;
        between()?;
        Ok(Session { cluster: stopped.start(settings)?, script })
    }
}

/// pgbench's rows. Its own fillers are blanks, which compress to nothing; these are 84 characters
/// of base64 that do not compress, or some text of so many characters.
fn rows(scale: u32, fillers: ValueKind) -> [String; 3] {
    const TEXTS: usize = 1024;
    let filler = match fillers {
        ValueKind::Random => "left(translate(encode(sha512(convert_to(i::text, 'UTF8')), \
             'base64'), E'\\n', ''), 84)"
            .to_owned(),
        ValueKind::Text | ValueKind::Repeated => {
            let mut values = Values::new(fillers, 1);
            let texts: Vec<String> = (0..TEXTS).map(|_| values.next(84)).collect();
            format!("(string_to_array('{}', '|'))[i % {TEXTS} + 1]", texts.join("|"))
        }
    };
    let insert = |table: &str, columns: &str, values: &str, per_branch: u32| {
        format!(
            "insert into pgbench_{table}({columns}, filler) select {values}, {filler} \
             from generate_series(1, {}) as i",
            u64::from(scale) * u64::from(per_branch)
        )
    };
    [
        insert("branches", "bid, bbalance", "i, 0", 1),
        insert("tellers", "tid, bid, tbalance", "i, (i - 1) / 10 + 1, 0", 10),
        insert("accounts", "aid, bid, abalance", "i, (i - 1) / 100000 + 1, 0", 100_000),
    ]
}

/// The number of transactions, and of transactions each second.
fn parse(output: &str) -> Result<(u64, f64)> {
    let field = |name: &str| {
        let value = output.lines().find_map(|line| line.strip_prefix(name));
        let word = value.and_then(|value| value.split_whitespace().next());
        word.ok_or_else(|| unparsable("pgbench", name, output))
    };
    // With a fixed number, it stands behind a slash.
    let transactions = field("number of transactions actually processed: ")?.split('/').next();
    let transactions = transactions
        .unwrap_or_default()
        .parse()
        .map_err(|_| unparsable("pgbench", "number of transactions", output))?;
    let rate = field("tps = ")?.parse().map_err(|_| unparsable("pgbench", "tps", output))?;
    if field("number of failed transactions: ")? != "0" {
        return Err(unparsable("pgbench", "success of all transactions", output));
    }
    Ok((transactions, rate))
}

/// Each transaction's nanoseconds, and the time at which it ended in microseconds. The third field
/// of a line is its time in microseconds, the fifth and sixth are the end in seconds and
/// microseconds.
fn read_logs(dir: &Path) -> Result<Vec<(u64, u64)>> {
    let mut samples = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::at(dir))?.flatten() {
        let text = fs::read_to_string(entry.path()).map_err(Error::at(&entry.path()))?;
        for line in text.lines() {
            samples.push(parse_line(line).ok_or_else(|| unparsable("pgbench", "times", line))?);
        }
    }
    Ok(samples)
}

fn parse_line(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(2)? * 1000, number(4)? * 1_000_000 + number(5)?))
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
        let fixed = OUTPUT.replace("1234", "1234/1234");
        assert_eq!(parse(&fixed).unwrap(), (1234, 617.5));
        let failed = OUTPUT.replace("transactions: 0", "transactions: 2");
        assert!(parse(&failed).is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn times_of_all_threads() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("log.1"), "0 1 1500 0 1 2\n1 1 700 0 1 3\n").unwrap();
        fs::write(dir.path().join("log.1.1"), "0 1 20 0 2 5\n").unwrap();
        let mut found = read_logs(dir.path()).unwrap();
        found.sort_unstable();
        assert_eq!(found, [(20_000, 2_000_005), (700_000, 1_000_003), (1_500_000, 1_000_002)]);
        fs::write(dir.path().join("log.1.2"), "0 1 failed 0 1 2\n").unwrap();
        assert!(read_logs(dir.path()).is_err());
    }
}
