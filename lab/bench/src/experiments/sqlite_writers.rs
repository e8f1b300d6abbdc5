//! Processes that write SQLite databases of one system all at once, without pauses.

use std::path::PathBuf;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::lab::{Child, Lab, interrupt};
use crate::measure::{Key, Metric, Samples};
use crate::systems::{Counts, Running};

/// How many write how much.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub processes: usize,
    /// Of each process, which takes them in turns.
    pub databases: usize,
}

/// They have their databases open and wait. The databases share a directory, and so a log beside them.
pub struct Writers<'a> {
    system: &'a Running,
    clients: Vec<Child>,
    dir: PathBuf,
}

/// What the transactions of a burst took.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    pub transactions: usize,
    /// Until the last answer.
    pub seconds: f64,
    /// Mean time of a transaction, as its process saw it.
    pub mean_us: f64,
    /// What the devices were asked for until then.
    pub during: Counts,
    /// The same with everything that was in the page cache yet.
    pub written_back: Counts,
}

impl<'a> Writers<'a> {
    /// Starts them on new databases in the directory `name`, with arguments for the client.
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
            let program = program.args(arguments).args((0..load.databases).map(database));
            clients.push(program.start()?);
        }
        for client in &mut clients {
            let line = client.read_line()?;
            if line != "ready" {
                return Err(Error::other(format!("{}: the client said `{line}`", system.name)));
            }
        }
        Ok(Writers { system, clients, dir })
    }

    /// All clients get all these lines at once.
    pub fn burst(&mut self, lines: &[String]) -> Result<Burst> {
        interrupt::check()?;
        // What is not theirs is not counted.
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

/// Among the counts: what the devices were written in all.
pub const ALL_WRITTEN: &str = "all written back, KiB";
/// What the devices were written until the last answer.
pub const WRITTEN: &str = "written KiB";

impl Burst {
    /// Adds a sample, with what each transaction asked the devices for.
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
