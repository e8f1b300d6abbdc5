//! Okeanos, figure 5b: the redo log of a database, replayed by many instances at a time.

use std::time::Duration;

use fastrand::Rng;
use serde::Deserialize;

use super::{Experiment, PaperSize, Scale, okeanos};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::latency::Latency;
use crate::results::{Better, Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-replay",
    title: "Many databases' redo logs on one disk",
    paper: super::OKEANOS,
    figure: "Figure 5b",
    about: "Traces of redo logs, taken with strace from MariaDB (InnoDB, its three ways to flush) \
            under sysbench and from PostgreSQL under pgbench, 20 clients each \
            (`scripts/trace-redo-log`). Instances replay a trace at once, each in a log file of \
            its own that is there and written, as fast as they can. Bytes that are new in a write \
            are random; bytes that a write repeats are repeated. Mean time of a flush: an \
            fdatasync and the writes since the one before. The paper's traces are of MySQL \
            (InnoDB) under 500 seconds of TPC-C, it does not say how many calls they have, and its \
            journal is on a disk of its own. *wasteless as in Okeanos* is OneJournal with whole \
            blocks of metadata, no compression, and blocks of the journal that are filled up.",
    paper_claim: "At high load wasteless journaling takes up to tens of seconds for a flush of \
            InnoDB's log, with all three methods; ordered takes hundreds, when the instances \
            approach or exceed 64.",
    goal: "With 64 instances at most 0.5 of ext4 ordered's time for PostgreSQL's log, and 0.8 for \
            InnoDB's that syncs at each commit, our own goals; wasteless as in Okeanos about 0.1, \
            as the paper's words mean, for InnoDB's log with all three methods.",
    sizes: &[&INSTANCES, &CALLS],
    run,
};

const FLUSH: Metric = Metric { name: "log flush", unit: "ms", better: Better::Lower };
const SIZE_MIB: u32 = 512;
/// Traces that sync at each commit come first.
const TRACES: [&str; 4] = ["postgresql", "mariadb-commit1", "mariadb-commit2", "mariadb-commit0"];
/// The time over ext4 ordered's that is wanted with many instances, of the traces that sync at each
/// commit.
const WANTED: [f64; 2] = [0.5, 0.8];
/// The same of the paper's system, as its words mean.
const PAPERS_PART: f64 = 0.1;
/// With fewer calls, half of the written bytes would be the logs themselves, which are made before.
const CALLS: PaperSize = PaperSize::own("calls of a trace", 240, 240);
/// With this many, says the paper, the modes are far apart.
const INSTANCES: PaperSize = PaperSize::of("instances, at most", 64, 64, 32);

#[derive(Deserialize)]
struct Played {
    seconds: f64,
    flush: Latency,
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let plan = Plan {
        traces: scale.pick(&TRACES[..WANTED.len()], &TRACES),
        instances: vec![1, scale.size(&INSTANCES)],
    };
    for device in scale.devices(&["ssd311"]) {
        plan.on_device(lab, scale, section, &device, samples)?;
        plan.judge(section, samples, &device)?;
        section.plots.push(
            Plot::lines(
                format!("Time of a log flush on {device}"),
                FLUSH.name,
                "instances",
                plan.traces.iter().map(|trace| panel(&device, trace)).collect(),
            )
            .log_x()
            .log_y(),
        );
    }
    Ok(())
}

fn panel(device: &Device, trace: &str) -> String {
    format!("{device}: {trace}")
}

struct Plan {
    traces: &'static [&'static str],
    instances: Vec<u32>,
}

