//! DJFS, figures 2, 3 and 7: fio's random overwrites, with a sync after each N of them.

use super::programs::{self, CHECKPOINTS, Goal, STALLS};
use super::{DJFS, Experiment, PaperSize, Scale};
use crate::error::Result;
use crate::lab::{Device, Jbd2Trace, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::fio::{self, FioArgs, Pattern, Sync};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Journal, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-fio",
    title: "Random overwrites and fsync",
    paper: DJFS,
    figure: "Figures 2, 3 and 7",
    about: "fio overwrites random blocks of 4 KiB in a file, with an `fsync` after every 1, 4, 16, \
            64 of them or never, on a model of the paper's disk, a Samsung 840 (`ssd840`). Writes \
            a second, the syncs included; and what the disk gets for each write: flushes, KiB, and \
            of them KiB of journal. A loop device has no FUA writes, which the paper counts apart: \
            each is a write and a flush. *Many files* are the paper's 4,000 files of 1 MB, for \
            three systems, which is what a machine with 24 GiB of memory has room for: the writes \
            up to a sync go to one file, the next ones to another. Figure 3b: of ext4, the \
            explicit checkpoints that jbd2 traces, each of which a commit waits for; of \
            OneJournal, the regions that went home, and separately the commits that waited for \
            one. *OneJournal delta, NVRAM* (four regions) is not DJFS: it logs changed bytes, not \
            a compressed XOR, and brings a region home when its room is needed, not as soon as it \
            uses the next one. *as in DJFS* is OneJournal with both as DJFS has them, with two and \
            four regions; *checkpoint=early* has DJFS' policy alone, with 2, 4 and 8 regions. \
            *NVRAM journaling as in DJFS* logs whole blocks without compression. *ext4 journal, \
            journal in memory* is the kernel's, but its journal of 64 MiB is behind a block \
            device; the paper stores to 128 MB of memory. With *order=sync* the kernel collects \
            writes between syncs. fio writes random bytes: the worst case for deltas.",
    paper_claim: "With fsync up to 5.1 times as many writes a second as ext4 ordered and journal \
            with the journal on the disk. Up to 4.0 times as many as with an external journal, and \
            up to 1.8 times as many as with NVRAM journaling of whole blocks. Without fsync up to \
            1.7 times as many as ext4 journal, and close to ext4 ordered.",
    goal: "With an fsync after every write, 5.1 times as many writes a second as ext4 ordered.",
    sizes: &[&FILE_MIB, &FILES, &MILLIS, &REGIONS_MILLIS],
    run,
};

const IOPS: Metric = Metric::higher("writes a second", "1/s");
/// The file must fit into the memory of a small machine, once for each system.
const FILE_MIB: PaperSize = PaperSize::of("MiB that are overwritten", 4096, 64, 64);
const FILES: PaperSize = PaperSize::of("many files of 1 MB", 4000, 4000, 40);
const MILLIS: PaperSize = PaperSize::own("milliseconds of a case and round", 500, 100);
const REGIONS_MILLIS: PaperSize = PaperSize::own("milliseconds with 2 to 8 regions", 3000, 1000);
const REGIONS_PART: &str = ": regions";
const EVERY: [(&str, Sync); 5] = [
    ("fsync every 1", Sync::Fsync(1)),
    ("every 4", Sync::Fsync(4)),
    ("every 16", Sync::Fsync(16)),
    ("every 64", Sync::Fsync(64)),
    ("never", Sync::Never),
];

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::no_journal()),
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Ext4::journal().external()),
        Box::new(Ext4::journal().external_in_memory()),
        Box::new(Xfs),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().journal(Journal::SameKind)),
        Box::new(OneJournal::new().nvram()),
        Box::new(deltas()),
        Box::new(OneJournal::as_in_djfs(2)),
        Box::new(OneJournal::as_in_djfs(4)),
        Box::new(OneJournal::as_in_nvram_journaling()),
        Box::new(OneJournal::new().order_sync()),
        Box::new(OneJournal::new().nvram().order_sync()),
    ]
}

/// Deltas, and four regions that go home as a whole.
fn deltas() -> OneJournal {
    OneJournal::new().data("delta").nvram()
}

const REGIONS: [u32; 3] = [2, 4, 8];

/// Deltas with so many regions: with OneJournal's policy of checkpoints, and with DJFS'.
fn late_and_early(regions: u32) -> [OneJournal; 2] {
    let late = deltas().option(&format!("regions={regions}"));
    [late.clone(), late.option("checkpoint=early")]
}

fn recipes_of_regions() -> Vec<Box<dyn System>> {
    let all = REGIONS.into_iter().flat_map(late_and_early);
    all.map(|system| Box::new(system) as Box<dyn System>).collect()
}

