//! etcd on the file system under test.

use std::cell::RefCell;

use super::programs::{self, Goal, Removal, Turn};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::etcd::{self, EtcdArgs, Member};
use crate::results::{ALL_HOME_KIB, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs};
use crate::values::{RANDOM_AND_TEXT, ValuesArgs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "etcd",
    title: "etcd",
    paper: "",
    figure: "",
    about: "One member of etcd, every put of which waits for an fdatasync of its write-ahead log. \
            *disk benchmark*: the one of etcd's documentation, fio's fdatasync after each 2,300 \
            bytes, whose 99th percentile has to be below 10 ms (of 4 MiB, not 22). *log sync*: the \
            mean time of a sync of the log while clients put, from etcd's metrics. *puts a second* \
            of 8 clients, with values of 256 random characters, which do not compress, or of \
            English words with the frequencies of prose (*text*). What the disk gets is counted \
            while they put, and as *all home* until etcd has stopped and the file system is \
            unmounted. etcd writes its store ten times a second, so it writes more for a put where \
            puts are slower. On a Samsung 840 SSD (`ssd840`) and a disk of 7200 rpm (`hdd`), which \
            etcd's documentation advises against.",
    paper_claim: "",
    goal: "Log syncs no slower than ext4 ordered's; the disk benchmark passes wherever ext4's \
            passes.",
    sizes: &[],
    run,
};

const DISK: Metric = Metric::lower("disk benchmark, p99", "ms");
const SYNC: Metric = Metric::lower("log sync", "ms");
const PUTS: Metric = Metric::higher("puts a second", "1/s");
const SIZE_MIB: u32 = 768;
const CLIENTS: u32 = 8;
/// The limit that etcd's documentation demands.
const DISK_P99_MS: f64 = 10.0;

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().nvram()),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("etcd", "etcd-server"), ("fio", "fio")]) {
        return Ok(());
    }
    section.set("clients", CLIENTS);
    for metric in [DISK, SYNC, PUTS] {
        section.plots.push(Plot::bars(metric.name, metric.name, Vec::new()));
    }
    section.plots.push(
        Plot::bars("KiB written for a put, all home", PUTS.name, Vec::new()).of_count(ALL_HOME_KIB),
    );
    for device in scale.devices(scale.pick(&["ssd840"][..], &["ssd840", "hdd"])) {
        on_device(lab, scale, section, &device, samples)?;
        judge(section, samples, &device)?;
    }
    Ok(())
}

/// The key of a metric with random values.
fn key(device: &Device, metric: Metric) -> Key {
    Key::case(device.to_string(), metric.name)
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        let disk = key(device, DISK);
        measure::in_turns(&mut rng, &mut running.iter().collect::<Vec<_>>(), |_, running| {
            running.sync()?;
            let variables = running.client.variables();
            let found = etcd::disk_benchmark(&running.dir, scale.pick(64, 256), &variables)?;
            let disk_ms = found.sync.map_or(f64::NAN, |sync| sync.p99_ns as f64 / 1e6);
            samples.add(&disk, &running.name, DISK, disk_ms);
            Ok(())
        })?;
        for values in RANDOM_AND_TEXT {
            let of = |metric: Metric| Key::case(programs::panel(device, values), metric.name);
            let syncs = RefCell::new(Vec::new());
            let start = |running: &Running| {
                let args = EtcdArgs {
                    dir: running.dir.clone(),
                    clients: CLIENTS,
                    seconds: scale.pick(1, 2),
                    value_bytes: 256,
                    values: ValuesArgs::of(values.0, lab.next_seed()),
                    disk_kib: 0,
                    check_perf: false,
                    environment: running.client.variables(),
                };
                let member = Member::start(&args.dir, &args.environment)?;
                Ok(Putting { args, member, system: running.name.clone(), syncs: &syncs })
            };
            let into = (&mut *samples, &of(PUTS), PUTS);
            programs::round_until_home(&mut rng, &running, into, start)?;
            for (name, sync_ms) in syncs.into_inner() {
                samples.add(&of(SYNC), &name, SYNC, sync_ms);
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

/// A member to which clients put.
struct Putting<'a> {
    args: EtcdArgs,
    member: Member,
    system: String,
    /// The mean time of a sync of the log, in milliseconds, of each system.
    syncs: &'a RefCell<Vec<(String, f64)>>,
}

impl Turn for Putting<'_> {
    fn work(&mut self) -> Result<(f64, u64)> {
        let puts = self.member.put(&self.args)?;
        let sync_ms = puts.wal_fsync.mean_ns as f64 / 1e6;
        self.syncs.borrow_mut().push((self.system.clone(), sync_ms));
        Ok((puts.per_second, puts.count))
    }

    fn close(self) -> Result<Removal> {
        let data = self.member.stop()?;
        Ok(Box::new(|| data.remove()))
    }
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
    for ours in [OneJournal::new(), OneJournal::new().nvram()] {
        for metric in [SYNC, PUTS] {
            let goal = Goal {
                key: key(device, metric),
                metric,
                ours: ours.name(),
                theirs: Ext4::ordered().name(),
                paper: "",
                wanted: Some(1.0),
            };
            goal.judge(section, samples)?;
        }
        judge_disk(section, samples, device, &ours.name());
    }
    Ok(())
}

/// etcd's own verdict.
fn judge_disk(section: &mut Section, samples: &Samples, device: &Device, ours: &str) {
    let key = key(device, DISK);
    let worst = |system: &str| {
        let all = samples.of(&key, system, DISK)?;
        all.iter().copied().reduce(f64::max)
    };
    let (Some(found), Some(theirs)) = (worst(ours), worst(&Ext4::ordered().name())) else { return };
    let outcome = match (found < DISK_P99_MS, theirs < DISK_P99_MS) {
        (true, _) => Outcome::Reached,
        (false, false) => Outcome::Shown,
        (false, true) => Outcome::Missed,
    };
    section.verdicts.push(Verdict {
        claim: format!("{device}: {ours} passes etcd's disk benchmark (below {DISK_P99_MS} ms)"),
        paper: String::new(),
        measured: format!("{found:.2} ms"),
        outcome,
        sentence: format!("The worst round's 99th percentile; ext4 ordered's is {theirs:.2} ms."),
    });
}
