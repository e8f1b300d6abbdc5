//! A recorded run: makes a volume, mounts it on emulated disks, uses it, and unmounts it.

use std::fs;
use std::path::{Path, PathBuf};

use mount::Order;
use onejournal_testing::Image;
use onejournal_testing::drive::Recorder;
use rustix::fs::{Gid, Uid};
use tempfile::TempDir;

use crate::command::{run, tool};
use crate::crash::{Cursor, Fault, Survival, Trace};
use crate::engine::{self, Place, Server};
use crate::found;
use crate::hands::{self, Hands, prepare, work};
use crate::history::{History, Survivor};
use crate::host::{Host, Programs};
use crate::rig::{Drive, Loop, USER, Volume, command, open_to_all, wait_until_free};
use crate::scenario::{Actor, Attach, JournalPlace, Scenario};
use crate::script::{ActorState, Step, steps};
use crate::served::Served;
use crate::space::Space;

/// Size of a volume, and of an external journal.
const VOLUME: &str = "32M";
const JOURNAL_BYTES: u64 = 8 << 20;
/// Size of a disk with the kernel's ext4: room for a few logs.
const HOSTED_BYTES: u64 = 80 << 20;
/// Size of a journal on NVRAM: little more than the minimum, so that its regions are reused soon.
const NVRAM_BYTES: u64 = 3 * 4096 + 4 * 140 * 4096;
/// Steps of each actor in one incarnation.
const STEP_COUNT: usize = 90;
/// The same with the journal on NVRAM, where a step takes less time.
const NVRAM_STEP_COUNT: usize = 300;
/// A disk whose writes and flushes take long enough to overlap.
const DISK: &str = "write_us=40,read_us=10,flush_us=150,channels=8,spin_us=0";

/// The time from one mount to the next. All indexes are of events in the trace.
#[derive(Debug, Clone)]
pub struct Incarnation {
    /// Its first event.
    pub first: usize,
    /// A cut from this event on is judged by the promises of this incarnation.
    pub ready: usize,
    /// For each actor, the stage of the previous incarnation in which it was found.
    pub from: Vec<usize>,
}

/// A recorded run.
pub struct Run {
    pub scenario: &'static Scenario,
    pub seed: u64,
    /// The first state of the actors whose state is a number.
    pub start: Vec<u64>,
    pub trace: Trace,
    pub incarnations: Vec<Incarnation>,
    /// The first and last event of unmounting the volume.
    pub closed: (usize, usize),
}

/// Everything that is set up for a run. It is taken down in this order.
struct Rig {
    host: Option<Host>,
    server: Option<Server>,
    served: Option<Served>,
    volume: Option<Volume>,
    /// The mount of the kernel's ext4, if an engine's files are on it.
    space: Option<Space>,
    attached: Vec<Loop>,
    drives: Vec<Drive>,
    recorder: Recorder,
    dir: PathBuf,
    _root: TempDir,
}

impl Run {
    /// Records a run.
    pub fn record(
        programs: &Programs,
        scenario: &'static Scenario,
        seed: u64,
    ) -> Result<Run, String> {
        if scenario.hosted.is_some() {
            return Run::record_hosted(programs, scenario, seed);
        }
        let onejournal = programs.onejournal.as_path();
        let (mut rig, bases) = Rig::new(onejournal, scenario)?;
        rig.mount(onejournal, scenario, &bases)?;
        let dir = rig.dir.clone();
        as_worker(scenario, || prepare(&dir, scenario).map_err(|e| format!("preparing: {e}")))?;
        rig.start_server(scenario)?;
        let ready = rig.recorder.len();
        let mut incarnations = vec![Incarnation { first: ready, ready, from: Vec::new() }];
        let mut states: Vec<ActorState> =
            scenario.actors.iter().map(|a| ActorState::first(*a)).collect();
        rig.live(scenario, &all_steps(scenario, 0, &states, seed), seed)?;
        if scenario.is_killed {
            let end = rig.recorder.len();
            wait_until_free(&rig.target(0))?;
            rig.mount(onejournal, scenario, &bases)?;
            let found = found::read(&dir, scenario)?;
            let so_far = rig.recorder.events_from(ready);
            let steps = all_steps(scenario, 0, &states, seed);
            let history = History::new(scenario, &steps, &states, &so_far, ready)?;
            let from =
                history.judge(&found, end).map_err(|e| format!("killed and mounted: {e}"))?;
            states = resumed(&history, &from);
            let ready = rig.recorder.len();
            incarnations.push(Incarnation { first: ready, ready, from });
            rig.live(
                &Scenario { is_killed: false, ..*scenario },
                &all_steps(scenario, 1, &states, seed),
                seed,
            )?;
        }
        let begin = rig.recorder.len();
        rig.umount()?;
        let closed = (begin, rig.recorder.len());
        let events = rig.recorder.take();
        let has_kernel_ext4 = scenario.has_kernel_ext4();
        let trace = Trace { bases, events, has_nvram: scenario.has_nvram(), has_kernel_ext4 };
        let start = vec![0; scenario.actors.len()];
        Ok(Run { scenario, seed, start, trace, incarnations, closed })
    }

