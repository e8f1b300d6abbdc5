//! DJFS, figures 2, 3 and 7: fio's random overwrites, with a sync after each N of them.

use std::cmp::Ordering;

use super::programs::{self, CHECKPOINTS, Goal, JOURNAL_KIB, STALLS};
use super::{DJFS, Experiment, PaperSize, Scale};
use crate::error::Result;
use crate::lab::{Device, Jbd2Trace, Lab};
use crate::measure::statistics::{self, Ratio};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::fio::{self, FioArgs, Pattern, Sync};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, JOURNAL_MIB, Journal, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-fio",
    title: "Random overwrites and fsync",
    paper: DJFS,
    figure: "Figures 2, 3 and 7",
    about: "fio overwrites random blocks of 4 KiB in a file, with an `fsync` after every 1, 4, 16, \
            64 of them or never, on a model of the paper's disk, a Samsung 840 (`ssd840`). Writes \
            a second, the syncs included; and what the disk gets for each write: flushes, KiB, and \
            of them KiB of journal. A loop device has no FUA writes, which the paper counts apart: \
            each is a write and a flush. The journals of the paper's systems and of ext4 have the \
            paper's 128 MiB. *Many files* are the paper's 4,000 files of 1 MB, for three systems, \
            which is what a machine with 24 GiB of memory has room for: the writes up to a sync go \
            to one file, the next ones to another. Without a sync, ext4 writes none of them to the \
            disk in that time. Half a second of writes does not fill a journal, so these cases \
            have little of the way home in their time. *Regions* has it: all journals are in \
            memory and have 32 MiB, and fio runs long enough to go through each several times. It \
            is Figure 3b, the checkpoints that a commit waits for. They are the explicit \
            checkpoints that jbd2 traces for ext4, and for OneJournal the commits that waited for \
            room, beside the regions that went home. *OneJournal delta, NVRAM* (four regions) is \
            not DJFS: it logs changed bytes, not a compressed XOR, and brings a region home when \
            its room is needed, not as soon as it uses the next one. *as in DJFS* is OneJournal \
            with both as DJFS has them, with two and four regions; *checkpoint=early* has DJFS' \
            policy alone, with 2, 4 and 8 regions. *NVRAM journaling as in DJFS* logs whole blocks \
            without compression; it is the peer of the paper's 1.8 times. Its checkpoints are \
            OneJournal's, of a region at a time, where the paper's are JBD2's, for which commits \
            wait. *ext4 journal, journal in memory* has these: the kernel's ext4, whose journal is \
            behind a block device, where the paper stores to memory. With *order=sync* the kernel \
            collects writes between syncs. fio writes random bytes: the worst case for deltas.",
    paper_claim: "Figure 2: ext4 with full journaling makes up to 43.6 % fewer writes a second \
            than without a journal. Figure 3a: an external journal improves full journaling by \
            46.1 % without fsync, and NVRAM journaling of whole blocks is up to 2.2 times as \
            fast as the external journal. These are shown by rows, without a verdict. With fsync \
            up to 5.1 times as many writes a second as ext4 ordered and journal with the journal \
            on the disk. Up to 4.0 times as many as with an external journal, and up to 1.8 \
            times as many as with NVRAM journaling of whole blocks, because its optimizations \
            \"can relieve the explicit checkpointing overhead\". Without fsync up to 1.7 times \
            as many as ext4 journal, and close to ext4 ordered.",
    goal: "As in DJFS, and with changed bytes: with an fsync after every write, 5.1 times as many \
            writes a second as ext4 ordered and journal, 4.0 times as with an external journal, \
            and, where all go through their journals (*regions*), 1.8 times as with whole blocks; \
            without fsync 1.7 times as ext4 journal. With its journal on the disk OneJournal is no \
            slower than ext4 ordered with an fsync after 1, 16 and 64 writes, and without fsync \
            has 0.8 of its writes.",
    sizes: &[&FILE_MIB, &FILES, &MILLIS, &REGIONS_MIB, &REGIONS_MILLIS, &REGIONS_EXT4_MILLIS],
    run,
};

