//! MariaDB with InnoDB: each transaction adds to the balance of a random account and writes a row
//! of history, and is durable when it ends. It is pgbench's `simple-update` without its query.
//!
//! The server is private, on a Unix socket that no other program sees. Each client is a process of
//! MariaDB's own command-line client, which reads statements from a pipe and prints an answer for
//! each, so that the time of a transaction includes the way to the server and back. A transaction
//! is one call of a stored procedure.
//!
//! A [`Template`] is a data directory with its tables. Sessions work on copies of it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use servers::SIGNALS;
use servers::mariadb::{INSTALL, mariadb, mariadbd, option};
use tempfile::TempDir;

use super::latency::Latency;
use super::{Variable, need, pace, server, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program, interrupt, is_installed};

/// The user that Debian's package makes.
const USER: &str = "mysql";
const DATABASE: &str = "bench";
const STATEMENT_LIMIT: Duration = Duration::from_secs(300);
/// Enough for all tables of an experiment: reads with `O_DIRECT` would go to the disk on some file
/// systems and to a cache on others.
const BUFFERS: &str = "--innodb-buffer-pool-size=128M";
/// Small, so that InnoDB always has to write pages to make room in it.
const LOG: &str = "--innodb-log-file-size=4M";
const SERVER: [&str; 4] =
    ["--skip-name-resolve", BUFFERS, "--innodb-buffer-pool-load-at-startup=OFF", LOG];
const TABLES: [&str; 4] = [
    "CREATE DATABASE bench",
    "CREATE TABLE bench.account(id INT PRIMARY KEY, balance INT NOT NULL, \
     filler CHAR(84) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE bench.history(id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, \
     delta INT NOT NULL, filler CHAR(22) NOT NULL) ENGINE=InnoDB",
    "CREATE PROCEDURE bench.pay(payer INT, amount INT) BEGIN START TRANSACTION; \
     UPDATE account SET balance = balance + amount WHERE id = payer; \
     INSERT INTO history(account, delta, filler) VALUES (payer, amount, \
     LEFT(TO_BASE64(UNHEX(SHA2(RAND(), 256))), 22)); COMMIT; SELECT 1; END",
];

/// 84 characters of base64, which do not compress.
const FILLER: &str = "LEFT(REPLACE(TO_BASE64(UNHEX(SHA2(seq, 512))), '\n', ''), 84)";

/// Runs transactions on a MariaDB in a directory
#[derive(Debug, Clone, Args)]
pub struct MariadbArgs {
    /// Where its data are
    pub dir: PathBuf,
    /// Accounts
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,
    /// Clients, each with a connection and a transaction at a time
    #[arg(long, default_value_t = 8)]
    pub clients: u32,
    /// How long they work
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Without InnoDB's doublewrite: torn pages are not repaired
    #[arg(long)]
    pub no_doublewrite: bool,
    /// NAME=VALUE for the server's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// What one round measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MariadbResult {
    pub transactions: u64,
    pub transactions_per_second: f64,
    pub latency: Latency,
    /// Bytes that InnoDB wrote to its redo log.
    pub log_bytes: i64,
    /// Pages that InnoDB wrote to the doublewrite buffer.
    pub doublewrite_pages: i64,
    /// Transactions of the slowest quarter of a second, as a part of the median quarter's. `None`
    /// of a short round.
    pub slowest_window: Option<f64>,
}

/// An error when MariaDB is not installed.
pub fn need_it() -> Result<()> {
    for program in ["mariadbd", "mariadb-install-db"] {
        need(program, "mariadb-server")?;
    }
    need("mariadb", "mariadb-client")
}

/// One round, with setup and cleanup.
pub fn run(args: &MariadbArgs) -> Result<MariadbResult> {
    let template = Template::make(&args.dir, args.rows)?;
    let session =
        Session::start(&template, &args.dir, "mariadb", !args.no_doublewrite, &args.environment)?;
    let result = session.round(args.clients, args.seconds)?;
    session.finish()?;
    Ok(result)
}