impl Plan {
    fn on_device(
        &self,
        lab: &Lab,
        scale: &Scale,
        section: &mut Section,
        device: &Device,
        samples: &mut Samples,
    ) -> Result<()> {
        let recipes: [Box<dyn System>; 7] = [
            Box::new(Ext4::ordered()),
            Box::new(Ext4::journal()),
            Box::new(OneJournal::new().data("ordered")),
            Box::new(OneJournal::new().data("selective")),
            Box::new(OneJournal::new().data("wasteless")),
            Box::new(OneJournal::new()),
            Box::new(okeanos::wasteless_as_in_paper()),
        ];
        let mut running = systems::start(lab, &recipes, &Site::new(device, SIZE_MIB), section)?;
        let mut rng = scale.rng();
        let mut watch = Watch::begin(lab, &running)?;
        for round in 0..scale.rounds() {
            for trace in self.traces {
                for instances in &self.instances {
                    let key = Key::at(panel(device, trace), f64::from(*instances));
                    scale.say_round(round, format_args!("{instances} of {}", key.panel));
                    self.case(lab, &mut running, &mut rng, (trace, *instances), (samples, &key))?;
                }
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)
    }

    fn case(
        &self,
        lab: &Lab,
        running: &mut [Running],
        rng: &mut Rng,
        (trace, instances): (&str, u32),
        (samples, key): (&mut Samples, &Key),
    ) -> Result<()> {
        measure::in_turns(rng, running, |_, system| {
            let dir = okeanos::fresh_dir(system, "replay")?;
            let client = |what: &str| {
                let client = lab.client("replay").args([what, trace]).arg(&dir);
                let client = client.args(["--instances", &instances.to_string()]);
                let client = client.args(["--calls", &CALLS.full.to_string()]);
                system.client.apply(client).time_limit(Duration::from_secs(600))
            };
            system.speed_up()?;
            client("prepare").run()?;
            system.sync()?;
            system.slow_down()?;
            let (played, asked) = system.during(|| okeanos::json::<Played>(client("run")))?;
            let flushes = played.flush.count as usize;
            samples.add(key, &system.name, FLUSH, played.flush.mean_ns as f64 / 1e6);
            samples.count_asked(key, &system.name, FLUSH, flushes, &asked);
            samples.count_named(
                key,
                &system.name,
                FLUSH,
                0,
                &[
                    ("99th percentile, ms", played.flush.p99_ns as f64 / 1e6 * flushes as f64),
                    ("seconds in all", played.seconds * flushes as f64),
                ],
            );
            system.speed_up()?;
            okeanos::remove_dir(system, dir)?;
            system.slow_down()
        })
    }

    fn judge(&self, section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
        let ours = OneJournal::new().name();
        let of_paper = okeanos::wasteless_as_in_paper().name();
        for (index, trace) in self.traces.iter().enumerate() {
            for instances in self.instances.iter().filter(|instances| **instances >= 16) {
                let key = Key::at(panel(device, trace), f64::from(*instances));
                if let Some(wanted) = WANTED.get(index) {
                    section.verdicts.push(over_ordered(samples, &key, &ours, ("", Some(*wanted)))?);
                }
                // The paper has no trace of PostgreSQL.
                let of_innodb = ("tens of seconds for hundreds (about 0.1)", Some(PAPERS_PART));
                let paper = if trace.starts_with("mariadb") { of_innodb } else { ("", None) };
                section.verdicts.push(over_ordered(samples, &key, &of_paper, paper)?);
            }
        }
        Ok(())
    }
}

/// The time of a flush over that of ext4 ordered: with the paper's words, and the most that is
/// wanted.
fn over_ordered(
    samples: &Samples,
    key: &Key,
    system: &str,
    (paper, wanted): (&str, Option<f64>),
) -> Result<Verdict> {
    let ordered = Ext4::ordered().name();
    let ratio = samples.ratio(key, FLUSH, system, &ordered)?;
    let claim = format!(
        "{}, {} logs: time of a flush of {system} over that of {ordered}",
        key.panel, key.case
    );
    let (verdict, wanted) = match wanted {
        Some(wanted) => (
            Verdict::at_most(claim, paper, ratio.of_medians, wanted),
            format!("At most {wanted} is wanted; "),
        ),
        None => (Verdict::shown(claim, paper, ratio.of_medians), String::new()),
    };
    Ok(verdict.saying(format!(
        "{wanted}{:.2} to {:.2} from round to round. {}",
        ratio.low,
        ratio.high,
        samples.costs(key, FLUSH, &[system, &ordered])
    )))
}
