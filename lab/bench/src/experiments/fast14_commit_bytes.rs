//! FAST'14, section 3.1: a commit of 2,576 bytes that became 45,056 in the file system's journal.

use super::sqlite_clients::{OPERATIONS, SqliteClients, transactions};
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
    about: "One-row transactions of SQLite with its rollback journal (DELETE) and its WAL, and \
            what they make the file system write to its journal: for each transaction, and over \
            all bytes that SQLite's process wrote, pages of the database included. The paper's \
            example is one commit of the rollback journal's file, and counts its small writes \
            only. With whole pages as records small writes multiply; a journal of deltas writes \
            less than the application.",
    paper_claim: "In one representative journal commit (updates of one row with a rollback \
            journal, whose file is in data journaling, on the tablet), nine small writes of 2,576 \
            bytes turned into nine pages of 4 KB, with inode and commit block 45,056 bytes. (That \
            is 17.5 times, computed here: 45,056 / 2,576.) The paper expects \
            records of fractional pages to help, and refers to earlier work for them.",
    goal: "A fifteenth of what whole blocks take for rollback journals, a tenth for WAL; at most \
            5 % and 10 % of a block for a changed one.",
    sizes: &[&COMMITS],
    run,
};

const BYTES: Metric = Metric::lower("journal bytes of a transaction", "bytes");
const MULTIPLE: Metric = Metric::lower("journal bytes over bytes written", "×");
const SIZE_MIB: u32 = 256;
const COMMITS: PaperSize = PaperSize::of("commits", 1, 200, 20);
const ROWS: &str = "2000";
const MODES: [&str; 3] = ["DELETE", "PERSIST", "WAL"];
/// Kinds of values; goals are about the first.
const VALUES: [&str; 2] = ["random", "text"];

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    // A device whose region counters tell the journal's writes from the others; its latency does
    // not matter here.
    let device: Device = "zero".parse().expect("a preset");
    let whole_blocks = Ext4::journal().name();
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
        for (mode, values) in cases() {
            round(lab, scale, &running, (mode, values), &mut rng, samples)?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)?;
    for mode in MODES {
        let wanted = if mode == "WAL" { 10.0 } else { 15.0 };
        let key = Key::case(panel(mode, VALUES[0]), "update");
        let saved =
            samples.ratio(&key, BYTES, &whole_blocks, &OneJournal::new().name())?.of_medians;
        let claim =
            format!("{mode}, update: bytes of whole blocks (ext4 journal) over OneJournal's");
        section.verdicts.push(Verdict::at_least(claim, "", saved, wanted));
        let multiple =
            samples.of(&key, &OneJournal::new().name(), MULTIPLE).map(statistics::median);
        let claim = format!("{mode}, update: journal bytes over bytes written");
        let paper = if mode == "DELETE" {
            "17.5 (computed: 45,056 / 2,576) of small writes, in one commit"
        } else {
            ""
        };
        section.verdicts.push(Verdict::shown(claim, paper, multiple.unwrap_or(f64::NAN)));
    }
    let panels: Vec<String> = cases().map(|(mode, values)| panel(mode, values)).collect();
    section
        .plots
        .push(Plot::bars("Journal bytes of a transaction", BYTES.name, panels.clone()).log_y());
    section.plots.push(Plot::bars("Over what SQLite wrote", MULTIPLE.name, panels).log_y());
    Ok(())
}

fn cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    VALUES.into_iter().flat_map(|values| MODES.map(|mode| (mode, values)))
}

fn panel(mode: &str, values: &str) -> String {
    format!("{mode}, values {values}")
}

/// Updates, inserts and deletes of random rows, each in a transaction of its own.
fn round(
    lab: &Lab,
    scale: &Scale,
    running: &[Running],
    (mode, values): (&str, &str),
    rng: &mut fastrand::Rng,
    samples: &mut Samples,
) -> Result<()> {
    let arguments = ["--journal-mode", mode, "--rows", ROWS, "--values", values];
    let mut clients = SqliteClients::start(lab, running, "bytes", &arguments)?;
    let count: usize = scale.size(&COMMITS);
    for operation in OPERATIONS {
        let first = if operation == "update" { 0 } else { 10_000 };
        let mut keys: Vec<usize> = (first..first + count).collect();
        rng.shuffle(&mut keys);
        let lines = transactions(operation, &keys, 1);
        for (index, system) in running.iter().enumerate() {
            let (journal, written) = (system.journal_bytes()?, clients.written_bytes(index)?);
            clients.tell(index, &lines)?;
            let (Some(before), Some(after)) = (journal, system.journal_bytes()?) else { continue };
            let (journal, written) = (after - before, clients.written_bytes(index)? - written);
            let key = Key::case(panel(mode, values), operation);
            samples.add(&key, &system.name, BYTES, journal as f64 / count as f64);
            samples.add(&key, &system.name, MULTIPLE, journal as f64 / written as f64);
        }
    }
    clients.finish()
}
