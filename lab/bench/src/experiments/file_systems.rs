//! What a commit asks of the device on each file system of the kernel: bytes and flushes.

use super::experiment::{Experiment, XLOG};
use super::programs;
use super::scale::{PaperSize, Scale};
use super::sqlite_clients::transactions;
use crate::error::{Error, Result};
use crate::lab::{Device, DeviceCounts, Lab, interrupt};
use crate::measure::{self, Key, Metric, Samples, Watch, statistics};
use crate::programs::fillsync::{self, Asked, Database, FillsyncArgs, Order};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Btrfs, Ext4, F2fs, Nilfs2, OneJournal, Running, Site, System, Xfs};
use crate::values::ValueKind;

pub const EXPERIMENT: Experiment = Experiment {
    id: "file-systems",
    title: "Bytes and flushes of a commit, on six file systems",
    paper: XLOG,
    figure: "Table 1",
    about: "What one commit asks of the device, everything brought home: a transaction of one row \
            of SQLite (a table of 20,000 rows, values of 100 random characters, or English words \
            (*text*), `synchronous=FULL`, inserts in the order of the keys and updates at random), \
            an append of 100 bytes, 4 KiB or 100 KB of random bytes with its `fdatasync`, and a \
            synchronous put of 100 bytes into LevelDB with its own log, in sequential order of \
            keys (`fillseq`) and at random keys (`fillrandom`), of random bytes or English words. \
            *WAL in use*: the WAL has been written again from its beginning, with SQLite's own \
            checkpoints. Two runs differ only in the number of commits; each ends with the file \
            system unmounted. The difference of their requests, divided by the difference of their \
            commits, is what a commit costs. `scripts/file-systems-vm` runs it in a virtual \
            machine with Debian's kernel, which has F2FS and NILFS2; its times say nothing, so \
            none are shown. The device is emulated, without FUA: a write that must be durable is a \
            write and a flush. Each round begins with new file systems, so the cleaners of F2FS \
            and NILFS2 have nothing to do, and what they would write later is not counted. The \
            updates in DELETE mode are few here, 300 after 100; `sqlite-bytes` counts 1,500 after \
            200. A page that several of them change is brought home once, so a volume writes more \
            for each here: 0.64 pages come home for an update, and 0.23 there (computed for the \
            540 pages of the table).",
    paper_claim: "1,000 records of about 134 bytes of LevelDB's log: 16,420 KB written on ext4, \
            8,136 KB on F2FS; 1,000 inserts of SQLite with a WAL: 23.8 MB and 10.8 MB. That WAL \
            was new and grew, to 2.7 MB; here it is in use.",
    goal: "",
    sizes: &[&WAL_COMMITS, &DELETE_COMMITS, &APPENDS, &LONG_APPENDS, &PUTS],
    run,
};

const BYTES: Metric = Metric::lower("bytes written for a commit", "KiB");
const FLUSHES: &str = "flushes";
/// NILFS2, without its cleaner, fills 512 MiB in a full round.
const SIZE_MIB: u32 = 1024;
const ROWS: usize = 20_000;
/// What the longer of the two runs has more than the shorter one.
const WAL_COMMITS: PaperSize = PaperSize::of("transactions with a WAL", 1000, 1000, 200);
const DELETE_COMMITS: PaperSize = PaperSize::own("transactions in DELETE mode", 300, 50);
const APPENDS: PaperSize = PaperSize::of("appends of up to 4 KiB", 1000, 500, 50);
const LONG_APPENDS: PaperSize = PaperSize::own("appends of 100 KB", 100, 20);
const PUTS: PaperSize = PaperSize::of("puts into LevelDB", 1000, 1000, 100);
/// As few as its program makes.
const PUTS_SHORT: usize = 500;
/// Transactions after which a WAL is in use.
const WAL_SHORT: usize = 500;
const OURS: &str = "OneJournal";

