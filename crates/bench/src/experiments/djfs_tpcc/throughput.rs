//! Figure 8: tpmC of each system.

use super::super::tpcc_clients::{self, Client, Turn};
use super::{Contender, MODES, Mode, nvram, split, taking_part};
use crate::device::Parameters;
use crate::error::{Error, Result};
use crate::experiments::Scale;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Better, Outcome, Plot, PlotKind, Section, Verdict};
use crate::systems::client::{Eatmydata, Log, SqliteExtension};
use crate::systems::{self, Counts, Ext4, OneJournal, Running, Site, System, Xfs};

const TPMC: Metric = Metric { name: "tpmC", unit: "1/min", better: Better::Higher };
const CASE: &str = "all transactions";
const PAGE_BYTES: u32 = 4096;

fn contenders() -> Vec<Contender> {
    vec![
        Contender::new(Ext4::ordered()),
        Contender::new(Ext4::journal()),
        Contender::new(Xfs),
        Contender::new(OneJournal::new()),
        Contender::new(nvram()),
        Contender::new(nvram().option("delta=xor-lzo")),
        Contender::new(nvram().option("writeback_cache")),
        Contender::new(nvram().option("atomic_writes")).only("PERSIST"),
        Contender::new(SqliteExtension(Box::new(nvram()), Log::BesideDatabase)).only("WAL"),
        Contender::new(SqliteExtension(Box::new(Ext4::ordered()), Log::Nvram)).only("WAL"),
        Contender::new(Eatmydata(Box::new(Ext4::ordered()))),
    ]
}

/// What a system did in all rounds of a mode.
struct Tally {
    system: String,
    transactions: u64,
    seconds: f64,
    flushes: u64,
}

impl Tally {
    fn each_us(&self) -> f64 {
        self.seconds * 1e6 / self.transactions as f64
    }
}

pub fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let loaded = tpcc_clients::load(lab, "tpcc.db", scale.is_quick, PAGE_BYTES)?;
    section.set("warehouses", scale.pick("2 small", "10"));
    section.set("page size", PAGE_BYTES);
    for device in scale.devices(&["ssd840", "ssd311"]) {
        let (recipes, names) = split(contenders());
        let site = Site::new(&device, scale.pick(384, 1280));
        let running = systems::start(lab, &recipes, &site, section)?;
        tpcc_clients::copy(&running, &loaded)?;
        let mut watch = Watch::begin(lab, &running)?;
        let mut panels = Vec::new();
        for mode in &MODES {
            let panel = format!("{device}: {}", mode.shown);
            let taking_part = taking_part(&running, &names, mode);
            let mut rounds =
                Rounds { lab, scale, key: Key::case(&panel, CASE), samples: &mut *samples };
            let tallies = rounds.of(
                mode,
                &taking_part,
                |section| watch.end_round(&running, section),
                section,
            )?;
            judge(section, samples, &device, mode, &panel, &tallies)?;
            panels.push(panel);
        }
        tpcc_clients::check(lab, &running)?;
        systems::stop(running)?;
        section.plots.push(plot(&device, panels));
    }
    std::fs::remove_file(&loaded).map_err(Error::at(&loaded))
}

struct Rounds<'a> {
    lab: &'a Lab,
    scale: &'a Scale,
    key: Key,
    samples: &'a mut Samples,
}

impl Rounds<'_> {
    fn of(
        &mut self,
        mode: &Mode,
        systems: &[&Running],
        mut end_round: impl FnMut(&mut Section) -> Result<()>,
        section: &mut Section,
    ) -> Result<Vec<Tally>> {
        let mut clients = Vec::new();
        for running in systems {
            let mut client = Client::start(self.lab, running, mode.sqlite)?;
            client.warm_up(self.scale.pick(2, 6), self.scale.pick(0.3, 3.0))?;
            clients.push(client);
        }
        let tally = |client: &Client| Tally {
            system: client.running.name.clone(),
            transactions: 0,
            seconds: 0.0,
            flushes: 0,
        };
        let mut tallies: Vec<Tally> = clients.iter().map(tally).collect();
        let mut rng = self.scale.rng();
        for round in 0..self.scale.rounds() {
            let panel = &self.key.panel;
            eprintln!("onejournal-bench: round {} of {}: {panel}", round + 1, self.scale.rounds());
            let mut turns: Vec<Option<MeasuredTurn>> = clients.iter().map(|_| None).collect();
            measure::in_turns(&mut rng, &mut clients, |index, client| {
                turns[index] = Some(MeasuredTurn::of(client)?);
                Ok(())
            })?;
            // In the order of the systems, which is that of the report.
            for (turn, tally) in turns.into_iter().flatten().zip(&mut tallies) {
                self.note(&turn, tally);
            }
            end_round(section)?;
        }
        clients.into_iter().try_for_each(Client::finish)?;
        Ok(tallies)
    }

    fn note(&mut self, turn: &MeasuredTurn, tally: &mut Tally) {
        tally.transactions += turn.turn.transactions;
        tally.seconds += turn.turn.seconds;
        tally.flushes += turn.done.total().flushes;
        let count = usize::try_from(turn.turn.transactions).unwrap_or(usize::MAX);
        self.samples.add(&self.key, &tally.system, TPMC, turn.turn.tpm_c);
        self.samples.count(&self.key, &tally.system, TPMC, count, &turn.done);
        if let Some(requests) = turn.requests {
            // The operations were counted with the devices' requests.
            let counts = [("FUSE requests", requests)];
            self.samples.count_named(&self.key, &tally.system, TPMC, 0, &counts);
        }
    }
}

