//! The first screen of the report, for a reader who has never seen the project: what is gained,
//! compared with what, and when not to use it. Each line has two measured values. A line whose
//! experiment is not among the results is left out.

use super::document::{Block, Table};
use super::number::shown;
use super::place::Place;
use crate::results::{ALL_HOME_KIB, Outcome, SectionFile};

const PEER: &str = "ext4 ordered";
/// Shown beside the peer where it was measured.
const XFS: &str = "XFS";
const OURS: &str = "OneJournal";

/// A line of the first screen: one value of OneJournal beside one of its peer.
struct Line {
    what: &'static str,
    place: Place,
    peer: &'static str,
    ours: &'static str,
    /// The factor is over XFS, because it is much better than the peer.
    is_over_xfs: bool,
}

impl Line {
    const fn of(what: &'static str, place: Place) -> Line {
        Line { what, place, peer: PEER, ours: OURS, is_over_xfs: false }
    }

    const fn ours(self, ours: &'static str) -> Line {
        Line { ours, ..self }
    }

    const fn over_xfs(self) -> Line {
        Line { is_over_xfs: true, ..self }
    }

    const fn systems(self, peer: &'static str, ours: &'static str) -> Line {
        Line { peer, ours, ..self }
    }
}

/// Lines in which OneJournal is better.
const GAINED: [Line; 9] = [
    Line::of(
        "SQLite with a WAL in use, insert of one row: bytes written for a transaction",
        Place::bytes("WAL in use, random", "insert"),
    ),
    Line::of(
        "The same, values of English words (random ones elsewhere)",
        Place::bytes("WAL in use, text", "insert"),
    ),
    Line::of("WAL in use, update of a random row", Place::bytes("WAL in use, random", "update")),
    Line::of("The same, values of English words", Place::bytes("WAL in use, text", "update")),
    Line::of(
        "SQLite in DELETE mode, update of one row, SATA SSD: time of the commit",
        Place::time("sqlite-one-row", "ssd311: DELETE", "update"),
    ),
    Line::of(
        "SQLite in DELETE mode with `-o atomic_writes`, update of one row, eMMC: time",
        Place::time("atomic-writes", "emmc: DELETE", "update"),
    )
    .ours("OneJournal, atomic_writes"),
    Line::of(
        "SQLite extension on kernel ext4 (no mount), 8 processes with 64 databases, SATA SSD",
        Place::writers("ssd311", "8 processes, 64 databases"),
    )
    .ours("ext4 ordered, SQLite extension"),
    Line::of(
        "16 processes that append 200 bytes and call `fsync`, SATA SSD",
        Place::time("group-commit", "ssd311: append 200 bytes and fsync", "16")
            .metric("syncs a second", "syncs/s"),
    ),
    Line::of(
        "Mount after a crash with 4,000 records of 4 KiB in an external journal, SATA SSD",
        Place::time("okeanos-recovery", "ssd311", "4,000 records of 4 KiB")
            .metric("time to mount", "ms"),
    )
    .systems("ext4 ordered, ext. journal", "OneJournal, ext. journal"),
];

