//! Processes that write SQLite databases of one system at the same time, without pauses.

use std::path::PathBuf;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::lab::{Child, Lab, interrupt};
use crate::measure::{Key, Metric, Samples};
use crate::systems::{Counts, Running};

/// The number of processes, and what they write.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub processes: usize,
    /// Databases of each process, which it uses in turns.
    pub databases: usize,
}

/// Waiting processes with open databases. The databases share a directory, and so the log in it.
pub struct Writers<'a> {
    system: &'a Running,
    clients: Vec<Child>,
    dir: PathBuf,
}

/// The result of a burst of transactions.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    pub transactions: usize,
    /// Until the last answer.
    pub seconds: f64,
    /// Mean time of a transaction, measured by its process.
    pub mean_us: f64,
    /// Requests to the devices until then.
    pub during: Counts,
    /// The same, including what was still in the page cache.
    pub written_back: Counts,
}

impl<'a> Writers<'a> {
    /// Starts the processes on new databases in the directory `name`, with arguments for the
    /// client.
    pub fn start(
        lab: &Lab,
        system: &'a Running,
        name: &str,
        load: Load,
        arguments: &[&str],
    ) -> Result<Writers<'a>> {
        let dir = system.dir.join(name);
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        let mut clients = Vec::new();
        for process in 0..load.processes {
            let database = |number| dir.join(format!("{process}-{number}.db"));
            let program = system.client.apply_to_sqlite(lab.client("sqlite"));
            let program = program.args(arguments).args(["--seed", &lab.next_seed().to_string()]);
            let program = program.args((0..load.databases).map(database));
            clients.push(program.start()?);
        }
        for client in &mut clients {
            client.wait_until_ready()?;
        }
        Ok(Writers { system, clients, dir })
    }

    /// Sends all these lines to all clients at the same time.
    pub fn burst(&mut self, lines: &[String]) -> Result<Burst> {
        interrupt::check()?;
        // The counts leave out changes that are pending before the burst.
        self.system.sync()?;
        let all = lines.join("\n");
        let (before, start) = (self.system.counts()?, Instant::now());
        for client in &mut self.clients {
            client.send(&all)?;
        }
        let mut micros = 0.0;
        for client in &mut self.clients {
            for _ in lines {
                let line = client.read_line()?;
                let no_time = |_| Error::other(format!("the client said `{line}`"));
                micros += line.parse::<f64>().map_err(no_time)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let during = self.system.counts()? - before;
        self.system.sync()?;
        let written_back = self.system.counts()? - before;
        let transactions = lines.len() * self.clients.len();
        let mean_us = micros / transactions as f64;
        Ok(Burst { transactions, seconds, mean_us, during, written_back })
    }

    /// Bytes of the WALs.
    pub fn wal_bytes(&self) -> Result<u64> {
        let entries = std::fs::read_dir(&self.dir).map_err(Error::at(&self.dir))?.flatten();
        let wals = entries.filter(|entry| entry.path().to_string_lossy().ends_with(".db-wal"));
        wals.map(|wal| Ok(wal.metadata().map_err(Error::at(&wal.path()))?.len())).sum()
    }

    /// Ends them and removes their databases.
    pub fn finish(self) -> Result<()> {
        for client in self.clients {
            client.finish()?;
        }
        std::fs::remove_dir_all(&self.dir).map_err(Error::at(&self.dir))
    }
}

/// Name of a count: all bytes written to the devices.
pub const ALL_WRITTEN: &str = "all written back, KiB";
/// Name of a count: bytes written to the devices until the last answer.
pub const WRITTEN: &str = "written KiB";

impl Burst {
    /// Adds a sample, with the device requests of each transaction.
    pub fn add_to(
        &self,
        samples: &mut Samples,
        key: &Key,
        system: &str,
        (metric, value): (Metric, f64),
    ) {
        samples.add(key, system, metric, value);
        samples.count(key, system, metric, self.transactions, &self.during);
        let all_kib = self.written_back.total().write_bytes as f64 / 1024.0;
        samples.count_named(key, system, metric, 0, &[(ALL_WRITTEN, all_kib)]);
    }
}
