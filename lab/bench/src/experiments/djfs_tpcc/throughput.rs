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
use crate::results::{Better, Plot, Section, Verdict};
use crate::systems::client::{Eatmydata, Log, SqliteExtension};
use crate::systems::{self, Asked, Ext4, JOURNAL_MIB, OneJournal, Running, Site, System, Xfs};

const TPMC: Metric = Metric { name: "tpmC", unit: "1/min", better: Better::Higher };
const CASE: &str = "all transactions";
/// In the names of systems with a journal, or lanes, on NVRAM.
const NVRAM: &str = "NVRAM";
/// In the names of systems whose clients load the SQLite extension.
const EXTENSION: &str = "SQLite extension";
/// In claims about the fastest volume whose journal is on NVRAM.
const VOLUME: &str = "OneJournal with NVRAM";
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
        Contender::new(Ext4::journal().journal_mib(JOURNAL_MIB)),
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
        group.insert(0, Contender::new(Ext4::ordered().journal_mib(JOURNAL_MIB)));
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
            judge_deltas(section, samples, &device, mode, groups);
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

/// The fastest of these systems.
fn fastest<'a>(groups: &'a [Group], is_one: fn(&str) -> bool) -> Option<Pair<'a>> {
    let pairs = groups.iter().flat_map(|group| {
        let (ext4, others) = group.split_first().expect("ext4 ordered is in every group");
        let found = others.iter().filter(move |tally| is_one(&tally.system));
        found.map(move |ours| Pair { ours, ext4, ratio: ratio(&ours.tpm_c, &ext4.tpm_c) })
    });
    pairs.max_by(|one, other| one.ratio.of_medians.total_cmp(&other.ratio.of_medians))
}

/// DJFS as far as options can have it, with any number of regions.
fn is_djfs(system: &str) -> bool {
    system.starts_with("as in DJFS")
}

/// A volume with its journal on NVRAM, without the SQLite extension.
fn is_volume(system: &str) -> bool {
    system.starts_with("OneJournal") && system.contains(NVRAM) && !system.contains(EXTENSION)
}

/// The SQLite extension on any file system, with its lanes or the volume's journal on NVRAM.
fn is_extension(system: &str) -> bool {
    system.contains(EXTENSION) && system.contains(NVRAM)
}

/// No sync does anything.
fn is_unsynced(system: &str) -> bool {
    system.contains("eatmydata")
}

/// The systems with NVRAM compared with ext4 ordered. The paper's figure is that of DJFS.
fn judge(section: &mut Section, device: &Device, mode: &Mode, groups: &[Group]) {
    if let Some(djfs) = fastest(groups, is_djfs) {
        let paper = format!("up to {}", mode.paper_times);
        section.verdicts.push(times_ext4(device, mode, ("as in DJFS", &paper), &djfs));
    }
    let unsynced = fastest(groups, is_unsynced).map(|ceiling| ceiling.ratio.of_medians);
    if let Some(volume) = fastest(groups, is_volume) {
        section.verdicts.push(times_ext4(device, mode, (VOLUME, ""), &volume));
        let part = unsynced.map(|unsynced| part_of_unsynced(device, mode, &volume, unsynced));
        section.verdicts.extend(part);
    }
    if let Some(Pair { ours, ratio, .. }) = fastest(groups, is_extension) {
        let claim = format!("{}: {EXTENSION} with NVRAM over ext4 ordered", panel(device, mode));
        let mut sentence = format!(
            "The extension is a library in SQLite's process and no file system. The fastest is \
             {}, {:.1} to {:.1} from round to round.",
            ours.system, ratio.low, ratio.high
        );
        if let Some(unsynced) = unsynced {
            let part = ratio.of_medians / unsynced;
            sentence += &format!(" It has {part:.2} of SQLite without any sync.");
        }
        let verdict = Verdict::shown(claim, "", ratio.of_medians);
        section.verdicts.push(verdict.saying(sentence));
    }
}

/// The fastest of some systems with NVRAM compared with ext4 ordered, and the cost that a flush
/// would need for the ratio that is wanted.
fn times_ext4(
    device: &Device,
    mode: &Mode,
    (what, paper): (&str, &str),
    Pair { ours, ext4, ratio }: &Pair<'_>,
) -> Verdict {
    let wanted = mode.paper_times;
    let mut sentence = format!(
        "The fastest is {}, {:.1} to {:.1} from round to round.",
        ours.system, ratio.low, ratio.high
    );
    if ratio.of_medians < wanted
        && let Some(flush_us) = flush_us(device)
    {
        let needed_us = flush_us + missing_flush_us(wanted, ours, ext4);
        sentence += &format!(
            " A transaction takes {:.0} us there and {:.0} us on ext4, with {:.2} flushes; \
             {wanted} times would need a device whose flush takes {:.1} ms instead of {:.2}.",
            ours.each_us(),
            ext4.each_us(),
            ext4.flushes_each(),
            needed_us / 1e3,
            flush_us / 1e3
        );
    }
    let claim = format!("{}: {what} {wanted} times as fast as ext4 ordered", panel(device, mode));
    Verdict::at_least(claim, paper, ratio.of_medians, wanted).saying(sentence)
}

