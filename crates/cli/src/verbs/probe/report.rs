//! Everything that a measurement says: the figures and what follows from them. As JSON, it is
//! printed as it is.

use std::collections::BTreeMap;

use device::DirectIo;
use probe::{Cache, Commit, Cost, Figures, Program, Reason, Sent, Suitability, commits};
use serde::Serialize;

use super::place::Facts;
use super::words;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub facts: Facts,
    pub write_cache: &'static str,
    #[serde(flatten)]
    pub figures: Figures,
    pub flushes: Flushes,
    /// Nothing where no disk was measured: in memory, on a OneJournal volume, and on every other
    /// medium that does more for a write or a flush than a disk.
    pub commits: Option<Vec<Commit>>,
    pub suitable: BTreeMap<&'static str, Suitability>,
}

/// The verdict about flushes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flushes {
    pub verdict: &'static str,
    pub reason: &'static str,
    pub explanation: &'static str,
    #[serde(skip)]
    pub because: Reason,
}

impl Report {
    /// Judges the figures. `is_protected`: the user says that the disk's cache survives a power
    /// cut.
    pub fn of(facts: Facts, cache: Cache, figures: Figures, is_protected: bool) -> Report {
        let cost = Cost::of(&figures, facts.medium, facts.direct_io);
        let because = Reason::of(cache, Sent::of(&figures), cost, is_protected);
        let is_disk = cache != Cache::Memory
            && facts.medium.overwrites_in_place()
            && facts.direct_io != DirectIo::No;
        let is_nothing = cost.is_next_to_nothing(&figures);
        let judged =
            |program| Suitability::of(program, &figures, facts.medium, because, is_nothing);
        Report {
            write_cache: cache.name(),
            flushes: Flushes {
                verdict: because.verdict().name(),
                reason: because.name(),
                explanation: words::reason(because),
                because,
            },
            commits: is_disk.then(|| commits(&figures)),
            suitable: Program::ALL.map(|program| (program.key(), judged(program))).into(),
            facts,
            figures,
        }
    }

    /// The judgement for one program.
    pub fn of_program(&self, program: Program) -> &Suitability {
        &self.suitable[program.key()]
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }
}

#[cfg(test)]
pub mod tests {
    use probe::Medium;
    use probe::example::figures;

    use super::super::place::Kind;
    use super::*;

    pub fn facts() -> Facts {
        Facts {
            path: "/srv/data".into(),
            kind: Kind::Directory,
            file_system: Some("ext4".into()),
            is_onejournal_volume: false,
            disks: vec!["nvme0n1".into()],
            durability: "power",
            direct_io: DirectIo::Yes,
            medium: Medium::Ext,
            area_bytes: 64 << 20,
        }
    }

    #[test]
    fn the_json_has_every_part() {
        let report = Report::of(facts(), Cache::Volatile, figures(20_000, 600_000), false);
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["flushes"]["verdict"], "honoured");
        assert_eq!(json["flushes"]["reason"], "costs_more_than_a_write");
        assert_eq!(json["sizes"][1]["write_and_flush"]["p50_ns"], 620_000);
        assert_eq!(json["append_sync"]["len_bytes"], 2300);
        assert_eq!(json["append_sync"]["p99_ns"], 620_000);
        assert_eq!(json["commits"][1]["commit"], "append");
        assert_eq!(json["suitable"]["etcd"]["is_suitable"], true);
        assert_eq!((&json["write_cache"], &json["direct_io"]), (&"volatile".into(), &"yes".into()));
        assert_eq!(json["suitable"]["etcd"]["p99_is_max"], false);
        assert_eq!(json["clean_flush"]["p99_is_max"], false);
    }

    #[test]
    fn commits_are_computed_only_where_a_disk_was_measured() {
        let has_commits = |medium, direct_io, cache| {
            let facts = Facts { medium, direct_io, ..facts() };
            let report = Report::of(facts, cache, figures(20_000, 600_000), false);
            let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
            json["commits"].is_array()
        };
        for medium in [Medium::BlockDevice, Medium::Ext, Medium::Xfs] {
            assert!(has_commits(medium, DirectIo::Yes, Cache::Unknown));
            assert!(!has_commits(medium, DirectIo::No, Cache::Unknown));
            assert!(!has_commits(medium, DirectIo::Yes, Cache::Memory));
        }
        for medium in [Medium::Other, Medium::ExtDataJournal] {
            assert!(!has_commits(medium, DirectIo::Yes, Cache::Volatile));
        }
    }

    #[test]
    fn an_unknown_store_that_does_nothing_is_suitable_for_nothing() {
        let report = |append_ns, is_protected| {
            let facts = Facts { medium: Medium::Other, durability: "unknown", ..facts() };
            let mut figures = figures(1_000, 9_000);
            figures.append_sync.latency.p50_ns = append_ns;
            let report = Report::of(facts, Cache::Unknown, figures, is_protected);
            (report.flushes.verdict, report.of_program(Program::Etcd).is_suitable)
        };
        assert_eq!(report(2_000, false), ("unknown", false));
        assert_eq!(report(200_000, false), ("unknown", true));
        assert_eq!(report(2_000, true), ("honoured", true));
    }

    #[test]
    fn the_user_may_vouch_for_the_cache() {
        let report = |is_protected| {
            let report = Report::of(facts(), Cache::Volatile, figures(20_000, 9_000), is_protected);
            (report.flushes.verdict, report.of_program(Program::Etcd).is_suitable)
        };
        assert_eq!([report(false), report(true)], [("suspicious", false), ("honoured", true)]);
    }
}
