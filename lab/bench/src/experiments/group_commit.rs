//! Many processes, each of which syncs its own file.

use super::{Experiment, Scale, programs};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::fio::{self, FioArgs, Pattern, Sync};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "group-commit",
    title: "Group commit",
    paper: "",
    figure: "",
    about: "fio: 1, 4 and 16 processes, each appending 200 bytes to a file of its own and syncing \
            it. Syncs a second, flushes of the device and commits of OneJournal for each.",
    paper_claim: "",
    goal: "With 16 processes at least four syncs a commit.",
    sizes: &[],
    run,
};

const RATE: Metric = Metric::higher("syncs a second", "1/s");

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("fio", "fio")]) {
        return Ok(());
    }
    let recipes: [Box<dyn System>; 4] = [
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(OneJournal::new()),
    ];
    for device in scale.devices(&["ssd311"]) {
        let mut running = systems::start(lab, &recipes, &Site::new(&device, 320), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        let panel = format!("{device}: append 200 bytes and fsync");
        for _ in 0..scale.rounds() {
            for processes in [1, 4, 16] {
                measure::in_turns(&mut rng, &mut running, |_, system| {
                    let key = Key {
                        case: format!("{processes}"),
                        ..Key::at(&panel, f64::from(processes))
                    };
                    measure_one(system, &key, processes, scale.pick(300, 1000), samples)
                })?;
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        let key = Key::at(&panel, 16.0);
        let commits = samples.count_of(&key, "OneJournal", RATE, "commits").unwrap_or(f64::NAN);
        let claim = format!("{device}, 16 processes: syncs a commit");
        section.verdicts.push(Verdict::at_least(claim, "", 1.0 / commits, 4.0));
        let speed = samples.ratio(&key, RATE, "OneJournal", &Ext4::ordered().name())?.of_medians;
        let claim = format!("{device}, 16 processes: syncs a second over ext4 ordered's");
        section.verdicts.push(Verdict::at_least(claim, "", speed, 1.0));
        let plot = Plot::lines("Syncs a second", RATE.name, "processes", vec![panel]);
        section.plots.push(plot.log_x().log_y());
    }
    Ok(())
}

fn measure_one(
    system: &Running,
    key: &Key,
    processes: u32,
    millis: u64,
    samples: &mut Samples,
) -> Result<()> {
    let args = FioArgs {
        dir: system.dir.clone(),
        files: 1,
        file_kib: 8 << 10,
        block_bytes: 200,
        pattern: Pattern::Append,
        sync: Sync::Fsync(1),
        processes,
        millis,
        seed: 7,
        environment: system.client.variables(),
    };
    let commits =
        || Ok::<_, crate::error::Error>(system.stat()?.and_then(|stat| stat["commits"].as_u64()));
    let (counts, before) = (system.counts()?, commits()?);
    let result = fio::run(&args)?;
    let counts = system.counts()? - counts;
    let syncs = result.syncs as usize;
    samples.add(key, &system.name, RATE, result.syncs as f64 / result.seconds);
    samples.count(key, &system.name, RATE, syncs, &counts);
    if let (Some(before), Some(after)) = (before, commits()?) {
        samples.count_named(key, &system.name, RATE, 0, &[("commits", (after - before) as f64)]);
    }
    Ok(())
}
