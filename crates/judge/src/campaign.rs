//! Makes many crash images of recorded runs, recovers each of them, and judges the result.
//!
//! A cut may be at any event. Half of the cuts are just after a sync was answered, where most can
//! be lost. `onejournal fsck` recovers one image of eight, `onejournal mount` another one, and this
//! process the other six. Sectors of 512 and 4096 bytes take turns. Every fourth recovery in this
//! process is cut again. For some images `onejournal fsck` is cut, too, including what e2fsck
//! writes. The commands get a journal on NVRAM as a file in `/dev/shm`, which they map. Their
//! stores are not recorded, so for such a journal only recoveries in this process are cut again.

use std::path::{Path, PathBuf};

use fastrand::Rng;
use onejournal_testing::drive::record::Event;

use crate::case::{Case, Cut, How};
use crate::crash::{Cursor, Fault, Survival, Trace};
use crate::history::{History, Survivor};
use crate::host::Programs;
use crate::mark::{Mark, Moment};
use crate::run::Run;
use crate::save;
use crate::scenario::{LogPlace, Scenario};
use crate::stand::{SECTOR_BYTES, Stand};

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    pub programs: Programs,
    /// Number of images to judge, including nested ones.
    pub image_count: usize,
    /// The fault of the disks.
    pub fault: Fault,
    /// Whether recoveries by commands are cut as well.
    pub cuts_commands: bool,
    /// Where runs with failures are kept.
    pub keep: PathBuf,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub runs: usize,
    /// Crash images that were recovered and judged.
    pub images: usize,
    /// How many of them are cuts of a recovery.
    pub nested: usize,
    /// How many of them were recovered by a command.
    pub by_command: usize,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.runs += other.runs;
        self.images += other.images;
        self.nested += other.nested;
        self.by_command += other.by_command;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { runs, images, nested, by_command } = self;
        write!(
            f,
            "{runs} runs, {images} crash images, {nested} of them of a recovery, {by_command} \
             recovered by a command"
        )
    }
}

/// What is wrong with a crash image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A page of a database engine is torn.
    Torn,
    /// The recovered state is not one that the promises allow: an acknowledged transaction is
    /// missing, for example.
    Lost,
    /// Anything else: it is not recovered, or a check of it fails.
    Damaged,
}

/// Why an image does not pass.
#[derive(Debug, Clone)]
struct Wrong {
    kind: Kind,
    what: String,
}

/// A crash image with a wrong result.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The command that replays it.
    pub replay: String,
    pub kind: Kind,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.replay, self.what)
    }
}

/// Records a run and judges crash images of it.
pub fn judge(
    plan: &Plan,
    scenario: &'static Scenario,
    seed: u64,
) -> Result<(Tally, Vec<Failure>), String> {
    let place = |text| format!("{} (seed {seed}): {text}", scenario.name);
    let run = Run::record(&plan.programs, scenario, seed).map_err(place)?;
    let mut session = Session::new(plan, &run).map_err(|text| {
        let kept = keep(plan, &run).map_or_else(|e| e, |path| path.display().to_string());
        place(format!("{text} (kept in {kept})"))
    })?;
    let failed = session.judge_all(plan.image_count, &mut Rng::with_seed(seed))?;
    let tally = Tally { runs: 1, ..session.tally };
    if failed.is_empty() {
        return Ok((tally, Vec::new()));
    }
    // Runs that are expected to be found out are not kept.
    let is_expected = plan.fault != Fault::Honest || scenario.is_canary();
    let path = if is_expected { PathBuf::new() } else { keep(plan, &run)? };
    let failures = failed.into_iter().map(|(case, Wrong { kind, what })| Failure {
        replay: format!("onejournal-judge replay {} {case}", path.display()),
        kind,
        what,
    });
    Ok((tally, failures.collect()))
}

