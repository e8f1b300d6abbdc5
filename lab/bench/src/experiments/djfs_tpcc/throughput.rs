//! Figure 8: tpmC of each system; and what it asked of its media, for Table 1.

use super::super::tpcc_clients::{self, Client, Turn};
use super::table::{self, Use};
use super::{Contender, MODES, Mode, WAREHOUSES, nvram, split, taking_part};
use crate::device::Parameters;
use crate::error::{Error, Result};
use crate::experiments::Scale;
use crate::lab::{Device, Lab};
use crate::measure::statistics::{Ratio, ratio};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Better, Outcome, Plot, Section, Verdict};
use crate::systems::client::{Eatmydata, Log, SqliteExtension};
use crate::systems::{self, Asked, Ext4, OneJournal, Running, Site, System, Xfs};

const TPMC: Metric = Metric { name: "tpmC", unit: "1/min", better: Better::Higher };
const CASE: &str = "all transactions";
/// In the names of systems with a journal, or lanes, on NVRAM.
const NVRAM: &str = "NVRAM";
const PAGE_BYTES: u32 = 4096;

/// Systems beside ext4 ordered that take turns at once in a full run. Each needs 2 GiB of memory:
/// its disk, and the database in the page cache.
const GROUP_FULL: usize = 5;
/// Decks after which a WAL is used again: a deck writes about as many pages as SQLite leaves in
/// the WAL between two checkpoints.
const WARM_UP_DECKS: u64 = 3;

/// All systems except ext4 ordered, which is measured with each group.
fn contenders() -> Vec<Contender> {
    vec![
        Contender::new(Ext4::journal()),
        Contender::new(Ext4::journal().external()),
        Contender::new(Ext4::journal().external_in_memory()),
        Contender::new(Xfs),
        Contender::new(OneJournal::new()),
        Contender::new(OneJournal::new().order_sync()),
        Contender::new(SqliteExtension(Box::new(OneJournal::new()), Log::BesideDatabase)),
        Contender::new(nvram()),
        Contender::new(nvram().data("delta").option("regions=2")),
        Contender::new(OneJournal::as_in_djfs(2)),
        Contender::new(OneJournal::as_in_djfs(4)),
        Contender::new(OneJournal::as_in_nvram_journaling()),
        Contender::new(nvram().option("order=sync")),
        Contender::new(nvram().option("atomic_writes")).only("PERSIST"),
        Contender::new(SqliteExtension(Box::new(nvram()), Log::BesideDatabase)).only("WAL"),
        Contender::new(SqliteExtension(Box::new(Ext4::ordered()), Log::Nvram)),
        Contender::new(Eatmydata(Box::new(Ext4::ordered()))),
    ]
}

fn groups(count: usize) -> Vec<Vec<Contender>> {
    let mut groups = vec![Vec::new()];
    for contender in contenders() {
        if groups.last().is_some_and(|group| group.len() == count) {
            groups.push(Vec::new());
        }
        groups.last_mut().expect("one at least").push(contender);
    }
    for group in &mut groups {
        group.insert(0, Contender::new(Ext4::ordered()));
    }
    groups
}

/// The results of a system in all rounds of a mode.
struct Tally {
    system: String,
    transactions: u64,
    seconds: f64,
    flushes: u64,
    /// Results of each round.
    tpm_c: Vec<f64>,
}

impl Tally {
    fn new(system: &str) -> Tally {
        let system = system.to_owned();
        Tally { system, transactions: 0, seconds: 0.0, flushes: 0, tpm_c: Vec::new() }
    }

    fn each_us(&self) -> f64 {
        self.seconds * 1e6 / self.transactions as f64
    }

    fn flushes_each(&self) -> f64 {
        self.flushes as f64 / self.transactions as f64
    }
}

/// The systems that took turns; the first is ext4 ordered.
type Group = Vec<Tally>;