const IOPS: Metric = Metric::higher("writes a second", "1/s");
/// The file must fit into the memory of a small machine, once for each system.
const FILE_MIB: PaperSize = PaperSize::of("MiB that are overwritten", 4096, 64, 64);
const FILES: PaperSize = PaperSize::of("many files of 1 MB", 4000, 4000, 40);
const MILLIS: PaperSize = PaperSize::own("milliseconds of a case and round", 500, 100);
/// Half of the file that is overwritten. The paper's journal is a 32nd of its files.
const REGIONS_MIB: PaperSize = PaperSize::of("MiB of a journal with 2 to 8 regions", 128, 32, 32);
/// By the rates of earlier results, deltas go through 32 MiB about 5 times (14,000 writes a second,
/// 4.1 KiB of journal each), and whole blocks 9 times (8,000 of 12 KiB).
const REGIONS_MILLIS: PaperSize = PaperSize::own("milliseconds with 2 to 8 regions", 3000, 1000);
/// The same for ext4: 3 times (370 writes a second of 14.4 KiB), or less, because it is slower once
/// its journal is full.
const REGIONS_EXT4_MILLIS: PaperSize =
    PaperSize::own("milliseconds of ext4 beside these", 20_000, 1000);
const REGIONS_PART: &str = ": regions";
const MANY_FILES: &str = ": many files";
/// The paper's words about the checkpoints that a commit waits for.
const RELIEVED: &str = "\"can relieve the explicit checkpointing overhead\"";
const WRITTEN_KIB: &str = "written KiB";
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
        Box::new(Ext4::ordered().journal_mib(JOURNAL_MIB)),
        Box::new(Ext4::journal().journal_mib(JOURNAL_MIB)),
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
fn late_and_early(scale: &Scale, regions: u32) -> [OneJournal; 2] {
    let late = deltas().journal_size_mib(scale.size(&REGIONS_MIB));
    let late = late.option(&format!("regions={regions}"));
    [late.clone(), late.option("checkpoint=early")]
}

/// The paper's systems with journals of the same size: DJFS, and journaling of whole blocks.
fn papers_of_regions(scale: &Scale) -> [OneJournal; 2] {
    [OneJournal::as_in_djfs(4), OneJournal::as_in_nvram_journaling()]
        .map(|system| system.journal_size_mib(scale.size(&REGIONS_MIB)))
}

/// The kernel's journaling of whole blocks, with a journal of the same size.
fn ext4_of_regions(scale: &Scale) -> Ext4 {
    Ext4::journal().external_in_memory_of_mib(scale.size(&REGIONS_MIB))
}

fn recipes_of_regions(scale: &Scale) -> Vec<Box<dyn System>> {
    let ours = REGIONS.into_iter().flat_map(|regions| late_and_early(scale, regions));
    let ours = ours.chain(papers_of_regions(scale));
    let mut all: Vec<Box<dyn System>> = vec![Box::new(ext4_of_regions(scale))];
    all.extend(ours.map(|system| Box::new(system) as Box<dyn System>));
    all
}

/// The paper's size, for the systems of its largest ratio.
fn recipes_of_many_files() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::ordered().journal_mib(JOURNAL_MIB)),
        Box::new(Ext4::journal().journal_mib(JOURNAL_MIB)),
        Box::new(OneJournal::as_in_djfs(4)),
    ]
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
    /// In place of it, of ext4.
    ext4_millis: u64,
}

impl Part {
    fn millis_of(&self, system: &str) -> u64 {
        if system.starts_with("ext4") { self.ext4_millis } else { self.millis }
    }
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
        ext4_millis: scale.size(&MILLIS),
    }
}