/// The paper's size, for the systems of its largest ratio.
fn recipes_of_many_files() -> Vec<Box<dyn System>> {
    vec![Box::new(Ext4::ordered()), Box::new(Ext4::journal()), Box::new(deltas())]
}

/// A part of the experiment.
struct Part {
    /// Follows the device in the name of the panel.
    name: &'static str,
    recipes: Vec<Box<dyn System>>,
    cases: Vec<(&'static str, Sync)>,
    files: u32,
    /// The size of each.
    file_kib: u64,
    /// The volume's size.
    size_mib: u32,
    millis: u64,
}

fn one_file(scale: &Scale) -> Part {
    Part {
        name: "",
        recipes: recipes(),
        cases: EVERY.into_iter().step_by(scale.pick(4, 1)).collect(),
        files: 1,
        file_kib: scale.size::<u64>(&FILE_MIB) << 10,
        size_mib: 384,
        millis: scale.size(&MILLIS),
    }
}

fn many_files(scale: &Scale) -> Part {
    Part {
        name: ": many files",
        recipes: recipes_of_many_files(),
        files: scale.size(&FILES),
        file_kib: 1024,
        size_mib: scale.pick(384, 4608),
        ..one_file(scale)
    }
}

/// Long enough to go through the journal several times.
fn regions(scale: &Scale) -> Part {
    Part {
        name: REGIONS_PART,
        recipes: recipes_of_regions(),
        cases: vec![EVERY[0]],
        millis: scale.size(&REGIONS_MILLIS),
        ..one_file(scale)
    }
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("fio", "fio")]) {
        return Ok(());
    }
    let trace = match Jbd2Trace::start(lab) {
        Ok(trace) => Some(trace),
        Err(error) => {
            section.leave_out("checkpoints of ext4", &error.to_string());
            None
        }
    };
    plot(section);
    for device in scale.devices(&["ssd840"]) {
        for part in [one_file(scale), many_files(scale), regions(scale)] {
            let rounds = Rounds { lab, scale, device: &device, part, trace: trace.as_ref() };
            rounds.take(section, samples)?;
            judge(section, samples, &rounds.panel())?;
        }
        judge_checkpoints(section, samples, &device.to_string());
        judge_regions(section, samples, &format!("{device}{REGIONS_PART}"))?;
    }
    Ok(())
}

struct Rounds<'a> {
    lab: &'a Lab,
    scale: &'a Scale,
    device: &'a Device,
    part: Part,
    trace: Option<&'a Jbd2Trace>,
}

impl Rounds<'_> {
    fn panel(&self) -> String {
        format!("{}{}", self.device, self.part.name)
    }

    fn args(&self, running: &Running, sync: Sync, seed: u64) -> FioArgs {
        FioArgs {
            dir: running.dir.clone(),
            files: self.part.files,
            file_kib: self.part.file_kib,
            block_bytes: 4096,
            pattern: Pattern::Overwrite,
            sync,
            processes: 1,
            millis: self.part.millis,
            seed,
            environment: running.client.variables(),
        }
    }

    fn take(&self, section: &mut Section, samples: &mut Samples) -> Result<()> {
        let Rounds { lab, scale, device, ref part, .. } = *self;
        let site = Site::new(device, part.size_mib);
        let running = systems::start(lab, &part.recipes, &site, section)?;
        for running in &running {
            running.speed_up()?;
            let args = self.args(running, Sync::Never, 0);
            fio::lay_out(std::slice::from_ref(&running.dir), &args)?;
            running.sync()?;
            running.slow_down()?;
        }
        let mut rng = scale.rng();
        let mut watch = Watch::begin(lab, &running)?;
        for round in 0..scale.rounds() {
            scale.say_round(round, self.panel());
            for &(case, sync) in &part.cases {
                let key = Key::case(self.panel(), case);
                // The same for all systems, but other bytes than before: what did not change is no
                // work for a journal of deltas.
                let seed = rng.u64(..1 << 62);
                let mut all = Vec::new();
                programs::round(&mut rng, &running, (samples, &key, IOPS), |running| {
                    let dirs = std::slice::from_ref(&running.dir);
                    let before = self.explicit_checkpoints(running)?;
                    let found = fio::measure(dirs, &self.args(running, sync, seed))?;
                    let after = self.explicit_checkpoints(running)?;
                    let both = after.zip(before);
                    all.extend(both.map(|(after, before)| (running.name.clone(), after - before)));
                    Ok((found.iops, found.writes))
                })?;
                for (name, count) in all {
                    let counts = [CHECKPOINTS, STALLS].map(|what| (what, count as f64));
                    samples.count_named(&key, &name, IOPS, 0, &counts);
                }
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)
    }

    /// Checkpoints of ext4 so far that a commit waited for.
    fn explicit_checkpoints(&self, running: &Running) -> Result<Option<u64>> {
        let has_jbd2 =
            running.name.starts_with("ext4") && running.name != Ext4::no_journal().name();
        let trace = self.trace.filter(|_| has_jbd2);
        trace.map(|trace| trace.checkpoints(&running.block())).transpose()
    }
}

