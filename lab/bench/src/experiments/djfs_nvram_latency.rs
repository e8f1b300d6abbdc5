//! DJFS, figure 9: TPC-C with NVRAM of increasing latency.

use super::programs::{JOURNAL_KIB, STALLS, during};
use super::tpcc_clients::{self, Client};
use super::{DJFS, Experiment, PaperSize, Scale};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-nvram-latency",
    title: "TPC-C, and the write latency of NVRAM",
    paper: DJFS,
    figure: "Figure 9",
    about: "TPC-C on SQLite (rollback journal, PERSIST) on the model of a Samsung 840, the journal \
            in memory that takes 0 to 40 ns longer for each cache line. (The paper's NVRAM, too, \
            has a write latency of 0 to 40 ns more than DRAM. It assumes 10 ns for DRAM, so its \
            slowest NVRAM is 5 times as slow. It does not say how many bytes take so long.) All \
            journals have 32 MiB, not the paper's 128, so that the turns go through them; waits of \
            commits for room, the paper's overhead of whole blocks, are counted. The systems of \
            one latency take turns, both ext4 among them, because ten warehouses on all at once \
            need more memory than a small machine has. The second figure is the paper's: \
            throughput over that of ext4 journal with an external journal in the same turns. \
            *OneJournal delta, NVRAM* logs changed bytes. *as in DJFS* logs a compressed XOR and \
            brings regions home early, *NVRAM journaling as in DJFS* logs whole blocks; its \
            checkpoints are OneJournal's, of a region at a time, where the paper's are JBD2's, for \
            which commits wait.",
    paper_claim: "While NVRAM becomes slower, NVRAM journaling of whole blocks loses throughput \
            rapidly, and DJFS slightly; DJFS is up to 3.52 times as fast. In the worst case they \
            are still 11.06 and 38.89 times as fast as ext4 data journaling with the journal on \
            the disk.",
    goal: "At +40 ns at least 38.9 times as fast as ext4 data journaling, as in DJFS and with \
            changed bytes, and 11.06 times with whole blocks; as in DJFS 3.52 times as fast as \
            with whole blocks. The loss from 0 to +40 ns is shown: by the count of bytes it is a \
            few hundredths of a transaction here, less than the rounds differ.",
    sizes: &[&WAREHOUSES, &TURN, &JOURNAL_MIB],
    run,
};

const TPMC: Metric = Metric::higher("tpmC", "new orders/min");
const NORMALISED: Metric = Metric::higher("normalised tpmC", "times ext. journal");
/// A quick run has warehouses with fewer rows.
const WAREHOUSES: PaperSize = PaperSize::of("warehouses", 10, 10, 2);
const TURN: PaperSize = PaperSize::own("transactions of a turn", 200, 50);
const PAGE_BYTES: u32 = 4096;
/// A turn of whole blocks fills it.
const JOURNAL_MIB: PaperSize = PaperSize::of("MiB of the journal", 128, 32, 32);
const PANEL: &str = "TPC-C, PERSIST";
const DELTA: &str = "OneJournal delta, NVRAM";
const NVRAM: &str = ", NVRAM";
/// Counts of a transaction.
const MILLISECONDS: &str = "milliseconds";
/// The latency is that of a cache line of this size.
const LINE_BYTES: f64 = 64.0;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let latencies: &[u32] = scale.pick(&[0, 40], &[0, 10, 20, 30, 40]);
    let turn = scale.size(&TURN);
    let database = tpcc_clients::load(lab, scale, &WAREHOUSES, PAGE_BYTES)?;
    for device in scale.devices(&["ssd840"]) {
        for &latency in latencies {
            let site = Site::new(&device, scale.pick(320, 1280));
            let running =
                systems::start(lab, &recipes(scale.size(&JOURNAL_MIB), latency), &site, section)?;
            tpcc_clients::copy(&running, &database)?;
            measure(lab, scale, section, (&running, latency, turn), samples)?;
            systems::stop(running)?;
        }
    }
    let slowest = *latencies.last().expect("some latency");
    judge(section, samples, scale.size(&JOURNAL_MIB), slowest)?;
    let plot = |title, metric: Metric| {
        Plot::lines(title, metric.name, "ns that a cache line takes longer", Vec::new())
    };
    section.plots.push(plot("New orders a minute", TPMC).log_y());
    section.plots.push(plot("Figure 9: over ext4 with an external journal", NORMALISED));
    std::fs::remove_file(&database).map_err(Error::at(&database))
}

fn external() -> Ext4 {
    Ext4::journal().external()
}

/// The systems of a latency.
fn recipes(journal_mib: u32, latency_ns_per_line: u32) -> Vec<Box<dyn System>> {
    let ours = [
        OneJournal::new().data("delta"),
        OneJournal::as_in_djfs(4),
        OneJournal::as_in_nvram_journaling(),
    ];
    let mut recipes: Vec<Box<dyn System>> = vec![
        Box::new(Ext4::journal().journal_mib(journal_mib)),
        Box::new(external().journal_mib(journal_mib)),
    ];
    for ours in ours {
        let ours = ours.journal(Journal::Nvram { latency_ns_per_line });
        recipes.push(Box::new(ours.journal_size_mib(journal_mib)));
    }
    recipes
}