/// Lines in which it is worse.
const LOST: [Line; 15] = [
    Line::of(
        "SQLite with a WAL in use, update of one row, SATA SSD: time of the commit",
        Place::time("sqlite-one-row", "ssd311: WAL", "update"),
    ),
    Line::of(
        "The same on a disk whose flush takes 0.1 ms",
        Place::time("sqlite-one-row", "loop: WAL", "update"),
    ),
    Line::of(
        "SQLite in DELETE mode, update of one row, on that disk",
        Place::time("sqlite-one-row", "loop: DELETE", "update"),
    ),
    Line::of(
        "SQLite on a volume, one writer without pauses, WAL, SATA SSD",
        Place::writers("ssd311", "1 writer"),
    ),
    Line::of(
        "SQLite extension (no mount), the same on a disk whose flush takes 0.1 ms",
        Place::writers("this disk", "1 writer"),
    )
    .systems("scratch folder", "scratch folder, SQLite extension"),
    Line::of(
        "SQLite, 1,000 updates of random rows in one commit, WAL, SATA SSD",
        Place::time("fast14-cases", "ssd311: WAL in use, 1000 op/txn", "update"),
    ),
    Line::of(
        "SQLite on a volume, 8 processes with 64 databases, WAL, SATA SSD",
        Place::writers("ssd311", "8 processes, 64 databases"),
    ),
    Line::of(
        "PostgreSQL (pgbench) with 16 clients, SATA SSD",
        Place::time("pgbench", "ssd840", "16").metric("transactions a second", "transactions/s"),
    ),
    Line::of(
        "The same: bytes written for a transaction, all brought home",
        Place::time("pgbench", "ssd840: a fixed number, random", "16 clients")
            .metric("transactions a second", "")
            .count(ALL_HOME_KIB, "KiB"),
    ),
    Line::of(
        "PostgreSQL (pgbench) with 16 clients, network disk",
        Place::time("journal-device", "cloud: PostgreSQL", "16 clients")
            .metric("transactions a second", "transactions/s"),
    ),
    Line::of(
        "MariaDB 10.11 with its doublewrite buffer, redo log of 4 MB, 16 clients, SATA SSD",
        Place::time("double-write", "ssd840: MariaDB", "16 clients")
            .metric("transactions a second", "transactions/s"),
    )
    .over_xfs(),
    Line::of(
        "Unpacking an archive of 10,000 small files, a disk in memory",
        Place::time("bulk", "small files", "unpack").metric("time", "s"),
    ),
    Line::of(
        "Reading a file of 512 MiB, a disk in memory",
        Place::time("bulk", "large file", "read").metric("time", "s"),
    ),
    Line::of(
        "Random writes of 4 KiB without any `fsync`, SATA SSD",
        Place::time("djfs-fio", "ssd840", "never").metric("writes a second", "writes/s"),
    ),
    Line::of(
        "An append of 4 KiB and its `fdatasync`: bytes written",
        Place::time("file-systems", "append and fdatasync", "4 KiB")
            .metric("bytes written for a commit", "KiB"),
    )
    .over_xfs(),
];

/// The first screen. Empty if none of its experiments is among the results.
pub fn blocks(files: &[SectionFile]) -> Vec<Block> {
    let (gained, lost) = (rows(files, &GAINED), rows(files, &LOST));
    if gained.is_empty() && lost.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::heading(2, "In one screen", "summary"),
        Block::Paragraph(
            "OneJournal makes `fsync` cheap: a sync of small changes is one device write and one \
             flush, and of a block whose older version is in memory only the bytes that changed \
             are written. The peer is the kernel's ext4 with its default, `data=ordered`, unless \
             a line names another; XFS is beside it where it was measured. OneJournal runs in \
             user space, so a program that rarely calls `fsync` is slower on it. The lines are \
             of different experiments: compare within a line only."
                .into(),
        ),
    ];
    for (title, factor, rows) in
        [("Faster, or fewer bytes", "gain", gained), ("Slower, or more bytes", "gain", lost)]
    {
        if !rows.is_empty() {
            blocks.push(Block::Paragraph(format!("**{title}**")));
            let header = ["workload", "kernel ext4", "XFS", "OneJournal", factor]
                .map(str::to_owned)
                .to_vec();
            blocks.push(Block::Table(Table { header, rows, left_columns: 1 }));
        }
    }
    blocks.push(Block::Paragraph(
        "**Do not use it** for build trees, mail folders and other directories of many small \
         files, for files that are only read, for programs that never call `fsync`, and where the \
         kernel's ext4 is fast enough already."
            .into(),
    ));
    blocks.push(Block::Paragraph(
        "The SSDs and the eMMC are emulated with the latencies of real devices, which the \
         experiments name. The values of rows are random and do not compress ([what each workload \
         writes](../developers/laboratory.md#what-workloads-write)). The bytes of a \
         transaction include all that is brought to its final place later."
            .into(),
    ));
    blocks.push(Block::Paragraph(tally(files)));
    blocks
}