    /// Records programs on the kernel's ext4. Every second run begins on the disk that a power cut
    /// left in another run.
    fn record_hosted(
        programs: &Programs,
        scenario: &'static Scenario,
        seed: u64,
    ) -> Result<Run, String> {
        let base = Rig::format_for_kernel()?;
        let first = Run::record_on(programs, scenario, seed, base)?;
        if seed.is_multiple_of(2) {
            return Ok(first);
        }
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x2d);
        let from = first.incarnations[0].ready;
        let cut = rng.usize(from..=first.trace.events.len());
        let mut cursor = Cursor::new(&first.trace, Fault::Honest);
        cursor.advance_to(cut);
        let base = cursor.crash(Survival::random(&mut rng)).swap_remove(0);
        let second = Run::record_on(programs, scenario, seed, base)?;
        let found: Vec<Survivor> = second.start.iter().copied().map(Survivor::Count).collect();
        let judged = first.judge(&first.histories()?, &found, cut);
        judged.map_err(|why| format!("after a power cut at event {cut}: {why}"))?;
        Ok(second)
    }

    /// Records one incarnation, beginning with the content of the disk.
    fn record_on(
        programs: &Programs,
        scenario: &'static Scenario,
        seed: u64,
        base: Image,
    ) -> Result<Run, String> {
        let bases = vec![base];
        let mut rig = Rig::of(scenario, &bases, Rig::root()?)?;
        let mut host = Host::of(&rig.target(0), programs, scenario)?;
        let mounted = rig.recorder.len();
        let start = host.hire(scenario)?;
        rig.host = Some(host);
        let is_new = start.iter().all(|count| *count == 0);
        let ready = if is_new && scenario.begins_empty() { mounted } else { rig.recorder.len() };
        let states: Vec<ActorState> = start.iter().copied().map(ActorState::Count).collect();
        rig.live(scenario, &all_steps(scenario, 0, &states, seed), seed)?;
        let begin = rig.recorder.len();
        rig.host.take().expect("it was put there").stop()?;
        let closed = (begin, rig.recorder.len());
        let events = rig.recorder.take();
        let incarnations = vec![Incarnation { first: ready, ready, from: Vec::new() }];
        let trace = Trace { bases, events, has_nvram: false, has_kernel_ext4: true };
        Ok(Run { scenario, seed, start, trace, incarnations, closed })
    }

    /// The first state of each actor.
    fn first_states(&self) -> Vec<ActorState> {
        let state = |(actor, start): (&Actor, &u64)| match actor.counts() {
            true => ActorState::Count(*start),
            false => ActorState::first(*actor),
        };
        self.scenario.actors.iter().zip(&self.start).map(state).collect()
    }

    /// The history of each incarnation. An error is a step that did not end as the model says.
    pub fn histories(&self) -> Result<Vec<History>, String> {
        let mut states = self.first_states();
        let mut histories: Vec<History> = Vec::new();
        for (number, incarnation) in self.incarnations.iter().enumerate() {
            if let Some(before) = histories.last() {
                states = resumed(before, &incarnation.from);
            }
            let end = self
                .incarnations
                .get(number + 1)
                .map_or(self.trace.events.len(), |next| next.first);
            let steps = all_steps(self.scenario, number, &states, self.seed);
            let events = &self.trace.events[incarnation.first..end];
            histories.push(History::new(
                self.scenario,
                &steps,
                &states,
                events,
                incarnation.first,
            )?);
        }
        let (begin, end) = self.closed;
        histories.last_mut().expect("there is an incarnation").push_closed(begin, end);
        Ok(histories)
    }

    /// Judges what is found after a cut, if the content is promised at that event.
    pub fn judge(
        &self,
        histories: &[History],
        found: &[Survivor],
        cut: usize,
    ) -> Result<(), String> {
        let incarnation =
            self.incarnations.iter().rposition(|incarnation| incarnation.ready <= cut);
        incarnation.map_or(Ok(()), |incarnation| histories[incarnation].judge(found, cut).map(drop))
    }

    /// Whether the content is judged after this cut.
    pub fn is_ready(&self, cut: usize) -> bool {
        self.incarnations[0].ready <= cut
    }
}

