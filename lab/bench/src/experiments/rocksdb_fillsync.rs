//! RocksDB's synchronous puts on the file system under test.

use super::programs::{self, Goal, Removal, Turn};
use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::fillsync::{self, Asked, Database, FillsyncArgs, Order};
use crate::results::{ALL_HOME_KIB, Plot, Section};
use crate::systems::client::Eatmydata;
use crate::systems::{self, Ext4, OneJournal, Site, System, Xfs};
use crate::values::{RANDOM_AND_TEXT, ValueKind};

pub const EXPERIMENT: Experiment = Experiment {
    id: "rocksdb-fillsync",
    title: "RocksDB and LevelDB with their own logs",
    paper: "",
    figure: "",
    about: "Puts of 100-byte values at random keys, each synchronous, into a new RocksDB and a new \
            LevelDB with their default settings: both grow a log file and `fdatasync` it. Values \
            are random bytes, which do not compress, or English words with the frequencies of \
            prose (*text*). Median time of a put; what the disk gets for each until the database \
            is closed; and as *all home*, until the file system is unmounted. On a model of an \
            Intel 311 SSD (`ssd311`). The ceiling is libeatmydata, with which nothing is durable.",
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
    for device in scale.devices(&["ssd311"]) {
        let panels = RANDOM_AND_TEXT.map(|values| programs::panel(&device, values));
        section.plots.push(Plot::bars("Time of a put", TIME.name, panels[..1].to_vec()));
        let bytes = Plot::bars("KiB written for a put, all home", TIME.name, panels.to_vec());
        section.plots.push(bytes.of_count(ALL_HOME_KIB));
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
    let text = fillsync::file_of_words(lab.memory(), lab.next_seed())?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for values in RANDOM_AND_TEXT {
            for (database, name) in DATABASES {
                let key = Key::case(programs::panel(device, values), name);
                programs::round_until_home(&mut rng, &running, (samples, &key, TIME), |running| {
                    let asked = Asked::start(&FillsyncArgs {
                        database,
                        dir: running.dir.clone(),
                        puts,
                        value_bytes: 100,
                        order: Order::Fillrandom,
                        values: (values.0 == ValueKind::Text).then(|| text.clone()),
                        plain: true,
                        nvram: None,
                        environment: running.client.variables(),
                    })?;
                    Ok(Fill { asked, puts })
                })?;
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)?;
    std::fs::remove_file(&text).map_err(Error::at(&text))
}

struct Fill {
    asked: Asked,
    puts: u64,
}

impl Turn for Fill {
    fn work(&mut self) -> Result<(f64, u64)> {
        Ok((self.asked.put()?.median_us, self.puts))
    }

    /// The puts end with the database closed.
    fn close(self) -> Result<Removal> {
        Ok(Box::new(|| self.asked.finish()))
    }
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
