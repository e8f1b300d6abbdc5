//! Section VI.2: the part of a block that is logged when the block changes.

use serde_json::Value;

use super::super::tpcc_clients::{self, Client};
use super::{Contender, MODES, Mode, WAREHOUSES, nvram, split, taking_part};
use crate::error::{Error, Result};
use crate::experiments::Scale;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples};
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::client::{Log, SqliteExtension};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

const DELTA: Metric = Metric { name: "delta size", unit: "% of a block", better: Better::Lower };
const TRAFFIC: Metric =
    Metric { name: "journal traffic", unit: "% of whole blocks", better: Better::Lower };
const BLOCK_BYTES: f64 = 4096.0;
const PAGE_SIZES: [u32; 2] = [4096, 1024];

fn contenders() -> Vec<Contender> {
    vec![
        Contender::new(nvram()),
        Contender::new(nvram().option("delta=copies")),
        Contender::new(nvram().option("delta=xor-lzo")),
        Contender::new(OneJournal::as_in_djfs(2)),
        Contender::new(OneJournal::as_in_nvram_journaling()),
        Contender::new(nvram().option("atomic_writes")).only("PERSIST"),
        Contender::new(SqliteExtension(Box::new(Ext4::ordered()), Log::Nvram)).only("WAL"),
    ]
}

/// Blocks and bytes that were logged since some moment.
#[derive(Debug, Clone, Copy, Default)]
struct Logged {
    /// In a form that stores differences; `None`: the system does not report forms.
    differing: Option<(f64, f64)>,
    blocks: f64,
    bytes: f64,
}

impl Logged {
    /// Counts of OneJournal's journal.
    fn by_volume(stat: &Value) -> Option<Logged> {
        let form = |name: &str| {
            let blocks = stat["logged_blocks_by_form"][name].as_f64()?;
            Some((blocks, stat["journal_bytes_by_form"][name].as_f64()?))
        };
        let (delta, lzo) = (form("delta")?, form("xor_lzo")?);
        Some(Logged {
            differing: Some((delta.0 + lzo.0, delta.1 + lzo.1)),
            blocks: stat["logged_blocks"].as_f64()?,
            bytes: stat["journal_bytes"].as_f64()?,
        })
    }

    /// Counts of the SQLite extension, whose blocks are frames.
    fn by_extension(stat: &Value) -> Option<Logged> {
        let frame_bytes = stat["frame_bytes"].as_f64()?;
        let bytes = stat["record_bytes"].as_f64()?;
        Some(Logged { differing: None, blocks: frame_bytes / BLOCK_BYTES, bytes })
    }

    fn since(self, before: Logged) -> Logged {
        let both = self.differing.zip(before.differing);
        Logged {
            differing: both.map(|(now, before)| (now.0 - before.0, now.1 - before.1)),
            blocks: self.blocks - before.blocks,
            bytes: self.bytes - before.bytes,
        }
    }
}

fn percent((blocks, bytes): (f64, f64)) -> f64 {
    if blocks > 0.0 { 100.0 * bytes / (blocks * BLOCK_BYTES) } else { 0.0 }
}

pub fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let device: Device = "zero".parse().map_err(Error::Other)?;
    for page_bytes in PAGE_SIZES {
        let loaded = tpcc_clients::load(lab, scale, &WAREHOUSES, page_bytes)?;
        // One after the other: sizes are compared, not times.
        for contender in contenders() {
            let (recipes, names) = split(vec![contender]);
            let site = Site::new(&device, scale.pick(384, 1408));
            let running = systems::start(lab, &recipes, &site, section)?;
            tpcc_clients::copy(&running, &loaded)?;
            for mode in &MODES {
                let key = Key::case(panel(mode), case(page_bytes));
                for one in taking_part(&running, &names, mode) {
                    measure(lab, scale, mode, one, &key, samples)?;
                }
            }
            tpcc_clients::check(lab, &running)?;
            systems::stop(running)?;
        }
        std::fs::remove_file(&loaded).map_err(Error::at(&loaded))?;
    }
    for mode in &MODES {
        judge(section, samples, mode)?;
    }
    section.plots.push(Plot::bars(
        "Mean delta size",
        DELTA.name,
        MODES.iter().map(panel).collect(),
    ));
    Ok(())
}

fn panel(mode: &Mode) -> String {
    format!("deltas: {}", mode.shown)
}

fn case(page_bytes: u32) -> String {
    format!("pages of {page_bytes} bytes")
}

