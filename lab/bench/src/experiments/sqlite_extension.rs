//! The SQLite extension: one writer, and eight processes that write 64 databases at the same time.

use super::sqlite_clients::{OneRow, ROWS, TIME, transactions, until_wal_is_in_use};
use super::sqlite_writers::{ALL_WRITTEN, Load, WRITTEN, Writers};
use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::{Eatmydata, InBackground, Log, SqliteArguments, SqliteExtension};
use crate::systems::{self, Ext4, OneJournal, ScratchFolder, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-extension",
    title: "The SQLite extension",
    paper: "",
    figure: "",
    about: "SQLite in WAL mode with a WAL that is in use, one row a transaction: plain with \
            `synchronous=FULL` on ext4 ordered and on XFS, with the extension and its log beside \
            the database or with lanes in memory (which stands for NVRAM), on a OneJournal volume \
            with and without it, and with nothing durable, the ceiling: `synchronous=OFF` and \
            libeatmydata. \
            Then writers that do not pause: one process with one database, and eight processes \
            with eight databases each, which they take in turns; after each burst everything is \
            written back, which counts for the bytes but not for the time. The extension has its \
            default, with which a commit makes the checkpoints of the WAL; with \
            *checkpoint=background* a thread makes them. The same again on this machine's own \
            disk, in the scratch folder as it is; requests of other programs to that disk count, \
            too.",
    paper_claim: "",
    goal: "On NVRAM ten times as fast as plain on this machine's disk, and at most 1.25 times the \
            time of `synchronous=OFF` (aim: 1.07). With the log on the disk, 64 databases: twice \
            as fast as plain on this machine's disk, four times on an SSD; a fifth of the bytes, \
            everything written back.",
    sizes: &[],
    run,
};

const RATE: Metric = Metric::higher("transactions of all writers", "1/s");
const LOADS: [Load; 2] = [Load { processes: 1, databases: 1 }, Load { processes: 8, databases: 8 }];
/// The WALs of 64 databases have 5 MiB each, and their logs up to 2 MiB.
const SIZE_MIB: u32 = 1024;
const WAL: [&str; 2] = ["--journal-mode", "WAL"];
const ROWS_OF_WRITERS: [&str; 2] = ["--rows", "2000"];
const SPEED_OF_MANY_SSD: f64 = 4.0;
const SPEED_OF_MANY_HERE: f64 = 2.0;

