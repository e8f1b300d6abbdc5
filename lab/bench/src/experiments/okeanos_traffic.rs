//! Okeanos, figure 1: bytes that are written to the journal, by the size of the requests.

use std::time::Duration;

use serde::Deserialize;

use super::{Experiment, PaperSize, Scale, okeanos};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch, statistics};
use crate::results::{Better, Plot, Section, Verdict};
use crate::systems::{self, Running, Site};

pub const EXPERIMENT: Experiment = Experiment {
    id: "okeanos-traffic",
    title: "Journal traffic by request size",
    paper: super::OKEANOS,
    figure: "Figure 1",
    about: "Streams, each a synchronous write (O_DSYNC) a second to a file of its own, appending \
            or at random places of a file of 256 KiB (the paper: on ext3). Bytes that the \
            journal's device gets, for each request; the journal is on a device of its own. The \
            systems run side by side, because bytes are counted and not times. The records are \
            random bytes, as in the other experiments of Okeanos; *text*: English words with the \
            frequencies of prose, which compress.",
    paper_claim: "Up to requests of 4 KB, data journaling writes almost the same to the journal, \
            whatever the size. The traffic of ordered and writeback grows almost linearly with the \
            size. The figure shows ext3's modes.",
    goal: "At most a tenth of data journaling's traffic for requests of 125 bytes. That of the \
            paper's modes is shown: this figure does not have them (`okeanos-streams` judges \
            them).",
    sizes: &[&STREAMS, &SECONDS],
    run,
};

const TRAFFIC: Metric =
    Metric { name: "journal traffic", unit: "KiB a request", better: Better::Lower };
const SIZE_MIB: u32 = 384;
const STREAMS: PaperSize = PaperSize::of("streams", 100, 100, 100);
const SECONDS: PaperSize = PaperSize::of("seconds of a case and round", 300, 1, 1);
const FILE_BYTES: u32 = 256 << 10;
const APPEND: Load = Load { place: "append", is_text: false };
const RANDOM: Load = Load { place: "random", is_text: false };
const APPEND_TEXT: Load = Load { place: "append", is_text: true };

/// Where records go, and whether they are words.
#[derive(Clone, Copy, PartialEq)]
struct Load {
    place: &'static str,
    is_text: bool,
}

#[derive(Deserialize)]
struct Written {
    records: usize,
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let sizes = scale.pick(vec![125, 4096], vec![125, 256, 512, 1024, 2048, 4096, 8192]);
    for device in scale.devices(&["hdd"]) {
        on_device(lab, scale, section, &device, &sizes, samples)?;
        judge(section, samples, &device, &sizes)?;
        section.plots.push(
            Plot::lines(
                format!("Journal traffic on {device}"),
                TRAFFIC.name,
                "bytes a request",
                [APPEND, RANDOM, APPEND_TEXT].map(|load| panel(&device, load)).to_vec(),
            )
            .log_x()
            .log_y(),
        );
    }
    Ok(())
}

fn panel(device: &Device, load: Load) -> String {
    let text = if load.is_text { ", text" } else { "" };
    format!("{device}: {}{text}", load.place)
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    sizes: &[u32],
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &okeanos::systems(), &Site::new(device, SIZE_MIB), section)?;
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        scale.say_round(round, device);
        for load in [APPEND, RANDOM, APPEND_TEXT] {
            for size in sizes {
                let key = Key::at(panel(device, load), f64::from(*size));
                side_by_side(lab, &running, load, *size, (samples, &key))?;
            }
        }
        watch.end_round(&running, section)?;
    }
    systems::stop(running)
}

/// The same on all systems at once.
fn side_by_side(
    lab: &Lab,
    running: &[Running],
    load: Load,
    size: u32,
    (samples, key): (&mut Samples, &Key),
) -> Result<()> {
    let mut dirs = Vec::new();
    for system in running {
        let dir = okeanos::fresh_dir(system, "traffic")?;
        system.speed_up()?;
        // Appends find a block that is there, as those of a log do.
        let bytes = if load == RANDOM { FILE_BYTES } else { 10 };
        let client = lab.client("streams").arg("prepare").arg(&dir);
        let client = client.args(["--count", &STREAMS.full.to_string()]);
        system.client.apply(client.args(["--file-bytes", &bytes.to_string()])).run()?;
        system.sync()?;
        system.slow_down()?;
        dirs.push(dir);
    }
    let before = running.iter().map(Running::counts).collect::<Result<Vec<_>>>()?;
    let mut clients = Vec::new();
    for (system, dir) in running.iter().zip(&dirs) {
        let client = lab.client("streams").arg("write").arg(dir).args(["--place", load.place]);
        let client = if load.is_text { client.arg("--text") } else { client };
        let client = client.args(["--count", &STREAMS.full.to_string()]);
        let client = client.args(["--record-bytes", &size.to_string()]);
        let client = client.args(["--seconds", &SECONDS.full.to_string()]);
        let limit = Duration::from_secs(60 + SECONDS.full);
        clients.push(system.client.apply(client).time_limit(limit).start()?);
    }
    for ((system, before), client) in running.iter().zip(before).zip(clients) {
        let text = client.finish()?.join("\n");
        let written: Written = serde_json::from_str(&text).map_err(Error::json("streams"))?;
        let counts = system.counts()? - before;
        let each = |bytes: u64| bytes as f64 / 1024.0 / written.records.max(1) as f64;
        samples.add(key, &system.name, TRAFFIC, each(counts.journal.write_bytes));
        let requests = written.records;
        samples.count_named(
            key,
            &system.name,
            TRAFFIC,
            requests,
            &[
                ("journal writes", counts.journal.writes as f64),
                ("flushes", counts.total().flushes as f64),
                ("KiB to the file system's device", counts.device.write_bytes as f64 / 1024.0),
            ],
        );
    }
    for (system, dir) in running.iter().zip(dirs) {
        system.speed_up()?;
        okeanos::remove_dir(system, dir)?;
    }
    Ok(())
}

fn judge(section: &mut Section, samples: &Samples, device: &Device, sizes: &[u32]) -> Result<()> {
    let of_paper = okeanos::of_paper();
    for load in [APPEND, RANDOM] {
        for size in [sizes[0], sizes[sizes.len() - 1]] {
            let key = Key::at(panel(device, load), f64::from(size));
            for system in [okeanos::ours()].iter().chain(&of_paper) {
                let wanted = (*system == okeanos::ours() && size == sizes[0]).then_some(0.1);
                section.verdicts.push(of_data_journaling(samples, &key, system, wanted)?);
            }
        }
    }
    Ok(())
}

/// The traffic of a system as a part of data journaling's, with the most that is wanted.
fn of_data_journaling(
    samples: &Samples,
    key: &Key,
    system: &str,
    wanted: Option<f64>,
) -> Result<Verdict> {
    let peer = okeanos::data_journaling();
    let ratio = samples.ratio(key, TRAFFIC, system, &peer)?;
    let claim = format!(
        "{}, {} bytes: {system}'s journal traffic as a part of data journaling's",
        key.panel, key.case
    );
    let verdict = match wanted {
        Some(wanted) => Verdict::at_most(claim, "", ratio.of_medians, wanted),
        None => Verdict::shown(claim, "", ratio.of_medians),
    };
    let kib = |system: &str| samples.of(key, system, TRAFFIC).map_or(f64::NAN, statistics::median);
    Ok(verdict.saying(format!(
        "{:.3} to {:.3} from round to round. KiB a request: {:.2} and {:.2}.",
        ratio.low,
        ratio.high,
        kib(system),
        kib(&peer)
    )))
}
