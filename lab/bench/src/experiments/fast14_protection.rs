//! FAST'14, figure 4: the cost of protecting transactions.

use super::fast14_cases::{FILE_ADAPTIVE, file_adaptive};
use super::sqlite_clients::{FIRST_FREE_KEY, OPERATIONS, SqliteClients, transactions};
use super::{Experiment, FAST14, PaperSize, Scale};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::{Key, Metric, Samples, Watch, statistics};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::{Log, SqliteArguments, SqliteExtension};
use crate::systems::{self, Ext4, OneJournal, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "fast14-protection",
    title: "What transactional protection costs",
    paper: FAST14,
    figure: "Figure 4",
    about: "SQLite's transactions with full protection (its write-ahead log on OneJournal, and on \
            file-adaptive journaling as in FAST'14, which is the paper's system and the only one \
            that is compared with its figures), with the application's own protection \
            only (its log on ext4 without a journal), and with none (no log, no sync, on ext4 \
            without a journal): that is memory. The log has grown before and is written again \
            from its beginning. *WAL that grows* is a second row, without a verdict: 100 \
            transactions of each kind on an empty table, before any checkpoint. The application's \
            own protection is on ext4 without a journal because the paper has it there. That is \
            not the fastest place: with a WAL in use it makes more device writes than ext4 \
            ordered, which `fast14-cases` measures and this experiment does not. The system \
            without protection is defined as in the paper. Its transactions make no device write \
            and no flush here, so *over none* is the time of an emulated disk over the time of \
            this machine's processor. The paper's processors ran at 1.0 GHz (tablet) and 2.0 GHz \
            (SSD). Its text gives no time without protection, but *less than 2* means that memory \
            took more than half of the time of full protection there.",
    paper_claim: "Full protection costs almost nothing beyond the application's own. Against no \
            protection it is almost an order of magnitude slower for small transactions, and less \
            than a factor of two for large ones.",
    goal: "Full protection no slower than the application's own; as in FAST'14 at most 1.06 of its \
            time, the paper's bound of the cases with a write-ahead log (`fast14-cases`).",
    sizes: &[&SMALL, &LARGE],
    run,
};

