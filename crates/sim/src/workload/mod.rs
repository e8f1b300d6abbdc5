//! Workloads: lists of operations, each made from a seed.

mod atomic;
mod directory;
mod exhaustion;
mod modes;
mod orphans;
mod pages;
mod random;
mod reuse;
mod rounds;
mod script;
mod sqlite;
mod truncate;
mod writers;
mod zeroes;

use std::fmt;
use std::str::FromStr;

use crate::op::Op;

pub use random::ops_from;

/// The workloads by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Everything, at random.
    Random,
    /// One-row transactions of SQLite in each of its journal modes.
    Sqlite,
    /// A directory that grows through an index and shrinks again.
    Directory,
    /// A volume that becomes full, and is emptied.
    Exhaustion,
    /// Several clients, each with files of its own, interleaved.
    Writers,
    /// Large files that are cut.
    Truncate,
    /// Files and directories in use after they have lost their names.
    Orphans,
    /// Metadata blocks that become file data.
    Reuse,
    /// A journal whose regions are reused.
    Rounds,
    /// Files of different data modes that use each other's blocks.
    Modes,
    /// Databases whose transactions are atomic writes.
    Atomic,
    /// Large files that are zeroed, punched out or cut, and written again.
    Zeroes,
    /// Databases that rely on aligned pages being atomic.
    Pages,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 13] = [
        Workload::Random,
        Workload::Sqlite,
        Workload::Directory,
        Workload::Exhaustion,
        Workload::Writers,
        Workload::Truncate,
        Workload::Orphans,
        Workload::Reuse,
        Workload::Rounds,
        Workload::Modes,
        Workload::Atomic,
        Workload::Zeroes,
        Workload::Pages,
    ];

    /// The operations. The same arguments give the same list. A larger `op_count` gives a list that
    /// begins with it.
    pub fn ops(self, seed: u64, op_count: usize) -> Vec<Op> {
        let script = match self {
            Workload::Random => random::ops,
            Workload::Sqlite => sqlite::ops,
            Workload::Directory => directory::ops,
            Workload::Exhaustion => exhaustion::ops,
            Workload::Writers => writers::ops,
            Workload::Truncate => truncate::ops,
            Workload::Orphans => orphans::ops,
            Workload::Reuse => reuse::ops,
            Workload::Rounds => rounds::ops,
            Workload::Modes => modes::ops,
            Workload::Atomic => atomic::ops,
            Workload::Zeroes => zeroes::ops,
            Workload::Pages => pages::ops,
        };
        let mut ops = script(seed, op_count);
        ops.truncate(op_count);
        ops
    }

    /// A number of operations that is enough to show the workload's purpose.
    pub fn usual_op_count(self) -> usize {
        match self {
            Workload::Random => 60,
            Workload::Sqlite => 70,
            Workload::Directory => 160,
            Workload::Exhaustion => 60,
            Workload::Writers => 80,
            Workload::Truncate => 30,
            Workload::Orphans => 50,
            Workload::Reuse => 70,
            Workload::Rounds => 700,
            Workload::Modes => 90,
            Workload::Atomic => 60,
            Workload::Zeroes => 50,
            Workload::Pages => 150,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Workload::Random => "random",
            Workload::Sqlite => "sqlite",
            Workload::Directory => "directory",
            Workload::Exhaustion => "exhaustion",
            Workload::Writers => "writers",
            Workload::Truncate => "truncate",
            Workload::Orphans => "orphans",
            Workload::Reuse => "reuse",
            Workload::Rounds => "rounds",
            Workload::Modes => "modes",
            Workload::Atomic => "atomic",
            Workload::Zeroes => "zeroes",
            Workload::Pages => "pages",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
            format!("{name}: the workloads are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn a_longer_list_begins_with_the_shorter() {
        for workload in Workload::ALL {
            let long = workload.ops(5, 60);
            assert_eq!(long.len(), 60, "{workload}");
            assert_eq!(workload.ops(5, 25), long[..25], "{workload}");
            assert_ne!(workload.ops(6, 60), long, "{workload}");
        }
    }

    #[test]
    fn most_operations_make_sense() {
        for workload in Workload::ALL {
            let mut model = Model::formatted();
            let ops = workload.ops(1, 100);
            let failed = ops.iter().filter(|op| model.apply(op, None).is_err()).count();
            assert!(failed < 40, "{workload}: {failed} of 100 fail");
        }
    }
}
