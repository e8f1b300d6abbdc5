//! xLog, figure 1 and table 1: the cost of logging for SQLite, traditionally and with its log in
//! lanes.

use super::sqlite_clients::{FIRST_FREE_KEY, ROWS, transactions, until_wal_is_in_use};
use super::sqlite_writers::{self, Writers};
use super::{Experiment, PaperSize, Scale, XLOG};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch, statistics};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::{Log, SqliteArguments, SqliteExtension};
use crate::systems::{self, Ext4, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-sqlite",
    title: "What logging costs SQLite",
    paper: XLOG,
    figure: "Figure 1 and Table 1",
    about: "Records, an integer key and a value, are inserted into a new SQLite database in WAL \
            mode, a transaction each, in sequential or random order of keys, by size of the value \
            (the paper: 100 bytes). *ext4 ordered* is the traditional logging, \
            `synchronous=FULL`; beside it the extension with NVRAM lanes, for which a tmpfs \
            stands here, and with its log on the disk; `synchronous=OFF` still writes the log, \
            but waits for no disk; the paper counts that write as logging, too. Mean time of an \
            insert, and bytes that the device (a model of an eMMC, `emmc`, as in the paper's \
            phone) was written, with everything written back at the end, for a byte of the \
            records. The WAL of these grows, which makes traditional logging slower: the metadata \
            of the file change, too. So they are shown, and the goal is of a WAL in use. Two more \
            rows are of records of 100 bytes with random keys: into a table of 2,000 rows whose \
            *WAL is in use*, so it is written again from its beginning; and with values of English \
            words (*text*) in place of random characters.",
    paper_claim: "Logging is more than 90 % of the mean time of an insert, in SQLite and LevelDB. \
            1,000 records of 100 bytes in SQLite on ext4, in sequential and in random order of \
            keys: a log of 2,722 and 3,028 KB, 23,796 and 24,656 KB written to the eMMC: 8.7 and \
            8.1 times the log. (That is 234 and 243 bytes for a byte of the records, computed \
            here: KB of 1,024 bytes, over 1,000 keys of 4 bytes and values of 100.) xLog itself \
            was not measured with SQLite.",
    goal: "With NVRAM lanes and a WAL in use, ten times as fast as traditional logging.",
    sizes: &[&INSERTS],
    run,
};

const TIME: Metric = Metric::lower("insert", "µs");
const WRITTEN: Metric = Metric::lower("write amplification", "bytes a byte");
const SIZE_MIB: u32 = 256;
const INSERTS: PaperSize = PaperSize::of("records of a case and round", 1000, 300, 30);
const VALUE_BYTES: [u32; 4] = [100, 400, 800, 1600];
/// The keys of the paper.
const KEY_BYTES: u32 = 4;
/// Orders of keys, and Table 1's total writes over 1,000 records of 104 bytes, which are computed
/// here. (The paper divides by the size of the log.)
const ORDERS: [(&str, &str); 2] = [
    ("sequential", "234 (computed: 23,796 KiB / 104,000 bytes)"),
    ("random", "243 (computed: 24,656 KiB / 104,000 bytes)"),
];
/// The speed over traditional logging that is wanted with a WAL in use.
const WANTED: f64 = 10.0;

/// What is inserted, and into what.
struct Load {
    /// Follows the order in the name of the panel.
    name: &'static str,
    order: &'static str,
    is_wal_in_use: bool,
    values: &'static str,
}

/// The paper's two, then two for the smallest value only. The goal is of the WAL in use.
const LOADS: [Load; 4] = [
    Load { name: "", order: ORDERS[0].0, is_wal_in_use: false, values: "random" },
    Load { name: "", order: ORDERS[1].0, is_wal_in_use: false, values: "random" },
    Load { name: ", WAL in use", order: ORDERS[1].0, is_wal_in_use: true, values: "random" },
    Load { name: ", text", order: ORDERS[1].0, is_wal_in_use: false, values: "text" },
];

impl Load {
    fn panel(&self, device: &Device) -> String {
        format!("{}{}", panel(device, self.order), self.name)
    }

    /// A line for each record.
    fn lines(&self, inserts: usize, rng: &mut fastrand::Rng) -> Vec<String> {
        let first = if self.is_wal_in_use { FIRST_FREE_KEY } else { 0 };
        let mut keys: Vec<usize> = (first..first + inserts).collect();
        if self.order == "random" {
            rng.shuffle(&mut keys);
        }
        transactions("insert", &keys, 1)
    }
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let inserts = scale.size(&INSERTS);
    let sizes = scale.pick(&[100, 1600][..], &VALUE_BYTES);
    let plain = || Box::new(Ext4::ordered()) as Box<dyn System>;
    let recipes: [Box<dyn System>; 4] = [
        plain(),
        Box::new(SqliteExtension(plain(), Log::Nvram)),
        Box::new(SqliteExtension(plain(), Log::BesideDatabase)),
        Box::new(SqliteArguments {
            system: plain(),
            suffix: ", synchronous=OFF",
            arguments: &["--synchronous", "OFF"],
        }),
    ];
    for device in scale.devices(scale.pick(&["emmc"][..], &["emmc", "ssd311"])) {
        on_device(lab, scale, section, (&device, &recipes, inserts, sizes), samples)?;
        judge(section, samples, &device, &recipes, sizes)?;
        let panels = LOADS.map(|load| load.panel(&device)).to_vec();
        for (title, metric) in [
            ("Figure 1: time of an insert", TIME),
            ("Table 1: bytes written for a byte of the records", WRITTEN),
        ] {
            let title = format!("{title}, {device}");
            let plot = Plot::lines(title, metric.name, "bytes a value", panels.clone());
            section.plots.push(plot.log_x().log_y());
        }
    }
    Ok(())
}