fn rows(files: &[SectionFile], lines: &[Line]) -> Vec<Vec<String>> {
    lines.iter().filter_map(|line| cells(files, line)).collect()
}

fn cells(files: &[SectionFile], line: &Line) -> Option<Vec<String>> {
    let value = |system: &str| line.place.value(files, system);
    let (over, name) = if line.is_over_xfs { (XFS, " of XFS") } else { (line.peer, "") };
    let factor = line.place.gain(files, over, line.ours)?;
    let factor = match factor >= 1.0 {
        true => format!("{}×{name}", shown(factor)),
        false => format!("{} %{name}", shown(100.0 * factor)),
    };
    let with_unit = |value: f64| format!("{} {}", shown(value), line.place.unit);
    let what = format!("{} ([details](#{}))", line.what, line.place.id);
    let (peer, ours) = (with_unit(value(line.peer)?), with_unit(value(line.ours)?));
    let xfs = value(XFS).map(with_unit).unwrap_or_default();
    Some(vec![what, peer, xfs, ours, factor])
}

/// A sentence with the number of reached claims.
fn tally(files: &[SectionFile]) -> String {
    let verdicts = || files.iter().flat_map(|file| &file.section.verdicts);
    let count = |wanted: Outcome| verdicts().filter(|verdict| verdict.outcome == wanted).count();
    format!(
        "This report holds {} claims, of four papers and of our own, against measurements: {} are \
         reached, {} are missed, and {} are shown without a judgement. The [tables](#verdicts) \
         count them and list the missed ones, [Open \
         gaps](../developers/benchmarks.md#open-gaps) explains each of those.",
        verdicts().count(),
        count(Outcome::Reached),
        count(Outcome::Missed),
        count(Outcome::Shown)
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::results;

    fn stored() -> Vec<SectionFile> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let ids = EXPERIMENTS.iter().map(|experiment| experiment.id);
        results::read_all(&dir, ids).expect("the stored results")
    }

    #[test]
    fn every_line_has_its_values_in_the_stored_results() {
        let files = stored();
        assert_eq!(rows(&files, &GAINED).len(), GAINED.len());
        assert_eq!(rows(&files, &LOST).len(), LOST.len());
    }

    #[test]
    fn gains_are_gains_and_losses_are_losses() {
        let files = stored();
        // Before the name of the peer, if it is XFS.
        let factor = |cell: &String| cell.split(' ').next().unwrap_or_default().to_owned();
        let is_gain =
            |cells: &Vec<String>| cells.last().is_some_and(|cell| factor(cell).ends_with('×'));
        assert!(rows(&files, &GAINED).iter().all(is_gain));
        assert!(!rows(&files, &LOST).iter().any(is_gain));
    }

    #[test]
    fn xfs_is_shown_where_it_is_faster_than_ext4() {
        let files = stored();
        for line in GAINED.iter().chain(&LOST) {
            let shown = cells(&files, line).map(|cells| !cells[2].is_empty());
            let is_faster = line.place.gain(&files, line.peer, XFS).is_some_and(|gain| gain > 1.0);
            assert!(!is_faster || shown == Some(true), "{}", line.what);
        }
        let shown = rows(&files, &LOST).iter().filter(|cells| !cells[2].is_empty()).count();
        assert!(shown >= 4, "{shown}");
    }

    #[test]
    fn a_line_without_results_is_left_out() {
        let files: Vec<SectionFile> =
            stored().into_iter().filter(|file| file.section.id == "bulk").collect();
        assert_eq!((rows(&files, &GAINED).len(), rows(&files, &LOST).len()), (0, 2));
        assert!(blocks(&[]).is_empty());
    }
}
