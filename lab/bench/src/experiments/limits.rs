//! The floor of a write and its sync through FUSE: a server that does nothing, and the write and
//! flush of the kernel's ext4, with or without a journal, whichever is faster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Child, Device, Lab, Program};
use crate::measure::{self, Key, Metric, Samples, Watch, statistics};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "limits",
    title: "What bounds a write and its sync",
    paper: "",
    figure: "",
    about: "A program overwrites 4 KiB of a file of 1 MiB with random bytes, which do not \
            compress, and calls `fdatasync`, again and again. \
            *Empty server* is a FUSE server that answers the two requests and does nothing. Ext4 \
            without a journal does a bare write and a flush. Ext4 ordered does the same, because \
            `fdatasync` of an overwritten block needs no commit of its journal. The floor of a \
            round is the time of the empty server and that of the faster of these two. A server \
            that makes a write durable before it answers the sync cannot need less time, unless \
            the kernel sends it fewer requests or it writes fewer bytes. And 1 GiB, written in \
            pieces of 1 MiB with an fsync at the end, and read with cold caches, on a device \
            without latency.",
    paper_claim: "",
    goal: "On this machine's disk at most 1.1 times the floor.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("time of a write and its sync", "µs");
const SECONDS: Metric = Metric::lower("time of 1 GiB", "s");
const EMPTY: &str = "empty server";
const LARGE: &str = "memory: 1 GiB";
const SIZE_MIB: u32 = 256;
const LARGE_SIZE_MIB: u32 = 1536;
const FILE_BYTES: usize = 1 << 20;
/// Threads of the empty server, as many as a volume has.
const THREADS: &str = "16";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let program = lab.programs().bench.with_file_name("examples").join("bare");
    if !program.exists() {
        section.leave_out(
            "the experiment",
            "`bare` is not built (cargo build --release --workspace --examples)",
        );
        return Ok(());
    }
    let pairs = scale.pick(200, 2000);
    section.set("writes a round", pairs);
    let mut panels = Vec::new();
    for device in scale.devices(&["loop", "ssd311"]) {
        syncs(lab, scale, section, &program, &device, pairs, samples)?;
        judge(section, samples, &device)?;
        panels.push(panel(&device));
    }
    large(lab, scale, section, &program, samples)?;
    section.plots.push(Plot::bars("A write of 4 KiB and fdatasync", TIME.name, panels));
    section.plots.push(Plot::bars("1 GiB", SECONDS.name, vec![LARGE.to_owned()]));
    Ok(())
}

fn panel(device: &Device) -> String {
    format!("{device}: 4 KiB and fdatasync")
}

fn syncs(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    program: &Path,
    device: &Device,
    pairs: u64,
    samples: &mut Samples,
) -> Result<()> {
    let recipes: [Box<dyn System>; 6] = [
        Box::new(Ext4::no_journal()),
        Box::new(Ext4::ordered()),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().without_uring()),
        Box::new(OneJournal::new().order_sync()),
        Box::new(OneJournal::new().nvram()),
    ];
    let running = systems::start(lab, &recipes, &Site::new(device, SIZE_MIB), section)?;
    for running in &running {
        let file = running.dir.join("file");
        std::fs::write(&file, vec![1; FILE_BYTES]).map_err(Error::at(&file))?;
        running.sync()?;
    }
    let empty = EmptyServer::start(lab, section, program)?;
    let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
    for round in 0..scale.rounds() {
        scale.say_round(round, panel(device));
        let key = Key::case(panel(device), "overwrite");
        let mut turns: Vec<Option<&Running>> = running.iter().map(Some).collect();
        turns.push(None);
        measure::in_turns(&mut rng, &mut turns, |_, turn| {
            let Some(running) = turn else {
                samples.add(&key, EMPTY, TIME, client(program, &empty.file(), pairs)?);
                return Ok(());
            };
            let file = running.dir.join("file");
            let (each_us, asked) = running.during(|| client(program, &file, pairs))?;
            samples.add(&key, &running.name, TIME, each_us);
            samples.count_asked(&key, &running.name, TIME, pairs as usize, &asked);
            Ok(())
        })?;
        watch.end_round(&running, section)?;
    }
    empty.stop()?;
    systems::stop(running)
}

/// Microseconds of a write and its sync.
fn client(program: &Path, file: &Path, pairs: u64) -> Result<f64> {
    let text = Program::new(program).arg("client").arg(file).arg(pairs.to_string()).run()?;
    text.trim().parse().map_err(|_| Error::other(format!("bare client said `{text}`")))
}

