//! Okeanos, figure 4: many streams at 1 Kb/s and 1 Mb/s, and reading their files.

use std::time::Duration;

use fastrand::Rng;
use serde::Deserialize;

use super::{Experiment, PaperSize, Scale, okeanos};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::latency::Latency;
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-streams",
    title: "Many streams of synchronous appends",
    paper: super::OKEANOS,
    figure: "Figures 4a to 4d",
    about: "Streams that append a record a second to files of their own, synchronously (O_DSYNC): \
            125 bytes (1 Kb/s) or 125,000 (1 Mb/s), on a model of a 7200 rpm disk (the paper: \
            15,000 rpm), the journal on another. Bytes written to the journal's disk for each \
            record, and to the file system's for each record and the first one of each file, all \
            brought home at the end; latency of a write, with the part of the records that were \
            written in time; then, after mounting anew, a thread reads all files of 1 Mb/s one \
            after the other, 4 KiB at a time. *Asynchronous* are the same records without O_DSYNC: \
            the latency of a `write` that need not be durable. The paper tried them too, without \
            saying which rate and number of streams. ext4 answers them from the page cache, \
            OneJournal from its daemon; with *order=sync* the kernel collects writes for it as \
            well.",
    paper_claim: "At 1 Kb/s data journaling writes up to 27 MB/s to the journal, wasteless and \
            selective up to about 4 MB/s; ordered writes several times as much to the file system \
            as these three. At 1 Mb/s ordered and selective have much higher latencies than the \
            other modes, by orders of magnitude. Asynchronous writes: selective and wasteless have \
            up to two orders of magnitude less latency than ordered and data journaling. Reading \
            the files takes an order of magnitude longer with NILFS than with ext3.",
    goal: "100 streams of 1 Kb/s: a tenth of data journaling's journal traffic; 1,000 streams, \
            as in Okeanos: the paper's 0.15 of it, and a half of ordered's traffic to the file \
            system, which is how we read \"several times as much\". Latency no worse than ext4's \
            best mode; streams of 1 Mb/s, wasteless as in Okeanos: a tenth of ordered's, which \
            reads \"orders of magnitude\" as one. Asynchronous writes: a hundredth of the latency \
            of ordered and data journaling.",
    sizes: &[&SLOW_STREAMS, &FAST_STREAMS, &SECONDS],
    run,
};

const JOURNAL: Metric =
    Metric { name: "journal traffic", unit: "KiB a record", better: Better::Lower };
const HOME: Metric =
    Metric { name: "file system traffic", unit: "KiB a record", better: Better::Lower };
const LATENCY: Metric = Metric { name: "write latency", unit: "ms", better: Better::Lower };
const READ: Metric = Metric { name: "4 KiB read", unit: "µs", better: Better::Lower };
const SLOW_STREAMS: PaperSize = PaperSize::own("streams of 1 Kb/s, at most", 1000, 100);
const FAST_STREAMS: PaperSize = PaperSize::own("streams of 1 Mb/s, at most", 100, 30);
const SECONDS: PaperSize = PaperSize::own("seconds of a case and round", 2, 1);
const SIZE_MIB: u32 = 512;

/// The paper's journal traffic as a part of data journaling's.
const PAPERS_PART: &str = "up to about 4 of 27 MB/s (0.15)";
/// The paper's file system traffic of ordered over that of each of the other three modes.
const SEVERAL: &str = "several times";

#[derive(Deserialize)]
struct Written {
    records: usize,
    due_records: u64,
    latency: Latency,
}

#[derive(Deserialize)]
struct Read {
    latency: Latency,
    bytes_per_s: f64,
}