pub fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let loaded = tpcc_clients::load(lab, scale, &WAREHOUSES, PAGE_BYTES)?;
    section.set("page size", PAGE_BYTES);
    for device in scale.devices(&["ssd840"]) {
        let mut measured: [Vec<Group>; 2] = Default::default();
        for group in groups(scale.pick(usize::MAX, GROUP_FULL)) {
            let (recipes, names) = split(group);
            let site = Site::new(&device, scale.pick(384, 1280));
            let running = systems::start(lab, &recipes, &site, section)?;
            tpcc_clients::copy(&running, &loaded)?;
            let mut watch = Watch::begin(lab, &running)?;
            for (mode, measured) in MODES.iter().zip(&mut measured) {
                let taking_part = taking_part(&running, &names, mode);
                if taking_part.len() < 2 {
                    continue;
                }
                let key = Key::case(panel(&device, mode), CASE);
                let table = table::panel(&device, mode);
                let mut rounds = Rounds { lab, scale, key, table, samples: &mut *samples };
                let end_round = |section: &mut Section| watch.end_round(&running, section);
                measured.push(rounds.of(mode, &taking_part, end_round, section)?);
            }
            tpcc_clients::check(lab, &running)?;
            systems::stop(running)?;
        }
        for (mode, groups) in MODES.iter().zip(&measured) {
            judge(section, &device, mode, groups);
            judge_volume(section, samples, &device, mode, groups);
            table::judge(section, samples, &device, mode)?;
        }
        section.plots.push(plot(&device));
        section.plots.push(table::plot(&device));
    }
    std::fs::remove_file(&loaded).map_err(Error::at(&loaded))
}

fn panel(device: &Device, mode: &Mode) -> String {
    format!("{device}: {}", mode.shown)
}

struct Rounds<'a> {
    lab: &'a Lab,
    scale: &'a Scale,
    key: Key,
    /// The panel of Table 1.
    table: String,
    samples: &'a mut Samples,
}

impl Rounds<'_> {
    fn of(
        &mut self,
        mode: &Mode,
        systems: &[&Running],
        mut end_round: impl FnMut(&mut Section) -> Result<()>,
        section: &mut Section,
    ) -> Result<Group> {
        let mut clients = Vec::new();
        for running in systems {
            let mut client = Client::start(self.lab, running, mode.sqlite)?;
            client.warm_up(self.scale.pick(1, WARM_UP_DECKS), self.scale.pick(0.2, 2.0))?;
            clients.push(client);
        }
        let mut tallies: Group = systems.iter().map(|one| Tally::new(&one.name)).collect();
        let mut rng = self.scale.rng();
        for round in 0..self.scale.rounds() {
            let panel = &self.key.panel;
            self.scale.say_round(round, panel);
            let mut turns: Vec<Option<MeasuredTurn>> = clients.iter().map(|_| None).collect();
            measure::in_turns(&mut rng, &mut clients, |index, client| {
                turns[index] = Some(MeasuredTurn::of(client)?);
                Ok(())
            })?;
            // In the order of the systems, which is that of the report.
            let turns: Vec<MeasuredTurn> = turns.into_iter().flatten().collect();
            for (turn, tally) in turns.iter().zip(&mut tallies) {
                self.note(turn, tally);
                table::note(self.samples, &self.table, &tally.system, turn.used, turns[0].used);
            }
            end_round(section)?;
        }
        clients.into_iter().try_for_each(Client::finish)?;
        Ok(tallies)
    }

    fn note(&mut self, turn: &MeasuredTurn, tally: &mut Tally) {
        tally.transactions += turn.turn.transactions;
        tally.seconds += turn.turn.seconds;
        tally.flushes += turn.asked.counts.total().flushes;
        tally.tpm_c.push(turn.turn.tpm_c);
        let count = usize::try_from(turn.turn.transactions).unwrap_or(usize::MAX);
        self.samples.add(&self.key, &tally.system, TPMC, turn.turn.tpm_c);
        self.samples.count_asked(&self.key, &tally.system, TPMC, count, &turn.asked);
    }
}