fn many_files(scale: &Scale) -> Part {
    Part {
        name: MANY_FILES,
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
        recipes: recipes_of_regions(scale),
        cases: vec![EVERY[0]],
        millis: scale.size(&REGIONS_MILLIS),
        ext4_millis: scale.size(&REGIONS_EXT4_MILLIS),
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
            judge(section, samples, &rounds)?;
        }
        let regions = Regions::new(scale, &device);
        regions.judge_waits(section, samples);
        regions.judge(section, samples)?;
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
            millis: self.part.millis_of(&running.name),
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
                    let measure = || fio::measure(dirs, &self.args(running, sync, seed));
                    let found = match self.trace_of(running) {
                        None => measure()?,
                        Some(trace) => {
                            let (found, count) = trace.during(&running.block(), measure)?;
                            all.push((running.name.clone(), count));
                            found
                        }
                    };
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

    /// What counts the checkpoints that a commit of ext4 waits for.
    fn trace_of(&self, running: &Running) -> Option<&Jbd2Trace> {
        let has_jbd2 =
            running.name.starts_with("ext4") && running.name != Ext4::no_journal().name();
        self.trace.filter(|_| has_jbd2)
    }
}

fn plot(section: &mut Section) {
    let plot = |title| Plot::bars(title, IOPS.name, Vec::new());
    section.plots.extend([
        plot("Figures 2a, 3a and 7: writes a second").log_y(),
        plot("Figure 2b: flushes a write").of_count("flushes"),
        plot("KiB written a write").of_count(WRITTEN_KIB),
        plot("Figure 2d: KiB of journal a write").of_count(JOURNAL_KIB),
        plot("Figure 3b: checkpoints a write").of_count(CHECKPOINTS),
        plot("Commits that waited for a checkpoint, a write").of_count(STALLS),
    ]);
}

/// The verdicts about regions, and checkpoints that commits wait for.
struct Regions<'a> {
    scale: &'a Scale,
    key: Key,
}

impl Regions<'_> {
    fn new<'a>(scale: &'a Scale, device: &Device) -> Regions<'a> {
        Regions { scale, key: Key::case(format!("{device}{REGIONS_PART}"), EVERY[0].0) }
    }

    /// Figure 3b: the paper relieves the overhead of explicit checkpoints that whole blocks in
    /// memory have. A journal that was never full gets no verdict.
    fn judge_waits(&self, section: &mut Section, samples: &Samples) {
        let [ours, _] = late_and_early(self.scale, 4).map(|system| system.name());
        let [djfs, whole] = papers_of_regions(self.scale).map(|system| system.name());
        let ext4 = ext4_of_regions(self.scale).name();
        for (ours, peer, paper) in
            [(&ours, &whole, ""), (&djfs, &whole, RELIEVED), (&ours, &ext4, "")]
        {
            let (Some(left), Some(right)) = (self.waits(samples, ours), self.waits(samples, peer))
            else {
                continue;
            };
            let claim = format!(
                "{}, {}: waits for a checkpoint in 1000 writes, {ours} no more than {peer}",
                self.key.panel, self.key.case
            );
            if let Some((system, waits)) =
                [(ours, &left), (peer, &right)].into_iter().find(|(_, waits)| waits.passes < 1.0)
            {
                let why = format!(
                    "{system} went {:.2} times through its journal in a round, so it had no need \
                     to wait",
                    waits.passes
                );
                section.leave_out(&claim, &why);
                continue;
            }
            section.verdicts.push(left.no_more_than(&right, claim, paper));
        }
    }

    /// `None` of a system that was not counted.
    fn waits(&self, samples: &Samples, system: &str) -> Option<Waits> {
        let logged_mib = logged_mib(samples, &self.key, system, &regions(self.scale))?;
        let passes = logged_mib / f64::from(self.scale.size::<u32>(&REGIONS_MIB));
        let stalls = samples.count_of(&self.key, system, IOPS, STALLS)?;
        Some(Waits { in_1000: 1e3 * stalls, passes })
    }

    /// What OneJournal's policy of checkpoints costs or gains beside DJFS', by number of regions.
    /// And what deltas gain over whole blocks where all go through their journals.
    fn judge(&self, section: &mut Section, samples: &Samples) -> Result<()> {
        for regions in REGIONS {
            let [late, early] = late_and_early(self.scale, regions).map(|system| system.name());
            let ratio = samples.ratio(&self.key, IOPS, &early, &late)?;
            let each = |name: &str| {
                let count =
                    |system: &str| samples.count_of(&self.key, system, IOPS, name).unwrap_or(0.0);
                (count(&late), count(&early))
            };
            let (stalls, written) = (each(STALLS), each(WRITTEN_KIB));
            let panel = &self.key.panel;
            let claim = format!("{panel}: writes a second with {regions} regions, early over late");
            section.verdicts.push(Verdict::shown(claim, "", ratio.of_medians).saying(format!(
                "{:.2} to {:.2} from round to round. Late and early: {:.3} and {:.3} waits in 1000 \
                 writes, {:.2} and {:.2} KiB to the disk for a write. {}",
                ratio.low,
                ratio.high,
                1e3 * stalls.0,
                1e3 * stalls.1,
                written.0,
                written.1,
                better_policy(ratio, stalls, written)
            )));
        }
        let [djfs, whole] = papers_of_regions(self.scale).map(|system| system.name());
        let [late, _] = late_and_early(self.scale, 4).map(|system| system.name());
        for (ours, paper) in [(djfs, "up to 1.8"), (late, "")] {
            let (key, theirs) = (self.key.clone(), whole.clone());
            let goal = Goal { key, metric: IOPS, ours, theirs, paper, wanted: Some(1.8) };
            goal.judge(section, samples)?;
        }
        Ok(())
    }
}