fn large(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    program: &Path,
    samples: &mut Samples,
) -> Result<()> {
    if scale.is_quick {
        return Ok(());
    }
    let recipes: [Box<dyn System>; 3] = [
        Box::new(Ext4::ordered()),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().order_sync()),
    ];
    let site = Site::new(&Device::Memory, LARGE_SIZE_MIB);
    let running = systems::start(lab, &recipes, &site, section)?;
    let empty = EmptyServer::start(lab, section, program)?;
    let mut rng = scale.rng();
    for round in 0..scale.rounds() {
        scale.say_round(round, LARGE);
        let mut turns: Vec<(String, PathBuf)> = running
            .iter()
            .map(|running| (running.name.clone(), running.dir.join("large")))
            .collect();
        turns.push((EMPTY.to_owned(), empty.file()));
        measure::in_turns(&mut rng, &mut turns, |_, (name, file)| {
            let is_empty_server = name == EMPTY;
            if !is_empty_server {
                std::fs::File::create(&*file).map_err(Error::at(file))?;
            }
            let text = Program::new(program).arg("stream").arg(&*file).run()?;
            let found = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
            let Ok([write, read]) = found.as_deref() else {
                return Err(Error::other(format!("bare stream said `{text}`")));
            };
            samples.add(&Key::case(LARGE, "write"), name, SECONDS, *write);
            samples.add(&Key::case(LARGE, "read"), name, SECONDS, *read);
            if !is_empty_server {
                std::fs::remove_file(&*file).map_err(Error::at(file))?;
            }
            Ok(())
        })?;
        running.iter().try_for_each(Running::sync)?;
    }
    empty.stop()?;
    systems::stop(running)?;
    for case in ["write", "read"] {
        let ratio = samples.ratio(&Key::case(LARGE, case), SECONDS, EMPTY, &Ext4::ordered().name());
        let claim = format!("{LARGE}, {case}: time of the empty server over ext4 ordered");
        section.verdicts.push(Verdict::shown(claim, "", ratio?.of_medians));
    }
    Ok(())
}

/// A FUSE server that does nothing, mounted.
struct EmptyServer {
    dir: PathBuf,
    child: Child,
}

impl EmptyServer {
    fn start(lab: &Lab, section: &mut Section, program: &Path) -> Result<EmptyServer> {
        if !section.systems.iter().any(|name| name == EMPTY) {
            section.systems.push(EMPTY.to_owned());
        }
        let dir = lab.scratch().join("empty-server");
        std::fs::create_dir(&dir).map_err(Error::at(&dir))?;
        let program = Program::new(program).arg("serve").arg(&dir).arg(THREADS);
        let mut child = program.time_limit(Duration::from_secs(60)).start()?;
        child.wait_until_ready()?;
        Ok(EmptyServer { dir, child })
    }

    fn file(&self) -> PathBuf {
        self.dir.join("file")
    }

    fn stop(self) -> Result<()> {
        Program::new("umount").arg(&self.dir).run()?;
        self.child.finish()?;
        std::fs::remove_dir(&self.dir).map_err(Error::at(&self.dir))
    }
}

/// The floor on a device.
struct Floor {
    /// Microseconds of each round.
    times: Vec<f64>,
    /// Medians of its parts, in words, with the name of the faster system.
    parts: String,
    /// The name of the faster system.
    faster: String,
}

impl Floor {
    /// In each round the empty server and the faster of a bare write and ext4 ordered.
    fn of(samples: &Samples, key: &Key) -> Result<Floor> {
        let (bare_name, ordered_name) = (Ext4::no_journal().name(), Ext4::ordered().name());
        let bare = times_of(samples, key, &bare_name)?;
        let ordered = times_of(samples, key, &ordered_name)?;
        let requests = times_of(samples, key, EMPTY)?;
        let both = || bare.iter().zip(ordered);
        let writes: Vec<f64> = both().map(|(&bare, &ordered)| f64::min(bare, ordered)).collect();
        let ordered_count = both().filter(|(bare, ordered)| ordered < bare).count();
        let faster = match ordered_count {
            0 => bare_name,
            count if count == writes.len() => ordered_name,
            count => format!(
                "{ordered_name} in {count} of {} rounds and {bare_name} in the others",
                writes.len()
            ),
        };
        let parts = format!(
            "{:.0} µs for the requests, {:.0} µs for write and flush of the faster system: \
             {faster}.",
            statistics::median(requests),
            statistics::median(&writes)
        );
        let times = requests.iter().zip(&writes).map(|(requests, write)| requests + write);
        Ok(Floor { times: times.collect(), parts, faster })
    }
}

/// The samples of a system, one for each round.
fn times_of<'a>(samples: &'a Samples, key: &Key, system: &str) -> Result<&'a [f64]> {
    let found = samples.of(key, system, TIME).filter(|samples| !samples.is_empty());
    found.ok_or_else(|| Error::other(format!("no {system}")))
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) -> Result<()> {
    let key = Key::case(panel(device), "overwrite");
    let floor = Floor::of(samples, &key)?;
    let ordered = times_of(samples, &key, &Ext4::ordered().name())?;
    let claim = format!("{device}: the floor over ext4 ordered");
    let over_ordered = statistics::ratio(&floor.times, ordered).of_medians;
    section.verdicts.push(Verdict::shown(claim, "", over_ordered).saying(&*floor.parts));
    for ours in [OneJournal::new(), OneJournal::new().order_sync()] {
        let ours = ours.name();
        let times = times_of(samples, &key, &ours)?;
        let over_floor = statistics::ratio(times, &floor.times);
        let claim = format!("{device}: {ours}: time over the floor");
        let sentence = format!(
            "{:.2} to {:.2} from round to round. The floor has write and flush of {}. {:.2} of \
             ext4 ordered's time.",
            over_floor.low,
            over_floor.high,
            floor.faster,
            statistics::ratio(times, ordered).of_medians
        );
        let verdict = Verdict::at_most(claim, "", over_floor.of_medians, 1.1);
        section.verdicts.push(verdict.saying(sentence));
    }
    Ok(())
}