/// A turn, and the requests during it.
struct MeasuredTurn {
    turn: Turn,
    asked: Asked,
    used: Use,
}

impl MeasuredTurn {
    fn of(client: &mut Client) -> Result<MeasuredTurn> {
        let before = client.running.written_parts()?;
        let (turn, asked) = client.running.during(|| client.turn())?;
        let parts =
            client.running.written_parts()?.zip(before).map(|(after, before)| after - before);
        let used = Use::each(turn.transactions, asked.counts.total().flushes, parts);
        Ok(MeasuredTurn { turn, asked, used })
    }
}

fn plot(device: &Device) -> Plot {
    Plot::bars(
        format!("TPC-C on {device}"),
        TPMC.name,
        MODES.iter().map(|mode| panel(device, mode)).collect(),
    )
    .log_y()
}

/// A system compared with ext4 ordered in the same rounds.
struct Pair<'a> {
    ours: &'a Tally,
    ext4: &'a Tally,
    ratio: Ratio,
}

/// The fastest system with this word in its name that is not a paper's.
fn fastest<'a>(groups: &'a [Group], part_of_name: &str) -> Option<Pair<'a>> {
    let pairs = groups.iter().flat_map(|group| {
        let (ext4, others) = group.split_first().expect("ext4 ordered is in every group");
        let found = others.iter().filter(|tally| {
            tally.system.contains(part_of_name) && !tally.system.contains("as in ")
        });
        found.map(move |ours| Pair { ours, ext4, ratio: ratio(&ours.tpm_c, &ext4.tpm_c) })
    });
    pairs.max_by(|one, other| one.ratio.of_medians.total_cmp(&other.ratio.of_medians))
}

/// The fastest system with NVRAM compared with ext4 ordered, and the cost that a flush would need
/// for the paper's ratio.
fn judge(section: &mut Section, device: &Device, mode: &Mode, groups: &[Group]) {
    let Some(Pair { ours, ext4, ratio }) = fastest(groups, NVRAM) else { return };
    let is_reached = ratio.of_medians >= mode.paper_times;
    let mut sentence = format!(
        "{} is the fastest with NVRAM: {:.1} times ({:.1} to {:.1} from round to round).",
        ours.system, ratio.of_medians, ratio.low, ratio.high
    );
    let unsynced = fastest(groups, "eatmydata").map(|ceiling| ceiling.ratio.of_medians);
    if let Some(times) = unsynced {
        sentence += &format!(" Without any sync it would be {times:.1} times.");
    }
    if !is_reached && let Some(flush_us) = flush_us(device) {
        let needed_us = flush_us + missing_flush_us(mode.paper_times, ours, ext4);
        sentence += &format!(
            " A transaction takes {:.0} us there and {:.0} us on ext4, with {:.2} flushes; {} \
             times would need a device whose flush takes {:.1} ms instead of {:.2}.",
            ours.each_us(),
            ext4.each_us(),
            ext4.flushes_each(),
            mode.paper_times,
            needed_us / 1e3,
            flush_us / 1e3
        );
    }
    section.verdicts.push(Verdict {
        claim: format!(
            "{}: {} times ext4 ordered with NVRAM",
            panel(device, mode),
            mode.paper_times
        ),
        paper: format!("up to {}", mode.paper_times),
        measured: format!("{:.1}", ratio.of_medians),
        outcome: if is_reached { Outcome::Reached } else { Outcome::Missed },
        sentence,
    });
    if let Some(unsynced) = unsynced {
        let claim = format!(
            "{}: {} as a part of SQLite without any sync",
            panel(device, mode),
            ours.system
        );
        let part = ratio.of_medians / unsynced;
        section.verdicts.push(Verdict::at_least(claim, "", part, mode.part_of_unsynced).saying(
            format!(
                "At least {} is wanted. Both are compared through ext4 ordered of their group.",
                mode.part_of_unsynced
            ),
        ));
    }
}

