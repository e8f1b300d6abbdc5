//! What the experiments of Okeanos share: its systems, and clients that print JSON.

use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::lab::Program;
use crate::systems::{Ext4, Journal, OneJournal, Running, System};

/// The paper's wasteless mode, as far as options can have it.
pub fn wasteless_as_in_paper() -> OneJournal {
    OneJournal::as_in_okeanos("wasteless")
}

/// The paper's selective mode, as far as options can have it.
pub fn selective_as_in_paper() -> OneJournal {
    OneJournal::as_in_okeanos("selective")
}

/// The journal is on a device of its own, as in the paper, so that its traffic is counted
/// separately.
pub fn systems() -> Vec<Box<dyn System>> {
    let ours = |mode| OneJournal::new().data(mode).journal(Journal::SameKind);
    vec![
        Box::new(Ext4::ordered().external()),
        Box::new(Ext4::writeback().external()),
        Box::new(Ext4::journal().external()),
        Box::new(ours("ordered")),
        Box::new(ours("selective")),
        Box::new(ours("wasteless")),
        Box::new(ours("auto")),
        Box::new(wasteless_as_in_paper().journal(Journal::SameKind)),
        Box::new(selective_as_in_paper().journal(Journal::SameKind)),
    ]
}

/// Names of systems that verdicts are about.
pub fn data_journaling() -> String {
    Ext4::journal().external().name()
}

/// ext4 in its default mode.
pub fn ordered() -> String {
    Ext4::ordered().external().name()
}

/// The mode with the paper's idea: the journal gets the bytes that were written.
pub fn wasteless() -> String {
    OneJournal::new().data("wasteless").journal(Journal::SameKind).name()
}

/// The paper's modes, wasteless and selective.
pub fn of_paper() -> [String; 2] {
    [wasteless_as_in_paper(), selective_as_in_paper()]
        .map(|system| system.journal(Journal::SameKind).name())
}

/// The default mode.
pub fn ours() -> String {
    OneJournal::new().journal(Journal::SameKind).name()
}

/// Runs a client to its end. Returns its output.
pub fn json<T: DeserializeOwned>(client: Program) -> Result<T> {
    let text = client.run()?;
    serde_json::from_str(&text).map_err(Error::json("a client's answer"))
}

/// An empty folder on a system.
pub fn fresh_dir(running: &Running, name: &str) -> Result<PathBuf> {
    let dir = running.dir.join(name);
    std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
    Ok(dir)
}

/// Removes the folder, and makes the removal durable.
pub fn remove_dir(running: &Running, dir: PathBuf) -> Result<()> {
    std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))?;
    running.sync()
}