/// The state with which each actor continues.
fn resumed(before: &History, stages: &[usize]) -> Vec<ActorState> {
    let state = |(actor, stage): (usize, &usize)| before.stages[actor][*stage].state.clone();
    stages.iter().enumerate().map(state).map(ActorState::reopened).collect()
}

fn all_steps(
    scenario: &Scenario,
    incarnation: usize,
    from: &[ActorState],
    seed: u64,
) -> Vec<Vec<Step>> {
    let count = if scenario.has_nvram() { NVRAM_STEP_COUNT } else { STEP_COUNT };
    let of = |(actor, state)| steps(scenario, (actor, incarnation), state, seed, count);
    from.iter().enumerate().map(of).collect()
}

/// Runs `work` in a thread. If the scenario is for a user who is not root, the thread has that
/// user.
fn as_worker<T: Send>(
    scenario: &Scenario,
    work: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    let by_user = scenario.by_user;
    let body = move || {
        if by_user {
            become_user().map_err(|errno| format!("becoming user {USER}: {errno}"))?;
        }
        work()
    };
    std::thread::scope(|scope| {
        scope.spawn(fault::carry(body)).join().unwrap_or_else(|_| Err("a worker panics".into()))
    })
}

/// Changes the user of this thread only.
fn become_user() -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

impl Rig {
    fn root() -> Result<TempDir, String> {
        let root = tempfile::Builder::new().prefix("onejournal-judge-").tempdir();
        let root = root.map_err(|e| e.to_string())?;
        open_to_all(root.path())?;
        Ok(root)
    }

    /// Makes disks and their first content.
    fn new(onejournal: &Path, scenario: &Scenario) -> Result<(Rig, Vec<Image>), String> {
        let root = Rig::root()?;
        let mut bases = vec![match scenario.engine {
            Some(engine) => engine::base(engine, scenario.is_on_ext4, onejournal, root.path())?,
            None => format(onejournal, root.path(), scenario.by_user)?,
        }];
        if scenario.journal == JournalPlace::SecondDisk {
            bases.push(Image::zeroed(JOURNAL_BYTES));
        }
        if scenario.has_nvram() {
            bases.push(Image::zeroed(NVRAM_BYTES));
        }
        Ok((Rig::of(scenario, &bases, root)?, bases))
    }

    /// Makes a disk with the kernel's ext4.
    fn format_for_kernel() -> Result<Image, String> {
        let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
        file.as_file().set_len(HOSTED_BYTES).map_err(|e| e.to_string())?;
        run(tool("mkfs.ext4").args(["-q", "-b", "4096"]).arg(file.path()))?;
        let bytes = fs::read(file.path()).map_err(|e| e.to_string())?;
        Ok(Image::from_bytes(&bytes))
    }

    /// Makes disks with the content of these images.
    fn of(scenario: &Scenario, bases: &[Image], root: TempDir) -> Result<Rig, String> {
        let recorder = Recorder::default();
        let mut drives = Vec::new();
        let emulated = if scenario.has_nvram() { &bases[..0] } else { bases };
        for (image, number) in emulated.iter().zip(0..) {
            let dir = root.path().join(format!("drive{number}"));
            let owner = if scenario.by_user { USER } else { 0 };
            drives.push(Drive::start(dir, image, DISK, owner, (recorder.clone(), number))?);
        }
        let mut attached = Vec::new();
        if let Attach::Loop(sector_bytes) = scenario.attach {
            for drive in &drives {
                attached.push(Loop::attach(&drive.file(), sector_bytes, true)?);
            }
        }
        let dir = root.path().join("mnt");
        fs::create_dir(&dir).map_err(|e| e.to_string())?;
        Ok(Rig {
            host: None,
            server: None,
            served: None,
            volume: None,
            space: None,
            attached,
            drives,
            recorder,
            dir,
            _root: root,
        })
    }