/// A volume compared with SQLite without any sync, which is `unsynced` times as fast as ext4
/// ordered.
fn part_of_unsynced(device: &Device, mode: &Mode, volume: &Pair<'_>, unsynced: f64) -> Verdict {
    let claim = format!("{}: {VOLUME} as a part of SQLite without any sync", panel(device, mode));
    let part = volume.ratio.of_medians / unsynced;
    Verdict::at_least(claim, "", part, mode.part_of_unsynced).saying(format!(
        "At least {} is wanted. The fastest is {}. SQLite without any sync is {unsynced:.1} times \
         as fast as ext4 ordered. Both are compared through ext4 ordered of their group.",
        mode.part_of_unsynced, volume.ours.system
    ))
}

/// DJFS' deltas compared with whole blocks, in the group that has both.
fn judge_deltas(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    mode: &Mode,
    groups: &[Group],
) {
    let [djfs, blocks] = [OneJournal::as_in_djfs(4), OneJournal::as_in_nvram_journaling()]
        .map(|system| system.name());
    let both = groups.iter().find_map(|group| {
        let of = |name: &str| group.iter().find(|tally| tally.system == name);
        of(&djfs).zip(of(&blocks))
    });
    let Some((with_deltas, with_blocks)) = both else { return };
    let ratio = ratio(&with_deltas.tpm_c, &with_blocks.tpm_c);
    let faster = if ratio.of_medians > 1.0 { "deltas" } else { "whole blocks" };
    let key = Key::case(panel(device, mode), CASE);
    let claim = format!("{}: {djfs} over {blocks}", key.panel);
    section.verdicts.push(Verdict::shown(claim, "", ratio.of_medians).saying(format!(
        "In this measurement {faster} are faster; {:.2} to {:.2} from round to round. {}",
        ratio.low,
        ratio.high,
        samples.costs(&key, TPMC, &[&djfs, &blocks])
    )));
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
            vec![tally("ext4", 1, 1.0, 1, 10.0), tally("OneJournal, NVRAM", 1, 1.0, 0, 50.0)],
            vec![tally("ext4", 1, 1.0, 1, 2.0), tally("OneJournal b, NVRAM", 1, 1.0, 0, 40.0)],
        ];
        let found = fastest(&groups, is_volume).unwrap();
        assert_eq!(
            (found.ours.system.as_str(), found.ratio.of_medians),
            ("OneJournal b, NVRAM", 20.0)
        );
        assert!(fastest(&groups, is_unsynced).is_none());
    }

    #[test]
    fn a_system_is_djfs_a_volume_or_the_extension() {
        let names: Vec<String> = contenders().iter().map(|one| one.system.name()).collect();
        let of = |is_one: fn(&str) -> bool| {
            names.iter().map(String::as_str).filter(|name| is_one(name)).collect::<Vec<_>>()
        };
        assert_eq!(of(is_djfs), ["as in DJFS, 2 regions, NVRAM", "as in DJFS, 4 regions, NVRAM"]);
        let volumes = of(is_volume);
        assert!(volumes.contains(&"OneJournal, NVRAM") && !volumes.contains(&"OneJournal"));
        let extensions = of(is_extension);
        assert!(extensions.contains(&"ext4 ordered, SQLite extension (NVRAM)"));
        assert!(extensions.contains(&"OneJournal, NVRAM, SQLite extension"));
        assert!(extensions.iter().all(|name| !volumes.contains(name)));
    }

    #[test]
    fn deltas_are_compared_with_whole_blocks_of_their_group() {
        let [djfs, blocks] = [OneJournal::as_in_djfs(4), OneJournal::as_in_nvram_journaling()]
            .map(|system| system.name());
        let has_both = |group: &Vec<Contender>| {
            let has = |name: &str| group.iter().any(|one| one.system.name() == name);
            has(&djfs) && has(&blocks)
        };
        assert!(groups(GROUP_FULL).iter().any(has_both));
        let group = |deltas, whole| {
            vec![
                tally("ext4", 1, 1.0, 1, 1.0),
                tally(&djfs, 1, 1.0, 0, deltas),
                tally(&blocks, 1, 1.0, 0, whole),
            ]
        };
        let (mut section, device) = (Section::default(), "ssd840".parse().unwrap());
        for group in [group(9.0, 10.0), group(12.0, 10.0)] {
            judge_deltas(&mut section, &Samples::default(), &device, &MODES[0], &[group]);
        }
        let said: Vec<bool> =
            section.verdicts.iter().map(|one| one.sentence.contains("whole blocks are")).collect();
        assert_eq!(said, [true, false]);
    }

    #[test]
    fn the_flush_that_is_needed_gives_the_ratio() {
        // 10 ms a transaction with 5 flushes, and 0.5 ms; 60 times are 30 ms, so 4 ms more a flush.
        let (ext4, ours) = (tally("ext4", 100, 1.0, 500, 1.0), tally("ours", 100, 0.05, 0, 1.0));
        assert!((missing_flush_us(60.0, &ours, &ext4) - 4000.0).abs() < 1e-6);
    }
}
