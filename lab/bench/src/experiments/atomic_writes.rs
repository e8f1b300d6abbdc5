//! SQLite that writes its transactions as atomic writes, without a journal of its own.

use super::sqlite_clients::{OneRow, TIME, worst_ratio};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::{Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "atomic-writes",
    title: "Atomic writes in place of SQLite's rollback journal",
    paper: "",
    figure: "",
    about: "The same SQLite, built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, on all sides: in \
            DELETE mode it uses the atomic writes of a OneJournal volume with `-o atomic_writes`, \
            and a rollback journal elsewhere. Most distributions build SQLite without them; such \
            a SQLite writes a rollback journal on all sides.",
    paper_claim: "",
    goal: "Three times as fast as ext4 ordered.",
    sizes: &[],
    run,
};

const SIZE_MIB: u32 = 320;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let atomic = OneJournal::new().option("atomic_writes");
    let (ours, peer) = (atomic.name(), Ext4::ordered().name());
    let recipes: [Box<dyn System>; 4] =
        [Box::new(Ext4::ordered()), Box::new(Xfs), Box::new(OneJournal::new()), Box::new(atomic)];
    let mut panels = Vec::new();
    for device in scale.devices(&["ssd311", "emmc"]) {
        let running = systems::start(lab, &recipes, &Site::new(&device, SIZE_MIB), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        let panel = format!("{device}: DELETE");
        let arguments = ["--journal-mode", "DELETE"];
        let count = scale.pick(20, 200);
        let one_row = OneRow { panel: &panel, arguments: &arguments, is_wal_in_use: false, count };
        for _ in 0..scale.rounds() {
            one_row.round(lab, &running, &mut rng, samples)?;
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        let (time, place) = worst_ratio(samples, std::slice::from_ref(&panel), &ours, &peer)?;
        let claim = format!("{device}: speed over {peer}, the least of 3 cases");
        section.verdicts.push(Verdict::at_least(claim, "", 1.0 / time, 3.0).saying(place));
        panels.push(panel);
    }
    section.plots.push(Plot::bars("Transaction time", TIME.name, panels));
    Ok(())
}