fn measure(
    lab: &Lab,
    scale: &Scale,
    mode: &Mode,
    running: &Running,
    key: &Key,
    samples: &mut Samples,
) -> Result<()> {
    let mut client = Client::start(lab, running, mode.sqlite)?;
    client.warm_up(scale.pick(1, 20), 0.0)?;
    client.turn_transactions = scale.pick(1, 20) * tpcc_clients::DECK;
    let mut before = None;
    for _ in 0..=scale.rounds() {
        // The extension counts for its client, which tells after a turn; so the first is only a
        // beginning.
        let turn = client.turn()?;
        let now = match running.stat()? {
            Some(stat) => Logged::by_volume(&stat),
            None => turn.extension.as_ref().and_then(Logged::by_extension),
        };
        let now = now.ok_or_else(|| Error::other(format!("{}: no counters", running.name)))?;
        if let Some(before) = before.replace(now) {
            let logged = now.since(before);
            let all = (logged.blocks, logged.bytes);
            samples.add(key, &running.name, DELTA, percent(logged.differing.unwrap_or(all)));
            samples.add(key, &running.name, TRAFFIC, percent(all));
            let (blocks, bytes) = logged.differing.unwrap_or(all);
            let counts = [
                ("blocks logged", logged.blocks),
                ("of them as deltas", blocks),
                ("delta bytes", bytes),
                ("journal bytes", logged.bytes),
            ];
            let count = usize::try_from(turn.transactions).unwrap_or(usize::MAX);
            samples.count_named(key, &running.name, DELTA, count, &counts);
        }
    }
    client.finish()
}

/// The paper's figure is judged with what DJFS does, ours against our goal.
fn judge(section: &mut Section, samples: &Samples, mode: &Mode) -> Result<()> {
    let paper = mode.paper_delta_percent;
    let of_paper = format!("{paper} %");
    let (djfs, ours) = (OneJournal::as_in_djfs(2).name(), nvram().name());
    judge_one(section, samples, mode, (&djfs, &format!("{djfs}: deltas"), &of_paper, paper))?;
    judge_one(section, samples, mode, (&ours, "deltas", "", mode.goal_delta_percent))
}

fn judge_one(
    section: &mut Section,
    samples: &Samples,
    mode: &Mode,
    (name, what, paper, wanted): (&str, &str, &str, f64),
) -> Result<()> {
    let of = |page_bytes, system: &str, metric| {
        let key = Key::case(panel(mode), case(page_bytes));
        samples.of(&key, system, metric).map(crate::measure::statistics::median)
    };
    let missing = || Error::other(format!("{}: no {name}", panel(mode)));
    let delta = of(PAGE_SIZES[0], name, DELTA).ok_or_else(missing)?;
    let mut others = Vec::new();
    for contender in contenders() {
        let system = contender.system.name();
        for page_bytes in PAGE_SIZES {
            let both = of(page_bytes, &system, DELTA).zip(of(page_bytes, &system, TRAFFIC));
            if let Some((delta, traffic)) = both {
                others.push(format!(
                    "{system}, {}: {delta:.1} % (all journal bytes {traffic:.1} % of whole blocks)",
                    case(page_bytes)
                ));
            }
        }
    }
    section.verdicts.push(Verdict {
        claim: format!("{}: {what} of at most {wanted} % of a block", mode.shown),
        paper: paper.to_owned(),
        measured: format!("{delta:.1} %"),
        outcome: if delta <= wanted { Outcome::Reached } else { Outcome::Missed },
        sentence: others.join("; ") + ".",
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_blocks_do_not_hide_the_size_of_deltas() {
        let stat = |blocks: u64, bytes: u64| {
            let (delta, lzo) = ((blocks, bytes), (0, 0));
            json!({
                "logged_blocks": 2 * blocks, "journal_bytes": bytes + blocks * 4096,
                "logged_blocks_by_form": { "block": blocks, "delta": delta.0, "xor_lzo": lzo.0 },
                "journal_bytes_by_form": {
                    "block": blocks * 4096, "delta": delta.1, "xor_lzo": lzo.1,
                },
            })
        };
        let of = |stat: Value| Logged::by_volume(&stat).unwrap();
        let logged = of(stat(30, 5096)).since(of(stat(20, 1000)));
        assert_eq!(percent(logged.differing.unwrap()), 10.0);
        assert_eq!(percent((logged.blocks, logged.bytes)), 55.0);
        assert!(Logged::by_volume(&json!({ "logged_blocks": 1 })).is_none());
        let extension = json!({ "frame_bytes": 8192, "record_bytes": 2048 });
        let logged = Logged::by_extension(&extension).unwrap();
        assert_eq!(percent((logged.blocks, logged.bytes)), 25.0);
    }
}