    fn serve(&mut self, scenario: &Scenario, bases: &[Image]) -> Result<(), String> {
        let order = match scenario.options {
            "order=history" => Order::History,
            "order=sync" => Order::Sync,
            other => return Err(format!("a volume that is served here has no option {other}")),
        };
        self.served = Some(Served::mount(bases, &self.recorder, &self.dir, order)?);
        Ok(())
    }

    /// The path that is mounted, or the path of the journal.
    fn target(&self, disk: usize) -> PathBuf {
        match self.attached.get(disk) {
            Some(attached) => attached.path.clone(),
            None => self.drives[disk].file(),
        }
    }

    /// Mounts the volume by the command, or in this process with the first content of disk and
    /// memory.
    fn mount(
        &mut self,
        onejournal: &Path,
        scenario: &Scenario,
        bases: &[Image],
    ) -> Result<(), String> {
        if scenario.has_nvram() {
            return self.serve(scenario, bases);
        }
        if scenario.is_on_ext4 {
            self.space = Some(Space::start(&self.target(0))?);
            return Ok(());
        }
        let mut options = vec!["commit=1".to_owned()];
        options.extend((!scenario.options.is_empty()).then(|| scenario.options.to_owned()));
        if scenario.journal == JournalPlace::SecondDisk {
            options.push(format!("journal={}", self.target(1).display()));
        }
        let options = options.join(",");
        let volume =
            Volume::mount(onejournal, &self.target(0), &self.dir, &options, scenario.by_user)?;
        self.volume = Some(volume);
        Ok(())
    }

    fn start_server(&mut self, scenario: &Scenario) -> Result<(), String> {
        if let Some(engine) = scenario.engine {
            let place = self.place();
            place.make_sockets()?;
            self.server = engine.start(&place)?;
        }
        Ok(())
    }

    /// Where a database engine has its files.
    fn place(&self) -> Place {
        Place::new(&self.dir, self.space.as_ref().map(Space::door))
    }

    fn umount(&mut self) -> Result<(), String> {
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        if let Some(space) = self.space.take() {
            return space.umount();
        }
        match self.served.take() {
            Some(served) => served.umount(),
            None => self.volume.take().expect("it is mounted").umount(),
        }
    }

    /// Lets all actors perform their steps. If the scenario kills the daemon, that happens in the
    /// middle, and the mount is removed.
    fn live(&mut self, scenario: &Scenario, steps: &[Vec<Step>], seed: u64) -> Result<(), String> {
        let place = self.place();
        let (dir, recorder, place) = (&self.dir, &self.recorder, &place);
        let mut hired: Vec<Option<Hands>> = match &mut self.host {
            Some(host) => {
                (0..steps.len()).map(|actor| Some(Hands::Hired(host.hand(actor)))).collect()
            }
            None => steps.iter().map(|_| None).collect(),
        };
        let volume = &mut self.volume;
        let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let actors: Vec<_> = steps
                .iter()
                .zip(&mut hired)
                .enumerate()
                .map(|(actor, (steps, hired))| {
                    let body = move || {
                        let open = || hands::open(dir, scenario, actor, place);
                        let opened = hired.take().map_or_else(open, Ok);
                        let hands = opened.map_err(|e| format!("actor {actor}: {e}"))?;
                        work(hands, scenario, actor, steps, recorder)
                    };
                    scope.spawn(fault::carry(move || as_worker(scenario, body)))
                })
                .collect();
            let mut outcomes = Vec::new();
            if scenario.is_killed {
                let event_count = recorder.len() + fastrand::Rng::with_seed(seed).usize(100..700);
                while recorder.len() < event_count
                    && actors.iter().any(|actor| !actor.is_finished())
                {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                outcomes.push(volume.take().expect("it is mounted").kill());
            }
            let joined = actors
                .into_iter()
                .map(|actor| actor.join().unwrap_or_else(|_| Err("an actor panics".into())));
            outcomes.extend(joined);
            outcomes
        });
        outcomes.into_iter().collect()
    }
}

/// Makes a volume with `onejournal mkfs`.
fn format(onejournal: &Path, dir: &Path, by_user: bool) -> Result<Image, String> {
    let path = dir.join("formatted");
    // Its root directory belongs to who makes it.
    run(command(onejournal, by_user).args(["mkfs", "--size", VOLUME]).arg(&path))?;
    let bytes = fs::read(&path).map_err(|e| e.to_string())?;
    let _ = fs::remove_file(path);
    Ok(Image::from_bytes(&bytes))
}
