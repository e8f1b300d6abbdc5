//! Whether a disk is good enough for a program.
//!
//! | program | what is compared | limit | why |
//! |---|---|---|---|
//! | etcd | p99 of `fdatasync` after an append of 2,300 bytes | 10 ms | its documentation |
//! | PostgreSQL | p99 of a write of 16 KiB and its flush | 10 ms | a session then commits 100 times a second |
//! | SQLite | p99 of a write of 4 KiB and its flush | 25 ms | a transaction has four flushes, and a person notices 100 ms |
//!
//! PostgreSQL overwrites files of its WAL that it has used before, in pages of 8 KiB; a small
//! transaction touches one or two. No program is well served where nothing is durable, or where
//! flushes look ignored.

use clap::ValueEnum;
use serde::Serialize;

use super::figures::Figures;
use super::flushes::{Reason, Verdict};

const MS: u64 = 1_000_000;

/// A program that needs durable commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    Etcd,
    Postgresql,
    Sqlite,
}

impl Program {
    pub const ALL: [Program; 3] = [Program::Etcd, Program::Postgresql, Program::Sqlite];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Postgresql => "PostgreSQL",
            Program::Sqlite => "SQLite",
        }
    }

    /// The name in JSON and on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Program::Etcd => "etcd",
            Program::Postgresql => "postgresql",
            Program::Sqlite => "sqlite",
        }
    }

    /// The longest 99th percentile that it tolerates.
    fn limit_ns(self) -> u64 {
        match self {
            Program::Etcd | Program::Postgresql => 10 * MS,
            Program::Sqlite => 25 * MS,
        }
    }

    /// What that is the 99th percentile of.
    pub fn what(self) -> &'static str {
        match self {
            Program::Etcd => "fdatasync after an append of 2300 bytes",
            Program::Postgresql => "a write of 16 KiB and its flush",
            Program::Sqlite => "a write of 4 KiB and its flush",
        }
    }

    fn p99_ns(self, figures: &Figures) -> u64 {
        match self {
            Program::Etcd => figures.append_sync.latency.p99_ns,
            Program::Postgresql => figures.of_size(16 << 10).write_and_flush.p99_ns,
            Program::Sqlite => figures.of_size(4 << 10).write_and_flush.p99_ns,
        }
    }
}

/// What is against a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    NothingDurable,
    FlushesSuspicious,
    TooSlow,
}

impl Obstacle {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Obstacle::NothingDurable => "nothing is durable here",
            Obstacle::FlushesSuspicious => "flushes look ignored",
            Obstacle::TooSlow => "too slow",
        }
    }
}

/// The judgement for one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suitability {
    #[serde(skip)]
    pub program: Program,
    pub is_suitable: bool,
    /// What the 99th percentile is of.
    pub measured: &'static str,
    pub p99_ns: u64,
    pub limit_ns: u64,
    pub obstacles: Vec<Obstacle>,
}

impl Suitability {
    pub fn of(program: Program, figures: &Figures, flushes: Reason) -> Suitability {
        let (p99_ns, limit_ns) = (program.p99_ns(figures), program.limit_ns());
        let of_flushes = match flushes.verdict() {
            Verdict::NothingDurable => Some(Obstacle::NothingDurable),
            Verdict::Suspicious => Some(Obstacle::FlushesSuspicious),
            Verdict::Honoured | Verdict::Unknown => None,
        };
        let of_time = (p99_ns > limit_ns).then_some(Obstacle::TooSlow);
        let obstacles: Vec<Obstacle> = of_flushes.into_iter().chain(of_time).collect();
        let (is_suitable, measured) = (obstacles.is_empty(), program.what());
        Suitability { program, is_suitable, measured, p99_ns, limit_ns, obstacles }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    fn obstacles(total_ns: u64, flushes: Reason) -> [Vec<Obstacle>; 3] {
        let figures = figures(total_ns / 10, total_ns - total_ns / 10);
        Program::ALL.map(|program| {
            let found = Suitability::of(program, &figures, flushes);
            assert_eq!(found.is_suitable, found.obstacles.is_empty());
            assert_eq!(found.p99_ns, total_ns);
            found.obstacles
        })
    }

    #[test]
    fn a_limit_may_be_reached_and_not_exceeded() {
        let honest = Reason::CostsMoreThanAWrite;
        let (fine, slow) = (vec![], vec![Obstacle::TooSlow]);
        assert_eq!(obstacles(10 * MS, honest), [fine.clone(), fine.clone(), fine.clone()]);
        assert_eq!(obstacles(10 * MS + 1, honest), [slow.clone(), slow.clone(), fine.clone()]);
        assert_eq!(obstacles(25 * MS, honest), [slow.clone(), slow.clone(), fine]);
        assert_eq!(obstacles(25 * MS + 1, honest), [slow.clone(), slow.clone(), slow]);
    }

    #[test]
    fn speed_does_not_help_where_flushes_look_ignored_or_nothing_is_durable() {
        for (reason, obstacle) in [
            (Reason::InMemory, Obstacle::NothingDurable),
            (Reason::NotSent, Obstacle::FlushesSuspicious),
            (Reason::CostsNextToNothing, Obstacle::FlushesSuspicious),
        ] {
            assert_eq!(
                obstacles(1_000, reason),
                [const { Vec::new() }; 3].map(|_: Vec<Obstacle>| vec![obstacle])
            );
            let all = obstacles(100 * MS, reason);
            assert!(all.iter().all(|all| *all == [obstacle, Obstacle::TooSlow]), "{all:?}");
        }
        for reason in [Reason::CacheUnknown, Reason::CostUnclear, Reason::ProtectedCache] {
            assert!(obstacles(1_000, reason).iter().all(Vec::is_empty), "{reason:?}");
        }
    }

    #[test]
    fn each_program_is_judged_by_its_own_figure() {
        let mut figures = figures(1_000, 9_000);
        figures.append_sync.latency.p99_ns = 11 * MS;
        let suitable = |figures: &Figures| {
            let reason = Reason::CostsMoreThanAWrite;
            Program::ALL.map(|program| Suitability::of(program, figures, reason).is_suitable)
        };
        assert_eq!(suitable(&figures), [false, true, true]);
        figures.sizes[1].write_and_flush.p99_ns = 26 * MS;
        assert_eq!(suitable(&figures), [false, true, false]);
        figures.sizes[2].write_and_flush.p99_ns = 11 * MS;
        assert_eq!(suitable(&figures), [false, false, false]);
    }

    #[test]
    fn the_names_are_those_of_the_command_line() {
        for program in Program::ALL {
            let value = program.to_possible_value().expect("all can be given");
            assert_eq!(value.get_name(), program.key());
        }
    }
}
