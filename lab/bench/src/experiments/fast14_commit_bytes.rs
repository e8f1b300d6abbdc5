//! FAST'14, section 3.1: a commit of 2,576 bytes that became 45,056 in the file system's journal.

use super::sqlite_clients::{FIRST_FREE_KEY, OPERATIONS, ROWS, SqliteClients, transactions};
use super::{Experiment, FAST14, PaperSize, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch, statistics};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "fast14-commit-bytes",
    title: "Journal bytes of a commit",
    paper: FAST14,
    figure: "Section 3.1, the example of nine small writes",
    about: "One-row transactions of SQLite with its rollback journal (DELETE and PERSIST) and its \
            WAL, on a table of 2,000 rows, and what they make the file system write to its \
            journal: for each transaction, and over all bytes that SQLite's process wrote, pages \
            of the database included. *WAL in use*: the WAL has grown before and is written again \
            from its beginning, and the transactions are so many that SQLite's own checkpoints \
            fall among them. *WAL that grows* is a second row, without a goal: the first \
            transactions of a new database. The paper's example is one commit of the rollback \
            journal's file, and counts its small writes only. With whole pages as records small \
            writes multiply; a journal of deltas writes less than the application.",
    paper_claim: "In one representative journal commit (updates of one row with a rollback \
            journal, whose file is in data journaling, on the tablet), nine small writes of 2,576 \
            bytes turned into nine pages of 4 KB, with inode and commit block 45,056 bytes. (That \
            is 17.5 times, computed here: 45,056 / 2,576.) The paper expects \
            records of fractional pages to help, and refers to earlier work for them.",
    goal: "A fifteenth of what whole blocks take for rollback journals, a tenth for a WAL in use.",
    sizes: &[&COMMITS, &COMMITS_IN_USE],
    run,
};

const BYTES: Metric = Metric::lower("journal bytes of a transaction", "bytes");
const MULTIPLE: Metric = Metric::lower("journal bytes over bytes written", "×");
const SIZE_MIB: u32 = 256;
const COMMITS: PaperSize = PaperSize::of("commits", 1, 200, 20);
/// Enough for SQLite's checkpoints.
const COMMITS_IN_USE: PaperSize = PaperSize::of("commits with a WAL in use", 1, 1200, 20);
/// Kinds of values; goals are about the first.
const VALUES: [&str; 2] = ["random", "text"];

/// A state of SQLite's journal.
struct State {
    name: &'static str,
    journal_mode: &'static str,
    is_wal_in_use: bool,
    /// The goal for the bytes of whole blocks over OneJournal's; `None`: no goal.
    wanted: Option<f64>,
}

const STATES: &[State] = &[
    State { name: "DELETE", journal_mode: "DELETE", is_wal_in_use: false, wanted: Some(15.0) },
    State { name: "PERSIST", journal_mode: "PERSIST", is_wal_in_use: false, wanted: Some(15.0) },
    State { name: "WAL in use", journal_mode: "WAL", is_wal_in_use: true, wanted: Some(10.0) },
    State { name: "WAL that grows", journal_mode: "WAL", is_wal_in_use: false, wanted: None },
];

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    // A device whose region counters tell the journal's writes from the others; its latency does
    // not matter here.
    let device: Device = "zero".parse().expect("a preset");
    let recipes: [Box<dyn System>; 7] = [
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(OneJournal::as_in_fast14()),
        Box::new(OneJournal::new().data("journal")),
        Box::new(OneJournal::new().data("wasteless")),
        Box::new(OneJournal::new().data("delta")),
        Box::new(OneJournal::new()),
    ];
    let running = systems::start(lab, &recipes, &Site::new(&device, SIZE_MIB), section)?;
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    for _ in 0..scale.rounds() {
        for case in cases() {
            round(lab, scale, &running, case, &mut rng, samples)?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)?;
    for state in STATES {
        judge(section, samples, state)?;
    }
    let panels: Vec<String> = cases().map(|(state, values)| panel(state, values)).collect();
    section
        .plots
        .push(Plot::bars("Journal bytes of a transaction", BYTES.name, panels.clone()).log_y());
    section.plots.push(Plot::bars("Over what SQLite wrote", MULTIPLE.name, panels).log_y());
    Ok(())
}

fn cases() -> impl Iterator<Item = (&'static State, &'static str)> {
    VALUES.into_iter().flat_map(|values| STATES.iter().map(move |state| (state, values)))
}

fn panel(state: &State, values: &str) -> String {
    format!("{}, values {values}", state.name)
}

fn judge(section: &mut Section, samples: &Samples, state: &State) -> Result<()> {
    let (name, ours) = (state.name, OneJournal::new().name());
    let key = Key::case(panel(state, VALUES[0]), "update");
    let saved = samples.ratio(&key, BYTES, &Ext4::journal().name(), &ours)?.of_medians;
    let claim = format!("{name}, update: bytes of whole blocks (ext4 journal) over OneJournal's");
    section.verdicts.push(match state.wanted {
        Some(wanted) => Verdict::at_least(claim, "", saved, wanted),
        None => Verdict::shown(claim, "", saved),
    });
    let multiple = samples.of(&key, &ours, MULTIPLE).map(statistics::median);
    let claim = format!("{name}, update: journal bytes over bytes written");
    let paper = if name == "DELETE" {
        "17.5 (computed: 45,056 / 2,576) of small writes, in one commit"
    } else {
        ""
    };
    section.verdicts.push(Verdict::shown(claim, paper, multiple.unwrap_or(f64::NAN)));
    Ok(())
}

/// New databases in this state, one for each system.
fn start<'a>(
    lab: &Lab,
    running: &'a [Running],
    state: &State,
    values: &str,
) -> Result<SqliteClients<'a>> {
    let arguments = ["--journal-mode", state.journal_mode, "--values", values];
    if state.is_wal_in_use {
        return SqliteClients::with_wal_in_use(lab, running, "bytes", &arguments);
    }
    let rows = ROWS.to_string();
    let arguments = [&arguments[..], &["--rows", &rows]].concat();
    SqliteClients::start(lab, running, "bytes", &arguments)
}

/// Updates, inserts and deletes of random rows, each in a transaction of its own.
fn round(
    lab: &Lab,
    scale: &Scale,
    running: &[Running],
    (state, values): (&State, &str),
    rng: &mut fastrand::Rng,
    samples: &mut Samples,
) -> Result<()> {
    let mut clients = start(lab, running, state, values)?;
    let size = if state.is_wal_in_use { COMMITS_IN_USE } else { COMMITS };
    let count: usize = scale.size(&size);
    for operation in OPERATIONS {
        let first = if operation == "update" { 0 } else { FIRST_FREE_KEY };
        let mut keys: Vec<usize> = (first..first + count).collect();
        rng.shuffle(&mut keys);
        let lines = transactions(operation, &keys, 1);
        for (index, system) in running.iter().enumerate() {
            let (journal, written) = (system.journal_bytes()?, clients.written_bytes(index)?);
            clients.tell(index, &lines)?;
            let (Some(before), Some(after)) = (journal, system.journal_bytes()?) else { continue };
            let (journal, written) = (after - before, clients.written_bytes(index)? - written);
            let key = Key::case(panel(state, values), operation);
            samples.add(&key, &system.name, BYTES, journal as f64 / count as f64);
            samples.add(&key, &system.name, MULTIPLE, journal as f64 / written as f64);
        }
    }
    clients.finish()
}