/// Says which policy of checkpoints is better in this measurement: the faster one where the rounds
/// agree, and which one waits and writes less, of the values of late and early.
fn better_policy(early_over_late: Ratio, waits: (f64, f64), written: (f64, f64)) -> String {
    let faster = match early_over_late {
        Ratio { low, .. } if low > 1.0 => "early",
        Ratio { high, .. } if high < 1.0 => "late",
        _ => "neither",
    };
    let less = |(late, early): (f64, f64)| match early.total_cmp(&late) {
        Ordering::Less => "early",
        Ordering::Greater => "late",
        Ordering::Equal => "neither",
    };
    format!(
        "In this measurement {faster} is faster in most rounds, {} waits less often, and {} writes \
         less to the disk.",
        less(waits),
        less(written)
    )
}

/// The MiB that a round logs; `None` of a system whose journal was not counted.
fn logged_mib(samples: &Samples, key: &Key, system: &str, part: &Part) -> Option<f64> {
    let writes_a_second = statistics::median(samples.of(key, system, IOPS)?);
    let writes = writes_a_second * part.millis_of(system) as f64 / 1e3;
    Some(writes * samples.count_of(key, system, IOPS, JOURNAL_KIB)? / 1024.0)
}

/// Commits of a system that waited for room in its journal.
struct Waits {
    in_1000: f64,
    /// How often a round goes through the whole journal.
    passes: f64,
}

impl Waits {
    /// Without any wait on both sides nothing is reached.
    fn no_more_than(&self, peer: &Waits, claim: String, paper: &str) -> Verdict {
        let verdict = match self.in_1000 == 0.0 && peer.in_1000 == 0.0 {
            true => Verdict::shown(claim, paper, self.in_1000),
            false => Verdict::at_most(claim, paper, self.in_1000, peer.in_1000),
        };
        verdict.saying(format!(
            "The peer: {:.3}. A round goes {:.1} and {:.1} times through the journals.",
            peer.in_1000, self.passes, peer.passes
        ))
    }
}

