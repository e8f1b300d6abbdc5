//! SQLite's one-row transactions with the journal on NVRAM.

use super::sqlite_clients::{OneRow, TIME, worst_ratio};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-nvram",
    title: "SQLite with the journal on NVRAM",
    paper: "",
    figure: "",
    about: "One-row transactions, in WAL mode with a WAL that is in use, with the journal in \
            memory, which stands for NVRAM, also with 40 ns more for each cache line; beside ext4 \
            ordered on the same device, and OneJournal with its journal there.",
    paper_claim: "",
    goal: "Five times as fast as ext4 ordered; 40 ns cost at most 10 %.",
    sizes: &[],
    run,
};

const MODES: [&str; 2] = ["WAL", "PERSIST"];

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let slow = OneJournal::new().journal(Journal::Nvram { latency_ns_per_line: 40 });
    let fast = OneJournal::new().nvram();
    let (slow_name, fast_name) = (slow.name(), fast.name());
    let ordered = Ext4::ordered().name();
    let recipes: [Box<dyn System>; 4] =
        [Box::new(Ext4::ordered()), Box::new(OneJournal::new()), Box::new(fast), Box::new(slow)];
    for device in scale.devices(&["ssd311"]) {
        let running = systems::start(lab, &recipes, &Site::new(&device, 256), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        let panels = MODES.map(|mode| panel(&device, mode));
        for _ in 0..scale.rounds() {
            for (mode, panel) in MODES.iter().zip(&panels) {
                let arguments = ["--journal-mode", mode];
                let (is_wal_in_use, count) = (*mode == "WAL", scale.pick(50, 500));
                let one_row = OneRow { panel, arguments: &arguments, is_wal_in_use, count };
                one_row.round(lab, &running, &mut rng, samples)?;
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        let (time, place) = worst_ratio(samples, &panels, &fast_name, &ordered)?;
        let claim = format!("{device}: speed over {ordered}, the least of 6 cases");
        section.verdicts.push(Verdict::at_least(claim, "", 1.0 / time, 5.0).saying(place));
        let (cost, place) = worst_ratio(samples, &panels, &slow_name, &fast_name)?;
        let claim =
            format!("{device}: time with 40 ns more over that without, the most of 6 cases");
        section.verdicts.push(Verdict::at_most(claim, "", cost, 1.1).saying(place));
        let title = format!("Transaction time on {device}");
        section.plots.push(Plot::bars(title, TIME.name, panels.to_vec()).log_y());
    }
    Ok(())
}

fn panel(device: &Device, mode: &str) -> String {
    format!("{device}: {mode}")
}
