//! xLog, figure 3: how long it takes to make a log record durable, by its size.

use super::xlog::{LogPlace, Way};
use super::{Experiment, PaperSize, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-append",
    title: "Latency of a durable append",
    paper: super::XLOG,
    figure: "Figure 3",
    about: "A client appends records one after the other, each durable before the next: to a lane \
            of the log service (through its daemon, the lane in tmpfs, which stands for NVRAM), \
            to xLog's central ring, rebuilt from the paper (in the client's process, as the paper \
            measured it, and behind a socket), and to a file on ext4 with fsync or fdatasync. All \
            files are on the same ext4. As in the paper, the records go through a ring or pool of \
            10 MB, so the time includes the waits for the disk; the mean time of an append. Fewer \
            records go through the socket and to files with syncs.",
    paper_claim: "Mean time against write + fsync: 100-byte records 77 times as fast (20 µs), 1 KB \
            37, 10 KB 7, 100 KB 3 times; the IPC, 100 µs, not counted.",
    goal: "At most 1 µs for 100 bytes; on each disk the paper's speed over write + fsync; over \
            write + fdatasync on this machine's disk 100 times for 100 bytes, 60 for 1 KB, 15 for \
            10 KB, 5 for 100 KB.",
    sizes: &[&MEGABYTES, &SYNCED, &SENT],
    run,
};

const TIME: Metric = Metric { name: "append", unit: "µs", better: Better::Lower };
const SIZE_MIB: u32 = 768;
/// Bytes of a record, the paper's speed compared with write + fsync, and the goal compared with
/// write + fdatasync on this machine's disk.
const SIZES: [(u32, u32, f64); 4] =
    [(100, 77, 100.0), (1000, 37, 60.0), (10_000, 7, 15.0), (100_000, 3, 5.0)];
const MEGABYTES: PaperSize = PaperSize::of("MB of records", 100, 100, 30);
const SENT: PaperSize = PaperSize::own("records through the socket, at most", 200_000, 20_000);
/// The paper's MB as records of 100 bytes.
const SYNCED: PaperSize = PaperSize::of("records to files with syncs, at most", 1_000_000, 200, 50);
const LATENCY_MAX_US: f64 = 1.0;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    for device in scale.devices(scale.pick(&["loop"][..], &["loop", "ssd311", "emmc"])) {
        on_device(lab, scale, section, &device, samples)?;
        judge(section, samples, &device)?;
        section.plots.push(
            Plot::lines(
                format!("A durable append, files on {device}"),
                TIME.name,
                "bytes a record",
                vec![device.to_string()],
            )
            .log_x()
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
    samples: &mut Samples,
) -> Result<()> {
    let ext4: [Box<dyn System>; 1] = [Box::new(Ext4::ordered())];
    let running = systems::start(lab, &ext4, &Site::new(device, SIZE_MIB), section)?;
    let mut place = LogPlace::new(lab, &running[0])?;
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for (size, ..) in SIZES {
            let key = Key::at(device.to_string(), f64::from(size));
            measure::in_turns(&mut rng, &mut Way::ALL.clone(), |_, way| {
                // Nothing of the way before is left to write.
                running[0].sync()?;
                let appended = place.append(*way, size, records(scale, *way, size))?;
                samples.add(&key, way.name(), TIME, appended.latency.mean_ns as f64 / 1e3);
                samples.count_named(
                    &key,
                    way.name(),
                    TIME,
                    1,
                    &[
                        ("median, µs", appended.latency.p50_ns as f64 / 1e3),
                        ("99th percentile, µs", appended.latency.p99_ns as f64 / 1e3),
                    ],
                );
                Ok(())
            })?;
        }
        watch.end_round(&running, section)?;
    }
    place.stop();
    systems::stop(running)
}

/// The number of records: fewer if each waits for the disk.
fn records(scale: &Scale, way: Way, size: u32) -> u64 {
    let all = scale.size::<u64>(&MEGABYTES) * 1_000_000 / u64::from(size);
    match way {
        Way::Fsync | Way::Fdatasync => scale.size(&SYNCED),
        Way::Ring => all.min(scale.size(&SENT)),
        Way::Lane | Way::Native => all,
    }
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
    for (size, paper, wanted) in SIZES {
        let key = Key::at(device.to_string(), f64::from(size));
        if *device == Device::Scratch {
            judge_own(section, samples, &key, (size, paper, wanted))?;
        }
        let against = |way: Way| samples.ratio(&key, TIME, way.name(), Way::Lane.name());
        let fsync = against(Way::Fsync)?;
        let sentence = format!(
            "{:.1} to {:.1} from round to round; {:.1} times as fast as write + fdatasync, {:.1} \
             as xLog's ring with its IPC, {:.2} without.",
            fsync.low,
            fsync.high,
            against(Way::Fdatasync)?.of_medians,
            against(Way::Ring)?.of_medians,
            against(Way::Native)?.of_medians
        );
        let claim = format!("{device}: {size}-byte records {paper} times as fast as write + fsync");
        let (speed, paper) = (fsync.of_medians, f64::from(paper));
        let verdict = Verdict::at_least(claim, &paper.to_string(), speed, paper);
        section.verdicts.push(verdict.saying(sentence));
    }
    judge_latency(section, samples, device);
    Ok(())
}

/// The goal on this machine's disk, over write + fdatasync.
fn judge_own(
    section: &mut Section,
    samples: &Samples,
    key: &Key,
    (size, paper, wanted): (u32, u32, f64),
) -> Result<()> {
    let ratio = samples.ratio(key, TIME, Way::Fdatasync.name(), Way::Lane.name())?;
    let claim = format!(
        "{}: records of {size} bytes {wanted} times as fast as write + fdatasync",
        key.panel
    );
    let paper = format!("{paper} (over write + fsync)");
    let sentence = format!("{:.1} to {:.1} from round to round.", ratio.low, ratio.high);
    let verdict = Verdict::at_least(claim, &paper, ratio.of_medians, wanted);
    section.verdicts.push(verdict.saying(sentence));
    Ok(())
}

fn judge_latency(section: &mut Section, samples: &Samples, device: &Device) {
    let key = Key::at(device.to_string(), f64::from(SIZES[0].0));
    let times = samples.of(&key, Way::Lane.name(), TIME).unwrap_or_default();
    let mean = measure::statistics::median(times);
    section.verdicts.push(Verdict {
        claim: format!(
            "{device}: a record of 100 bytes in at most 1 µs from a process that is not the daemon"
        ),
        paper: "20 µs, and 100 µs of IPC".into(),
        measured: format!("{mean:.2} µs"),
        outcome: if mean <= LATENCY_MAX_US { Outcome::Reached } else { Outcome::Missed },
        sentence: "Mean of an append while the daemon flushes.".into(),
    });
}
