//! The experiments. Each is a module with a description and a function, a subcommand, and a section
//! of the report. `docs/developers/laboratory.md` says how to add one.

mod atomic_writes;
mod bulk;
mod cluster_turn;
mod clusters;
mod directory;
mod djfs_cache;
mod djfs_fio;
mod djfs_nvram_latency;
mod djfs_tpcc;
mod double_write;
mod engine;
mod etcd;
mod experiment;
mod fast14_cases;
mod fast14_commit_bytes;
mod fast14_protection;
mod file_systems;
mod group_commit;
mod journal_device;
mod limits;
mod memory;
mod okeanos;
mod okeanos_gluster;
mod okeanos_postmark;
mod okeanos_recovery;
mod okeanos_replay;
mod okeanos_streams;
mod okeanos_traffic;
mod pgbench;
mod programs;
mod reads;
mod rocksdb_fillsync;
mod run;
mod scale;
mod sqlite_bytes;
mod sqlite_clients;
mod sqlite_extension;
mod sqlite_nvram;
mod sqlite_one_row;
mod sqlite_writers;
mod tpcc_clients;
mod xlog;
mod xlog_amplification;
mod xlog_append;
mod xlog_clients;
mod xlog_leveldb;
mod xlog_leveldb_bytes;
mod xlog_sqlite;

pub use experiment::Experiment;
#[cfg(test)]
pub use run::read_described;
pub use run::{ReportArgs, RunArgs, report, run_all, run_one};
pub use scale::{PaperSize, Scale};

use experiment::{DJFS, FAST14, OKEANOS, XLOG};

/// All, in the order of the report.
pub const EXPERIMENTS: &[Experiment] = &[
    fast14_cases::EXPERIMENT,
    fast14_protection::EXPERIMENT,
    fast14_commit_bytes::EXPERIMENT,
    djfs_fio::EXPERIMENT,
    djfs_tpcc::EXPERIMENT,
    djfs_nvram_latency::EXPERIMENT,
    djfs_cache::EXPERIMENT,
    okeanos_traffic::EXPERIMENT,
    okeanos_streams::EXPERIMENT,
    okeanos_recovery::EXPERIMENT,
    okeanos_postmark::EXPERIMENT,
    okeanos_replay::EXPERIMENT,
    okeanos_gluster::EXPERIMENT,
    xlog_sqlite::EXPERIMENT,
    xlog_append::EXPERIMENT,
    xlog_amplification::EXPERIMENT,
    xlog_clients::EXPERIMENT,
    xlog_leveldb::EXPERIMENT,
    xlog_leveldb_bytes::EXPERIMENT,
    rocksdb_fillsync::EXPERIMENT,
    pgbench::EXPERIMENT,
    etcd::EXPERIMENT,
    clusters::EXPERIMENT,
    double_write::EXPERIMENT,
    journal_device::EXPERIMENT,
    limits::EXPERIMENT,
    engine::EXPERIMENT,
    sqlite_bytes::EXPERIMENT,
    file_systems::EXPERIMENT,
    sqlite_one_row::EXPERIMENT,
    sqlite_nvram::EXPERIMENT,
    atomic_writes::EXPERIMENT,
    sqlite_extension::EXPERIMENT,
    group_commit::EXPERIMENT,
    bulk::EXPERIMENT,
    reads::EXPERIMENT,
    directory::EXPERIMENT,
    memory::EXPERIMENT,
];

/// Experiments with three rounds in full. In results of five rounds, the median of the first three
/// was within 1 % of the median of all for half of an experiment's series, and within 7 % for nine
/// in ten of them. `djfs-fio` is less calm (3 % and 15 %), but five rounds take ten minutes. The
/// last two are new, and count bytes.
const CALM: &[&str] = &[
    "fast14-cases",
    "fast14-protection",
    "fast14-commit-bytes",
    "djfs-fio",
    "djfs-tpcc",
    "djfs-nvram-latency",
    "okeanos-traffic",
    "okeanos-streams",
    "okeanos-recovery",
    "okeanos-postmark",
    "okeanos-replay",
    "okeanos-gluster",
    "xlog-sqlite",
    "xlog-append",
    "xlog-amplification",
    "rocksdb-fillsync",
    "sqlite-bytes",
    "sqlite-nvram",
    "group-commit",
    "xlog-leveldb-bytes",
    "file-systems",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn calm_experiments_are_there_and_have_fewer_rounds_in_full() {
        assert!(CALM.iter().all(|id| EXPERIMENTS.iter().any(|one| one.id == *id)));
        let rounds = |is_quick, wanted| {
            let scale = Scale::new(is_quick, wanted, 1, Vec::new());
            (scale.rounds(), scale.of_calm().rounds())
        };
        assert_eq!((rounds(false, None), rounds(true, None)), ((5, 3), (2, 2)));
        assert_eq!(rounds(false, Some(9)), (9, 9), "the command line decides");
    }

    /// The page that says what a full run is.
    const LABORATORY: &str = include_str!("../../../../docs/developers/laboratory.md");

    #[test]
    fn page_of_the_laboratory_names_each_size_that_is_shortened() {
        let mut shortened = 0;
        for experiment in EXPERIMENTS {
            for PaperSize { what, paper, full, .. } in experiment.sizes {
                let Some(paper) = paper.filter(|paper| paper > full) else { continue };
                let name = format!("| `{}`: {what} |", experiment.id);
                let line = LABORATORY.lines().find(|line| line.starts_with(&name));
                let line = line.unwrap_or_else(|| panic!("{name}: no line")).replace(',', "");
                assert!(line.ends_with(&format!(" {full} | {paper} |")), "{line}");
                shortened += 1;
            }
        }
        let named = LABORATORY.lines().filter(|line| line.starts_with("| `"));
        let named = named.filter(|line| line.contains("`: ")).count();
        assert_eq!(named, shortened, "a line of a size that is not shortened");
    }

    #[test]
    fn experiment_of_a_paper_says_how_large_it_is_beside_the_paper() {
        for experiment in EXPERIMENTS {
            let (id, sizes) = (experiment.id, experiment.sizes);
            assert_eq!(sizes.is_empty(), experiment.paper.is_empty(), "{id}");
            let names: BTreeSet<&str> = sizes.iter().map(|size| size.what).collect();
            assert_eq!(names.len(), sizes.len(), "{id}: two sizes of one name");
            for PaperSize { what, full, quick, .. } in sizes {
                assert!((1..=*full).contains(quick), "{id}: {what}: {quick} of {full}");
            }
        }
    }
}
