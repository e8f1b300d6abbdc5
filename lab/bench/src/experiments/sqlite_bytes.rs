//! What a transaction of SQLite writes to the device, of values that do not compress and of prose.

use std::time::Duration;

use super::sqlite_clients::transactions;
use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, interrupt};
use crate::measure::{self, Key, Metric, Samples, Watch, statistics};
use crate::results::{Plot, Section, Verdict};
use crate::systems::client::{Log, SqliteExtension};
use crate::systems::{self, Btrfs, Ext4, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-bytes",
    title: "Bytes written for a transaction of SQLite",
    paper: "",
    figure: "",
    about: "What one transaction writes to the device, everything brought home. A table of 20,000 \
            rows with an integer key and a value of 100 characters; `synchronous=FULL`; inserts in \
            the order of the keys, and updates of rows at random. The values are random base64, \
            which does not compress, or English words with the frequencies of prose (*text*). *WAL \
            in use*: the WAL has been written again from its beginning, with SQLite's own \
            checkpoints. *WAL that grows*: the first transactions of a new database, before any \
            checkpoint. Two runs on new databases differ only in the number of transactions; each \
            ends with the database closed and the file system unmounted. The difference of their \
            bytes, divided by the difference of their transactions, is what a transaction costs, \
            without the setup and with all that comes home later. Most cases have no pause between \
            transactions. *A commit every 0.25 s* has one after each, for 65 seconds, and all is \
            synced before and after them: so the pages of a WAL count that the extension did not \
            sync, and the kernel writes after 30 seconds. Without a pause SQLite writes over them \
            before. \
            All file systems have blocks of 4 KiB. SQLite was built with \
            `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`, which most \
            distributions leave out. With the extension on ext4 it writes no rollback journal in \
            DELETE mode. Without such writes the extension saves nothing there: with Debian 12's \
            SQLite 3.40.1, an update of a random row wrote 46.8 KiB with the extension and 46.7 \
            KiB without it (300 transactions, a table of 20,000 rows, a loop device, everything \
            home; measured by hand). On a volume the extension needs no such SQLite. The extension \
            has its default, with which a commit makes the checkpoints of the WAL.",
    paper_claim: "",
    goal: "",
    sizes: &[],
    run,
};

const BYTES: Metric = Metric::lower("bytes written for a transaction", "KiB");
const SIZE_MIB: u32 = 768;
const ROWS: usize = 20_000;
const OPERATIONS: [&str; 2] = ["insert", "update"];
const VALUES: [&str; 2] = ["random", "text"];
const OURS: &str = "OneJournal";

/// A state of SQLite's journal.
struct State {
    name: &'static str,
    journal_mode: &'static str,
    /// Pages of a WAL after which SQLite checkpoints; 0: never before the database is closed.
    autocheckpoint: &'static str,
    /// Whether the WAL is in use before them.
    is_wal_in_use: bool,
    /// After each transaction.
    pause: Option<Duration>,
    /// Transactions of the two runs.
    short: usize,
    long: usize,
}

fn states(scale: &Scale) -> [State; 4] {
    [
        State {
            name: "WAL in use",
            journal_mode: "WAL",
            autocheckpoint: "1000",
            is_wal_in_use: true,
            pause: None,
            short: 100,
            long: scale.pick(600, 3100),
        },
        State {
            name: "WAL in use, a commit every 0.25 s",
            journal_mode: "WAL",
            autocheckpoint: "1000",
            is_wal_in_use: true,
            pause: Some(Duration::from_millis(250)),
            short: scale.pick(1, 20),
            // The kernel writes a page that has been changed for 30 seconds.
            long: scale.pick(21, 260),
        },
        State {
            name: "WAL that grows",
            journal_mode: "WAL",
            autocheckpoint: "0",
            is_wal_in_use: false,
            pause: None,
            short: 50,
            long: scale.pick(150, 350),
        },
        State {
            name: "DELETE",
            journal_mode: "DELETE",
            autocheckpoint: "1000",
            is_wal_in_use: false,
            pause: None,
            short: scale.pick(50, 200),
            long: scale.pick(150, 1700),
        },
    ]
}

/// Transactions of many rows after which a WAL has more pages than SQLite's checkpoint, and is
/// written again from its beginning.
fn until_wal_is_in_use() -> Vec<String> {
    // Each has rows of 60 pages.
    let of = |first| (first..ROWS).step_by(ROWS / 60).collect::<Vec<_>>();
    (0..25).flat_map(|first| transactions("update", &of(first), ROWS)).collect()
}

