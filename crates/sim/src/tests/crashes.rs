//! Crash enumeration over all workloads and data modes. The gate looks at a fifth of the cuts.

use crate::case::{Case, JournalKind};
use crate::enumerate::{Effort, Tally, enumerate};
use crate::recording::Stage;
use crate::workload::Workload;
use ext4::DataMode;
use onejournal_testing::{test_name, tier};

/// Checks the crashes of a few runs of a workload, and prints the counts.
fn check(
    name: &str,
    workload: Workload,
    data_mode: DataMode,
    journal: JournalKind,
    full_run_count: usize,
) {
    let (mut sum, effort) = (Tally::default(), Effort { is_sampled: true, ..Effort::default() });
    for seed in tier::seeds_of_states(name, full_run_count) {
        let op_count = match (workload, data_mode) {
            // Without file data the journal takes longer to go round.
            (Workload::Rounds, DataMode::Ordered) => 1500,
            _ => workload.usual_op_count(),
        };
        let case = Case { workload, seed, op_count, data_mode, journal };
        match enumerate(case, &effort, &Stage::sound()) {
            Ok(tally) => sum.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{workload} {data_mode:?} {journal}: {sum}");
    let least = tier::count(150);
    assert!(sum.distinct >= least, "{workload}: only {} distinct crash states", sum.distinct);
}

macro_rules! crashes {
    ($($name:ident: $workload:ident, $mode:ident, $run_count:literal;)*) => {
        $(#[test]
        fn $name() {
            let journal = JournalKind::default();
            check(test_name!(), Workload::$workload, DataMode::$mode, journal, $run_count);
        })*
    };
    ($($name:ident: $workload:ident, $mode:ident, $journal:literal, $run_count:literal;)*) => {
        $(#[test]
        fn $name() {
            let journal = $journal.parse().expect("a kind of journal");
            check(test_name!(), Workload::$workload, DataMode::$mode, journal, $run_count);
        })*
    };
}

// In full at least 150 states each time: more than 6,000 in all.
crashes! {
    random_journal: Random, Journal, 8;
    random_ordered: Random, Ordered, 8;
    random_writeback: Random, Writeback, 2;
    random_wasteless: Random, Wasteless, 4;
    random_selective: Random, Selective, 4;
    random_delta: Random, Delta, 4;
    random_auto: Random, Auto, 4;
    sqlite_journal: Sqlite, Journal, 4;
    sqlite_ordered: Sqlite, Ordered, 4;
    sqlite_wasteless: Sqlite, Wasteless, 2;
    sqlite_selective: Sqlite, Selective, 2;
    sqlite_auto: Sqlite, Auto, 3;
    directory_journal: Directory, Journal, 3;
    directory_ordered: Directory, Ordered, 3;
    exhaustion_journal: Exhaustion, Journal, 2;
    exhaustion_ordered: Exhaustion, Ordered, 1;
    exhaustion_auto: Exhaustion, Auto, 3;
    writers_journal: Writers, Journal, 3;
    writers_ordered: Writers, Ordered, 3;
    writers_wasteless: Writers, Wasteless, 2;
    writers_auto: Writers, Auto, 2;
    truncate_journal: Truncate, Journal, 3;
    truncate_ordered: Truncate, Ordered, 2;
    truncate_wasteless: Truncate, Wasteless, 2;
    truncate_selective: Truncate, Selective, 2;
    truncate_auto: Truncate, Auto, 2;
    orphans_journal: Orphans, Journal, 3;
    orphans_ordered: Orphans, Ordered, 3;
    reuse_journal: Reuse, Journal, 4;
    reuse_ordered: Reuse, Ordered, 4;
    reuse_selective: Reuse, Selective, 3;
    reuse_auto: Reuse, Auto, 3;
    modes_ordered: Modes, Ordered, 6;
    modes_auto: Modes, Auto, 6;
    rounds_journal: Rounds, Journal, 1;
    rounds_ordered: Rounds, Ordered, 1;
    atomic_journal: Atomic, Journal, 6;
    zeroes_auto: Zeroes, Auto, 6;
    zeroes_ordered: Zeroes, Ordered, 2;
    pages_journal: Pages, Journal, 3;
    pages_wasteless: Pages, Wasteless, 3;
    pages_delta: Pages, Delta, 3;
    pages_auto: Pages, Auto, 6;
}

// Journals elsewhere and DJFS' codec: each with workloads that use it most.
crashes! {
    nvram_random_auto: Random, Auto, "nvram", 2;
    nvram_writers_journal: Writers, Journal, "nvram", 2;
    nvram_sqlite_delta: Sqlite, Delta, "nvram:xor-lzo", 2;
    nvram_reuse_selective: Reuse, Selective, "nvram:xor-lzo", 2;
    nvram_modes_auto: Modes, Auto, "nvram", 2;
    nvram_orphans_ordered: Orphans, Ordered, "nvram:xor-lzo", 2;
    nvram_rounds_delta: Rounds, Delta, "nvram:xor-lzo", 1;
    nvram_pages_auto: Pages, Auto, "nvram", 2;
    device_pages_auto: Pages, Auto, "device", 2;
    runs_pages_delta: Pages, Delta, "volume:runs", 2;
    device_random_auto: Random, Auto, "device:xor-lzo", 2;
    device_writers_ordered: Writers, Ordered, "device:runs", 2;
    runs_random_delta: Random, Delta, "volume:runs", 2;
    copies_sqlite_auto: Sqlite, Auto, "nvram:copies", 2;
    runs_sqlite_auto: Sqlite, Auto, "volume:runs", 2;
    device_rounds_delta: Rounds, Delta, "device", 1;
    djfs_random_delta: Random, Delta, "nvram:xor-lzo:early", 2;
    djfs_rounds_delta: Rounds, Delta, "volume:xor-lzo:early", 1;
    djfs_writers_journal: Writers, Journal, "nvram:xor-lzo:early", 2;
    whole_random_journal: Random, Journal, "volume:whole", 2;
    whole_writers_wasteless: Writers, Wasteless, "device:whole", 2;
    whole_rounds_journal: Rounds, Journal, "nvram:whole", 1;
    xor_lzo_random_delta: Random, Delta, "volume:xor-lzo", 2;
    xor_lzo_sqlite_auto: Sqlite, Auto, "volume:xor-lzo", 2;
    xor_lzo_rounds_delta: Rounds, Delta, "volume:xor-lzo", 1;
}
