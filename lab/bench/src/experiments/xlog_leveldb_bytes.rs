//! xLog, figure 1 and table 1: the cost of logging for LevelDB, with its log as a file and as a
//! stream.

use std::path::Path;

use super::experiment::{Experiment, XLOG};
use super::programs::{self, Goal};
use super::scale::{PaperSize, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, interrupt};
use crate::measure::{self, Key, Metric, Samples, Watch, statistics};
use crate::programs::fillsync::{self, Asked, Database, FillsyncArgs, Order};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::Eatmydata;
use crate::systems::{self, Ext4, F2fs, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-leveldb-bytes",
    title: "What logging costs LevelDB",
    paper: XLOG,
    figure: "Figure 1, Table 1, and parts of Figures 4 and 5",
    about: "Puts, each synchronous, into LevelDB with its default settings, in sequential order of \
            keys (`fillseq`), at random keys (`fillrandom`) and over the keys of a database that \
            has as many (`overwrite`), by size of the value (the paper: 100 bytes, sequential and \
            random). Keys have 16 bytes. Values are random bytes, and at random keys also English \
            words with the frequencies of prose (*text*). The file systems have LevelDB as it is. \
            *OneJournal log*: LevelDB with OneJournal's plugin on ext4 ordered, its log a stream; \
            on NVRAM, for which a tmpfs stands here, or on the disk itself. With eatmydata nothing \
            waits for the disk, and nothing is durable. Mean time of a put, and bytes that the \
            device (a model of an eMMC, `emmc`) was written for a byte of LevelDB's log, with the \
            database closed and everything written back at the end. F2FS is measured only where \
            the kernel has it.",
    paper_claim: "Logging is more than 90 % of the mean time of an insert. 1,000 records of 100 \
            bytes: a log of 134 KB; 16,420 KB written on ext4 and 8,136 KB on F2FS, 122 and 61 \
            times the log, in sequential and in random order. The abstract: with xLog less \
            than 1.6 times. Its evaluation has this figure for raw records only, not for LevelDB: \
            of 100 MB in records of 100 bytes xLog writes 1.5 times the log (Figure 4). 1,000 \
            puts of 100 bytes at random keys are 10.7 times as fast with xLog (Figure 5).",
    goal: "At most 1.6 bytes for a byte of the log with lanes on NVRAM.",
    sizes: &[&PUTS],
    run,
};

const TIME: Metric = Metric::lower("put", "µs");
const WRITTEN: Metric = Metric::lower("write amplification", "bytes a byte");
const SIZE_MIB: u32 = 384;
/// A quick run has as few as the program makes.
const PUTS: PaperSize = PaperSize::of("puts of a case and round", 1000, 1000, 500);
const VALUE_BYTES: [u64; 2] = [100, 1600];
const CASES: [Case; 4] = [
    Case { order: Order::Fillseq, is_text: false, paper: SEQUENTIAL },
    Case { order: Order::Fillrandom, is_text: false, paper: RANDOM },
    Case { order: Order::Fillrandom, is_text: true, paper: NOT_IN_PAPER },
    Case { order: Order::Overwrite, is_text: false, paper: NOT_IN_PAPER },
];
const SEQUENTIAL: Paper =
    Paper { logging: "more than 90", written: "122.5", written_by_xlog: OF_RAW_RECORDS, speed: "" };
const RANDOM: Paper = Paper { written: "122.6", speed: "10.7", ..SEQUENTIAL };
const NOT_IN_PAPER: Paper = Paper { logging: "", written: "", written_by_xlog: "", speed: "" };
const OF_RAW_RECORDS: &str = "1.5 (raw records)";
const WANTED: f64 = 1.6;

/// An order of keys, and whether the values are words.
struct Case {
    order: Order,
    is_text: bool,
    paper: Paper,
}

/// What the paper found in a case; empty where it has none.
struct Paper {
    /// The part of a put that is logging, in %.
    logging: &'static str,
    /// Bytes that ext4 writes for a byte of the log.
    written: &'static str,
    /// The same of xLog.
    written_by_xlog: &'static str,
    /// How many times as fast a put is with xLog.
    speed: &'static str,
}

impl Case {
    fn panel(&self, device: &Device) -> String {
        let text = if self.is_text { ", text" } else { "" };
        format!("{device}: {}{text}", self.order.name())
    }
}

/// Where LevelDB's log is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogPlace {
    File,
    Nvram,
    Disk,
}

impl LogPlace {
    fn suffix(self) -> &'static str {
        match self {
            LogPlace::File => "",
            LogPlace::Nvram => ", OneJournal log (NVRAM)",
            LogPlace::Disk => ", OneJournal log (disk)",
        }
    }
}