fn measure(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    (running, latency, turn_transactions): (&[Running], u32, u64),
    samples: &mut Samples,
) -> Result<()> {
    let start = |system| {
        let mut client = Client::start(lab, system, "PERSIST")?;
        client.turn_transactions = turn_transactions;
        Ok(client)
    };
    let mut clients = running.iter().map(start).collect::<Result<Vec<_>>>()?;
    let key = Key::at(PANEL, f64::from(latency));
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, running)?);
    for round in 0..scale.rounds() {
        scale.say_round(round, format_args!("+{latency} ns"));
        let mut tpm_c = vec![0.0; clients.len()];
        measure::in_turns(&mut rng, &mut clients, |index, client| {
            tpm_c[index] = turn(client, &key, samples)?;
            Ok(())
        })?;
        let base = running.iter().position(|one| one.name == external().name());
        let base = base.ok_or_else(|| Error::other("no ext4 with an external journal"))?;
        for (system, found) in running.iter().zip(&tpm_c) {
            samples.add(&key, line_of(&system.name), NORMALISED, found / tpm_c[base]);
        }
        watch.end_round(running, section)?;
    }
    clients.into_iter().try_for_each(Client::finish)
}

/// A turn of a client, with its counts. Returns the new orders a minute.
fn turn(client: &mut Client<'_>, key: &Key, samples: &mut Samples) -> Result<f64> {
    let (done, asked, mut counts) = during(client.running, || client.turn())?;
    let name = line_of(&client.running.name);
    samples.add(key, name, TPMC, done.tpm_c);
    samples.count_asked(key, name, TPMC, done.transactions as usize, &asked);
    counts.push((MILLISECONDS, done.seconds * 1e3));
    samples.count_named(key, name, TPMC, 0, &counts);
    Ok(done.tpm_c)
}

/// The figure's line that a system belongs to: its name without the latency and the journal's
/// size.
fn line_of(name: &str) -> &str {
    name.find(NVRAM).map_or(name, |at| &name[..at + NVRAM.len()])
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    journal_mib: u32,
    slowest_ns: u32,
) -> Result<()> {
    let slow = Key::at(PANEL, f64::from(slowest_ns));
    let journal = Ext4::journal().name();
    let (djfs, whole) =
        (OneJournal::as_in_djfs(4).name(), OneJournal::as_in_nvram_journaling().name());
    for (system, paper) in [(djfs.as_str(), "slightly above 1"), (&whole, ""), (DELTA, "")] {
        let loss = normalised(samples, 0, system)? / normalised(samples, slowest_ns, system)?;
        let claim = format!(
            "{system}: throughput at 0 over that at +{slowest_ns} ns, both over ext4's with an \
             external journal"
        );
        let sentence = cost_of_bytes(samples, &slow, system, slowest_ns).unwrap_or_default();
        section.verdicts.push(Verdict::shown(claim, paper, loss).saying(sentence));
    }
    let over_whole = samples.ratio(&slow, TPMC, &djfs, &whole)?.of_medians;
    let claim = format!("at +{slowest_ns} ns, {djfs} over {whole}");
    let verdict = Verdict::at_least(claim, "up to 3.52", over_whole, 3.52);
    let sentence = way_home(samples, &slow, journal_mib, (&djfs, &whole));
    section.verdicts.push(verdict.saying(sentence.unwrap_or_default()));
    for (system, paper, wanted) in
        [(djfs.as_str(), "38.89", 38.9), (whole.as_str(), "11.06", 11.06), (DELTA, "", 38.9)]
    {
        let over_ext4 = samples.ratio(&slow, TPMC, system, &journal)?.of_medians;
        let claim = format!("at +{slowest_ns} ns, {system} over {journal}");
        section.verdicts.push(Verdict::at_least(claim, paper, over_ext4, wanted));
    }
    Ok(())
}

/// The median of a system's throughput over that of ext4 with an external journal.
fn normalised(samples: &Samples, latency_ns: u32, system: &str) -> Result<f64> {
    let samples = samples.of(&Key::at(PANEL, f64::from(latency_ns)), system, NORMALISED);
    samples.map(measure::statistics::median).ok_or_else(|| Error::other("no samples"))
}

/// Says which part of a transaction its bytes in the journal cost, by the counts of this
/// measurement. `None` of a system that was not counted.
fn cost_of_bytes(samples: &Samples, slow: &Key, system: &str, slowest_ns: u32) -> Option<String> {
    let count = |name: &str| samples.count_of(slow, system, TPMC, name);
    let (kib, milliseconds) = (count(JOURNAL_KIB)?, count(MILLISECONDS)?);
    let of_bytes = kib * 1024.0 / LINE_BYTES * f64::from(slowest_ns) / 1e6;
    Some(format!(
        "A transaction stores {kib:.0} KiB in the journal. At +{slowest_ns} ns a cache line they \
         take {of_bytes:.2} ms longer, of {milliseconds:.1} ms with {:.0} requests. More than \
         that, or less, is the difference of the rounds.",
        count("FUSE requests")?
    ))
}

/// Says how much of the way home is in a ratio. `None` of a system that was not counted.
fn way_home(
    samples: &Samples,
    slow: &Key,
    journal_mib: u32,
    (djfs, whole): (&str, &str),
) -> Option<String> {
    let of = |system: &str| {
        let count = |name: &str| samples.count_of(slow, system, TPMC, name);
        Some((count(JOURNAL_KIB)?, 1e3 * count(STALLS)?))
    };
    let ((djfs_kib, djfs_waits), (whole_kib, whole_waits)) = (of(djfs)?, of(whole)?);
    let through = |kib: f64| f64::from(journal_mib) * 1024.0 / kib;
    Some(format!(
        "{:.0} transactions go through the journal of {journal_mib} MiB as in DJFS, and {:.0} with \
         whole blocks; 1000 of them wait {djfs_waits:.1} and {whole_waits:.1} times for room. \
         [Bytes on NVRAM](../developers/benchmarks.md#bytes-on-nvram) has the cost of the \
         encoding.",
        through(djfs_kib),
        through(whole_kib),
    ))
}