fn recipes() -> [Box<dyn System>; 8] {
    [
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(Btrfs),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().option("delta=runs")),
        Box::new(SqliteExtension(Box::new(Ext4::ordered()), Log::BesideDatabase)),
        Box::new(SqliteExtension(Box::new(OneJournal::new()), Log::BesideDatabase)),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let states = states(scale);
    // Bytes do not depend on the latency of a device.
    for device in scale.devices(&["memory"]) {
        let running = systems::start(lab, &recipes(), &Site::new(&device, SIZE_MIB), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for round in 0..scale.rounds() {
            scale.say_round(round, &device);
            for state in &states {
                for case in cases(scale, &device, state) {
                    case.round(lab, &running, &mut rng, samples)?;
                }
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        for state in &states {
            let cases = cases(scale, &device, state);
            for case in &cases {
                case.show(section, samples)?;
            }
            let panels = cases.into_iter().map(|case| case.key.panel).collect();
            section.plots.push(Plot::bars(
                format!("Bytes for a transaction, {}", state.name),
                BYTES.name,
                panels,
            ));
        }
    }
    Ok(())
}

struct Case<'a> {
    key: Key,
    state: &'a State,
    operation: &'static str,
    values: &'static str,
}

/// A quick run has one case of English words, and one with pauses, which have no words.
fn cases<'a>(scale: &Scale, device: &Device, state: &'a State) -> Vec<Case<'a>> {
    let of = |operation, values| {
        let panel = match scale_name(device) {
            None => format!("{}, {values}", state.name),
            Some(device) => format!("{device}: {}, {values}", state.name),
        };
        Case { key: Key::case(panel, operation), state, operation, values }
    };
    let [insert, update] = OPERATIONS;
    let all = VALUES.into_iter().flat_map(|values| [of(insert, values), of(update, values)]);
    let is_there = |case: &Case<'_>| {
        let (is_random, is_update) = (case.values == VALUES[0], case.operation == update);
        match (state.pause, scale.is_quick) {
            (None, false) => true,
            (None, true) => is_random || (state.is_wal_in_use && is_update),
            (Some(_), false) => is_random,
            (Some(_), true) => is_random && !is_update,
        }
    };
    all.filter(is_there).collect()
}

/// The device's name where it is not the usual one.
fn scale_name(device: &Device) -> Option<String> {
    (*device != Device::Memory).then(|| device.to_string())
}

impl Case<'_> {
    /// Systems take turns; with pauses all go at the same pace, each on its device.
    fn round(
        &self,
        lab: &Lab,
        running: &[Running],
        rng: &mut fastrand::Rng,
        samples: &mut Samples,
    ) -> Result<()> {
        let seed = lab.next_seed();
        let together = if self.state.pause.is_some() { running.len() } else { 1 };
        let mut turns: Vec<&[Running]> = running.chunks(together).collect();
        measure::in_turns(rng, &mut turns, |_, systems| {
            let short = self.written(lab, systems, seed, self.state.short)?;
            let long = self.written(lab, systems, seed, self.state.long)?;
            let transactions = (self.state.long - self.state.short) as f64;
            for ((system, short), long) in systems.iter().zip(short).zip(long) {
                let kib = (long as f64 - short as f64) / 1024.0 / transactions;
                samples.add(&self.key, &system.name, BYTES, kib);
            }
            Ok(())
        })
    }

    /// The bytes that a new database and so many transactions write on each system, until all are
    /// home.
    fn written(
        &self,
        lab: &Lab,
        systems: &[Running],
        seed: u64,
        transactions: usize,
    ) -> Result<Vec<u64>> {
        let mut started = Vec::new();
        for system in systems {
            let before = system.mounted_anew()?;
            let dir = system.dir.join("bytes");
            std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
            let client = system.client.apply_to_sqlite(lab.client("sqlite"));
            let client = client
                .args(["--journal-mode", self.state.journal_mode])
                .args(["--autocheckpoint", self.state.autocheckpoint])
                .args(["--rows", &ROWS.to_string(), "--values", self.values])
                .args(["--seed", &seed.to_string()]);
            let mut client = client.arg(dir.join("test.db")).start()?;
            client.wait_until_ready()?;
            started.push((before, dir, client));
        }
        let before = if self.state.is_wal_in_use { until_wal_is_in_use() } else { Vec::new() };
        for line in before {
            started.iter_mut().try_for_each(|(.., client)| client.ask(&line).map(drop))?;
        }
        self.write_all_if_paced(systems)?;
        for line in self.lines(seed, transactions) {
            interrupt::check()?;
            started.iter_mut().try_for_each(|(.., client)| client.ask(&line).map(drop))?;
            if let Some(pause) = self.state.pause {
                std::thread::sleep(pause);
            }
        }
        self.write_all_if_paced(systems)?;
        let ended = systems.iter().zip(started).map(|(system, (before, dir, client))| {
            client.finish()?;
            let counts = system.all_home(before)?;
            std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))?;
            Ok(counts.write_bytes)
        });
        ended.collect()
    }

    /// A WAL that is removed when its database is closed takes its unwritten pages with it, which
    /// the kernel would have written sooner or later.
    fn write_all_if_paced(&self, systems: &[Running]) -> Result<()> {
        match self.state.pause {
            Some(_) => systems.iter().try_for_each(Running::sync),
            None => Ok(()),
        }
    }

    /// The shorter list is the beginning of the longer one.
    fn lines(&self, seed: u64, count: usize) -> Vec<String> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let key = |index: usize| match self.operation {
            "update" => rng.usize(..ROWS),
            _ => ROWS + index,
        };
        let keys: Vec<usize> = (0..count).map(key).collect();
        transactions(self.operation, &keys, 1)
    }

    /// How many times the bytes of OneJournal ext4 writes.
    fn show(&self, section: &mut Section, samples: &Samples) -> Result<()> {
        let peer = Ext4::ordered().name();
        let ratio = samples.ratio(&self.key, BYTES, &peer, OURS)?;
        let claim =
            format!("{}, {}: bytes of {peer} over {OURS}'s", self.key.panel, self.operation);
        let of = |system: &str| {
            let all = samples.of(&self.key, system, BYTES).unwrap_or_default();
            format!("{system} {:.2} KiB", statistics::median(all))
        };
        let sentence = format!("{}, {}.", of(&peer), of(OURS));
        section.verdicts.push(Verdict::shown(claim, "", ratio.of_medians).saying(sentence));
        Ok(())
    }
}