const TIME: Metric = Metric::lower("transaction time", "ms");
const SIZE_MIB: u32 = 256;
/// Transactions of the paper's rounds.
const SMALL: PaperSize = PaperSize::of("transactions of 1 operation", 10_000, 1_000, 20);
const LARGE: PaperSize = PaperSize::of("transactions of 1,000 operations", 10, 10, 1);
/// Transactions of each operation while the WAL grows: fewer pages than SQLite's checkpoint.
const GROWING: usize = 100;
const FULL: [&str; 3] = ["OneJournal", "OneJournal, SQLite extension", FILE_ADAPTIVE];
const OWN: &str = "ext4 no journal";
const NONE: &str = "ext4 no journal, no protection";
const WAL: [&str; 2] = ["--journal-mode", "WAL"];
const WAL_FILE_ADAPTIVE: [&str; 3] = ["--journal-mode", "WAL", "--file-adaptive"];
const NOTHING: [&str; 4] = ["--journal-mode", "OFF", "--synchronous", "OFF"];

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    for device in scale.devices(&["emmc", "ssd311"]) {
        let with = |system: Box<dyn System>, suffix, arguments| {
            Box::new(SqliteArguments { system, suffix, arguments }) as Box<dyn System>
        };
        let recipes = [
            with(Box::new(OneJournal::new()), "", &WAL[..]),
            with(
                Box::new(SqliteExtension(Box::new(OneJournal::new()), Log::BesideDatabase)),
                "",
                &WAL[..],
            ),
            Box::new(file_adaptive(&WAL_FILE_ADAPTIVE)),
            with(Box::new(Ext4::no_journal()), "", &WAL[..]),
            with(Box::new(Ext4::no_journal()), ", no protection", &NOTHING[..]),
        ];
        let running = systems::start(lab, &recipes, &Site::new(&device, SIZE_MIB), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for _ in 0..scale.rounds() {
            for (operations, count) in
                [(1, scale.size::<usize>(&SMALL)), (1000, scale.size(&LARGE))]
            {
                let in_use = SqliteClients::with_wal_in_use(lab, &running, "protection", &[])?;
                let keys = (FIRST_FREE_KEY..FIRST_FREE_KEY + operations * count).collect();
                let panel = panel(&device, operations);
                round(in_use, &panel, (operations, keys), &mut rng, samples)?;
            }
            let new = SqliteClients::start(lab, &running, "protection", &[])?;
            let keys = (0..scale.pick(20, GROWING)).collect();
            round(new, &grows(&device), (1, keys), &mut rng, samples)?;
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        let panels = vec![panel(&device, 1), panel(&device, 1000)];
        for (panel, full) in panels.iter().flat_map(|panel| FULL.map(|full| (panel, full))) {
            judge(section, samples, panel, full)?;
        }
        let panels = [panels, vec![grows(&device)]].concat();
        let title = format!("Transaction time on {device}");
        section.plots.push(Plot::bars(title, TIME.name, panels).log_y());
    }
    Ok(())
}

fn panel(device: &crate::lab::Device, operations: usize) -> String {
    format!("{device}: {operations} op/txn")
}

/// The panel of one operation a transaction with a WAL that grows.
fn grows(device: &crate::lab::Device) -> String {
    format!("{}, WAL that grows", panel(device, 1))
}

/// All operations on these keys.
fn round(
    mut clients: SqliteClients<'_>,
    panel: &str,
    (operations, mut keys): (usize, Vec<usize>),
    rng: &mut fastrand::Rng,
    samples: &mut Samples,
) -> Result<()> {
    for operation in OPERATIONS {
        if operation != "insert" {
            rng.shuffle(&mut keys);
        }
        let lines = transactions(operation, &keys, operations);
        let group = if operations == 1 { 10 } else { 1 };
        clients.round(rng, &lines, group, (samples, &Key::case(panel, operation), TIME))?;
    }
    clients.finish()
}

fn judge(section: &mut Section, samples: &Samples, panel: &str, ours: &str) -> Result<()> {
    let is_large = panel.contains("1000");
    let (wanted, paper, paper_over_none) = match ours == FILE_ADAPTIVE {
        true if is_large => (1.06, "almost 1", "less than 2"),
        true => (1.06, "almost 1", "almost 10"),
        false => (1.0, "", ""),
    };
    let (ratio, operation) = worst(samples, panel, ours, OWN)?;
    let costs = samples.costs(&Key::case(panel, operation), TIME, &[ours, OWN]);
    let claim =
        format!("{panel}: full protection by {ours} over the application's own at most {wanted}");
    section.verdicts.push(
        Verdict::at_most(claim, paper, ratio, wanted)
            .saying(format!("The worst of three operations: {operation}. {costs}")),
    );
    let (price, operation) = worst(samples, panel, ours, NONE)?;
    let key = Key::case(panel, operation);
    let none_ms = samples.of(&key, NONE, TIME).map_or(f64::NAN, statistics::median);
    let costs = samples.costs(&key, TIME, &[ours, NONE]);
    let claim = format!("{panel}: full protection by {ours} over none");
    section.verdicts.push(Verdict::shown(claim, paper_over_none, price).saying(format!(
        "The worst of three operations: {operation}, which takes {none_ms:.3} ms without \
         protection. {costs}"
    )));
    Ok(())
}

/// The largest ratio of the three operations, and its operation.
fn worst(samples: &Samples, panel: &str, ours: &str, base: &str) -> Result<(f64, &'static str)> {
    let mut worst = (0.0, OPERATIONS[0]);
    for operation in OPERATIONS {
        let ratio = samples.ratio(&Key::case(panel, operation), TIME, ours, base)?.of_medians;
        if ratio > worst.0 {
            worst = (ratio, operation);
        }
    }
    Ok(worst)
}
