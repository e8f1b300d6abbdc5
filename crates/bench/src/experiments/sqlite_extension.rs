//! The SQLite extension: one writer, and eight at the same time.

use std::time::Instant;

use super::sqlite_clients::{OneRow, TIME, transactions};
use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Child, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::{Eatmydata, Log, SqliteExtension};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-extension",
    title: "The SQLite extension",
    paper: "",
    figure: "",
    about: "SQLite in WAL mode, one row a transaction: plain on ext4 ordered, with the extension and its log beside the database \
            or with lanes in memory (which stands for NVRAM), on a OneJournal volume with and without it, and with libeatmydata, \
            which makes nothing durable: the ceiling. Then eight processes at once, each with databases of its own.",
    paper_claim: "",
    goal: "On NVRAM ten times as fast as plain, and within 7 % of no durability; with many writers on a disk twice as fast as plain.",
    run,
};

const RATE: Metric = Metric::higher("transactions of all writers", "1/s");
const WRITERS: usize = 8;

fn run(lab: &Lab, scale: &Scale, section: &mut Section) -> Result<()> {
    let plain = || Box::new(Ext4::ordered()) as Box<dyn System>;
    let recipes: [Box<dyn System>; 6] = [
        plain(),
        Box::new(SqliteExtension(plain(), Log::BesideDatabase)),
        Box::new(SqliteExtension(plain(), Log::Nvram)),
        Box::new(Eatmydata(plain())),
        Box::new(OneJournal::new()),
        Box::new(SqliteExtension(Box::new(OneJournal::new()), Log::BesideDatabase)),
    ];
    let names = recipes.iter().map(|recipe| recipe.name()).collect::<Vec<_>>();
    let mut samples = Samples::default();
    for device in scale.devices(&["ssd311"]) {
        let mut running = systems::start(lab, &recipes, &Site::new(&device, 256), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        let one = format!("{device}: one writer, WAL");
        let many = format!("{device}: {WRITERS} writers, WAL");
        let arguments = ["--journal-mode", "WAL"];
        let one_row = OneRow { panel: &one, arguments: &arguments, count: scale.pick(60, 600) };
        for _ in 0..scale.rounds() {
            one_row.round(lab, &running, &mut rng, &mut samples)?;
            measure::in_turns(&mut rng, &mut running, |_, system| {
                many_writers(lab, system, &many, scale.pick(40, 400), &mut samples)
            })?;
            watch.end_round(&running, section)?;
        }
        let has_ceiling = running.iter().any(|system| system.name == names[3]);
        systems::stop(running)?;
        judge(section, &samples, (&one, &many), &names, has_ceiling)?;
        section
            .plots
            .push(Plot::bars("Transaction time of one writer", TIME.name, vec![one]).log_y());
        section.plots.push(Plot::bars("Writers at the same time", RATE.name, vec![many]));
    }
    samples.write_to(section);
    Ok(())
}

/// All clients get all their work at once; until the last answer.
fn many_writers(
    lab: &Lab,
    system: &Running,
    panel: &str,
    count: usize,
    samples: &mut Samples,
) -> Result<()> {
    let path = |index: usize| system.dir.join(format!("writer-{index}.db"));
    let mut clients: Vec<Child> = Vec::new();
    for index in 0..WRITERS {
        let program = system.client.apply_to_sqlite(lab.client("sqlite"));
        let mut child = program.args(["--journal-mode", "WAL"]).arg(path(index)).start()?;
        child.read_line()?;
        clients.push(child);
    }
    let lines = transactions("insert", &(0..count).collect::<Vec<_>>(), 1);
    let (before, start) = (system.counts()?, Instant::now());
    for client in &mut clients {
        client.send(&lines.join("\n"))?;
    }
    for client in &mut clients {
        for _ in 0..count {
            client.read_line()?.parse::<f64>().map_err(|_| Error::other("no time"))?;
        }
    }
    let (seconds, counts) = (start.elapsed().as_secs_f64(), system.counts()? - before);
    let (key, all) = (Key::case(panel, "insert"), count * WRITERS);
    samples.add(&key, &system.name, RATE, all as f64 / seconds);
    samples.count(&key, &system.name, RATE, all, &counts);
    for (index, client) in clients.into_iter().enumerate() {
        client.finish()?;
        std::fs::remove_file(path(index)).map_err(Error::at(&path(index)))?;
    }
    Ok(())
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    (one, many): (&str, &str),
    names: &[String],
    has_ceiling: bool,
) -> Result<()> {
    let insert = Key::case(one, "insert");
    let (plain, beside, nvram) = (&names[0], &names[1], &names[2]);
    let speed = samples.ratio(&insert, TIME, plain, nvram)?.of_medians;
    let claim = format!("{one}, lanes on NVRAM: speed over plain");
    section.verdicts.push(Verdict::at_least(claim, "", speed, 10.0));
    if has_ceiling {
        let time = samples.ratio(&insert, TIME, nvram, &names[3])?.of_medians;
        let claim = format!("{one}, lanes on NVRAM: time over that without durability");
        section.verdicts.push(Verdict::at_most(claim, "", time, 1.07));
    }
    let speed = samples.ratio(&Key::case(many, "insert"), RATE, beside, plain)?.of_medians;
    let claim = format!("{many}, log on the disk: speed over plain");
    section.verdicts.push(Verdict::at_least(claim, "", speed, 2.0));
    Ok(())
}