/// A turn, and what was asked for meanwhile.
struct MeasuredTurn {
    turn: Turn,
    done: Counts,
    requests: Option<f64>,
}

impl MeasuredTurn {
    fn of(client: &mut Client) -> Result<MeasuredTurn> {
        let running = client.running;
        let (before, requests_before) = (running.counts()?, requests(running)?);
        let turn = client.turn()?;
        let done = running.counts()? - before;
        let requests = requests_before.zip(requests(running)?);
        Ok(MeasuredTurn { turn, done, requests: requests.map(|(before, after)| after - before) })
    }
}

/// Requests that a OneJournal mount has answered.
fn requests(running: &Running) -> Result<Option<f64>> {
    Ok(running.stat()?.and_then(|stat| stat["requests"].as_f64()))
}

fn plot(device: &Device, panels: Vec<String>) -> Plot {
    Plot {
        title: format!("TPC-C on {device}"),
        kind: PlotKind::Bars,
        metric: TPMC.name.to_owned(),
        panels,
        count: None,
        x_label: String::new(),
        log_x: false,
        log_y: true,
    }
}

/// The fastest with NVRAM against ext4 ordered, and what a flush would have to cost for the paper's ratio.
fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    mode: &Mode,
    panel: &str,
    tallies: &[Tally],
) -> Result<()> {
    let key = Key::case(panel, CASE);
    let ordered = Ext4::ordered().name();
    let mut ratios = Vec::new();
    for tally in tallies.iter().filter(|tally| tally.system.contains("NVRAM")) {
        ratios.push((tally, samples.ratio(&key, TPMC, &tally.system, &ordered)?));
    }
    let best =
        ratios.iter().max_by(|(_, one), (_, other)| one.of_medians.total_cmp(&other.of_medians));
    let Some((best, ratio)) = best else { return Ok(()) };
    let is_reached = ratio.of_medians >= mode.paper_times;
    let ceiling = tallies.iter().find(|tally| tally.system.contains("eatmydata"));
    let mut sentence = format!(
        "{} is the fastest with NVRAM: {:.1} times ({:.1} to {:.1} from round to round).",
        best.system, ratio.of_medians, ratio.low, ratio.high
    );
    if let Some(ceiling) = ceiling {
        let times = samples.ratio(&key, TPMC, &ceiling.system, &ordered)?.of_medians;
        sentence += &format!(" Without any sync it would be {times:.1} times.");
    }
    if !is_reached && let Some(flush_us) = flush_us(device) {
        let ext4 = tallies.iter().find(|tally| tally.system == ordered);
        let ext4 = ext4.ok_or_else(|| Error::other("no ext4 ordered"))?;
        let missing_us = mode.paper_times * best.each_us() - ext4.each_us();
        let needed_us =
            flush_us + missing_us * ext4.transactions as f64 / ext4.flushes.max(1) as f64;
        sentence += &format!(
            " A transaction takes {:.0} us there and {:.0} us on ext4, with {:.2} flushes; {} times would need a device whose \
             flush takes {:.1} ms instead of {:.2}.",
            best.each_us(),
            ext4.each_us(),
            ext4.flushes as f64 / ext4.transactions as f64,
            mode.paper_times,
            needed_us / 1e3,
            flush_us / 1e3
        );
    }
    section.verdicts.push(Verdict {
        claim: format!("{panel}: {} times ext4 ordered with NVRAM", mode.paper_times),
        paper: format!("up to {}", mode.paper_times),
        measured: format!("{:.1}", ratio.of_medians),
        outcome: if is_reached { Outcome::Reached } else { Outcome::Missed },
        sentence,
    });
    Ok(())
}

/// What a flush costs, on an emulated device.
fn flush_us(device: &Device) -> Option<f64> {
    let Device::Emulated(settings) = device else { return None };
    let mut parameters = Parameters::preset("zero").ok()?;
    parameters.apply(settings).ok()?;
    (parameters.flush_us > 0.0).then_some(parameters.flush_us)
}
