//! DJFS, figure 9: TPC-C with NVRAM of increasing latency.

use std::path::Path;

use super::tpcc_clients::{self, Client};
use super::{DJFS, Experiment, PaperSize, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-nvram-latency",
    title: "TPC-C, and the write latency of NVRAM",
    paper: DJFS,
    figure: "Figure 9",
    about: "TPC-C on SQLite (rollback journal, PERSIST) on the model of a Samsung 840, the journal \
            in memory that takes 0 to 40 ns longer for each cache line. (The paper does not say of \
            which unit the latency is.) *OneJournal delta, NVRAM* logs changed bytes, *OneJournal \
            journal, NVRAM* whole blocks of data. Metadata are logged as deltas in both. *as in \
            DJFS* logs a compressed XOR and brings regions home early; *NVRAM journaling as in \
            DJFS* logs whole blocks of metadata, too.",
    paper_claim: "While NVRAM becomes slower, NVRAM journaling of whole blocks loses throughput \
            rapidly, and DJFS slightly; DJFS is up to 3.52 times as fast. In the worst case they \
            are still 11.06 and 38.89 times as fast as ext4 data journaling with the journal on \
            the disk.",
    goal: "40 ns cost at most 10 %; at +40 ns at least 38.9 times as fast as ext4 data journaling.",
    sizes: &[&WAREHOUSES, &TURN],
    run,
};

const TPMC: Metric = Metric::higher("tpmC", "new orders/min");
/// All latencies are there at once. A quick run has a warehouse with fewer rows.
const WAREHOUSES: PaperSize = PaperSize::of("warehouses", 10, 1, 1);
const TURN: PaperSize = PaperSize::own("transactions of a turn", 400, 50);
const PAGE_BYTES: u32 = 4096;
const PANEL: &str = "TPC-C, PERSIST";
const DELTA: &str = "OneJournal delta, NVRAM";
const WHOLE: &str = "OneJournal journal, NVRAM";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let latencies: &[u32] = scale.pick(&[0, 40], &[0, 10, 20, 30, 40]);
    let turn = scale.size(&TURN);
    let database = tpcc_clients::load(lab, scale, &WAREHOUSES, PAGE_BYTES)?;
    for device in scale.devices(&["ssd840"]) {
        on_device(lab, scale, section, &device, (&database, latencies, turn), samples)?;
    }
    judge(section, samples, *latencies.last().expect("some latency"))?;
    let x = "ns that a cache line takes longer";
    section.plots.push(Plot::lines("New orders a minute", TPMC.name, x, Vec::new()).log_y());
    std::fs::remove_file(&database).map_err(Error::at(&database))
}

/// All latencies take turns, so all systems exist at the same time.
fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    (database, latencies, turn_transactions): (&Path, &[u32], u64),
    samples: &mut Samples,
) -> Result<()> {
    let mut recipes: Vec<Box<dyn System>> =
        vec![Box::new(Ext4::journal()), Box::new(Ext4::journal().external())];
    for latency_ns_per_line in latencies {
        for data in ["journal", "delta"] {
            let nvram = Journal::Nvram { latency_ns_per_line: *latency_ns_per_line };
            recipes.push(Box::new(OneJournal::new().data(data).journal(nvram)));
        }
        for ours in [OneJournal::as_in_djfs(4), OneJournal::as_in_nvram_journaling()] {
            let nvram = Journal::Nvram { latency_ns_per_line: *latency_ns_per_line };
            recipes.push(Box::new(ours.journal(nvram)));
        }
    }
    let running = systems::start(lab, &recipes, &Site::new(device, 320), section)?;
    tpcc_clients::copy(&running, database)?;
    let start = |system| {
        let mut client = Client::start(lab, system, "PERSIST")?;
        client.turn_transactions = turn_transactions;
        Ok(client)
    };
    let mut clients = running.iter().map(start).collect::<Result<Vec<_>>>()?;
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    for _ in 0..scale.rounds() {
        measure::in_turns(&mut rng, &mut clients, |_, client| {
            let before = client.running.counts()?;
            let done = client.turn()?;
            let counts = client.running.counts()? - before;
            let (name, own) = line_of(&client.running.name);
            for latency in latencies.iter().filter(|latency| own.is_none_or(|own| own == **latency))
            {
                let key = Key::at(PANEL, f64::from(*latency));
                samples.add(&key, name, TPMC, done.tpm_c);
                samples.count(&key, name, TPMC, done.transactions as usize, &counts);
            }
            Ok(())
        })?;
        watch.end_round(&running, section)?;
    }
    clients.into_iter().try_for_each(Client::finish)?;
    systems::stop(running)
}

/// The figure's line that a system belongs to, and its latency. A system without NVRAM has the same
/// value at every latency.
fn line_of(name: &str) -> (&str, Option<u32>) {
    match name.split_once(" +") {
        Some((line, latency)) => (line, latency.trim_end_matches(" ns").parse().ok()),
        None => (name, name.contains("NVRAM").then_some(0)),
    }
}

fn judge(section: &mut Section, samples: &Samples, slowest_ns: u32) -> Result<()> {
    let (fast, slow) = (Key::at(PANEL, 0.0), Key::at(PANEL, f64::from(slowest_ns)));
    let journal = Ext4::journal().name();
    let of = |key: &Key| {
        let samples = samples.of(key, DELTA, TPMC);
        samples.map(measure::statistics::median).ok_or_else(|| Error::other("no samples"))
    };
    let cost = of(&fast)? / of(&slow)?;
    let claim = format!("throughput at 0 over that at +{slowest_ns} ns, deltas");
    section.verdicts.push(Verdict::at_most(claim, "", cost, 1.1));
    let over_whole = samples.ratio(&slow, TPMC, DELTA, WHOLE)?.of_medians;
    let claim = format!("at +{slowest_ns} ns, deltas over whole blocks of data");
    section.verdicts.push(Verdict::shown(claim, "", over_whole));
    let (djfs, whole) =
        (OneJournal::as_in_djfs(4).name(), OneJournal::as_in_nvram_journaling().name());
    let over_whole = samples.ratio(&slow, TPMC, &djfs, &whole)?.of_medians;
    let claim = format!("at +{slowest_ns} ns, {djfs} over {whole}");
    section.verdicts.push(Verdict::shown(claim, "up to 3.52", over_whole));
    let over_ext4 = samples.ratio(&slow, TPMC, DELTA, &journal)?.of_medians;
    let claim = format!("at +{slowest_ns} ns, {DELTA} over {journal}");
    section.verdicts.push(Verdict::at_least(claim, "38.89", over_ext4, 38.9));
    Ok(())
}
