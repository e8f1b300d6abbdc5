//! Okeanos: how long recovery takes after a power cut.

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{Experiment, PaperSize, Scale, okeanos};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::statistics::median;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Better, Plot, Section, Verdict};
use crate::systems::{self, Journal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-recovery",
    title: "Recovery after a power cut",
    paper: super::OKEANOS,
    figure: "Section 6, text",
    about: "100 streams append synchronously (O_DSYNC), 125 bytes or 4 KiB at a time, to files of \
            their own; then the power of the disks goes (of what was not flushed, half of the \
            sectors survive), and mounting is measured on the same disks: the same records on all \
            systems, or until 80 MiB were written to the journal of 128 MiB. *clean*: mounting \
            after unmounting. Each round mounts the same image again. After each recovery every \
            acknowledged record has to be there. *as in Okeanos* is OneJournal with whole blocks \
            of metadata, no compression, and blocks of the journal that are filled up.",
    paper_claim: "After controlled crashes, wasteless and selective journaling tend to reduce the \
            recovery time of data journaling, by more than 20 % in some cases.",
    goal: "No slower than ext4 with data journaling. The default mode no slower than ext4 ordered \
            either, also after a clean unmount.",
    sizes: &[&STREAMS],
    run,
};

const TIME: Metric = Metric { name: "time to mount", unit: "ms", better: Better::Lower };
const SIZE_MIB: u32 = 384;
const STREAMS: PaperSize = PaperSize::own("streams", 100, 100);
const SURVIVAL: f64 = 0.5;
/// The journal, on a device of 128 MiB, counts as full when this much was written to it. At three
/// quarters ext4 brings its journal home, so that little or much is left to recover, by a record
/// more or less.
const FULL_BYTES: u64 = 80 << 20;
/// The most records for systems that write data in place: their journal fills slowly.
const FULL_RECORDS_MAX: u32 = 240;
const RECORDS_AT_A_TIME: u32 = 10;
const CLEAN: &str = "clean";

/// The work before the cut.
enum Fill {
    /// This many records of each stream.
    Records(u32),
    /// Until [`FULL_BYTES`] were written to the journal's device, or each stream has
    /// [`FULL_RECORDS_MAX`].
    Full,
}

struct Case {
    name: &'static str,
    record_bytes: u32,
    fill: Fill,
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let mut cases = vec![
        Case { name: "1,000 records of 125 bytes", record_bytes: 125, fill: Fill::Records(10) },
        Case { name: "80 MiB in the journal, 4 KiB", record_bytes: 4096, fill: Fill::Full },
    ];
    if !scale.is_quick {
        let fill = Fill::Records(40);
        cases.push(Case { name: "4,000 records of 4 KiB", record_bytes: 4096, fill });
    }
    for device in scale.devices(&["ssd311"]) {
        if !matches!(device, Device::Emulated(_)) {
            section.leave_out(&device.to_string(), "only an emulated device can lose its power");
            continue;
        }
        on_device(lab, scale, section, &device, &cases, samples)?;
        judge(section, samples, &device, &cases)?;
        section.plots.push(
            Plot::bars(format!("Time to mount on {device}"), TIME.name, vec![device.to_string()])
                .log_y(),
        );
    }
    Ok(())
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    cases: &[Case],
    samples: &mut Samples,
) -> Result<()> {
    let mut running =
        systems::start(lab, &okeanos::systems(), &Site::new(device, SIZE_MIB), section)?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for case in cases {
        eprintln!("onejournal-bench: filling: {} on {device}", case.name);
        let mut acknowledged = Vec::new();
        for system in &running {
            let key = Key::case(device.to_string(), CLEAN);
            system.speed_up()?;
            acknowledged.push(case.fill(lab, system)?);
            if case.name == cases[0].name {
                for _ in 0..scale.rounds() {
                    system.unmount()?;
                    timed_mount(system, &key, samples)?;
                    system.speed_up()?;
                }
                // The clean unmount brought the records home; the cut needs some in the journal.
                acknowledged.pop();
                acknowledged.push(case.fill(lab, system)?);
            }
            // The kind of device decides what a cut loses.
            system.slow_down()?;
            system.cut_power(SURVIVAL, rng.u64(..))?;
            system.save()?;
        }
        for round in 0..scale.rounds() {
            let context = Context {
                case,
                device,
                acknowledged: &acknowledged,
                is_last: round + 1 == scale.rounds(),
            };
            context.round(&mut running, &mut rng, samples)?;
            watch.end_round(&running, section)?;
        }
    }
    systems::stop(running)
}

/// Mounts with cold caches.
fn timed_mount(system: &Running, key: &Key, samples: &mut Samples) -> Result<()> {
    system.slow_down()?;
    let before = system.counts()?;
    let begin = Instant::now();
    system.mount_again()?;
    let took = begin.elapsed();
    let counts = (system.counts()? - before).total();
    samples.add(key, &system.name, TIME, took.as_secs_f64() * 1e3);
    samples.count_named(
        key,
        &system.name,
        TIME,
        1,
        &[
            ("KiB read", counts.read_bytes as f64 / 1024.0),
            ("reads", counts.reads as f64),
            ("KiB written", counts.write_bytes as f64 / 1024.0),
            ("writes", counts.writes as f64),
            ("flushes", counts.flushes as f64),
        ],
    );
    Ok(())
}