/// A data directory with the tables. It is removed when dropped.
pub struct Template {
    data: TempDir,
    rows: u32,
}

impl Template {
    /// Makes it in `dir`, with this many accounts.
    pub fn make(dir: &Path, rows: u32) -> Result<Template> {
        need_it()?;
        let data = tempfile::Builder::new().prefix("mariadb-template").tempdir_in(dir);
        let data = data.map_err(Error::at(dir))?;
        server::give_to(USER, data.path())?;
        let install = Program::of(server::as_user(USER, "mariadb-install-db")).args(INSTALL);
        install.arg(option("datadir", data.path())).run()?;
        let server = Server::start(data.path(), &["--innodb-flush-log-at-trx-commit=0"], &[])?;
        for statement in TABLES {
            server.execute(statement)?;
        }
        server.execute(&format!(
            "INSERT INTO bench.account SELECT seq - 1, 0, {FILLER} FROM bench.seq_1_to_{rows}"
        ))?;
        server.stop()?;
        Ok(Template { data, rows })
    }
}

/// A server that runs.
struct Server {
    /// A directory that holds only the socket and temporary files.
    socket: TempDir,
    server: Child,
}

impl Server {
    fn start(data: &Path, settings: &[&str], environment: &[Variable]) -> Result<Server> {
        let socket = TempDir::new().map_err(Error::io("a temporary folder"))?;
        server::give_to(USER, socket.path())?;
        let server = mariadbd(server::as_user(USER, "mariadbd"), data, socket.path());
        let server = Variable::add(environment, Program::of(server)).args(SERVER).args(settings);
        let server = server.arg(option("tmpdir", socket.path())).serve(SIGNALS, &[])?;
        Ok(Server { socket, server })
    }

    /// The command-line client.
    fn client(&self) -> Program {
        Program::of(mariadb(Command::new("mariadb"), self.socket.path()))
    }

    /// Executes one statement. Returns its rows.
    fn execute(&self, statement: &str) -> Result<String> {
        // A procedure's body has semicolons.
        self.client().args(["--delimiter=//", "-e", statement]).time_limit(STATEMENT_LIMIT).run()
    }

    /// The only row of a query, its columns as numbers.
    fn numbers(&self, query: &str) -> Result<Vec<i64>> {
        let output = self.execute(query)?;
        let numbers = output.trim().split('\t').map(str::parse).collect::<Result<_, _>>();
        numbers.map_err(|_| unparsable("mariadb", "numbers", &output))
    }

    /// One of the server's counters.
    fn counter(&self, name: &str) -> Result<i64> {
        let query =
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME";
        let found = self.numbers(&format!("{query} = '{name}'"))?;
        found.first().copied().ok_or_else(|| Error::other(format!("MariaDB does not count {name}")))
    }

    fn stop(self) -> Result<()> {
        self.server.stop()
    }
}

/// A server on a copy of a template, for any number of rounds.
pub struct Session {
    data: PathBuf,
    rows: u32,
    server: Server,
    /// Transactions that clients have seen end.
    acknowledged: Cell<u64>,
}

impl Session {
    /// Copies the template to `dir/name` and starts the server.
    pub fn start(
        template: &Template,
        dir: &Path,
        name: &str,
        has_doublewrite: bool,
        environment: &[Variable],
    ) -> Result<Session> {
        let data = dir.join(name);
        Program::new("cp").arg("-a").arg(template.data.path()).arg(&data).run()?;
        let doublewrite = if has_doublewrite { "ON" } else { "OFF" };
        let settings =
            ["--innodb-flush-log-at-trx-commit=1", &format!("--innodb-doublewrite={doublewrite}")];
        let server = Server::start(&data, &settings, environment)?;
        Ok(Session { data, rows: template.rows, server, acknowledged: Cell::new(0) })
    }

