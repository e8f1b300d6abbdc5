//! The log service with two clients. xLog sends all records through one logger thread; lanes share
//! nothing.

use std::time::{Duration, UNIX_EPOCH};

use super::xlog::{LogPlace, Way};
use super::{Experiment, PaperSize, Scale};
use crate::error::{Error, Result};
use crate::lab::{Child, Lab, interrupt};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "xlog-clients",
    title: "Two clients of the log service at once",
    paper: super::XLOG,
    figure: "Section 3, the central design",
    about: "Processes append records of 100 bytes in bursts of 1.5 ms that begin together, less \
            than what wakes the flush worker, which has no CPU of its own here: what two of them \
            append over what one does alone. Beside it the same for checksums of as many bytes, \
            which share nothing: the most that this machine allows. If that is below 1.9, the \
            machine is too busy, and the goal is not judged.",
    paper_claim: "All requests are serialized by one logger thread. The paper has no measurement \
            with several clients.",
    goal: "1.8 times on two CPUs.",
    sizes: &[&BURSTS],
    run,
};

const RATIO: Metric =
    Metric { name: "two clients over one", unit: "times", better: Better::Higher };
const SIZE_MIB: u32 = 384;
const BURSTS: PaperSize = PaperSize::own("bursts of a round", 31, 7);
const WANTED: f64 = 1.8;
/// The machine's own limit must be near two, otherwise the goal is meaningless.
const NOTHING_SHARED_MIN: f64 = 1.9;
const LEAD: Duration = Duration::from_millis(10);
/// The time that the worker has to bring a burst home.
const PAUSE: Duration = Duration::from_millis(120);
const CASE: &str = "100-byte records";
const CHECKSUMS: &str = "checksums (nothing shared)";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let bursts: usize = scale.size(&BURSTS);
    let devices = scale.devices(&["loop"]);
    let ext4: [Box<dyn System>; 1] = [Box::new(Ext4::ordered())];
    let running = systems::start(lab, &ext4, &Site::new(&devices[0], SIZE_MIB), section)?;
    let mut place = LogPlace::new(lab, &running[0])?;
    let mut watch = Watch::begin(lab, &running)?;
    let (mut one, mut two) = (place.burst_client(Way::Lane)?, place.burst_client(Way::Lane)?);
    let key = Key::case("two clients", CASE);
    for round in 0..scale.rounds() {
        eprintln!("onejournal-bench: round {} of {}", round + 1, scale.rounds());
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..bursts {
            interrupt::check()?;
            for (work, ratios) in ["append", "checksum"].into_iter().zip(&mut ratios) {
                let alone = burst(work, &mut [&mut one])?;
                let both = burst(work, &mut [&mut one, &mut two])?;
                // A client that heard too late of a burst did nothing in it: no sample.
                ratios.extend(both.zip(alone).map(|(both, alone)| both / alone));
            }
        }
        let fewest = ratios.iter().map(Vec::len).min().unwrap_or(0);
        if fewest < bursts / 3 {
            let text =
                format!("only {fewest} of {bursts} bursts began in time: the machine is too busy");
            return Err(Error::other(text));
        }
        let [appends, checksums] = ratios.map(|ratios| crate::measure::statistics::median(&ratios));
        samples.add(&key, Way::Lane.name(), RATIO, appends);
        samples.add(&key, CHECKSUMS, RATIO, checksums);
        watch.end_round(&running, section)?;
    }
    one.finish()?;
    two.finish()?;
    place.stop();
    judge(section, samples, &key);
    section.plots.push(Plot::bars(
        "What two clients append over what one does",
        RATIO.name,
        Vec::new(),
    ));
    systems::stop(running)
}

/// The appends of both clients together in one burst; `None` if one was late.
fn burst(work: &str, clients: &mut [&mut Child]) -> Result<Option<f64>> {
    let begin = UNIX_EPOCH.elapsed().expect("after 1970") + LEAD;
    for client in clients.iter_mut() {
        client.send(&format!("{work} {}", begin.as_nanos()))?;
    }
    let mut sum = Some(0.0);
    for client in clients.iter_mut() {
        let line = client.read_line()?;
        let count = match line.as_str() {
            "late" => None,
            line => {
                let wrong = |_| Error::other(format!("the client said `{line}`"));
                Some(line.parse::<f64>().map_err(wrong)?)
            }
        };
        sum = sum.zip(count).map(|(sum, count)| sum + count);
    }
    std::thread::sleep(PAUSE);
    Ok(sum)
}

fn judge(section: &mut Section, samples: &Samples, key: &Key) {
    let of = |name: &str| {
        crate::measure::statistics::median(samples.of(key, name, RATIO).unwrap_or_default())
    };
    let (appends, checksums) = (of(Way::Lane.name()), of(CHECKSUMS));
    let is_busy = checksums < NOTHING_SHARED_MIN;
    let outcome = match appends >= WANTED {
        _ if is_busy => Outcome::Shown,
        true => Outcome::Reached,
        false => Outcome::Missed,
    };
    let sentence = match is_busy {
        true => format!(
            "Not judged, because the machine was too busy: work that shares nothing reaches \
             {checksums:.2} here, below {NOTHING_SHARED_MIN}."
        ),
        false => format!("Work that shares nothing reaches {checksums:.2} here."),
    };
    section.verdicts.push(Verdict {
        claim: format!("Two clients append at least {WANTED} times what one does"),
        paper: "-".into(),
        measured: format!("{appends:.2}"),
        outcome,
        sentence,
    });
}