fn panel(device: &Device, order: &str) -> String {
    format!("{device}: {order} keys")
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    (device, recipes, inserts, sizes): (&Device, &[Box<dyn System>], usize, &[u32]),
    samples: &mut Samples,
) -> Result<()> {
    let mut running = systems::start(lab, recipes, &Site::new(device, SIZE_MIB), section)?;
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for load in &LOADS {
            let lines = load.lines(inserts, &mut rng);
            let sizes = if load.name.is_empty() { sizes } else { &sizes[..1] };
            for &value_bytes in sizes {
                let key = Key::at(load.panel(device), f64::from(value_bytes));
                measure::in_turns(&mut rng, &mut running, |_, system| {
                    insert(lab, system, (load, &lines, value_bytes), (samples, &key))
                })?;
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

/// Writes all records into a new database, or one whose WAL is in use.
fn insert(
    lab: &Lab,
    system: &Running,
    (load, lines, value_bytes): (&Load, &[String], u32),
    (samples, key): (&mut Samples, &Key),
) -> Result<()> {
    let size = value_bytes.to_string();
    let rows = if load.is_wal_in_use { ROWS } else { 0 }.to_string();
    let arguments = ["--journal-mode", "WAL", "--value-bytes", &size, "--rows", &rows];
    let arguments = [&arguments[..], &["--values", load.values]].concat();
    let one = sqlite_writers::Load { processes: 1, databases: 1 };
    let mut writer = Writers::start(lab, system, "inserts", one, &arguments)?;
    if load.is_wal_in_use {
        writer.burst(&until_wal_is_in_use())?;
    }
    let burst = writer.burst(lines)?;
    burst.add_to(samples, key, &system.name, (TIME, burst.mean_us));
    let record_bytes = lines.len() as f64 * f64::from(KEY_BYTES + value_bytes);
    let written = burst.written_back.total().write_bytes as f64 / record_bytes;
    samples.add(key, &system.name, WRITTEN, written);
    let wal_kib = writer.wal_bytes()? as f64 / 1024.0;
    samples.count_named(key, &system.name, WRITTEN, lines.len(), &[("WAL KiB", wal_kib)]);
    writer.finish()
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    recipes: &[Box<dyn System>],
    sizes: &[u32],
) -> Result<()> {
    let names: Vec<String> = recipes.iter().map(|recipe| recipe.name()).collect();
    let [plain, nvram, _, off] = &names[..] else {
        return Err(Error::other("variants are missing"));
    };
    for (order, paper_written) in ORDERS {
        let panel = panel(device, order);
        let key = Key::at(panel.clone(), f64::from(VALUE_BYTES[0]));
        let time = |left: &str, right: &str| samples.ratio(&key, TIME, left, right);
        let logging = 100.0 * (1.0 - time(off, plain)?.of_medians);
        let claim =
            format!("{panel}, 100 bytes: part of a plain insert that waits for the disk, %");
        section.verdicts.push(Verdict::shown(claim, "more than 90", logging));
        for &value_bytes in sizes {
            let key = Key::at(panel.clone(), f64::from(value_bytes));
            let speed = samples.ratio(&key, TIME, plain, nvram)?.of_medians;
            let claim = format!("{panel}, {value_bytes} bytes, lanes on NVRAM: speed over plain");
            section.verdicts.push(Verdict::shown(claim, "", speed));
        }
        let written = |system: &str| {
            statistics::median(samples.of(&key, system, WRITTEN).unwrap_or_default())
        };
        let claim = format!("{panel}, 100 bytes, plain: bytes written a byte");
        let sentence = format!("{:.1} with lanes on NVRAM.", written(nvram));
        let shown = Verdict::shown(claim, paper_written, written(plain));
        section.verdicts.push(shown.saying(sentence));
    }
    for load in LOADS.iter().filter(|load| !load.name.is_empty()) {
        let key = Key::at(load.panel(device), f64::from(VALUE_BYTES[0]));
        let speed = samples.ratio(&key, TIME, plain, nvram)?.of_medians;
        let claim = format!("{}, 100 bytes, lanes on NVRAM: speed over plain", key.panel);
        section.verdicts.push(match load.is_wal_in_use {
            true => Verdict::at_least(claim, "", speed, WANTED),
            false => Verdict::shown(claim, "", speed),
        });
    }
    Ok(())
}