/// The systems with a journal on the volume compared with ext4 ordered. The default has a goal.
fn judge_volume(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    mode: &Mode,
    groups: &[Group],
) {
    let key = Key::case(panel(device, mode), CASE);
    let default = OneJournal::new().name();
    for group in groups {
        let (ext4, others) = group.split_first().expect("ext4 ordered is in every group");
        for ours in others.iter().filter(|one| one.system.starts_with(&default)) {
            if ours.system.contains(NVRAM) {
                continue;
            }
            let ratio = ratio(&ours.tpm_c, &ext4.tpm_c);
            let claim = format!("{}: {} over {}", panel(device, mode), ours.system, ext4.system);
            let verdict = if ours.system == default {
                Verdict::at_least(claim, "", ratio.of_medians, mode.volume_times)
            } else {
                Verdict::shown(claim, "", ratio.of_medians)
            };
            section.verdicts.push(verdict.saying(format!(
                "At least {} is wanted of {default}; {:.2} to {:.2} from round to round. {}",
                mode.volume_times,
                ratio.low,
                ratio.high,
                samples.costs(&key, TPMC, &[&ours.system, &ext4.system])
            )));
        }
    }
}

/// How much longer a flush would have to take, so that ext4 needs `times` as long as OneJournal,
/// which waits for no flush.
fn missing_flush_us(times: f64, ours: &Tally, ext4: &Tally) -> f64 {
    (times * ours.each_us() - ext4.each_us()) / ext4.flushes_each()
}

/// The cost of a flush on an emulated device.
fn flush_us(device: &Device) -> Option<f64> {
    let Device::Emulated(settings) = device else { return None };
    let mut parameters = Parameters::preset("zero").ok()?;
    parameters.apply(settings).ok()?;
    (parameters.flush_us > 0.0).then_some(parameters.flush_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::System;

    #[test]
    fn every_system_is_in_one_group_behind_ext4() {
        let ordered = Ext4::ordered().name();
        for count in [1, 3, usize::MAX] {
            let groups = groups(count);
            let names = |group: &Vec<Contender>| -> Vec<String> {
                group.iter().map(|one| one.system.name()).collect()
            };
            let mut all = Vec::new();
            for group in groups.iter().map(names) {
                let (first, others) = group.split_first().unwrap();
                assert!(*first == ordered && (1..=count).contains(&others.len()));
                all.extend(others.to_vec());
            }
            let expected: Vec<String> = contenders().iter().map(|one| one.system.name()).collect();
            assert_eq!(all, expected);
        }
    }

    fn tally(system: &str, transactions: u64, seconds: f64, flushes: u64, tpm_c: f64) -> Tally {
        let system = system.to_owned();
        Tally { system, transactions, seconds, flushes, tpm_c: vec![tpm_c] }
    }

    #[test]
    fn a_system_is_compared_within_its_group() {
        let groups = [
            vec![tally("ext4", 1, 1.0, 1, 10.0), tally("A, NVRAM", 1, 1.0, 0, 50.0)],
            vec![tally("ext4", 1, 1.0, 1, 2.0), tally("B, NVRAM", 1, 1.0, 0, 40.0)],
        ];
        let found = fastest(&groups, "NVRAM").unwrap();
        assert_eq!((found.ours.system.as_str(), found.ratio.of_medians), ("B, NVRAM", 20.0));
        assert!(fastest(&groups, "eatmydata").is_none());
    }

    #[test]
    fn the_flush_that_is_needed_gives_the_ratio() {
        // 10 ms a transaction with 5 flushes, and 0.5 ms; 60 times are 30 ms, so 4 ms more a flush.
        let (ext4, ours) = (tally("ext4", 100, 1.0, 500, 1.0), tally("ours", 100, 0.05, 0, 1.0));
        assert!((missing_flush_us(60.0, &ours, &ext4) - 4000.0).abs() < 1e-6);
    }
}
