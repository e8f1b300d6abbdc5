//! RocksDB's synchronous puts on the file system under test.

use super::programs::{self, Goal};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::fillsync::{self, Database, FillsyncArgs, Order};
use crate::results::{Plot, Section};
use crate::systems::client::Eatmydata;
use crate::systems::{self, Ext4, OneJournal, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "rocksdb-fillsync",
    title: "RocksDB and LevelDB with their own logs",
    paper: "",
    figure: "",
    about: "Puts of 100-byte values at random keys, each synchronous, into a new RocksDB and a new \
            LevelDB with their default settings: both grow a log file and `fdatasync` it. Median \
            time of a put, and what the disk gets for each while the program runs: a volume still \
            has to bring home what its journal holds at the end of it, which is not counted. On a \
            model of an Intel 311 SSD (`ssd311`). The ceiling is libeatmydata, with which nothing \
            is durable.",
    paper_claim: "",
    goal: "Faster than ext4 ordered.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("put", "µs");
const SIZE_MIB: u32 = 384;
const DATABASES: [(Database, &str); 2] =
    [(Database::Rocksdb, "RocksDB"), (Database::Leveldb, "LevelDB")];

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::no_journal()),
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().nvram()),
        Box::new(Eatmydata(Box::new(Ext4::ordered()))),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::is_there(section, fillsync::need(&DATABASES.map(|(database, _)| database))) {
        return Ok(());
    }
    let puts = scale.pick(500, 2000);
    section.set("puts of a round", puts);
    section.plots.push(Plot::bars("Time of a put", TIME.name, Vec::new()));
    for device in scale.devices(&["ssd311"]) {
        on_device(lab, scale, section, &device, puts, samples)?;
        judge(section, samples, &device)?;
    }
    Ok(())
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    puts: u64,
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for (database, name) in DATABASES {
            let key = Key::case(device.to_string(), name);
            programs::round(&mut rng, &running, (samples, &key, TIME), |running| {
                let found = fillsync::run(&FillsyncArgs {
                    database,
                    dir: running.dir.clone(),
                    puts,
                    value_bytes: 100,
                    order: Order::Fillrandom,
                    values: None,
                    plain: true,
                    nvram: None,
                    environment: running.client.variables(),
                })?;
                Ok((found.plain.median_us, puts))
            })?;
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
    for (_, name) in DATABASES {
        for ours in [OneJournal::new(), OneJournal::new().nvram()] {
            let goal = Goal {
                key: Key::case(device.to_string(), name),
                metric: TIME,
                ours: ours.name(),
                theirs: Ext4::ordered().name(),
                paper: "",
                wanted: Some(1.0),
            };
            goal.judge(section, samples)?;
        }
    }
    Ok(())
}
