//! Where on the volume the files of each actor are.

use std::path::{Path, PathBuf};

use crate::scenario::{Actor, Scenario};

/// The directory of an actor.
pub fn tree_dir(root: &Path, actor: usize) -> PathBuf {
    root.join(format!("tree{actor}"))
}

/// The directory of a database.
pub fn database_dir(root: &Path, actor: usize) -> PathBuf {
    root.join(format!("database{actor}"))
}

/// The file in which an actor has its records.
pub fn record_file(root: &Path, scenario: &Scenario, actor: usize) -> PathBuf {
    match scenario.actors[actor] {
        Actor::Mapped => root.join(format!("mapped{actor}")),
        _ => root.join("shared"),
    }
}
