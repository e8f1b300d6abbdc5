//! Crash enumeration over all workloads and data modes, with fixed seeds.

use crate::case::{Case, JournalKind};
use crate::enumerate::{Effort, Tally, enumerate};
use crate::recording::Stage;
use crate::workload::Workload;
use ext4::DataMode;

/// Checks the crashes of a few runs of a workload, and prints and returns the counts.
fn check(workload: Workload, data_mode: DataMode, seeds: std::ops::Range<u64>) -> Tally {
    check_on(workload, data_mode, JournalKind::default(), seeds)
}

/// The same with a journal of that kind.
fn check_on(
    workload: Workload,
    data_mode: DataMode,
    journal: JournalKind,
    seeds: std::ops::Range<u64>,
) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let op_count = match (workload, data_mode) {
            // Without file data the journal takes longer to go round.
            (Workload::Rounds, DataMode::Ordered) => 1500,
            _ => workload.usual_op_count(),
        };
        let case = Case { workload, seed, op_count, data_mode, journal };
        match enumerate(case, &Effort::default(), &Stage::sound()) {
            Ok(tally) => sum.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{workload} {data_mode:?} {journal}: {sum}");
    assert!(sum.distinct >= 150, "{workload}: only {} distinct crash states", sum.distinct);
    sum
}

macro_rules! crashes {
    ($($name:ident: $workload:ident, $mode:ident, $seeds:expr;)*) => {
        $(#[test]
        fn $name() {
            check(Workload::$workload, DataMode::$mode, $seeds);
        })*
    };
    ($($name:ident: $workload:ident, $mode:ident, $journal:literal, $seeds:expr;)*) => {
        $(#[test]
        fn $name() {
            let journal = $journal.parse().expect("a kind of journal");
            check_on(Workload::$workload, DataMode::$mode, journal, $seeds);
        })*
    };
}

// Each time at least 150 states: more than 6,000 in all.
crashes! {
    random_journal: Random, Journal, 0..8;
    random_ordered: Random, Ordered, 0..8;
    random_writeback: Random, Writeback, 0..2;
    random_wasteless: Random, Wasteless, 0..4;
    random_selective: Random, Selective, 0..4;
    random_delta: Random, Delta, 0..4;
    random_auto: Random, Auto, 0..4;
    sqlite_journal: Sqlite, Journal, 0..4;
    sqlite_ordered: Sqlite, Ordered, 0..4;
    sqlite_wasteless: Sqlite, Wasteless, 0..2;
    sqlite_selective: Sqlite, Selective, 0..2;
    sqlite_auto: Sqlite, Auto, 0..3;
    directory_journal: Directory, Journal, 0..3;
    directory_ordered: Directory, Ordered, 0..3;
    exhaustion_journal: Exhaustion, Journal, 0..2;
    exhaustion_ordered: Exhaustion, Ordered, 0..1;
    exhaustion_auto: Exhaustion, Auto, 0..3;
    writers_journal: Writers, Journal, 0..3;
    writers_ordered: Writers, Ordered, 0..3;
    writers_wasteless: Writers, Wasteless, 0..2;
    writers_auto: Writers, Auto, 0..2;
    truncate_journal: Truncate, Journal, 0..3;
    truncate_ordered: Truncate, Ordered, 0..2;
    truncate_wasteless: Truncate, Wasteless, 0..2;
    truncate_selective: Truncate, Selective, 0..2;
    truncate_auto: Truncate, Auto, 0..2;
    orphans_journal: Orphans, Journal, 0..3;
    orphans_ordered: Orphans, Ordered, 0..3;
    reuse_journal: Reuse, Journal, 0..4;
    reuse_ordered: Reuse, Ordered, 0..4;
    reuse_selective: Reuse, Selective, 0..3;
    reuse_auto: Reuse, Auto, 0..3;
    modes_ordered: Modes, Ordered, 0..6;
    modes_auto: Modes, Auto, 0..6;
    rounds_journal: Rounds, Journal, 0..1;
    rounds_ordered: Rounds, Ordered, 0..1;
    atomic_journal: Atomic, Journal, 0..6;
    zeroes_auto: Zeroes, Auto, 0..6;
    zeroes_ordered: Zeroes, Ordered, 0..2;
    pages_journal: Pages, Journal, 0..3;
    pages_wasteless: Pages, Wasteless, 0..3;
    pages_delta: Pages, Delta, 0..3;
    pages_auto: Pages, Auto, 0..6;
}

// Journals elsewhere and DJFS' codec: each with workloads that use it most.
crashes! {
    nvram_random_auto: Random, Auto, "nvram", 0..2;
    nvram_writers_journal: Writers, Journal, "nvram", 0..2;
    nvram_sqlite_delta: Sqlite, Delta, "nvram:xor-lzo", 0..2;
    nvram_reuse_selective: Reuse, Selective, "nvram:xor-lzo", 0..2;
    nvram_modes_auto: Modes, Auto, "nvram", 0..2;
    nvram_orphans_ordered: Orphans, Ordered, "nvram:xor-lzo", 0..2;
    nvram_rounds_delta: Rounds, Delta, "nvram:xor-lzo", 0..1;
    nvram_pages_auto: Pages, Auto, "nvram", 0..2;
    device_pages_auto: Pages, Auto, "device", 0..2;
    copies_pages_delta: Pages, Delta, "volume:copies", 0..2;
    device_random_auto: Random, Auto, "device:xor-lzo", 0..2;
    device_writers_ordered: Writers, Ordered, "device", 0..2;
    copies_random_delta: Random, Delta, "volume:copies", 0..2;
    copies_sqlite_auto: Sqlite, Auto, "nvram:copies", 0..2;
    copies_rounds_delta: Rounds, Delta, "device:copies", 0..1;
    xor_lzo_random_delta: Random, Delta, "volume:xor-lzo", 0..2;
    xor_lzo_sqlite_auto: Sqlite, Auto, "volume:xor-lzo", 0..2;
    xor_lzo_rounds_delta: Rounds, Delta, "volume:xor-lzo", 0..1;
}
