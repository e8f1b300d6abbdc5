//! xLog, figure 4: bytes written to the device for each byte logged, under a steady load.

use super::xlog::{LogPlace, Way};
use super::{Experiment, PaperSize, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-amplification",
    title: "Write amplification of logging",
    paper: super::XLOG,
    figure: "Figure 4",
    about: "Records are logged without pauses until all of them are in files on ext4, in the ways \
            of `xlog-append`; what the device was written, with all metadata and journals, over \
            the bytes of the records. Beside it the rate. ext4 and the log service write a record \
            as it is, without compression.",
    paper_claim: "100-byte records: write + fsync 199.7, xLog 1.5, mostly because of the header of \
            a record; less with larger records.",
    goal: "At most 1.3 for 100-byte records, 1.1 for 1 KB and more.",
    sizes: &[&MEGABYTES, &SYNCED, &SENT],
    run,
};

const WRITTEN: Metric =
    Metric { name: "write amplification", unit: "bytes a byte", better: Better::Lower };
const RATE: Metric = Metric { name: "rate", unit: "MB/s", better: Better::Higher };
const SIZE_MIB: u32 = 768;
/// Bytes of a record, and the goal.
const SIZES: [(u32, f64); 4] = [(100, 1.3), (1000, 1.1), (10_000, 1.1), (100_000, 1.1)];

const MEGABYTES: PaperSize = PaperSize::of("MB of records", 100, 100, 5);
/// Its time is that of the socket.
const SENT: PaperSize = PaperSize::own("records through the socket, at most", 400_000, 20_000);
/// The paper's MB as records of 100 bytes.
const SYNCED: PaperSize =
    PaperSize::of("records to files with syncs, at most", 1_000_000, 1000, 100);

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    for device in scale.devices(&["ssd311"]) {
        on_device(lab, scale, section, &device, samples)?;
        judge(section, samples, &device)?;
        for (title, metric) in
            [("Bytes written for a byte logged", WRITTEN), ("Logging without pauses", RATE)]
        {
            section.plots.push(
                Plot::lines(
                    format!("{title}, on {device}"),
                    metric.name,
                    "bytes a record",
                    vec![device.to_string()],
                )
                .log_x()
                .log_y(),
            );
        }
    }
    Ok(())
}

/// The number of records: fewer if each waits for the disk.
fn records(scale: &Scale, way: Way, size: u32) -> u64 {
    let all = scale.size::<u64>(&MEGABYTES) * 1_000_000 / u64::from(size);
    match way {
        Way::Fsync | Way::Fdatasync => all.min(scale.size(&SYNCED)),
        Way::Ring => all.min(scale.size(&SENT)),
        Way::Lane | Way::Native => all,
    }
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
        for (size, _) in SIZES {
            let key = Key::at(device.to_string(), f64::from(size));
            measure::in_turns(&mut rng, &mut Way::ALL.clone(), |_, way| {
                let records = records(scale, *way, size);
                running[0].sync()?;
                let before = running[0].counts()?;
                let appended = place.append(*way, size, records)?;
                running[0].sync()?;
                let counts = (running[0].counts()? - before).total();
                let bytes = (records * u64::from(size)) as f64;
                samples.add(&key, way.name(), WRITTEN, counts.write_bytes as f64 / bytes);
                samples.count_named(
                    &key,
                    way.name(),
                    WRITTEN,
                    records as usize,
                    &[("flushes", counts.flushes as f64), ("writes", counts.writes as f64)],
                );
                samples.add(&key, way.name(), RATE, bytes / appended.flushed_seconds / 1e6);
                samples.count_named(
                    &key,
                    way.name(),
                    RATE,
                    1,
                    &[("until the last append, MB/s", appended.bytes_per_s / 1e6)],
                );
                Ok(())
            })?;
        }
        watch.end_round(&running, section)?;
    }
    place.stop();
    systems::stop(running)
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
    for (size, wanted) in SIZES {
        let key = Key::at(device.to_string(), f64::from(size));
        let of = |way: Way| {
            measure::statistics::median(samples.of(&key, way.name(), WRITTEN).unwrap_or_default())
        };
        let (ours, plain, ring) = (of(Way::Lane), of(Way::Fsync), of(Way::Native));
        section.verdicts.push(Verdict {
            claim: format!(
                "{device}: at most {wanted} bytes written for a byte logged, \
                 records of {size} bytes"
            ),
            paper: if size == 100 { "1.5; write + fsync 199.7" } else { "less" }.into(),
            measured: format!("{ours:.2}"),
            outcome: if ours <= wanted { Outcome::Reached } else { Outcome::Missed },
            sentence: format!("write + fsync {plain:.1}, xLog's ring {ring:.2}."),
        });
    }
    Ok(())
}
