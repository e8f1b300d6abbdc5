//! What a commit costs on ext4 and on OneJournal, as a sum of measured figures.
//!
//! A commit is taken apart into operations whose times were measured. Writes and
//! flushes were counted for docs/results: ext4 with `data=ordered` takes one
//! flush for data that are overwritten, and two if metadata change; SQLite with a rollback journal
//! commits one new file content, and overwrites twice. OneJournal writes its record durably, once
//! for each sync.
//!
//! The sums leave out what no disk does: the time of the file systems' own code, of which
//! OneJournal has more. They also leave out what the checkpoint writes later.

use serde::Serialize;

use super::figures::Figures;

const DATA_BYTES: u64 = 4 << 10;
/// What ext4 writes to its journal before the commit record: a descriptor and three blocks of
/// metadata.
const METADATA_BYTES: u64 = 16 << 10;

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Write(u64),
    WriteAndFlush(u64),
    Durable(u64),
    /// A durable write of the size of a record in OneJournal's journal.
    Record,
}

impl Part {
    /// What it typically takes.
    fn ns(self, figures: &Figures) -> u64 {
        let latency = match self {
            Part::Write(len_bytes) => figures.of_size(len_bytes).write,
            Part::WriteAndFlush(len_bytes) => figures.of_size(len_bytes).write_and_flush,
            Part::Durable(len_bytes) => figures.of_size(len_bytes).durable_write,
            Part::Record => figures.journal_record.latency,
        };
        latency.p50_ns
    }

    fn flush_count(self) -> u64 {
        match self {
            Part::Write(_) => 0,
            Part::WriteAndFlush(_) | Part::Durable(_) | Part::Record => 1,
        }
    }

    fn describe(self, figures: &Figures) -> String {
        match self {
            Part::Write(len_bytes) => format!("write {}", kib(len_bytes)),
            Part::WriteAndFlush(len_bytes) => format!("write {}, flush", kib(len_bytes)),
            Part::Durable(len_bytes) => format!("durable write {}", kib(len_bytes)),
            Part::Record => format!("durable write {}", kib(figures.journal_record.len_bytes)),
        }
    }
}

/// A size, in KiB.
pub fn kib(len_bytes: u64) -> String {
    match len_bytes {
        0..1024 => format!("{len_bytes} B"),
        1024..0x10_0000 if len_bytes.is_multiple_of(1024) => format!("{} KiB", len_bytes / 1024),
        1024..0x10_0000 => format!("{:.1} KiB", len_bytes as f64 / 1024.0),
        _ => format!("{} MiB", len_bytes >> 20),
    }
}

const OVERWRITE: [Part; 1] = [Part::WriteAndFlush(DATA_BYTES)];
const APPEND: [Part; 3] =
    [Part::Write(DATA_BYTES), Part::WriteAndFlush(METADATA_BYTES), Part::Durable(DATA_BYTES)];

/// What is committed, and what that is made of on ext4 and on OneJournal.
const COMMITS: [(CommitKind, &[Part], &[Part]); 3] = [
    (CommitKind::Overwrite, &OVERWRITE, &[Part::Record]),
    (CommitKind::Append, &APPEND, &[Part::Record]),
    (
        CommitKind::SqliteRollback,
        &[APPEND[0], APPEND[1], APPEND[2], OVERWRITE[0], OVERWRITE[0]],
        &[Part::Record, Part::Record, Part::Record],
    ),
];

/// What is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitKind {
    /// `fdatasync` after 4 KiB that existed before.
    Overwrite,
    /// `fdatasync` after 4 KiB that are new.
    Append,
    /// A small transaction of SQLite with `journal_mode=DELETE`.
    SqliteRollback,
}

/// The sum for one system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// The sum of what each operation typically takes.
    pub p50_ns: u64,
    /// Writes.
    pub write_count: u64,
    /// Flushes, and durable writes.
    pub flush_count: u64,
    /// The operations whose times were added.
    pub model: String,
}

impl Sum {
    fn of(parts: &[Part], figures: &Figures) -> Sum {
        let model: Vec<String> = parts.iter().map(|part| part.describe(figures)).collect();
        Sum {
            p50_ns: parts.iter().map(|part| part.ns(figures)).sum(),
            write_count: parts.len() as u64,
            flush_count: parts.iter().map(|part| part.flush_count()).sum(),
            model: model.join(", "),
        }
    }
}

/// A commit on both systems.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Commit {
    /// What is committed.
    pub commit: CommitKind,
    /// On ext4.
    pub ext4: Sum,
    /// On OneJournal.
    pub onejournal: Sum,
    /// Time on ext4 over time on OneJournal.
    pub ext4_over_onejournal: f64,
}

/// All commits.
pub fn commits(figures: &Figures) -> Vec<Commit> {
    let commit = |(commit, ext4, onejournal): (CommitKind, &[Part], &[Part])| {
        let (ext4, onejournal) = (Sum::of(ext4, figures), Sum::of(onejournal, figures));
        let times = ext4.p50_ns as f64 / onejournal.p50_ns.max(1) as f64;
        let ext4_over_onejournal = (times * 100.0).round() / 100.0;
        Commit { commit, ext4, onejournal, ext4_over_onejournal }
    };
    COMMITS.map(commit).to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::example::{figures, flat};
    use super::super::figures::SizeFigures;
    use super::*;

    #[test]
    fn write_and_flush_counts_of_commits_match_docs_results() {
        let counts = |sum: &Sum| (sum.write_count, sum.flush_count);
        let found: Vec<_> = commits(&figures(1_000, 10_000))
            .iter()
            .map(|commit| (counts(&commit.ext4), counts(&commit.onejournal)))
            .collect();
        assert_eq!(found, [((1, 1), (1, 1)), ((3, 2), (1, 1)), ((5, 4), (3, 3))]);
    }

    #[test]
    fn a_sum_is_made_of_what_was_measured() {
        let mut figures = figures(0, 0);
        let set = |figures: &mut Figures, len_bytes, change: fn(&mut SizeFigures)| {
            let size = figures.sizes.iter_mut().find(|size| size.len_bytes == len_bytes);
            change(size.unwrap());
        };
        set(&mut figures, 4 << 10, |size| size.write = flat(1));
        set(&mut figures, 4 << 10, |size| size.write_and_flush = flat(20));
        set(&mut figures, 4 << 10, |size| size.durable_write = flat(300));
        set(&mut figures, 16 << 10, |size| size.write_and_flush = flat(4_000));
        figures.journal_record.latency = flat(50_000);
        let sums: Vec<(u64, u64)> = commits(&figures)
            .iter()
            .map(|commit| (commit.ext4.p50_ns, commit.onejournal.p50_ns))
            .collect();
        assert_eq!(sums, [(20, 50_000), (4_301, 50_000), (4_341, 150_000)]);
    }

    #[test]
    fn the_model_names_its_parts() {
        let commits = commits(&figures(1_000, 9_000));
        assert_eq!(commits[1].ext4.model, "write 4 KiB, write 16 KiB, flush, durable write 4 KiB");
        assert_eq!(commits[1].onejournal.model, "durable write 4.5 KiB");
        assert_eq!((commits[0].ext4_over_onejournal, commits[1].ext4_over_onejournal), (1.0, 2.1));
    }

    #[test]
    fn sizes_for_people() {
        let sizes = [512, 2300, 4096, 4608, 262_144, 1 << 20].map(kib);
        assert_eq!(sizes, ["512 B", "2.2 KiB", "4 KiB", "4.5 KiB", "256 KiB", "1 MiB"]);
    }
}
