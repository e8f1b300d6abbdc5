//! Reads what is on a volume, by system calls on a mounted directory.

use std::path::Path;

use sim::calls::read_tree;
use tempfile::TempDir;

use crate::database::{self, DatabasePlace};
use crate::engine::{self, Engine};
use crate::history::Survivor;
use crate::paths::{database_dir, record_file, tree_dir};
use crate::replaced;
use crate::rig::USER;
use crate::scenario::{Actor, Scenario};
use crate::script::places;

/// What was read from a mounted volume.
pub enum Read {
    Survivors(Vec<Survivor>),
    /// A copy of the files of a database engine. Programs must read it, and no program is started
    /// while files of the mount are open.
    Copy(&'static dyn Engine, TempDir),
}

impl Read {
    /// Reads a mounted volume.
    pub fn take(root: &Path, scenario: &Scenario) -> Result<Read, String> {
        if let Some(engine) = scenario.engine {
            let copy = engine::copy(root).map_err(|e| format!("copying: {e}"))?;
            return Ok(Read::Copy(engine, copy));
        }
        read(root, scenario).map(Read::Survivors)
    }

    /// The state of each actor.
    pub fn found(self, scenario: &Scenario) -> Result<Vec<Survivor>, String> {
        match self {
            Read::Survivors(found) => Ok(found),
            Read::Copy(engine, copy) => {
                let counts = engine::count_all(engine, copy.path(), scenario.actors.len())?;
                Ok(counts.into_iter().map(Survivor::Count).collect())
            }
        }
    }
}

/// Reads the state of each actor.
pub fn read(root: &Path, scenario: &Scenario) -> Result<Vec<Survivor>, String> {
    (0..scenario.actors.len()).map(|actor| read_actor(root, scenario, actor)).collect()
}

fn read_actor(root: &Path, scenario: &Scenario, actor: usize) -> Result<Survivor, String> {
    if let Actor::Database(how) = scenario.actors[actor] {
        return database::count(DatabasePlace::of(&database_dir(root, actor)), how)
            .map(Survivor::Count);
    }
    if scenario.actors[actor] == Actor::Replacer {
        return replaced::read(&replaced::dir(root, actor));
    }
    if !scenario.actors[actor].has_tree() {
        let path = record_file(root, scenario, actor);
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let places = places(scenario, actor);
        if bytes.len() != places.file_bytes() {
            return Err(format!("{} has {} bytes", path.display(), bytes.len()));
        }
        return Ok(Survivor::Slots(places.cut_out(&bytes)));
    }
    let dir = tree_dir(root, actor);
    let mut tree = read_tree(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    if scenario.by_user {
        // The model's files are root's.
        for entry in tree.entries.values_mut() {
            if (entry.uid, entry.gid) != (USER, USER) {
                return Err(format!("a file belongs to {}:{}", entry.uid, entry.gid));
            }
            (entry.uid, entry.gid) = (0, 0);
        }
    }
    Ok(Survivor::Tree(tree))
}