/// What is committed.
#[derive(Clone, Copy)]
enum Work {
    /// One row of SQLite: its journal mode, operation and kind of values.
    Row(&'static str, &'static str, &'static str),
    /// So many bytes at the end of a file.
    Append(u32),
    /// A record of LevelDB, of random bytes or words.
    Put(Order, ValueKind),
}

struct Case {
    panel: &'static str,
    name: &'static str,
    work: Work,
    /// Commits of the two runs.
    short: usize,
    long: usize,
}

const WAL: &str = "SQLite, WAL in use";
const DELETE: &str = "SQLite, DELETE";
const APPEND: &str = "append and fdatasync";
const LEVELDB: &str = "LevelDB, put";
const PANELS: [&str; 4] = [WAL, DELETE, APPEND, LEVELDB];

fn cases(scale: &Scale) -> [Case; 12] {
    let of = |panel, name, work, (short, more): (usize, &PaperSize)| Case {
        panel,
        name,
        work,
        short,
        long: short + scale.size::<usize>(more),
    };
    let wal = (WAL_SHORT, &WAL_COMMITS);
    let delete = (scale.pick(50, 100), &DELETE_COMMITS);
    let append = (scale.pick(50, 100), &APPENDS);
    let long_append = (scale.pick(10, 20), &LONG_APPENDS);
    let put = (PUTS_SHORT, &PUTS);
    [
        of(WAL, "insert", Work::Row("WAL", "insert", "random"), wal),
        of(WAL, "update", Work::Row("WAL", "update", "random"), wal),
        of(WAL, "update, text", Work::Row("WAL", "update", "text"), wal),
        of(DELETE, "insert", Work::Row("DELETE", "insert", "random"), delete),
        of(DELETE, "update", Work::Row("DELETE", "update", "random"), delete),
        of(DELETE, "update, text", Work::Row("DELETE", "update", "text"), delete),
        of(APPEND, "100 bytes", Work::Append(100), append),
        of(APPEND, "4 KiB", Work::Append(4096), append),
        of(APPEND, "100 KB", Work::Append(100_000), long_append),
        of(LEVELDB, "fillseq", Work::Put(Order::Fillseq, ValueKind::Random), put),
        of(LEVELDB, "fillrandom", Work::Put(Order::Fillrandom, ValueKind::Random), put),
        of(LEVELDB, "fillrandom, text", Work::Put(Order::Fillrandom, ValueKind::Text), put),
    ]
}

fn recipes() -> [Box<dyn System>; 7] {
    [
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(Btrfs),
        Box::new(F2fs),
        Box::new(Nilfs2),
        Box::new(OneJournal::new()),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if let (Some(why), Some(_)) = (F2fs.missing(), Nilfs2.missing()) {
        let why = format!("{why}; scripts/file-systems-vm runs it with a kernel that has both");
        section.leave_out("the experiment", &why);
        return Ok(());
    }
    let has_leveldb =
        programs::is_part_there(section, "LevelDB", fillsync::need(&[Database::Leveldb]));
    let is_there = |case: &Case| has_leveldb || !matches!(case.work, Work::Put(..));
    let cases: Vec<Case> = cases(scale).into_iter().filter(is_there).collect();
    // Bytes and flushes do not depend on the latency of a device.
    for device in scale.devices(&["zero"]) {
        let mut rng = scale.rng();
        for round in 0..scale.rounds() {
            scale.say_round(round, &device);
            let running = systems::start(lab, &recipes(), &Site::new(&device, SIZE_MIB), section)?;
            let mut watch = Watch::begin(lab, &running)?;
            for case in &cases {
                case.round(lab, &running, &mut rng, samples, &device)?;
            }
            watch.end_round(&running, section)?;
            systems::stop(running)?;
        }
        let panels: Vec<String> = PANELS.map(|panel| panel_name(&device, panel)).to_vec();
        let bytes = Plot::bars("Bytes for a commit", BYTES.name, panels.clone());
        section.plots.push(bytes.log_y());
        let flushes = Plot::bars("Flushes for a commit", BYTES.name, panels);
        section.plots.push(flushes.of_count(FLUSHES));
        for case in &cases {
            case.show(section, samples, &device);
        }
    }
    Ok(())
}

/// With the device's name where it is not the usual one.
fn panel_name(device: &Device, panel: &str) -> String {
    if *device == Device::preset("zero") {
        return panel.to_owned();
    }
    format!("{device}: {panel}")
}

impl Case {
    fn key(&self, device: &Device) -> Key {
        Key::case(panel_name(device, self.panel), self.name)
    }

    fn round(
        &self,
        lab: &Lab,
        running: &[Running],
        rng: &mut fastrand::Rng,
        samples: &mut Samples,
        device: &Device,
    ) -> Result<()> {
        let (key, seed) = (self.key(device), lab.next_seed());
        let commits = self.long - self.short;
        let mut systems: Vec<&Running> = running.iter().collect();
        measure::in_turns(rng, &mut systems, |_, system| {
            let short = self.asked(lab, system, seed, self.short)?;
            let long = self.asked(lab, system, seed, self.long)?;
            let more = |of: fn(&DeviceCounts) -> u64| of(&long) as f64 - of(&short) as f64;
            let kib = more(|counts| counts.write_bytes) / 1024.0 / commits as f64;
            samples.add(&key, &system.name, BYTES, kib);
            let flushes = (FLUSHES, more(|counts| counts.flushes));
            let writes = ("writes", more(|counts| counts.writes));
            samples.count_named(&key, &system.name, BYTES, commits, &[flushes, writes]);
            Ok(())
        })
    }

    /// What new files and so many commits ask of the device, until all is home.
    fn asked(
        &self,
        lab: &Lab,
        system: &Running,
        seed: u64,
        commits: usize,
    ) -> Result<DeviceCounts> {
        interrupt::check()?;
        let dir = system.dir.join("commits");
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        let mut open = None;
        let counts = system.until_home(|| match self.work {
            Work::Row(journal_mode, operation, values) => {
                let client = system.client.apply_to_sqlite(lab.client("sqlite"));
                let client = client
                    .args(["--journal-mode", journal_mode, "--rows", &ROWS.to_string()])
                    .args(["--seed", &seed.to_string(), "--values", values]);
                let mut client = client.arg(dir.join("test.db")).start()?;
                client.wait_until_ready()?;
                for line in lines(operation, seed, commits) {
                    client.ask(&line)?;
                }
                client.finish().map(drop)
            }
            Work::Append(bytes) => {
                let client = system.client.apply(lab.client("append"));
                let client = client.args(["run", "fdatasync"]).arg(dir.join("file"));
                let client = client.args(["--new-bytes", "--record-bytes", &bytes.to_string()]);
                client.args(["--records", &commits.to_string()]).run().map(drop)
            }
            Work::Put(order, kind) => {
                let values = match kind {
                    ValueKind::Text => Some(fillsync::file_of_words(lab.memory(), seed)?),
                    _ => None,
                };
                let program = open.insert(Asked::start(&FillsyncArgs {
                    database: Database::Leveldb,
                    dir: dir.clone(),
                    puts: commits as u64,
                    value_bytes: 100,
                    order,
                    values,
                    plain: true,
                    nvram: None,
                    environment: system.client.variables(),
                })?);
                program.put().map(drop)
            }
        })?;
        if let Some(program) = open {
            program.finish()?;
        }
        std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))?;
        Ok(counts)
    }

