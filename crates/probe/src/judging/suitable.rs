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
//!
//! A device without a file system has no append. There, etcd is judged by what ext4 does for one: a
//! write of 16 KiB (its journal) and its flush, and a durable write of 4 KiB (the commit record).

use serde::Serialize;

use super::figures::Figures;
use super::flushes::{Reason, Verdict};
use crate::measuring::{Latency, Medium};

const MS: u64 = 1_000_000;

/// A program that needs durable commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// etcd.
    Etcd,
    /// PostgreSQL.
    Postgresql,
    /// SQLite.
    Sqlite,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 3] = [Program::Etcd, Program::Postgresql, Program::Sqlite];

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

    /// The operation that is judged, and how long it took.
    fn judged(self, figures: &Figures, medium: Medium) -> (&'static str, Latency) {
        let (small, large) = (figures.of_size(4 << 10), figures.of_size(16 << 10));
        match (self, medium) {
            (Program::Etcd, Medium::BlockDevice) => (
                "a write of 16 KiB, its flush and a durable write of 4 KiB, as ext4 does for an \
                 append",
                one_after_the_other(large.write_and_flush, small.durable_write),
            ),
            (Program::Etcd, Medium::Ext | Medium::ExtDataJournal | Medium::Xfs | Medium::Other) => {
                ("fdatasync after an append of 2300 bytes", figures.append_sync.latency)
            }
            (Program::Postgresql, _) => ("a write of 16 KiB and its flush", large.write_and_flush),
            (Program::Sqlite, _) => ("a write of 4 KiB and its flush", small.write_and_flush),
        }
    }
}

/// At most what both take together.
fn one_after_the_other(one: Latency, other: Latency) -> Latency {
    Latency {
        count: one.count.min(other.count),
        p50_ns: one.p50_ns + other.p50_ns,
        p99_ns: one.p99_ns + other.p99_ns,
        max_ns: one.max_ns + other.max_ns,
        p99_is_max: one.p99_is_max || other.p99_is_max,
    }
}

/// Why a disk is unsuitable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// Nothing is durable here.
    NothingDurable,
    /// Flushes look ignored.
    FlushesSuspicious,
    /// It is not known whether flushes are honoured, and they cost next to nothing.
    FlushesCostNothing,
    /// The 99th percentile is larger than the limit.
    TooSlow,
}

/// The judgement for one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suitability {
    /// The program.
    #[serde(skip)]
    pub program: Program,
    /// Whether there is no obstacle.
    pub is_suitable: bool,
    /// What the 99th percentile is of.
    pub measured: &'static str,
    /// Observations.
    pub count: u64,
    /// 99 % of them took at most this long.
    pub p99_ns: u64,
    /// There are too few observations for a 99th percentile.
    pub p99_is_max: bool,
    /// The longest 99th percentile that the program tolerates.
    pub limit_ns: u64,
    /// Why it is unsuitable.
    pub obstacles: Vec<Obstacle>,
}

impl Suitability {
    /// Judges the figures. `is_next_to_nothing`: making data durable takes no longer than an
    /// answer.
    pub fn of(
        program: Program,
        figures: &Figures,
        medium: Medium,
        flushes: Reason,
        is_next_to_nothing: bool,
    ) -> Suitability {
        let limit_ns = program.limit_ns();
        let (measured, Latency { count, p99_ns, p99_is_max, .. }) = program.judged(figures, medium);
        let of_flushes = match flushes.verdict() {
            Verdict::NothingDurable => Some(Obstacle::NothingDurable),
            Verdict::Suspicious => Some(Obstacle::FlushesSuspicious),
            Verdict::Unknown if is_next_to_nothing => Some(Obstacle::FlushesCostNothing),
            Verdict::Honoured | Verdict::Unknown => None,
        };
        let of_time = (p99_ns > limit_ns).then_some(Obstacle::TooSlow);
        let obstacles: Vec<Obstacle> = of_flushes.into_iter().chain(of_time).collect();
        let is_suitable = obstacles.is_empty();
        Suitability {
            program,
            is_suitable,
            measured,
            count,
            p99_ns,
            p99_is_max,
            limit_ns,
            obstacles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::figures;
    use super::*;

    fn obstacles(total_ns: u64, flushes: Reason) -> [Vec<Obstacle>; 3] {
        let figures = figures(total_ns / 10, total_ns - total_ns / 10);
        Program::ALL.map(|program| {
            let found = Suitability::of(program, &figures, Medium::Ext, flushes, false);
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
    fn flushes_that_cost_nothing_must_be_known_to_be_honoured() {
        let figures = figures(1_000, 1_000);
        let obstacles = |reason| {
            let of = |program| Suitability::of(program, &figures, Medium::Other, reason, true);
            Program::ALL.map(|program| of(program).obstacles)
        };
        for reason in [Reason::CacheUnknown, Reason::CostUnknown, Reason::NoCacheReported] {
            for found in obstacles(reason) {
                assert_eq!(found, [Obstacle::FlushesCostNothing], "{reason:?}");
            }
        }
        for reason in [Reason::NoVolatileCache, Reason::ProtectedCache] {
            assert!(obstacles(reason).iter().all(Vec::is_empty), "{reason:?}");
        }
    }

    #[test]
    fn on_a_device_an_append_is_what_ext4_does_for_one() {
        let mut figures = figures(1_000, 9_000);
        figures.append_sync.latency.p99_ns = 11 * MS;
        figures.sizes[2].write_and_flush.p99_ns = 6 * MS;
        figures.sizes[1].durable_write.p99_ns = 5 * MS;
        figures.sizes[1].durable_write.count = 7;
        figures.sizes[1].durable_write.p99_is_max = true;
        let of = |medium| {
            let reason = Reason::CostsMoreThanAWrite;
            Suitability::of(Program::Etcd, &figures, medium, reason, false)
        };
        let device = of(Medium::BlockDevice);
        assert_eq!((device.p99_ns, device.count, device.p99_is_max), (11 * MS, 7, true));
        assert!(device.measured.contains("as ext4 does"), "{device:?}");
        let file = of(Medium::Xfs);
        assert_eq!((file.p99_ns, file.count, file.p99_is_max), (11 * MS, 1000, false));
        figures.sizes[2].write_and_flush.p99_ns = 5 * MS;
        let reason = Reason::CostsMoreThanAWrite;
        let fast = Suitability::of(Program::Etcd, &figures, Medium::BlockDevice, reason, false);
        assert!(fast.is_suitable, "{fast:?}");
    }

    #[test]
    fn each_program_is_judged_by_its_own_figure() {
        let mut figures = figures(1_000, 9_000);
        figures.append_sync.latency.p99_ns = 11 * MS;
        let suitable = |figures: &Figures| {
            let reason = Reason::CostsMoreThanAWrite;
            let of = |program| Suitability::of(program, figures, Medium::Ext, reason, false);
            Program::ALL.map(|program| of(program).is_suitable)
        };
        assert_eq!(suitable(&figures), [false, true, true]);
        figures.sizes[1].write_and_flush.p99_ns = 26 * MS;
        assert_eq!(suitable(&figures), [false, true, false]);
        figures.sizes[2].write_and_flush.p99_ns = 11 * MS;
        assert_eq!(suitable(&figures), [false, false, false]);
    }
}