impl Case {
    /// Bytes of each stream, all of them acknowledged.
    fn fill(&self, lab: &Lab, system: &Running) -> Result<u64> {
        let dir = system.dir.join("streams");
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(Error::at(&dir))?;
        }
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        // What was there before is home, and the journal begins empty.
        system.unmount()?;
        system.mount_again()?;
        let before = system.counts()?;
        let mut records = 0;
        loop {
            let count = match self.fill {
                Fill::Records(count) => count,
                Fill::Full => RECORDS_AT_A_TIME,
            };
            let client = lab.client("streams").arg("write").arg(&dir);
            let client = client.args(["--count", &STREAMS.full.to_string()]);
            let client = client.args(["--record-bytes", &self.record_bytes.to_string()]);
            let client = client.args(["--records", &count.to_string(), "--interval-ms", "0"]);
            let client = client.args(["--seconds", "200"]).time_limit(Duration::from_secs(250));
            system.client.apply(client).run()?;
            records += count;
            let journal = system.counts()?.journal - before.journal;
            let is_full = journal.write_bytes >= FULL_BYTES || records >= FULL_RECORDS_MAX;
            if is_full || matches!(self.fill, Fill::Records(_)) {
                break;
            }
        }
        Ok(u64::from(records) * u64::from(self.record_bytes))
    }
}

struct Context<'a> {
    case: &'a Case,
    device: &'a Device,
    acknowledged: &'a [u64],
    is_last: bool,
}

impl Context<'_> {
    fn round(&self, running: &mut [Running], rng: &mut Rng, samples: &mut Samples) -> Result<()> {
        let key = Key::case(self.device.to_string(), self.case.name);
        measure::in_turns(rng, running, |index, system| {
            system.restore()?;
            timed_mount(system, &key, samples)?;
            check(system, self.acknowledged[index])?;
            system.speed_up()?;
            if self.is_last { Ok(()) } else { system.unmount() }
        })
    }
}

/// Checks that every acknowledged record is there.
fn check(system: &Running, acknowledged_bytes: u64) -> Result<()> {
    let dir = system.dir.join("streams");
    for number in 0..STREAMS.full {
        let path = dir.join(format!("stream-{number:05}"));
        let len_bytes = len(&path)?;
        if len_bytes < acknowledged_bytes {
            let path = path.display();
            return Err(Error::other(format!(
                "{path} lost acknowledged records: {len_bytes} bytes of {acknowledged_bytes}"
            )));
        }
    }
    Ok(())
}

fn len(path: &Path) -> Result<u64> {
    Ok(path.metadata().map_err(Error::at(path))?.len())
}

fn judge(section: &mut Section, samples: &Samples, device: &Device, cases: &[Case]) -> Result<()> {
    let in_paper = "less, by more than 20 % in some cases";
    let [wasteless_in_paper, selective_in_paper] =
        [okeanos::wasteless_as_in_paper(), okeanos::selective_as_in_paper()]
            .map(|system| system.journal(Journal::SameKind).name());
    let (ours, wasteless) = (okeanos::ours(), okeanos::wasteless());
    let over_journaling = ("data journaling", okeanos::data_journaling());
    let over_ordered = ("ext4 ordered", okeanos::ordered());
    for case in cases {
        let key = Key::case(device.to_string(), case.name);
        for (system, paper, (name, peer)) in [
            (&wasteless_in_paper, in_paper, &over_journaling),
            (&selective_in_paper, in_paper, &over_journaling),
            (&ours, "", &over_journaling),
            (&wasteless, "", &over_journaling),
            (&ours, "", &over_ordered),
        ] {
            let claim = format!("{system} recovers no slower than {name}");
            section.verdicts.push(no_slower(samples, &key, (system, peer), claim, paper)?);
        }
    }
    let key = Key::case(device.to_string(), CLEAN);
    let (name, peer) = over_ordered;
    let claim = format!("{ours} mounts no slower than {name}");
    section.verdicts.push(no_slower(samples, &key, (&ours, &peer), claim, "")?);
    Ok(())
}

/// The time to mount compared with a peer's.
fn no_slower(
    samples: &Samples,
    key: &Key,
    (system, peer): (&str, &str),
    claim: String,
    paper: &str,
) -> Result<Verdict> {
    let ratio = samples.ratio(key, TIME, system, peer)?;
    let of = |system: &str| samples.of(key, system, TIME).map_or(f64::NAN, median);
    let claim = format!("{}, {}: {claim}", key.panel, key.case);
    let verdict = Verdict::at_most(claim, paper, ratio.of_medians, 1.0);
    let sentence = format!(
        "{:.2} to {:.2} from round to round; {:.1} and {:.1} ms.",
        ratio.low,
        ratio.high,
        of(system),
        of(peer)
    );
    let measured = format!("{:.2} times the time", ratio.of_medians);
    Ok(Verdict { measured, sentence, ..verdict })
}