fn keep(plan: &Plan, run: &Run) -> Result<PathBuf, String> {
    let path = plan.keep.join(format!("{}-{}.run", run.scenario.name, run.seed));
    std::fs::create_dir_all(&plan.keep).map_err(|e| e.to_string())?;
    save::save(run, &path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Repeats a case of a saved run.
pub fn replay(
    programs: &Programs,
    run: &Path,
    case: &Case,
    image: Option<&Path>,
) -> Result<(), String> {
    let run = save::load(run)?;
    let plan = Plan {
        programs: programs.clone(),
        image_count: 1,
        fault: Fault::Honest,
        cuts_commands: true,
        keep: PathBuf::new(),
    };
    let mut session = Session::new(&plan, &run)?;
    let first = case.cuts.first().ok_or("a case has a cut")?;
    if first.event > run.trace.events.len() {
        return Err(format!("the run has {} events", run.trace.events.len()));
    }
    let mut cursor = Cursor::new(&run.trace, plan.fault);
    cursor.advance_to(first.event);
    let mut images = cursor.crash(first.survival);
    for pair in case.cuts.windows(2) {
        let is_read = run.is_ready(first.event);
        let trace = session.record_recovery(&images, &pair[0], is_read)?;
        let mut cursor = Cursor::new(&trace, plan.fault);
        cursor.advance_to(pair[1].event.min(trace.events.len()));
        images = cursor.crash(pair[1].survival);
    }
    if let Some(path) = image {
        let file = std::fs::File::create(path).map_err(|e| e.to_string())?;
        images[0].write_to(&file).map_err(|e| e.to_string())?;
    }
    let last = case.cuts.last().expect("there is a first");
    session.judge_one(&images, last, first.event).map_err(|wrong| wrong.what)
}

/// A run that is being judged.
struct Session<'r> {
    run: &'r Run,
    histories: Vec<History>,
    stand: Stand,
    fault: Fault,
    cuts_commands: bool,
    tally: Tally,
}

type Failed = Vec<(Case, Wrong)>;

impl<'r> Session<'r> {
    fn new(plan: &Plan, run: &'r Run) -> Result<Session<'r>, String> {
        let histories = run.histories()?;
        let stand = Stand::new(&plan.programs, run.scenario, &run.trace.bases)?;
        let (fault, cuts_commands) = (plan.fault, plan.cuts_commands);
        let tally = Tally::default();
        Ok(Session { run, histories, stand, fault, cuts_commands, tally })
    }

    fn judge_all(&mut self, count: usize, rng: &mut Rng) -> Result<Failed, String> {
        let run = self.run;
        let mut failed = Failed::new();
        let mut cursor = Cursor::new(&run.trace, self.fault);
        for (number, event) in cuts(run, count, rng).into_iter().enumerate() {
            if self.tally.images >= count {
                break;
            }
            cursor.advance_to(event);
            let survival = Survival::random(rng);
            let how = how(run.scenario, number);
            let sector_bytes = SECTOR_BYTES[number / 8 % 2];
            let cut = Cut { event, survival, how, sector_bytes };
            let images = cursor.crash(survival);
            if let Err(wrong) = self.judge_one(&images, &cut, event) {
                failed.push((Case { cuts: vec![cut] }, wrong));
            }
            let nested_count = match number % 24 {
                // The stores of a command to NVRAM are not recorded.
                2 | 18 if self.cuts_commands && run.scenario.has_commands() => 6,
                place if place % 4 == 1 && matches!(how, How::Here | How::Opened | How::Served) => {
                    2
                }
                _ => 0,
            };
            if nested_count > 0 && failed.is_empty() {
                failed.extend(self.judge_nested(&images, &cut, nested_count, rng)?);
            }
        }
        Ok(failed)
    }

    /// Cuts the recovery of an image and recovers again.
    fn judge_nested(
        &mut self,
        images: &[onejournal_testing::Image],
        cut: &Cut,
        count: usize,
        rng: &mut Rng,
    ) -> Result<Failed, String> {
        let mut failed = Failed::new();
        let trace = self.record_recovery(images, cut, self.run.is_ready(cut.event))?;
        let mut events: Vec<usize> = (0..count).map(|_| rng.usize(..=trace.events.len())).collect();
        events.sort_unstable();
        let mut cursor = Cursor::new(&trace, self.fault);
        for event in events {
            cursor.advance_to(event);
            let survival = Survival::random(rng);
            let how = match self.run.scenario.hosted {
                Some(_) => cut.how,
                None if rng.u8(..6) == 0 => How::Fsck,
                None => How::Here,
            };
            let again = Cut { event, survival, how, ..*cut };
            self.tally.nested += 1;
            if let Err(wrong) = self.judge_one(&cursor.crash(survival), &again, cut.event) {
                failed.push((Case { cuts: vec![*cut, again] }, wrong));
            }
        }
        Ok(failed)
    }

    /// Records what a recovery does to the disks.
    fn record_recovery(
        &mut self,
        images: &[onejournal_testing::Image],
        cut: &Cut,
        is_read: bool,
    ) -> Result<Trace, String> {
        match cut.how {
            How::Here => {
                Ok(Stand::recover_here(images, cut.sector_bytes, self.run.scenario.has_nvram())?.1)
            }
            How::Fsck | How::Mount => self.stand.record_fsck(images, cut.sector_bytes),
            How::Kernel => Err("recoveries by the kernel are not recorded".into()),
            How::Opened | How::Served => {
                self.stand.record_open(images, cut.sector_bytes, cut.how, is_read)
            }
        }
    }

    /// Recovers an image, and judges it by what the run promises after event number `event`.
    fn judge_one(
        &mut self,
        images: &[onejournal_testing::Image],
        cut: &Cut,
        event: usize,
    ) -> Result<(), Wrong> {
        self.tally.images += 1;
        let is_read = self.run.is_ready(event);
        let found = self.recover(images, cut, is_read).map_err(|what| {
            let engine = self.run.scenario.engine;
            let is_torn = engine.is_some_and(|engine| engine.is_torn_page(&what));
            Wrong { kind: if is_torn { Kind::Torn } else { Kind::Damaged }, what }
        })?;
        if !is_read {
            return Ok(());
        }
        let judged = self.run.judge(&self.histories, &found, event);
        judged.map_err(|what| Wrong { kind: Kind::Lost, what })
    }

    /// Recovers an image, and reads it if `is_read`.
    fn recover(
        &mut self,
        images: &[onejournal_testing::Image],
        cut: &Cut,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        match cut.how {
            How::Here => {
                let has_nvram = self.run.scenario.has_nvram();
                let (recovered, _) = Stand::recover_here(images, cut.sector_bytes, has_nvram)?;
                self.stand.look(&recovered, is_read)
            }
            How::Opened | How::Served => {
                self.stand.open(images, cut.sector_bytes, cut.how, is_read)
            }
            How::Kernel => self.stand.mount_by_kernel(images, cut.sector_bytes, is_read),
            How::Fsck | How::Mount => {
                self.tally.by_command += 1;
                self.recover_by_command(images, cut, is_read)
            }
        }
    }

    fn recover_by_command(
        &mut self,
        images: &[onejournal_testing::Image],
        cut: &Cut,
        is_read: bool,
    ) -> Result<Vec<Survivor>, String> {
        match cut.how {
            How::Mount => self.stand.mount(images, cut.sector_bytes, is_read),
            _ => self.stand.fsck(images, cut.sector_bytes, is_read),
        }
    }
}

/// The way in which image number `number` is recovered.
fn how(scenario: &Scenario, number: usize) -> How {
    match scenario.hosted.map(|hosted| hosted.log) {
        // A log's directory can be opened with or without a daemon.
        Some(_) if scenario.begins_empty() && number.is_multiple_of(2) => How::Opened,
        Some(_) if scenario.begins_empty() => How::Served,
        Some(LogPlace::Daemon) => How::Served,
        Some(LogPlace::Beside | LogPlace::Directory) => How::Opened,
        None if scenario.is_on_ext4 => How::Kernel,
        None => match number % 8 {
            2 => How::Fsck,
            5 => How::Mount,
            _ => How::Here,
        },
    }
}

/// The cuts, ascending: at any event, half of them just after the answer to a step that may have
/// promised something.
fn cuts(run: &Run, count: usize, rng: &mut Rng) -> Vec<usize> {
    let answered: Vec<usize> = run
        .trace
        .events
        .iter()
        .enumerate()
        .filter_map(|(place, event)| {
            let Event::Mark(number) = event else { return None };
            (Mark::from_number(*number).moment == Moment::Done).then_some(place + 1)
        })
        .collect();
    let mut cut = |number: usize| match rng.choice(&answered) {
        Some(place) if number.is_multiple_of(2) => *place,
        _ => rng.usize(..=run.trace.events.len()),
    };
    let mut cuts: Vec<usize> = (0..count).map(&mut cut).collect();
    cuts.sort_unstable();
    cuts
}
