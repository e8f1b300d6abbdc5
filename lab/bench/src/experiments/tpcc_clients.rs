//! Clients of TPC-C (`onejournal-bench tpcc run`), one for each system, that take turns on copies
//! of one database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{PaperSize, Scale};
use crate::error::{Error, Result};
use crate::lab::{Child, Lab};
use crate::systems::Running;

/// Cards of the client's deck. Turns of whole decks have the same mix.
pub const DECK: u64 = 100;

/// What a client reports of a turn. Its `report` has more fields.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    pub seconds: f64,
    #[serde(rename = "tpmC")]
    pub tpm_c: f64,
    pub transactions: u64,
    pub busy_errors: u64,
    /// The counters of the SQLite extension, if it is loaded.
    pub extension: Option<Value>,
}

/// Loads a database into the scratch folder. A quick run has warehouses with fewer rows.
pub fn load(lab: &Lab, scale: &Scale, warehouses: &PaperSize, page_bytes: u32) -> Result<PathBuf> {
    let path = lab.scratch().join("tpcc.db");
    let program = lab.client("tpcc").args(["load", "--page-size", &page_bytes.to_string()]);
    let program = program.args(["--warehouses", &scale.size::<u64>(warehouses).to_string()]);
    program.args(scale.pick(&["--scale", "small"][..], &[])).arg(&path).run()?;
    Ok(path)
}

fn database(running: &Running) -> PathBuf {
    running.dir.join("tpcc.db")
}

/// Copies the database to each system, without latency.
pub fn copy(systems: &[Running], loaded: &Path) -> Result<()> {
    for running in systems {
        running.speed_up()?;
        let path = database(running);
        fs::copy(loaded, &path).map_err(Error::at(&path))?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(Error::at(&path))?;
        running.sync()?;
        running.slow_down()?;
    }
    Ok(())
}

/// Systems that are checked at once. A check is ten seconds of one CPU.
const CHECKED_AT_ONCE: usize = 2;

/// Checks the standard's consistency conditions on each system, without latency. Nothing is
/// measured meanwhile.
pub fn check(lab: &Lab, systems: &[Running]) -> Result<()> {
    for some in systems.chunks(CHECKED_AT_ONCE) {
        let start = |running: &Running| {
            running.speed_up()?;
            let program = running.client.apply_to_sqlite(lab.client("tpcc").arg("check"));
            program.arg(database(running)).start()
        };
        let checks = some.iter().map(start).collect::<Result<Vec<Child>>>()?;
        checks.into_iter().try_for_each(|check| check.finish().map(drop))?;
    }
    Ok(())
}

/// A client that waits for its turn.
pub struct Client<'a> {
    pub running: &'a Running,
    child: Child,
    /// Transactions of a turn: whole decks.
    pub turn_transactions: u64,
}

impl<'a> Client<'a> {
    /// Starts it on the system's copy.
    pub fn start(lab: &Lab, running: &'a Running, journal_mode: &str) -> Result<Client<'a>> {
        let program = running.client.apply_to_sqlite(lab.client("tpcc").arg("run"));
        let program = program.args(["--turns", "--journal-mode", journal_mode]);
        let mut child = program.arg(database(running)).start()?;
        child.wait_until_ready()?;
        Ok(Client { running, child, turn_transactions: DECK })
    }

    /// Performs transactions that are not measured, to find out how many fill a turn of `seconds`.
    pub fn warm_up(&mut self, decks: u64, seconds: f64) -> Result<()> {
        self.turn_transactions = decks * DECK;
        let turn = self.turn()?;
        let each_s = turn.seconds / turn.transactions as f64;
        let decks = (seconds / each_s / DECK as f64).round() as u64;
        self.turn_transactions = decks.max(1) * DECK;
        Ok(())
    }

    /// One turn.
    pub fn turn(&mut self) -> Result<Turn> {
        let line = self.child.ask(&self.turn_transactions.to_string())?;
        let turn: Turn = serde_json::from_str(&line).map_err(Error::json(&self.running.name))?;
        if turn.busy_errors > 0 {
            let count = turn.busy_errors;
            let text =
                format!("{}: {count} transactions found the database locked", self.running.name);
            return Err(Error::other(text));
        }
        Ok(turn)
    }

    /// Ends it; SQLite closes the database.
    pub fn finish(self) -> Result<()> {
        self.child.finish().map(drop)
    }
}