fn variants(plain: fn() -> Box<dyn System>) -> Vec<Box<dyn System>> {
    vec![
        plain(),
        Box::new(SqliteExtension(plain(), Log::BesideDatabase)),
        Box::new(SqliteExtension(plain(), Log::Nvram)),
        Box::new(SqliteArguments {
            system: plain(),
            suffix: ", synchronous=OFF",
            arguments: &["--synchronous", "OFF"],
        }),
        Box::new(Eatmydata(plain())),
        Box::new(InBackground(SqliteExtension(plain(), Log::BesideDatabase))),
        Box::new(InBackground(SqliteExtension(plain(), Log::Nvram))),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let mut places = Vec::new();
    for device in scale.devices(&["ssd311"]) {
        let mut recipes = variants(|| Box::new(Ext4::ordered()));
        recipes.push(Box::new(Xfs));
        recipes.push(Box::new(OneJournal::new()));
        recipes.push(Box::new(SqliteExtension(Box::new(OneJournal::new()), Log::BesideDatabase)));
        places.push((device.to_string(), device, recipes, SPEED_OF_MANY_SSD));
    }
    let here = variants(|| Box::new(ScratchFolder));
    places.push(("this disk".to_owned(), Device::Scratch, here, SPEED_OF_MANY_HERE));
    for (panel, device, recipes, speed_of_many) in &places {
        on_device(lab, scale, section, (panel, device, recipes), samples)?;
        judge(section, samples, panel, recipes, *speed_of_many)?;
        let title = format!("Transaction time of one writer, {panel}");
        section.plots.push(Plot::bars(title, TIME.name, vec![one_row_panel(panel)]).log_y());
        let of_many = |title: &str| {
            Plot::bars(format!("{title}, {panel}"), RATE.name, vec![panel.clone()]).log_y()
        };
        section.plots.push(of_many("Transactions of writers without pauses"));
        section
            .plots
            .push(of_many("KiB written a transaction, all written back").of_count(ALL_WRITTEN));
    }
    Ok(())
}

fn one_row_panel(panel: &str) -> String {
    format!("{panel}: WAL, one at a time")
}

fn key_of(panel: &str, load: Load) -> Key {
    let Load { processes, databases } = load;
    let case = match processes {
        1 => "1 writer".to_owned(),
        _ => format!("{processes} processes, {} databases", processes * databases),
    };
    Key::case(panel, case)
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    (panel, device, recipes): (&str, &Device, &[Box<dyn System>]),
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, recipes, &Site::new(device, SIZE_MIB), section)?;
    let mut all = Vec::new();
    for system in &running {
        let start = |load: &Load| {
            let name = format!("writers-{}", load.processes);
            let arguments = [WAL, ROWS_OF_WRITERS].concat();
            let mut writers = Writers::start(lab, system, &name, *load, &arguments)?;
            // Each line goes to the next database.
            let lines = until_wal_is_in_use();
            let of_all = lines.iter().flat_map(|line| vec![line.clone(); load.databases]);
            writers.burst(&of_all.collect::<Vec<_>>())?;
            Ok(writers)
        };
        all.push((system, LOADS.iter().map(start).collect::<Result<Vec<_>>>()?));
    }
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    let one_row_panel = one_row_panel(panel);
    let count = scale.pick(20, 100);
    let one_row = OneRow { panel: &one_row_panel, arguments: &WAL, is_wal_in_use: true, count };
    for round in 0..scale.rounds() {
        scale.say_round(round, panel);
        one_row.round(lab, &running, &mut rng, samples)?;
        for (index, load) in LOADS.into_iter().enumerate() {
            // Lines that all fit into a pipe.
            let count =
                if load.processes == 1 { scale.pick(100, 400) } else { scale.pick(160, 640) };
            let first = 10 * ROWS + round * count;
            let keys: Vec<usize> = (first..first + count).collect();
            let lines = transactions("insert", &keys, 1);
            measure::in_turns(&mut rng, &mut all, |_, (system, writers)| {
                let burst = writers[index].burst(&lines)?;
                let rate = burst.transactions as f64 / burst.seconds;
                burst.add_to(samples, &key_of(panel, load), &system.name, (RATE, rate));
                Ok(())
            })?;
        }
        watch.end_round(&running, section)?;
    }
    for (_, writers) in all {
        writers.into_iter().try_for_each(Writers::finish)?;
    }
    systems::stop(running)
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    panel: &str,
    recipes: &[Box<dyn System>],
    speed_of_many: f64,
) -> Result<()> {
    let names: Vec<String> = recipes.iter().map(|recipe| recipe.name()).collect();
    let [plain, on_disk, nvram, off, eatmydata, background, background_nvram, ..] = &names[..]
    else {
        return Err(Error::other("variants are missing"));
    };
    let [one, many] = LOADS.map(|load| key_of(panel, load));
    let faster = |key: &Key, left: &str, right: &str| samples.ratio(key, RATE, left, right);
    let speed = faster(&one, nvram, plain)?.of_medians;
    let claim = format!("{panel}: 1 writer, lanes on NVRAM: speed over plain");
    section.verdicts.push(Verdict::at_least(claim, "", speed, 10.0));
    let time = faster(&one, off, nvram)?.of_medians;
    let claim = format!("{panel}: 1 writer, lanes on NVRAM: time over synchronous=OFF");
    section.verdicts.push(Verdict::at_most(claim, "", time, 1.25));
    if samples.of(&one, eatmydata, RATE).is_some() {
        let time = faster(&one, eatmydata, nvram)?.of_medians;
        let claim = format!("{panel}: 1 writer, lanes on NVRAM: time over libeatmydata, the aim");
        section.verdicts.push(Verdict::at_most(claim, "", time, 1.07));
    }
    let time = faster(&one, off, background_nvram)?.of_medians;
    let claim = format!("{panel}: 1 writer, NVRAM, checkpoint=background: time over OFF");
    section.verdicts.push(Verdict::at_most(claim, "", time, 1.25));
    let speed = faster(&one, on_disk, plain)?.of_medians;
    let claim = format!("{panel}: 1 writer, log on the disk: speed over plain");
    section.verdicts.push(Verdict::at_least(claim, "", speed, 1.0));
    let speed = faster(&many, on_disk, plain)?.of_medians;
    let claim = format!("{panel}: {}, log on the disk: speed over plain", many.case);
    section.verdicts.push(Verdict::at_least(claim, "", speed, speed_of_many));
    let speed = faster(&many, background, plain)?.of_medians;
    let claim = format!("{panel}: {}, checkpoint=background: speed over plain", many.case);
    section.verdicts.push(Verdict::shown(claim, "", speed));
    let share = |count: &str| {
        let of = |system: &str| samples.count_of(&many, system, RATE, count);
        Some(of(on_disk)? / of(plain)?)
    };
    if let (Some(during), Some(all)) = (share(WRITTEN), share(ALL_WRITTEN)) {
        let claim = format!(
            "{panel}: {}, log on the disk: bytes over plain's, everything written back",
            many.case
        );
        let sentence = format!("During the bursts {during:.2}.");
        section.verdicts.push(Verdict::at_most(claim, "", all, 0.2).saying(sentence));
    }
    Ok(())
}
