//! DJFS, figures 2, 3 and 7: fio's random writes with an fsync after every so many.

use super::{DJFS, Experiment, Scale};
use crate::error::Result;
use crate::lab::Lab;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::programs::fio::{self, FioArgs, Pattern, Sync};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-fio",
    title: "Random writes, and how often they are synced",
    paper: DJFS,
    figure: "Figures 2, 3 and 7",
    about: "fio writes blocks of 4 KiB at random to one file, on the model of the paper's Samsung 840 (`ssd840`), with an fsync \
            after every 1, 4, 16 or 64 writes, or never. Writes a second; beside them flushes, bytes to the device and \
            bytes to the journal for each write. *OneJournal delta, NVRAM* is the paper's DJFS (four regions), \
            *OneJournal journal, NVRAM* its journaling without flushes (whole blocks), *ext4 journal, ext. journal* a \
            journal on a second SSD, *journal in memory* a journal on a device without latency. Every byte that fio writes is random: the worst case for deltas.",
    paper_claim: "DJFS over ext4 ordered and journal up to 5.1 times with fsync, over ext4 with an external journal up to 4.0 \
                  times, over NVRAM journaling up to 1.8 times; without fsync up to 1.7 times data journaling.",
    goal: "At least the same with fsync.",
    run,
};

const IOPS: Metric = Metric::higher("writes a second", "writes/s");
const SIZE_MIB: u32 = 384;
const PANEL: &str = "an fsync every so many writes";

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::no_journal()),
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Ext4::journal().external()),
        Box::new(Ext4::journal().external_in_memory()),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().data("delta").journal(Journal::SameKind)),
        Box::new(OneJournal::new().data("journal").nvram()),
        Box::new(two_regions()),
        Box::new(djfs()),
    ]
}

fn djfs() -> OneJournal {
    OneJournal::new().data("delta").nvram()
}

fn two_regions() -> OneJournal {
    djfs().option("regions=2")
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section) -> Result<()> {
    if !crate::lab::is_installed("fio") {
        section.leave_out("all of it", "fio is not installed");
        return Ok(());
    }
    let every: &[u32] = scale.pick(&[1, 16, 0], &[1, 4, 16, 64, 0]);
    let file_kib = scale.pick(16, 64) << 10;
    let seconds = scale.pick(1, 5);
    section.set("file MiB", file_kib >> 10);
    section.set("seconds a run", seconds);
    let mut samples = Samples::default();
    for device in scale.devices(&["ssd840"]) {
        let mut running = systems::start(lab, &recipes(), &Site::new(&device, SIZE_MIB), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        let panel = format!("{device}: {PANEL}");
        for round in 0..scale.few_rounds() {
            eprintln!("onejournal-bench: round {}", round + 1);
            for every in every {
                measure::in_turns(&mut rng, &mut running, |_, system| {
                    measure_one(system, &panel, *every, file_kib, seconds, &mut samples)
                })?;
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        let plot = |title: &str| Plot::bars(title, IOPS.name, vec![panel.clone()]).log_y();
        section.plots.push(plot("Writes a second (figures 2a, 3a and 7)"));
        section.plots.push(plot("Flushes for each write (figure 2b)").of_count("flushes"));
        section.plots.push(plot("Journal KiB for each write (figure 2d)").of_count("journal KiB"));
        judge(section, &samples, &panel, every)?;
    }
    samples.write_to(section);
    Ok(())
}

fn case(panel: &str, every: u32) -> Key {
    Key::case(panel, if every == 0 { "never".to_owned() } else { every.to_string() })
}

fn measure_one(
    system: &Running,
    panel: &str,
    every: u32,
    file_kib: u64,
    seconds: u64,
    samples: &mut Samples,
) -> Result<()> {
    let args = FioArgs {
        dir: system.dir.clone(),
        file_kib,
        block_bytes: 4096,
        pattern: Pattern::Overwrite,
        sync: if every == 0 { Sync::Never } else { Sync::Fsync(every) },
        processes: 1,
        seconds,
        environment: system.client.variables(),
    };
    let (counts, journal) = (system.counts()?, system.journal_bytes()?);
    let result = fio::run(&args)?;
    system.sync()?;
    let counts = system.counts()? - counts;
    let key = case(panel, every);
    let writes = result.writes as usize;
    samples.add(&key, &system.name, IOPS, result.iops);
    samples.count(&key, &system.name, IOPS, writes, &counts);
    if let (Some(before), Some(after)) = (journal, system.journal_bytes()?) {
        let kib = (after - before) as f64 / 1024.0;
        samples.count_named(&key, &system.name, IOPS, 0, &[("journal KiB", kib)]);
    }
    Ok(())
}

fn judge(section: &mut Section, samples: &Samples, panel: &str, every: &[u32]) -> Result<()> {
    let ours = djfs().name();
    let best = |peer: String, synced: bool| -> Result<f64> {
        let cases = every.iter().filter(|every| (**every > 0) == synced);
        let ratios = cases
            .map(|every| Ok(samples.ratio(&case(panel, *every), IOPS, &ours, &peer)?.of_medians));
        ratios.collect::<Result<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max))
    };
    let synced = [
        (Ext4::ordered().name(), "5.1", 5.1),
        (Ext4::journal().name(), "5.1", 5.1),
        (Ext4::journal().external().name(), "4.0", 4.0),
        (OneJournal::new().data("journal").nvram().name(), "1.8", 1.0),
    ];
    for (peer, paper, wanted) in synced {
        let claim = format!("with fsync, {ours} over {peer}, the best case");
        section.verdicts.push(Verdict::at_least(claim, paper, best(peer, true)?, wanted));
    }
    let claim = format!("without fsync, {ours} over ext4 journal");
    let measured = best(Ext4::journal().name(), false)?;
    section.verdicts.push(Verdict::shown(claim, "1.7", measured).saying(
        "Without a sync both write to memory, and what is measured is how fast the kernel's cache takes it.",
    ));
    Ok(())
}
