//! Okeanos, figure 5a: Postmark with synchronous writes, by the size of its calls.

use super::programs::{self, Goal};
use super::{Experiment, OKEANOS, PaperSize, Scale, okeanos};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::postmark::{self, PostmarkArgs};
use crate::results::{Plot, Section};
use crate::systems::{self, Ext4, OneJournal, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-postmark",
    title: "Postmark with synchronous writes",
    paper: OKEANOS,
    figure: "Figure 5a",
    about: "Postmark makes files of 500 bytes to 9.77 KiB, and in each transaction reads one or \
            appends to one, and makes or deletes one; all writes with `O_SYNC`, in calls of the \
            size on the axis. Processes share the transactions; the paper had threads, and the \
            journal on a disk of its own. The long load has the paper's number of transactions, \
            for calls of 128 KiB, the paper's largest: with smaller ones a round of it takes up to \
            ten minutes. Each process has files of its own, and as many as it needs not to run out \
            of them: 127 in the long load. Transactions a second, making and deleting of the files \
            included; and what the disk gets for each. Postmark cuts its files from one buffer, so \
            60 of them together compress to a twentieth, and OneJournal compresses its journal. \
            *as in Okeanos* is OneJournal without compression, with whole blocks of metadata, and \
            with blocks of the journal that are filled up. It is judged; the modes that compress \
            are shown. On a model of an Intel 311 SSD (`ssd311`); the paper had a disk \
            (`--device hdd`), where small calls take hours.",
    paper_claim: "Wasteless journaling is faster than all other modes at all sizes, up to 738 \
            transactions a second; selective lies between data journaling and ordered, which are \
            slower.",
    goal: "Without compression, wasteless has more transactions a second than ext4 in any mode, \
            and than selective, at all sizes.",
    sizes: &[&FILES, &TRANSACTIONS, &LONG_TRANSACTIONS, &PROCESSES],
    run,
};

const RATE: Metric = Metric::higher("transactions a second", "1/s");
const SIZE_MIB: u32 = 384;
const FILES: PaperSize = PaperSize::of("files at the beginning", 500, 200, 30);
const TRANSACTIONS: PaperSize = PaperSize::of("transactions", 10_000, 500, 60);
const LONG_TRANSACTIONS: PaperSize =
    PaperSize::of("transactions of the long load", 10_000, 10_000, 120);
const PROCESSES: PaperSize = PaperSize::of("processes", 100, 10, 10);

fn recipes() -> Vec<Box<dyn System>> {
    let ours = |mode| Box::new(OneJournal::new().data(mode));
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Ext4::writeback_async()),
        Box::new(Ext4::journal()),
        ours("wasteless"),
        ours("selective"),
        ours("auto"),
        Box::new(okeanos::wasteless_as_in_paper()),
        Box::new(okeanos::selective_as_in_paper()),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("postmark", "postmark"), ("cc", "gcc")]) {
        return Ok(());
    }
    let sizes = scale.pick(vec![512, 16 << 10], vec![128, 1024, 16 << 10, 128 << 10]);
    section.plots.push(
        Plot::lines("Transactions a second", RATE.name, "bytes of a call", Vec::new()).log_x(),
    );
    for device in scale.devices(&["ssd311"]) {
        let mut cases: Vec<Case> = sizes.iter().map(|bytes| (&SHORT, *bytes)).collect();
        cases.push((&LONG, 128 << 10));
        on_device(lab, scale, section, &device, &cases, samples)?;
        for case in &cases {
            judge(section, samples, &case_key(&device, case))?;
        }
    }
    Ok(())
}

/// What all processes do together.
struct Load {
    /// Follows the device in the name of the panel.
    name: &'static str,
    transactions: &'static PaperSize,
}

const SHORT: Load = Load { name: "", transactions: &TRANSACTIONS };
const LONG: Load = Load { name: ": the long load", transactions: &LONG_TRANSACTIONS };

/// A load, and the bytes of a call.
type Case<'a> = (&'a Load, u64);

fn case_key(device: &Device, (load, block_bytes): &Case<'_>) -> Key {
    Key::at(format!("{device}{}", load.name), *block_bytes as f64)
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    cases: &[Case<'_>],
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        for case in cases {
            let key = case_key(device, case);
            let (load, block_bytes) = *case;
            scale.say_round(round, format_args!("{}, {block_bytes} bytes", key.panel));
            programs::round(&mut rng, &running, (samples, &key, RATE), |running| {
                let found = postmark::run(&PostmarkArgs {
                    dir: running.dir.clone(),
                    files: scale.size(&FILES),
                    transactions: scale.size(load.transactions),
                    processes: scale.size(&PROCESSES),
                    block_bytes,
                    unsynced: false,
                    environment: running.client.variables(),
                })?;
                Ok((found.transactions_per_second, found.transactions))
            })?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

fn judge(section: &mut Section, samples: &Samples, key: &Key) -> Result<()> {
    let mut judge = |ours: &OneJournal, theirs: String, paper, wanted| {
        let (key, ours) = (key.clone(), ours.name());
        Goal { key, metric: RATE, ours, theirs, paper, wanted }.judge(section, samples)
    };
    let of_paper = okeanos::wasteless_as_in_paper();
    // The paper has no writeback.
    for (theirs, paper) in
        [(Ext4::ordered(), "above 1"), (Ext4::writeback_async(), ""), (Ext4::journal(), "above 1")]
    {
        judge(&of_paper, theirs.name(), paper, Some(1.0))?;
    }
    judge(&of_paper, okeanos::selective_as_in_paper().name(), "above 1", Some(1.0))?;
    // Compression is a part of these.
    for ours in ["wasteless", "auto"].map(|mode| OneJournal::new().data(mode)) {
        for theirs in [Ext4::ordered(), Ext4::writeback_async(), Ext4::journal()] {
            judge(&ours, theirs.name(), "", None)?;
        }
    }
    Ok(())
}
