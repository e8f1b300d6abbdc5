//! A LevelDB or RocksDB database in a program of `plugins/` (`make plugins`).
//!
//! The number of a record determines its bytes, and whether it is synced. A crash may leave the
//! records up to any number that is not smaller than the last synced one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::engine::Client;
use crate::engine::load::{count_records, record};
use crate::scenario::Store;

/// What the program prints after the records that it has found.
const END: &str = "end";

/// Whether record `number` is synced before the step ends.
pub fn is_synced(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// The program of a plug-in, in the folder `plugins` beside the folders of profiles.
pub fn program(plugin: &str) -> Option<PathBuf> {
    let this = env::current_exe().ok()?;
    let mut found =
        this.ancestors().map(|above| above.join("plugins").join(plugin).join("session"));
    found.find(|program| program.is_file())
}

/// An open database.
pub struct Writer {
    client: Client,
    is_honest: bool,
}

impl Writer {
    /// Opens the database of an actor; makes it if there is none. Returns also the number of its
    /// records. An error is a record that is wrong or missing.
    pub fn open(
        dir: &Path,
        log: &Path,
        how: &Store,
        actor: usize,
    ) -> Result<(Writer, u64), String> {
        let mut session = Command::new(program(how.plugin).ok_or("make plugins")?);
        session.arg(dir);
        if how.has_log {
            session.arg("--log").arg(log);
        }
        let context = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
        let mut client = Client::start(session).map_err(|e| context(&e))?;
        let lines = client.read_until(END).map_err(|e| context(&e))?;
        let (total, records) = lines.split_first().ok_or_else(|| context(&"no total"))?;
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let count = count_records(actor, &records, total).map_err(|e| context(&e))?;
        Ok((Writer { client, is_honest: how.is_honest }, count))
    }

    /// Adds the record of this number.
    pub fn commit(&mut self, number: u64) -> Result<(), String> {
        let how = if is_synced(number) && self.is_honest { "sync" } else { "lazy" };
        let line = format!("{number} {how} {}\n", record(number));
        self.client.ask(&line, &format!("done {number}")).map_err(|e| e.to_string())
    }

    /// Closes the database.
    pub fn close(self) -> Result<(), String> {
        self.client.end()
    }
}