fn recipes() -> [Box<dyn System>; 4] {
    [
        Box::new(Ext4::ordered()),
        Box::new(F2fs),
        Box::new(OneJournal::new()),
        Box::new(Eatmydata(Box::new(Ext4::ordered()))),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::is_there(section, fillsync::need(&[Database::Leveldb])) {
        return Ok(());
    }
    let puts = scale.size(&PUTS);
    let sizes = scale.pick(&VALUE_BYTES[..1], &VALUE_BYTES);
    for device in scale.devices(&["emmc"]) {
        on_device(lab, scale, section, (&device, puts, sizes), samples)?;
        for case in &CASES {
            judge(section, samples, &device, case)?;
        }
        let panels: Vec<String> = CASES.iter().map(|case| case.panel(&device)).collect();
        for (title, metric) in [
            ("Figure 1: time of a put", TIME),
            ("Table 1: bytes written for a byte of the log", WRITTEN),
        ] {
            let title = format!("{title}, {device}");
            let plot = Plot::lines(title, metric.name, "bytes a value", panels.clone());
            section.plots.push(plot.log_x().log_y());
        }
    }
    Ok(())
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    (device, puts, sizes): (&Device, u64, &[u64]),
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let places = [LogPlace::Nvram, LogPlace::Disk];
    let streams = places.map(|place| (&running[0], place));
    let files = running.iter().map(|system| (system, LogPlace::File));
    let mut sides: Vec<(&Running, LogPlace)> = files.chain(streams).collect();
    let names = places.map(|place| side_name(&running[0], place));
    section.systems.extend(names);
    let text = fillsync::file_of_words(lab.memory(), lab.next_seed())?;
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for case in &CASES {
            let values = case.is_text.then_some(text.as_path());
            for &value_bytes in sizes {
                let key = Key::at(case.panel(device), value_bytes as f64);
                measure::in_turns(&mut rng, &mut sides, |_, side| {
                    put(lab, *side, (puts, value_bytes, case.order, values), (samples, &key))
                })?;
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)?;
    std::fs::remove_file(&text).map_err(Error::at(&text))
}

fn side_name(system: &Running, place: LogPlace) -> String {
    format!("{}{}", system.name, place.suffix())
}

/// One side's puts, until everything is written back.
fn put(
    lab: &Lab,
    (system, place): (&Running, LogPlace),
    (puts, value_bytes, order, values): (u64, u64, Order, Option<&Path>),
    (samples, key): (&mut Samples, &Key),
) -> Result<()> {
    interrupt::check()?;
    // The database that is written over is made without latency.
    system.speed_up()?;
    let mut leveldb = Asked::start(&FillsyncArgs {
        database: Database::Leveldb,
        dir: system.dir.join("leveldb"),
        puts,
        value_bytes,
        order,
        values: values.map(Path::to_owned),
        plain: place == LogPlace::File,
        nvram: (place == LogPlace::Nvram).then(|| lab.memory().to_owned()),
        environment: system.client.variables(),
    })?;
    system.sync()?;
    system.slow_down()?;
    let before = system.counts()?;
    let times = leveldb.put()?;
    system.sync()?;
    let counts = (system.counts()? - before).total();
    leveldb.finish()?;
    let name = side_name(system, place);
    samples.add(key, &name, TIME, times.mean_us);
    let log_bytes = (puts * record_bytes(value_bytes)) as f64;
    samples.add(key, &name, WRITTEN, counts.write_bytes as f64 / log_bytes);
    let kib = ("written KiB", counts.write_bytes as f64 / 1024.0);
    let requests = [("flushes", counts.flushes as f64), ("writes", counts.writes as f64), kib];
    samples.count_named(key, &name, WRITTEN, puts as usize, &requests);
    Ok(())
}

/// What a put adds to LevelDB's log, without the end of a block of 32 KiB: the head of a record,
/// the head of a batch, the kind of change, and key and value with their lengths.
fn record_bytes(value_bytes: u64) -> u64 {
    const KEY_BYTES: u64 = 16;
    let length_bytes = |bytes: u64| if bytes < 128 { 1 } else { 2 };
    7 + 12 + 1 + length_bytes(KEY_BYTES) + KEY_BYTES + length_bytes(value_bytes) + value_bytes
}

/// The goals are for values that do not compress.
fn judge(section: &mut Section, samples: &Samples, device: &Device, case: &Case) -> Result<()> {
    let (panel, paper) = (case.panel(device), &case.paper);
    let key = Key::at(panel.clone(), VALUE_BYTES[0] as f64);
    let plain = Ext4::ordered().name();
    let lane = plain.clone() + LogPlace::Nvram.suffix();
    let free = Eatmydata(Box::new(Ext4::ordered())).name();
    let logging = 100.0 * (1.0 - samples.ratio(&key, TIME, &free, &plain)?.of_medians);
    let claim = format!("{panel}, 100 bytes: part of a plain put that waits for the disk, %");
    section.verdicts.push(Verdict::shown(claim, paper.logging, logging));
    let written = |system: &str| {
        let all = samples.of(&key, system, WRITTEN);
        all.map(statistics::median).ok_or_else(|| Error::other(format!("no bytes of {system}")))
    };
    let claim = format!("{panel}, 100 bytes, {plain}: bytes written for a byte of the log");
    section.verdicts.push(Verdict::shown(claim, paper.written, written(&plain)?));
    let claim = format!("{panel}, 100 bytes, lanes on NVRAM: bytes written for a byte of the log");
    if case.is_text {
        section.verdicts.push(Verdict::shown(claim, "", written(&lane)?));
        return Ok(());
    }
    let verdict = Verdict::at_most(claim, paper.written_by_xlog, written(&lane)?, WANTED);
    section.verdicts.push(verdict);
    let goal =
        Goal { key, metric: TIME, ours: lane, theirs: plain, paper: paper.speed, wanted: None };
    goal.judge(section, samples)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_record_of_the_paper_takes_a_hundred_and_thirty_eight_bytes() {
        assert_eq!(super::record_bytes(100), 138);
        assert_eq!(super::record_bytes(1600), 1639);
    }
}