fn judge(section: &mut Section, samples: &Samples, rounds: &Rounds<'_>) -> Result<()> {
    for goal in goals(&rounds.panel()) {
        let index = section.verdicts.len();
        goal.judge(section, samples)?;
        if let Some(verdict) = section.verdicts.get_mut(index) {
            verdict.sentence += &way_home(samples, &goal, &rounds.part).unwrap_or_default();
        }
    }
    Ok(())
}

/// Says how much of the way home is in a ratio. `None` of a system that was not counted.
fn way_home(samples: &Samples, Goal { key, ours, .. }: &Goal, part: &Part) -> Option<String> {
    let count = |name: &str| samples.count_of(key, ours, IOPS, name);
    let (written_kib, journal_kib) = (count(WRITTEN_KIB)?, count(JOURNAL_KIB)?);
    let (home_kib, place) = match ours.contains("NVRAM") {
        true => (written_kib, format!(" of {JOURNAL_MIB} MiB on NVRAM")),
        false => (written_kib - journal_kib, String::new()),
    };
    Some(format!(
        " A round logs {:.1} MiB into the journal{place}, and brings {:.2} KiB home for each write \
         of 4 KiB: the ratio holds no more of the way home.",
        logged_mib(samples, key, ours, part)?,
        home_kib.max(0.0)
    ))
}