    /// How many times the bytes of OneJournal the best of the others writes.
    fn show(&self, section: &mut Section, samples: &Samples, device: &Device) {
        let key = self.key(device);
        let median = |system: &str| samples.of(&key, system, BYTES).map(statistics::median);
        let peers = section.systems.iter().filter(|system| *system != OURS);
        let least = peers
            .filter_map(|system| Some((system, median(system)?)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other));
        let (Some((peer, theirs)), Some(ours)) = (least, median(OURS)) else { return };
        let flushes =
            |system: &str| samples.count_of(&key, system, BYTES, FLUSHES).unwrap_or_default();
        let sentence = format!(
            "{peer} {theirs:.2} KiB and {:.2} flushes, {OURS} {ours:.2} KiB and {:.2}.",
            flushes(peer),
            flushes(OURS)
        );
        let claim =
            format!("{}, {}: the fewest bytes of a peer over {OURS}'s", key.panel, key.case);
        section.verdicts.push(Verdict::shown(claim, "", theirs / ours).saying(sentence));
    }
}

/// The shorter list is the beginning of the longer one.
fn lines(operation: &str, seed: u64, count: usize) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let key = |index: usize| match operation {
        "update" => rng.usize(..ROWS),
        _ => ROWS + index,
    };
    let keys: Vec<usize> = (0..count).map(key).collect();
    transactions(operation, &keys, 1)
}
