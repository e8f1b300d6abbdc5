//! A directory with many entries, and syncs without changes.

use serde::Deserialize;

use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Lab, Program};
use crate::measure::statistics::{median, quantile};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Fuse2fs, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "directory",
    title: "A large directory, and syncs with nothing new",
    paper: "",
    figure: "",
    about: "Empty files are made in one directory; then random ones are looked up (`stat`) with \
            the kernel's caches dropped; then a file of which nothing is new is synced 1,000 \
            times.",
    paper_claim: "",
    goal: "50 µs a lookup (median); no device write for a sync with nothing new.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("time of a call", "µs");
const PANEL: &str = "a large directory";
const CASES: [&str; 4] = ["create", "lookup", "lookup, 99 %", "idle fsync"];
const IDLE_SYNCS: usize = 1000;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let (entries, lookups) = (scale.pick(3000, 100_000), scale.pick(500, 2000));
    section.set("entries", entries);
    let mut recipes: Vec<Box<dyn System>> =
        vec![Box::new(Ext4::ordered()), Box::new(Xfs), Box::new(OneJournal::new())];
    if scale.is_quick {
        recipes.insert(2, Box::new(Fuse2fs));
    } else {
        section.leave_out(&Fuse2fs.name(), "100,000 entries take it minutes; a quick run has it");
    }
    for device in scale.devices(&["memory"]) {
        let site = Site::new(&device, scale.pick(320, 2048));
        let mut running = systems::start(lab, &recipes, &site, section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for _ in 0..scale.rounds() {
            measure::in_turns(&mut rng, &mut running, |_, system| {
                measure_one(lab, system, entries, lookups, samples)
            })?;
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
    }
    let of = |case: &str| samples.of(&Key::case(PANEL, case), "OneJournal", TIME).map(median);
    let lookup = of("lookup").unwrap_or(f64::NAN);
    section.verdicts.push(Verdict::at_most("µs of a lookup, at most 50", "", lookup, 50.0));
    let idle = Key::case(PANEL, "idle fsync");
    for name in ["writes", "flushes"] {
        let count = samples.count_of(&idle, "OneJournal", TIME, name).unwrap_or(f64::NAN);
        let claim = format!("device {name} of a sync with nothing new");
        section.verdicts.push(Verdict::at_most(claim, "", count, 0.0));
    }
    section.plots.push(Plot::bars("Time of a call", TIME.name, Vec::new()).log_y());
    Ok(())
}

#[derive(Deserialize)]
struct Times {
    us: Vec<f64>,
}

fn measure_one(
    lab: &Lab,
    system: &Running,
    entries: usize,
    lookups: usize,
    samples: &mut Samples,
) -> Result<()> {
    let dir = system.dir.join("large");
    let ask = |program: Program| -> Result<Vec<f64>> {
        let text = system.client.apply(program).run()?;
        Ok(serde_json::from_str::<Times>(&text).map_err(Error::json("entries"))?.us)
    };
    let mut add =
        |case: &str, value| samples.add(&Key::case(PANEL, case), &system.name, TIME, value);
    let client = |command: &str| lab.client("entries").arg(command);
    add(CASES[0], ask(client("make").arg(&dir).arg(entries.to_string()))?[0]);
    system.sync()?;
    crate::lab::drop_caches()?;
    let look = client("look").arg(&dir).args([entries.to_string(), lookups.to_string()]);
    let us = ask(look)?;
    add(CASES[1], median(&us));
    add(CASES[2], quantile(&us, 0.99));
    std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))?;
    let file = system.dir.join("idle");
    let idle = client("sync-idle").arg(&file);
    // What the file itself takes is over before the calls are counted.
    ask(idle.arg("1"))?;
    system.sync()?;
    let before = system.counts()?;
    let us = ask(client("sync-idle").arg(&file).arg(IDLE_SYNCS.to_string()))?;
    let counts = system.counts()? - before;
    add(CASES[3], median(&us));
    samples.count(&Key::case(PANEL, CASES[3]), &system.name, TIME, IDLE_SYNCS, &counts);
    std::fs::remove_file(&file).map_err(Error::at(&file))
}
