//! Clients of SQLite (`onejournal-bench sqlite`), one for each system, that perform the same
//! transactions in turns.

use std::path::PathBuf;

use fastrand::Rng;

use crate::error::{Error, Result};
use crate::lab::{Child, Lab, interrupt, processes};
use crate::measure::{self, Key, Metric, Samples};
use crate::systems::{Asked, Running};

/// Operations of the papers' table.
pub const OPERATIONS: [&str; 3] = ["insert", "update", "delete"];

/// A line for each transaction with this many keys.
pub fn transactions(operation: &str, keys: &[usize], operations: usize) -> Vec<String> {
    let line = |keys: &[usize]| {
        let keys: Vec<String> = keys.iter().map(usize::to_string).collect();
        format!("{operation} {}", keys.join(" "))
    };
    keys.chunks(operations).map(line).collect()
}

/// One client for each system, with its own database.
pub struct SqliteClients<'a> {
    all: Vec<(&'a Running, Child, PathBuf)>,
}

impl<'a> SqliteClients<'a> {
    /// Starts them on new databases `name`, with arguments for the client.
    pub fn start(
        lab: &Lab,
        systems: &'a [Running],
        name: &str,
        arguments: &[&str],
    ) -> Result<SqliteClients<'a>> {
        let mut all = Vec::new();
        let seed = lab.next_seed().to_string();
        for running in systems {
            let path = running.dir.join(format!("{name}.db"));
            let program = running.client.apply_to_sqlite(lab.client("sqlite"));
            let mut child = program.args(arguments).args(["--seed", &seed]).arg(&path).start()?;
            child.wait_until_ready()?;
            all.push((running, child, path));
        }
        Ok(SqliteClients { all })
    }

    /// Starts them on new databases with [`ROWS`] rows whose WAL is in use
    /// ([`until_wal_is_in_use`]). Keys from [`FIRST_FREE_KEY`] on are free.
    pub fn with_wal_in_use(
        lab: &Lab,
        systems: &'a [Running],
        name: &str,
        arguments: &[&str],
    ) -> Result<SqliteClients<'a>> {
        let rows = ROWS.to_string();
        let arguments = [arguments, &["--rows", &rows]].concat();
        let mut clients = SqliteClients::start(lab, systems, name, &arguments)?;
        let lines = until_wal_is_in_use();
        (0..systems.len()).try_for_each(|index| clients.tell(index, &lines))?;
        Ok(clients)
    }

    /// Sends each line once to each client, `group` lines in a turn. Takes one sample for each
    /// system, the mean milliseconds of a line, and the counts of the devices.
    pub fn round(
        &mut self,
        rng: &mut Rng,
        lines: &[String],
        group: usize,
        into: (&mut Samples, &Key, Metric),
    ) -> Result<()> {
        let (samples, key, metric) = into;
        let mut micros = vec![0.0; self.all.len()];
        let mut all_asked = vec![Asked::default(); self.all.len()];
        for chunk in lines.chunks(group) {
            measure::in_turns(rng, &mut self.all, |index, (running, child, _)| {
                let ((), asked) = running.during(|| {
                    for line in chunk {
                        micros[index] += micros_of(&child.ask(line)?)?;
                    }
                    Ok(())
                })?;
                all_asked[index] = all_asked[index] + asked;
                Ok(())
            })?;
        }
        for (index, (running, ..)) in self.all.iter().enumerate() {
            let mean_ms = micros[index] / 1e3 / lines.len() as f64;
            samples.add(key, &running.name, metric, mean_ms);
            samples.count_asked(key, &running.name, metric, lines.len(), &all_asked[index]);
        }
        Ok(())
    }

    /// Sends each line once to the client of one system, without measuring.
    pub fn tell(&mut self, index: usize, lines: &[String]) -> Result<()> {
        interrupt::check()?;
        for line in lines {
            micros_of(&self.all[index].1.ask(line)?)?;
        }
        Ok(())
    }

    /// The bytes that a system's client has written so far, by any call.
    pub fn written_bytes(&self, index: usize) -> Result<u64> {
        let pid = self.all[index].1.pid();
        processes::written_bytes(pid)
            .ok_or_else(|| Error::other(format!("/proc/{pid}/io says nothing")))
    }

    /// Ends them and removes their databases.
    pub fn finish(self) -> Result<()> {
        for (_, child, path) in self.all {
            child.finish()?;
            for suffix in ["", "-wal", "-shm", "-journal"] {
                let mut path = path.clone().into_os_string();
                path.push(suffix);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Error::at(path.as_ref())(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn micros_of(line: &str) -> Result<f64> {
    line.parse().map_err(|_| Error::other(format!("the client said `{line}`")))
}

/// Rows that exist when one-row transactions begin.
pub const ROWS: usize = 2000;
/// The first key that no row of the start has.
pub const FIRST_FREE_KEY: usize = 10 * ROWS;
const GROUP: usize = 10;

/// Transactions after which the WAL of a table of [`ROWS`] rows has SQLite's size of a checkpoint,
/// and is written again from its beginning. A WAL is in this state most of its life.
pub fn until_wal_is_in_use() -> Vec<String> {
    const TRANSACTIONS: usize = 30;
    // Each changes nearly all of the table's 60 pages.
    let keys: Vec<usize> = (0..ROWS).step_by(30).collect();
    vec![transactions("update", &keys, ROWS); TRANSACTIONS].concat()
}

/// One-row transactions on a new table with some rows: a number of each operation, in turns of ten.
pub struct OneRow<'a> {
    pub panel: &'a str,
    /// Arguments for the client, such as its journal mode.
    pub arguments: &'a [&'a str],
    /// Whether the WAL is in use when they begin ([`until_wal_is_in_use`]).
    pub is_wal_in_use: bool,
    /// Transactions of each operation.
    pub count: usize,
}

/// The measurement of one-row transactions.
pub const TIME: Metric = Metric::lower("transaction time", "ms");

impl OneRow<'_> {
    /// The key of an operation's samples.
    pub fn key(&self, operation: &str) -> Key {
        Key::case(self.panel, operation)
    }

    /// Runs a round of all systems.
    pub fn round(
        &self,
        lab: &Lab,
        systems: &[Running],
        rng: &mut Rng,
        samples: &mut Samples,
    ) -> Result<()> {
        let mut clients = match self.is_wal_in_use {
            true => SqliteClients::with_wal_in_use(lab, systems, "one-row", self.arguments)?,
            false => {
                let rows = ROWS.to_string();
                let arguments = [self.arguments, &["--rows", &rows]].concat();
                SqliteClients::start(lab, systems, "one-row", &arguments)?
            }
        };
        for operation in OPERATIONS {
            let first = if operation == "update" { 0 } else { FIRST_FREE_KEY };
            let mut keys: Vec<usize> = (first..first + self.count).collect();
            rng.shuffle(&mut keys);
            let lines = transactions(operation, &keys, 1);
            clients.round(rng, &lines, GROUP, (samples, &self.key(operation), TIME))?;
        }
        clients.finish()
    }
}

/// The largest ratio of `left` to `right` among the operations of these panels, and its place.
pub fn worst_ratio(
    samples: &Samples,
    panels: &[String],
    left: &str,
    right: &str,
) -> Result<(f64, String)> {
    let mut worst = (0.0, String::new());
    for panel in panels {
        for operation in OPERATIONS {
            let key = Key::case(panel, operation);
            let ratio = samples.ratio(&key, TIME, left, right)?.of_medians;
            if ratio > worst.0 {
                worst = (ratio, format!("{panel}, {operation}"));
            }
        }
    }
    Ok(worst)
}