    /// Runs the transactions for some time.
    pub fn round(&self, clients: u32, seconds: u64) -> Result<MariadbResult> {
        let clients =
            (0..clients).map(|number| self.connect(number)).collect::<Result<Vec<_>>>()?;
        let counters = || -> Result<_> {
            let log_bytes = self.server.counter("Innodb_os_log_written")?;
            Ok((log_bytes, self.server.counter("Innodb_dblwr_pages_written")?))
        };
        let before = counters()?;
        let (samples, seconds) = work(clients, seconds)?;
        let after = counters()?;
        let transactions = samples.len() as u64;
        self.acknowledged.set(self.acknowledged.get() + transactions);
        let (samples_ns, ends_us): (Vec<u64>, Vec<u64>) = samples.into_iter().unzip();
        let latency = Latency::of(samples_ns);
        Ok(MariadbResult {
            transactions,
            transactions_per_second: transactions as f64 / seconds,
            latency: latency.ok_or_else(|| Error::other("MariaDB: no transaction ended"))?,
            log_bytes: after.0 - before.0,
            doublewrite_pages: after.1 - before.1,
            slowest_window: pace::slowest_window(&ends_us),
        })
    }

    fn connect(&self, number: u32) -> Result<Client> {
        let process = self.server.client().args(["--unbuffered", DATABASE]).start()?;
        let random = fastrand::Rng::with_seed(u64::from(number));
        let mut client = Client { process, random, rows: self.rows };
        // It is connected when it answers.
        client.ask("SELECT 1;")?;
        Ok(client)
    }

    /// Checks that no acknowledged transaction is missing and none was done by halves, stops the
    /// server, checks that all pages are valid, and removes the data.
    pub fn finish(self) -> Result<()> {
        let sums = self.server.numbers(
            "SELECT (SELECT SUM(balance) FROM bench.account), \
             (SELECT COALESCE(SUM(delta), 0) FROM bench.history), \
             (SELECT COUNT(*) FROM bench.history)",
        )?;
        let acknowledged = i64::try_from(self.acknowledged.get()).ok();
        if sums.len() != 3 || sums[0] != sums[1] || Some(sums[2]) != acknowledged {
            let text = format!("MariaDB: balances, history, rows are {sums:?}, {acknowledged:?}");
            return Err(Error::other(text));
        }
        self.server.stop()?;
        if is_installed("innochecksum") {
            let tables =
                ["account.ibd", "history.ibd"].map(|name| self.data.join(DATABASE).join(name));
            for table in &tables {
                Program::new("innochecksum").arg(table).run()?;
            }
        }
        fs::remove_dir_all(&self.data).map_err(Error::at(&self.data))
    }
}

/// One client.
struct Client {
    process: Child,
    random: fastrand::Rng,
    rows: u32,
}

impl Client {
    fn ask(&mut self, statement: &str) -> Result<()> {
        match self.process.ask(statement)?.as_str() {
            "1" => Ok(()),
            answer => Err(unparsable("mariadb", "`1`", answer)),
        }
    }

    /// Makes transactions until `end`. Returns each one's nanoseconds, and the microseconds from
    /// `begin` at which it ended.
    fn work_until(mut self, begin: Instant, end: Instant) -> Result<Vec<(u64, u64)>> {
        let mut samples = Vec::new();
        while Instant::now() < end && interrupt::check().is_ok() {
            let (payer, amount) = (self.random.u32(0..self.rows), self.random.i32(-5000..=5000));
            let start = Instant::now();
            self.ask(&format!("CALL pay({payer}, {amount});"))?;
            let time_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let end_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
            samples.push((time_ns, end_us));
        }
        self.process.finish()?;
        Ok(samples)
    }
}

/// All clients' transactions, and the time from the first to the last.
fn work(clients: Vec<Client>, seconds: u64) -> Result<(Vec<(u64, u64)>, f64)> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let samples = std::thread::scope(|scope| {
        let clients: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || client.work_until(begin, end)))
            .collect();
        let joined = clients.into_iter().map(|client| client.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    interrupt::check()?;
    let samples = samples.concat();
    let last_us = samples.iter().map(|(_, end_us)| *end_us).max().unwrap_or(0);
    Ok((samples, (last_us as f64 / 1e6).max(f64::EPSILON)))
}