/// A rate, and the number of streams with it.
struct Rate {
    name: &'static str,
    record_bytes: u32,
    streams: Vec<u32>,
    is_read: bool,
    is_synchronous: bool,
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let (slow_max, fast_max) = (scale.size(&SLOW_STREAMS), scale.size(&FAST_STREAMS));
    let rates = [
        Rate {
            name: "1 Kb/s",
            record_bytes: 125,
            streams: scale.pick(vec![slow_max], vec![100, slow_max]),
            is_read: false,
            is_synchronous: true,
        },
        Rate {
            name: "1 Mb/s",
            record_bytes: 125_000,
            streams: scale.pick(vec![fast_max], vec![10, fast_max]),
            is_read: true,
            is_synchronous: true,
        },
        Rate {
            name: "1 Mb/s, asynchronous",
            record_bytes: 125_000,
            streams: vec![fast_max],
            is_read: false,
            is_synchronous: false,
        },
    ];
    let seconds = scale.size(&SECONDS);
    for device in scale.devices(&["hdd"]) {
        on_device(lab, scale, section, &device, &rates, seconds, samples)?;
        judge(section, samples, &device, &rates)?;
        plots(section, &device, &rates);
    }
    Ok(())
}

fn panel(device: &Device, rate: &Rate) -> String {
    format!("{device}: streams of {}", rate.name)
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    rates: &[Rate],
    seconds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let mut running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        for rate in rates {
            for streams in &rate.streams {
                let key = Key::at(panel(device, rate), f64::from(*streams));
                scale.say_round(round, format_args!("{streams} {}", key.panel));
                let case = Case { lab, key, rate, streams: *streams, seconds };
                case.round(&mut running, &mut rng, samples)?;
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

/// The lines of the paper's figure, OneJournal's default, and [`collecting`].
fn recipes() -> [Box<dyn System>; 7] {
    let ours = |ours: OneJournal| Box::new(ours.journal(Journal::SameKind));
    [
        Box::new(Ext4::ordered().external()),
        Box::new(Ext4::journal().external()),
        ours(OneJournal::new().data("wasteless")),
        ours(OneJournal::new()),
        ours(OneJournal::as_in_okeanos("wasteless")),
        ours(OneJournal::as_in_okeanos("selective")),
        Box::new(collecting()),
    ]
}

/// The paper's wasteless mode where the kernel collects writes until a sync: for streams that are
/// not synchronous only.
fn collecting() -> OneJournal {
    OneJournal::new().data("wasteless").journal(Journal::SameKind).order_sync()
}

struct Case<'a> {
    lab: &'a Lab,
    key: Key,
    rate: &'a Rate,
    streams: u32,
    seconds: u32,
}

impl Case<'_> {
    fn round(&self, running: &mut [Running], rng: &mut Rng, samples: &mut Samples) -> Result<()> {
        measure::in_turns(rng, running, |_, system| {
            let is_left_out = self.rate.is_synchronous && system.name == collecting().name();
            if is_left_out { Ok(()) } else { self.measure(system, samples) }
        })
    }

    fn measure(&self, system: &Running, samples: &mut Samples) -> Result<()> {
        let dir = okeanos::fresh_dir(system, "streams")?;
        let write = |interval_ms: u32, records: u32| {
            let client = self.lab.client("streams").arg("write").arg(&dir);
            let client = client.args(["--count", &self.streams.to_string()]);
            let client = client.args(["--record-bytes", &self.rate.record_bytes.to_string()]);
            let client = client.args(["--interval-ms", &interval_ms.to_string()]);
            let client = client.args(["--records", &records.to_string()]);
            let client =
                client.args(["--seconds", &(self.seconds + interval_ms.min(1)).to_string()]);
            let sync = if self.rate.is_synchronous { "dsync" } else { "none" };
            let client = client.args(["--sync", sync]);
            system.client.apply(client).time_limit(Duration::from_secs(200))
        };
        // The files are there, and their first record, whose way home may come later.
        let at_first = system.counts()?;
        system.speed_up()?;
        write(0, 1).run()?;
        system.sync()?;
        system.slow_down()?;
        let before = system.counts()?;
        let written: Written = okeanos::json(write(1000, self.seconds))?;
        let journal = (system.counts()? - before).journal;
        system.remount()?;
        let counts = system.counts()? - before;
        let (name, key, records) = (&system.name, &self.key, written.records.max(1));
        let each = |bytes: u64| bytes as f64 / 1024.0 / records as f64;
        samples.add(key, name, JOURNAL, each(journal.write_bytes));
        samples.count_named(
            key,
            name,
            JOURNAL,
            records,
            &[("journal writes", journal.writes as f64)],
        );
        let home_bytes = (system.counts()? - at_first).device.write_bytes;
        let all_records = written.records + self.streams as usize;
        samples.add(key, name, HOME, home_bytes as f64 / 1024.0 / all_records as f64);
        let writes =
            [("writes", counts.device.writes as f64), ("flushes", counts.device.flushes as f64)];
        samples.count_named(key, name, HOME, records, &writes);
        samples.add(key, name, LATENCY, written.latency.mean_ns as f64 / 1e6);
        let of_due = written.records as f64 / written.due_records.max(1) as f64;
        samples.count_named(
            key,
            name,
            LATENCY,
            1,
            &[
                ("99th percentile, ms", written.latency.p99_ns as f64 / 1e6),
                ("written of those due", of_due),
            ],
        );
        if self.rate.is_read {
            let read: Read = okeanos::json(self.lab.client("streams").arg("read").arg(&dir))?;
            samples.add(key, name, READ, read.latency.mean_ns as f64 / 1e3);
            samples.count_named(key, name, READ, 1, &[("MB/s", read.bytes_per_s / 1e6)]);
        }
        system.speed_up()?;
        okeanos::remove_dir(system, dir)?;
        system.slow_down()
    }
}

fn plots(section: &mut Section, device: &Device, rates: &[Rate]) {
    let mut plot = |title: &str, metric: Metric, rates: &[Rate]| {
        section.plots.push(
            Plot::lines(
                format!("{title}, on {device}"),
                metric.name,
                "streams",
                rates.iter().map(|rate| panel(device, rate)).collect(),
            )
            .log_x()
            .log_y(),
        );
    };
    let synchronous = &rates[..2];
    plot("Figure 4a: bytes to the journal", JOURNAL, synchronous);
    plot("Figure 4b: bytes to the file system's device", HOME, synchronous);
    plot("Figure 4c: latency of a synchronous write", LATENCY, synchronous);
    plot("Figure 4d: reading the files afterwards", READ, &synchronous[1..]);
    plot("Latency of an asynchronous write", LATENCY, &rates[2..]);
}

/// The bytes of slow streams, to the journal and home.
fn judge_traffic(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    rate: &Rate,
) -> Result<()> {
    let (ours, wasteless) = (okeanos::ours(), okeanos::wasteless());
    let [paper_wasteless, paper_selective] = okeanos::of_paper();
    let slow = &rate.streams;
    let (fewest, most) = (slow[0], slow[slow.len() - 1]);
    for (system, streams, paper, wanted) in [
        (&ours, fewest, "", 0.1),
        (&wasteless, fewest, "", 0.1),
        // The paper's number is that of its largest number of streams.
        (&paper_wasteless, most, PAPERS_PART, 0.15),
        (&paper_selective, most, PAPERS_PART, 0.15),
    ] {
        let key = Key::at(panel(device, rate), f64::from(streams));
        let ratio = samples.ratio(&key, JOURNAL, system, &okeanos::data_journaling())?;
        let claim = format!(
            "{device}: {system} writes at most {wanted} of data journaling's journal traffic, \
             {streams} streams of 1 Kb/s"
        );
        let verdict = Verdict::at_most(claim, paper, ratio.of_medians, wanted);
        section.verdicts.push(
            verdict.saying(format!("{:.3} to {:.3} from round to round.", ratio.low, ratio.high)),
        );
    }
    let key = Key::at(panel(device, rate), f64::from(most));
    for system in [paper_wasteless, paper_selective, okeanos::data_journaling()] {
        let ratio = samples.ratio(&key, HOME, &okeanos::ordered(), &system)?;
        let claim = format!(
            "{device}: ext4 ordered's traffic to the file system over that of {system}, {most} \
             streams of 1 Kb/s"
        );
        let verdict = match system == okeanos::data_journaling() {
            // No system of ours: it says whether the paper's claim about ext3 holds for ext4.
            true => Verdict::shown(claim, SEVERAL, ratio.of_medians),
            false => Verdict::at_least(claim, SEVERAL, ratio.of_medians, 2.0),
        };
        section.verdicts.push(
            verdict.saying(format!("{:.2} to {:.2} from round to round.", ratio.low, ratio.high)),
        );
    }
    Ok(())
}

fn judge(section: &mut Section, samples: &Samples, device: &Device, rates: &[Rate]) -> Result<()> {
    judge_traffic(section, samples, device, &rates[0])?;
    let (ours, [paper_wasteless, _]) = (okeanos::ours(), okeanos::of_paper());
    for rate in rates.iter().filter(|rate| rate.is_synchronous) {
        let streams = *rate.streams.last().expect("some streams");
        let key = Key::at(panel(device, rate), f64::from(streams));
        let against = |other: &str| samples.ratio(&key, LATENCY, &ours, other);
        let (journal, ordered) =
            (against(&okeanos::data_journaling())?, against(&okeanos::ordered())?);
        let is_best = journal.of_medians <= 1.0 && ordered.of_medians <= 1.0;
        section.verdicts.push(Verdict {
            claim: format!(
                "{device}: latency of {streams} streams of {} no worse than ext4's",
                rate.name
            ),
            paper: "-".into(),
            measured: format!(
                "{:.2} of data journaling, {:.2} of ordered",
                journal.of_medians, ordered.of_medians
            ),
            outcome: if is_best { Outcome::Reached } else { Outcome::Missed },
            sentence: format!("{ours}, mean latency."),
        });
    }
    let fast =
        Key::at(panel(device, &rates[1]), f64::from(*rates[1].streams.last().expect("some")));
    let ratio = samples.ratio(&fast, LATENCY, &paper_wasteless, &okeanos::ordered())?;
    let claim = format!(
        "{device}: latency of {paper_wasteless} at most 0.1 of ext4 ordered's, {} streams of {}",
        fast.case, rates[1].name
    );
    let paper = "orders of magnitude below ordered";
    section.verdicts.push(Verdict::at_most(claim, paper, ratio.of_medians, 0.1).saying(format!(
        "Mean latencies; {:.2} to {:.2} from round to round.",
        ratio.low, ratio.high
    )));
    let read = samples.ratio(&fast, READ, &ours, &okeanos::ordered())?;
    section.verdicts.push(Verdict {
        claim: format!("{device}: files written together are read as fast as from ext4 ordered"),
        paper: "-".into(),
        measured: format!("{:.2} times the time", read.of_medians),
        outcome: if read.of_medians <= 1.1 { Outcome::Reached } else { Outcome::Missed },
        sentence: format!(
            "Within a tenth, of {ours}; {:.2} to {:.2} from round to round.",
            read.low, read.high
        ),
    });
    judge_asynchronous(section, samples, device, &rates[2])?;
    section.leave_out(
        "NILFS",
        "it is not run here; `file-systems` counts the bytes and flushes of NILFS2 in a virtual \
         machine whose kernel has it",
    );
    Ok(())
}

fn judge_asynchronous(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    rate: &Rate,
) -> Result<()> {
    let streams = *rate.streams.last().expect("some streams");
    let key = Key::at(panel(device, rate), f64::from(streams));
    let [paper_wasteless, paper_selective] = okeanos::of_paper();
    for (system, paper) in [
        (paper_wasteless, "up to 100"),
        (paper_selective, "up to 100"),
        (okeanos::wasteless(), ""),
        (collecting().name(), ""),
    ] {
        for other in [okeanos::ordered(), okeanos::data_journaling()] {
            let ratio = samples.ratio(&key, LATENCY, &other, &system)?;
            let claim = format!(
                "{device}: latency of {other} over that of {system}, {streams} streams of {}",
                rate.name
            );
            let verdict = Verdict::at_least(claim, paper, ratio.of_medians, 100.0);
            section.verdicts.push(verdict.saying(format!(
                "Mean latencies; {:.2} to {:.2} from round to round.",
                ratio.low, ratio.high
            )));
        }
    }
    Ok(())
}
