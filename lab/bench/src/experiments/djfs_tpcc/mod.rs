//! DJFS, figure 8 and section VI.2: TPC-C on SQLite with ten warehouses, in PERSIST and WAL mode.
//!
//! - [`throughput`]: figure 8, on devices with latency;
//! - [`table`]: table 1, from the same turns;
//! - [`deltas`]: the delta sizes of section VI.2, which do not depend on latency.

mod deltas;
mod table;
mod throughput;

use super::{DJFS, Experiment, PaperSize, Scale};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::Samples;
use crate::results::Section;
use crate::systems::{OneJournal, Running, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-tpcc",
    title: "TPC-C on SQLite",
    paper: DJFS,
    figure: "Figure 8, Table 1, and the delta sizes of Section VI.2",
    about: "TPC-C as the standard has it (revision 5.11: cardinalities, input, transactions; a \
            shuffled deck of 45 New-Order, 43 Payment and 4 each of Order-Status, Delivery and \
            Stock-Level), one client without keying and think times, `synchronous=FULL`. PERSIST \
            is the paper's rollback mode. Systems take turns of whole decks on copies of one \
            database, after a turn that is not measured and in which the WAL has come to be used \
            again; in a full run some at a time, each group with ext4 ordered, whose ratios are \
            those of the group; at the end the standard's twelve consistency conditions hold on \
            each. `tpmC` counts committed New-Orders. *NVRAM* is a journal, or the extension's \
            lanes, in memory, which stands for NVRAM, as DRAM did in the paper. *as in DJFS* is \
            OneJournal with DJFS' encoding of changes and its policy of checkpoints, with two or \
            four regions, *NVRAM journaling as in DJFS* logs whole blocks without compression; \
            its checkpoints are OneJournal's, of a region at a time, where the paper's are JBD2's, \
            for which commits wait. *ext4 ordered* and *ext4 journal* have journals of the paper's \
            128 MiB. \
            *order=sync* lets the kernel collect writes until a sync and gives up the order among \
            files, which ext4 ordered does not keep either. *atomic_writes*: SQLite writes no \
            rollback journal at all; nor does it with the extension on ext4, where a transaction \
            is a record of the log (the client's SQLite is built with \
            `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`). The ceiling is *eatmydata*: no sync does \
            anything. Delta size: the mean size of a change that is logged as a difference, of a \
            block of 4 KiB; pages of 1 KiB were SQLite's default before version 3.12. The paper \
            does not name its pages. Table 1 heads its lines *JM* (the journal's superblock, \
            descriptors and commits) and *Data* with *Journal writes*. To read *Data* as data in \
            the journal and home is ours: ordered mode journals no data of files, and has 100 % \
            there. *Data, in the journal only* is the other reading: all of the journal that is \
            not JM, in ordered mode metadata of the file system. The base, ext4 ordered of this \
            kernel, is another one than the paper's: the sentences of the verdicts have ext4 \
            journal and whole blocks as parts of it, which differ from the paper's.",
    paper_claim: "On a Samsung 840 DJFS has up to 64.2 times the tpmC of ext4 with a rollback \
            journal (PERSIST), and up to 26.5 times with a WAL. Its peers are ext4 ordered and \
            journal with the journal on the disk, and ext4 journal with an external one; the text \
            does not say which of them these ratios are over. Mean delta size 6.7 % and 22.1 % of \
            a block. Table 1, two regions, rollback and WAL: 0.003 % and 0.02 % of ext4 ordered's \
            flushes, 2.1 % and 2.6 % of the metadata in its journal, 33.7 % and 93.4 % of the \
            data. Rollback, ext4 journal: 99.2, 99.3 and 297.4 %; NVRAM journaling of whole \
            blocks: 0.4, 104.6 and 239.8 %.",
    goal: "64.2 and 26.5 times ext4 ordered with a journal in NVRAM, and 0.9 and 0.8 of SQLite \
            without any sync; 1.5 and 1.2 times with the journal on the volume; deltas of 5 % and \
            10 %; with two regions no more flushes and bytes than in the paper's Table 1.",
    sizes: &[&WAREHOUSES],
    run,
};

/// A quick run has warehouses with fewer rows.
const WAREHOUSES: PaperSize = PaperSize::of("warehouses", 10, 10, 2);

/// A journal mode of SQLite, and the paper's result for it.
struct Mode {
    sqlite: &'static str,
    shown: &'static str,
    paper_times: f64,
    /// Wanted of a journal on the volume, over ext4 ordered.
    volume_times: f64,
    /// Wanted with NVRAM, as a part of SQLite without any sync.
    part_of_unsynced: f64,
    paper_delta_percent: f64,
    goal_delta_percent: f64,
    /// Table 1, two regions: flushes, metadata and data of the journal, as % of ext4 ordered's.
    paper_table: [f64; 3],
}

const MODES: [Mode; 2] = [
    Mode {
        sqlite: "PERSIST",
        shown: "rollback journal (PERSIST)",
        paper_times: 64.2,
        volume_times: 1.5,
        part_of_unsynced: 0.9,
        paper_delta_percent: 6.7,
        goal_delta_percent: 5.0,
        paper_table: [0.003, 2.1, 33.7],
    },
    Mode {
        sqlite: "WAL",
        shown: "WAL",
        paper_times: 26.5,
        volume_times: 1.2,
        part_of_unsynced: 0.8,
        paper_delta_percent: 22.1,
        goal_delta_percent: 10.0,
        paper_table: [0.02, 2.6, 93.4],
    },
];

/// A system, and the journal mode that it takes part in; `None`: all modes.
struct Contender {
    system: Box<dyn System>,
    only: Option<&'static str>,
}

impl Contender {
    fn new(system: impl System + 'static) -> Contender {
        Contender { system: Box::new(system), only: None }
    }

    fn only(mut self, mode: &'static str) -> Contender {
        self.only = Some(mode);
        self
    }
}

/// The running systems that take part in a mode.
fn taking_part<'a>(
    running: &'a [Running],
    contenders: &[(String, Option<&'static str>)],
    mode: &Mode,
) -> Vec<&'a Running> {
    let is_in = |one: &&Running| {
        let only =
            contenders.iter().find(|(name, _)| *name == one.name).and_then(|(_, only)| *only);
        only.is_none_or(|only| only == mode.sqlite)
    };
    running.iter().filter(is_in).collect()
}

/// Recipes, with their names and modes.
#[allow(clippy::type_complexity)] // two lists
fn split(
    contenders: Vec<Contender>,
) -> (Vec<Box<dyn System>>, Vec<(String, Option<&'static str>)>) {
    contenders
        .into_iter()
        .map(|one| {
            let name = one.system.name();
            (one.system, (name, one.only))
        })
        .unzip()
}

fn nvram() -> OneJournal {
    OneJournal::new().nvram()
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    throughput::run(lab, scale, section, samples)?;
    deltas::run(lab, scale, section, samples)
}
