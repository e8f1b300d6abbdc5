//! xLog, figure 5: LevelDB with its log in a stream of the log service instead of a file.

use super::programs::{self, Goal};
use super::{Experiment, PaperSize, Scale, XLOG};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::fillsync::{self, Database, FillsyncArgs, Order};
use crate::results::{Plot, Section};
use crate::systems::{self, Ext4, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-leveldb",
    title: "LevelDB with its log as a stream",
    paper: XLOG,
    figure: "Figure 5",
    about: "Puts at random keys, each synchronous, into LevelDB on ext4 ordered, on a model of an \
            eMMC (`emmc`), by size of the value. *log file*: LevelDB as it is. *stream, NVRAM \
            lane*: LevelDB with OneJournal's plugin, its log a stream whose records are durable \
            in NVRAM, for which a tmpfs stands here; *stream, group log*: durable on the disk \
            itself. Mean time of a put, as in the paper.",
    paper_claim: "Through Binder's IPC 10.7 times as fast with values of 100 bytes; 9.1, 8.2 and \
            8.6 times with 400, 800 and 1,600.",
    goal: "15 times as fast with values of 100 bytes.",
    sizes: &[&PUTS],
    run,
};

const TIME: Metric = Metric::lower("put", "µs");
const SIZE_MIB: u32 = 384;
/// Sizes of values, and the paper's speed as a multiple.
const SIZES: [(u64, &str); 4] = [(100, "10.7"), (400, "9.1"), (800, "8.2"), (1600, "8.6")];
/// In a quick run as few as the program does.
const PUTS: PaperSize = PaperSize::of("puts of a case and round", 1000, 1000, 500);
const WANTED: f64 = 15.0;
const FILE: &str = "log file";
const NVRAM: &str = "stream, NVRAM lane";
const GROUP: &str = "stream, group log";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::is_there(section, fillsync::need(&[Database::Leveldb])) {
        return Ok(());
    }
    let puts = scale.size(&PUTS);
    section.plots.push(Plot::bars("Figure 5: time of a put", TIME.name, Vec::new()).log_y());
    for device in scale.devices(&["emmc"]) {
        let sizes = scale.pick(&SIZES[..1], &SIZES);
        on_device(lab, scale, section, &device, (sizes, puts), samples)?;
        for size in sizes {
            judge(section, samples, &device, *size)?;
        }
    }
    Ok(())
}

fn key(device: &Device, value_bytes: u64) -> Key {
    Key::case(device.to_string(), format!("{value_bytes} bytes"))
}

/// The program measures both sides in turns. So the side with the plain log is measured with each
/// kind of stream.
fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    (sizes, puts): (&[(u64, &str)], u64),
    samples: &mut Samples,
) -> Result<()> {
    let recipes: [Box<dyn System>; 1] = [Box::new(Ext4::ordered())];
    let running = systems::start(lab, &recipes, &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for (value_bytes, _) in sizes {
            let key = key(device, *value_bytes);
            measure::in_turns(&mut rng, &mut [NVRAM, GROUP], |_, name| {
                let (plain, streams) = put(lab, &running[0], name, puts, *value_bytes)?;
                samples.add(&key, &format!("{FILE} (with {name})"), TIME, plain);
                samples.add(&key, name, TIME, streams);
                Ok(())
            })?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

/// Mean times with the log as a file and as a stream.
fn put(
    lab: &Lab,
    running: &Running,
    name: &str,
    puts: u64,
    value_bytes: u64,
) -> Result<(f64, f64)> {
    let found = fillsync::run(&FillsyncArgs {
        database: Database::Leveldb,
        dir: running.dir.clone(),
        puts,
        value_bytes,
        order: Order::Fillrandom,
        values: None,
        plain: false,
        nvram: (name == NVRAM).then(|| lab.memory().to_owned()),
        environment: running.client.variables(),
    })?;
    let streams = found.streams.ok_or_else(|| Error::other("no times of streams"))?;
    Ok((found.plain.mean_us, streams.mean_us))
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    (value_bytes, paper): (u64, &'static str),
) -> Result<()> {
    for (name, paper, wanted) in
        [(NVRAM, paper, (value_bytes == 100).then_some(WANTED)), (GROUP, "", Some(1.0))]
    {
        let goal = Goal {
            key: key(device, value_bytes),
            metric: TIME,
            ours: name.to_owned(),
            theirs: format!("{FILE} (with {name})"),
            paper,
            wanted,
        };
        goal.judge(section, samples)?;
    }
    Ok(())
}