fn goals(panel: &str) -> Vec<Goal> {
    let over = |ours: OneJournal, theirs: String, case: &str, paper, wanted| {
        let (key, ours) = (Key::case(panel, case), ours.name());
        Goal { key, metric: IOPS, ours, theirs, paper, wanted }
    };
    let goal = |ours: OneJournal, theirs: Ext4, case: &str, paper, wanted| {
        over(ours, theirs.name(), case, paper, wanted)
    };
    let in_memory = || Ext4::journal().external_in_memory();
    let whole_blocks = || OneJournal::as_in_nvram_journaling().name();
    let nvram = || OneJournal::new().nvram();
    let djfs = || OneJournal::as_in_djfs(4);
    let (always, never) = (EVERY[0].0, EVERY[4].0);
    vec![
        goal(djfs(), Ext4::ordered(), always, "up to 5.1", Some(5.1)),
        goal(djfs(), Ext4::journal(), always, "up to 5.1", Some(5.1)),
        goal(djfs(), Ext4::journal().external(), always, "up to 4.0", Some(4.0)),
        // The goal is that of the regions: here no journal is full.
        over(djfs(), whole_blocks(), always, "", None),
        goal(djfs(), in_memory(), always, "", None),
        goal(djfs(), Ext4::journal(), never, "up to 1.7", Some(1.7)),
        goal(deltas(), Ext4::ordered(), always, "", Some(5.1)),
        goal(deltas(), Ext4::journal(), always, "", Some(5.1)),
        goal(deltas(), Ext4::journal().external(), always, "", Some(4.0)),
        over(deltas(), whole_blocks(), always, "", None),
        goal(deltas(), in_memory(), always, "", None),
        goal(OneJournal::new(), Ext4::ordered(), always, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), EVERY[2].0, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), EVERY[3].0, "", Some(1.0)),
        goal(deltas(), Ext4::journal(), never, "", Some(1.7)),
        goal(nvram(), Ext4::ordered(), never, "close to 1", None),
        goal(OneJournal::new(), Ext4::journal(), never, "", Some(1.0)),
        goal(OneJournal::new(), Ext4::ordered(), never, "", Some(0.8)),
        goal(OneJournal::new().order_sync(), Ext4::ordered(), EVERY[3].0, "", None),
        goal(OneJournal::new().order_sync(), Ext4::ordered(), never, "", None),
        goal(nvram().order_sync(), Ext4::ordered(), EVERY[3].0, "", None),
        goal(nvram().order_sync(), Ext4::ordered(), never, "", None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Outcome;

    /// Waits in 1000 writes of OneJournal's deltas and of the other systems, and how often each
    /// goes through its journal: the outcomes, and how many comparisons are left out.
    fn outcomes(ours: f64, peers: f64, passes: f64) -> (Vec<Outcome>, usize) {
        let scale = Scale::new(false, None, 1, Vec::new());
        let regions = Regions::new(&scale, &"ssd840".parse().unwrap());
        let mut samples = Samples::default();
        let papers = papers_of_regions(&scale).map(|system| system.name());
        let [late, _] = late_and_early(&scale, 4).map(|system| system.name());
        for name in papers.into_iter().chain([late.clone(), ext4_of_regions(&scale).name()]) {
            let seconds = super::regions(&scale).millis_of(&name) as f64 / 1e3;
            let (writes, journal_kib) = (1000.0 * seconds, 32.0 * 1024.0 * passes / seconds / 1e3);
            let waits = writes / 1e3 * if name == late { ours } else { peers };
            samples.add(&regions.key, &name, IOPS, 1000.0);
            let counts = [(JOURNAL_KIB, journal_kib * writes), (STALLS, waits)];
            samples.count_named(&regions.key, &name, IOPS, writes as usize, &counts);
        }
        let mut section = Section::default();
        regions.judge_waits(&mut section, &samples);
        let verdicts = section.verdicts.iter().map(|verdict| verdict.outcome);
        (verdicts.collect(), section.left_out.len())
    }

    #[test]
    fn waits_are_judged_only_where_journals_were_full() {
        use Outcome::{Missed, Reached, Shown};
        assert_eq!(outcomes(0.5, 3.0, 2.0), (vec![Reached, Reached, Reached], 0));
        assert_eq!(outcomes(4.0, 3.0, 2.0), (vec![Missed, Reached, Missed], 0));
        assert_eq!(outcomes(0.0, 0.0, 2.0), (vec![Shown, Shown, Shown], 0));
        assert_eq!(outcomes(0.5, 3.0, 0.9), (vec![], 3));
    }

    #[test]
    fn better_policy_is_named_for_each_value() {
        let ratio = |low, high| Ratio { of_medians: 1.0, low, high };
        assert!(better_policy(ratio(0.9, 1.2), (0.2, 0.1), (3.0, 3.5)).contains(
            "neither is faster in most rounds, early waits less often, and late writes less"
        ));
        let same = better_policy(ratio(1.1, 1.2), (0.0, 0.0), (3.0, 3.0));
        assert!(same.contains("early is faster in most rounds, neither waits less often"));
        assert!(better_policy(ratio(0.8, 0.9), (0.0, 0.0), (3.0, 3.0)).contains("late is faster"));
    }

    #[test]
    fn ratio_says_how_much_of_the_way_home_it_holds() {
        let part = one_file(&Scale::new(false, None, 1, Vec::new()));
        let key = Key::case("ssd840", EVERY[0].0);
        let mut samples = Samples::default();
        for system in ["OneJournal, NVRAM", "OneJournal"] {
            samples.add(&key, system, IOPS, 10_240.0);
            let counts = [(JOURNAL_KIB, 40.0), (WRITTEN_KIB, 45.0)];
            samples.count_named(&key, system, IOPS, 10, &counts);
        }
        let said = |ours: &str| {
            let (key, ours, theirs) = (key.clone(), ours.to_owned(), String::new());
            let goal = Goal { key, metric: IOPS, ours, theirs, paper: "", wanted: None };
            way_home(&samples, &goal, &part)
        };
        let text = said("OneJournal, NVRAM").expect("it was counted");
        assert!(text.contains("logs 20.0 MiB into the journal of 128 MiB on NVRAM"), "{text}");
        assert!(text.contains("brings 4.50 KiB home"), "{text}");
        let text = said("OneJournal").expect("it was counted");
        assert!(text.contains("into the journal, and brings 0.50 KiB home"), "{text}");
        assert_eq!(said("XFS"), None);
    }
}