fn plot(section: &mut Section) {
    let plot = |title| Plot::bars(title, IOPS.name, Vec::new());
    section.plots.extend([
        plot("Figures 2a, 3a and 7: writes a second").log_y(),
        plot("Figure 2b: flushes a write").of_count("flushes"),
        plot("KiB written a write").of_count("written KiB"),
        plot("Figure 2d: KiB of journal a write").of_count("journal KiB"),
        plot("Figure 3b: checkpoints a write").of_count(CHECKPOINTS),
        plot("Commits that waited for a checkpoint, a write").of_count(STALLS),
    ]);
}

/// The paper reduces the explicit checkpoints of a journal of whole blocks in memory.
fn judge_checkpoints(section: &mut Section, samples: &Samples, panel: &str) {
    let key = Key::case(panel, EVERY[0].0);
    let whole = Ext4::journal().external_in_memory().name();
    let waits = |system: &str| samples.count_of(&key, system, IOPS, STALLS).map(|each| 1e3 * each);
    let Some((ours, theirs)) = waits(&deltas().name()).zip(waits(&whole)) else { return };
    let claim = format!(
        "{panel}, {}: waits for a checkpoint in 1000 writes, {} no more than {whole}",
        EVERY[0].0,
        deltas().name()
    );
    let verdict = Verdict::at_most(claim, "fewer", ours, theirs);
    section.verdicts.push(verdict.saying(format!("{whole}: {theirs:.2}.")));
}

/// What OneJournal's policy of checkpoints costs or gains beside DJFS', by number of regions.
fn judge_regions(section: &mut Section, samples: &Samples, panel: &str) -> Result<()> {
    let key = Key::case(panel, EVERY[0].0);
    for regions in REGIONS {
        let [late, early] = late_and_early(regions).map(|system| system.name());
        let ratio = samples.ratio(&key, IOPS, &early, &late)?;
        let each = |name: &str| {
            let count = |system: &str| samples.count_of(&key, system, IOPS, name).unwrap_or(0.0);
            (count(&late), count(&early))
        };
        let (stalls, written) = (each(STALLS), each("written KiB"));
        let claim = format!("{panel}: writes a second with {regions} regions, early over late");
        section.verdicts.push(Verdict::shown(claim, "", ratio.of_medians).saying(format!(
            "{:.2} to {:.2} from round to round. Late and early: {:.3} and {:.3} waits in 1000 \
             writes, {:.2} and {:.2} KiB to the disk for a write.",
            ratio.low,
            ratio.high,
            1e3 * stalls.0,
            1e3 * stalls.1,
            written.0,
            written.1
        )));
    }
    Ok(())
}

fn judge(section: &mut Section, samples: &Samples, panel: &str) -> Result<()> {
    let goal = |ours: OneJournal, theirs: Ext4, case: &str, paper, wanted| Goal {
        key: Key::case(panel, case),
        metric: IOPS,
        ours: ours.name(),
        theirs: theirs.name(),
        paper,
        wanted,
    };
    let in_memory = || Ext4::journal().external_in_memory();
    let nvram = || OneJournal::new().nvram();
    let (always, never) = (EVERY[0].0, EVERY[4].0);
    for goal in [
        goal(deltas(), Ext4::ordered(), always, "up to 5.1", Some(5.1)),
        goal(deltas(), Ext4::journal(), always, "up to 5.1", Some(5.1)),
        goal(deltas(), Ext4::journal().external(), always, "up to 4.0", Some(4.0)),
        goal(deltas(), in_memory(), always, "up to 1.8", Some(1.8)),
        goal(OneJournal::as_in_djfs(4), Ext4::ordered(), always, "up to 5.1", None),
        goal(OneJournal::as_in_djfs(4), in_memory(), always, "up to 1.8", None),
        goal(OneJournal::new(), Ext4::ordered(), always, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), EVERY[2].0, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), EVERY[3].0, "", Some(1.0)),
        goal(deltas(), Ext4::journal(), never, "up to 1.7", Some(1.7)),
        goal(nvram(), Ext4::ordered(), never, "close to 1", None),
        goal(OneJournal::new(), Ext4::journal(), never, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), never, "", Some(0.8)),
        goal(OneJournal::new().order_sync(), Ext4::ordered(), EVERY[3].0, "", None),
        goal(OneJournal::new().order_sync(), Ext4::ordered(), never, "", None),
        goal(nvram().order_sync(), Ext4::ordered(), EVERY[3].0, "", None),
        goal(nvram().order_sync(), Ext4::ordered(), never, "", None),
    ] {
        goal.judge(section, samples)?;
    }
    Ok(())
}
