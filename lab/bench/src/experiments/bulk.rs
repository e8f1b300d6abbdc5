//! Work that seldom syncs: a tree of small files, and one large file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fastrand::Rng;

use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab, Program};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, Fuse2fs, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "bulk",
    title: "Files in bulk",
    paper: "",
    figure: "",
    about: "`tar` unpacks a tree of small files and `rm` removes it, each followed by a sync of \
            the file system; `dd` writes a large file in pieces of 1 MiB with an fsync at the end, \
            and reads it back when no cache holds it. The device is memory behind a loop device, \
            so the times are those of the file system, with the requests of the kernel that \
            OneJournal answers. With *order=sync* the kernel collects what is written; with \
            *noxattr* it asks for no attributes.",
    paper_claim: "",
    goal: "0.9 of ext4 ordered's speed for writing the large file, 0.8 for reading it, 0.25 for \
            small files; faster than fuse2fs. The large file by the fastest round of each.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("time", "s");
const SMALL: &str = "small files";
const LARGE: &str = "large file";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    // Half a GiB leaves room in memory: a writer to ext4 waits when a tenth of it is dirty.
    let (folders, large_mib) = (scale.pick(20, 200), scale.pick(128, 512));
    section.set("small files", folders * FILES_A_FOLDER);
    section.set("large file MiB", large_mib);
    let sources = Sources::make(lab, folders, large_mib)?;
    let recipes: [Box<dyn System>; 8] = [
        Box::new(Ext4::ordered()),
        Box::new(Xfs),
        Box::new(Fuse2fs),
        Box::new(OneJournal::new().data("ordered")),
        Box::new(OneJournal::new().without_uring()),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().option("noxattr")),
        Box::new(OneJournal::new().order_sync()),
    ];
    let mut panels = Vec::new();
    for device in scale.devices(&["memory"]) {
        let site = Site::new(&device, scale.pick(384, 896));
        let mut running = systems::start(lab, &recipes, &site, section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for _ in 0..scale.rounds() {
            measure::in_turns(&mut rng, &mut running, |_, system| {
                sources.measure(&device, system, samples)
            })?;
            watch.end_round(&running, section)?;
        }
        let has_fuse2fs = running.iter().any(|system| system.name == Fuse2fs.name());
        systems::stop(running)?;
        judge(section, samples, &device, has_fuse2fs)?;
        panels.extend([SMALL, LARGE].map(|files| panel(&device, files)));
    }
    section.plots.push(Plot::bars("Time", TIME.name, panels));
    sources.remove()
}

/// The usual device has no name there.
fn panel(device: &Device, files: &str) -> String {
    match device {
        Device::Memory => files.to_owned(),
        device => format!("{device}: {files}"),
    }
}

const FILES_A_FOLDER: usize = 50;
const SMALL_CASES: [&str; 4] = ["unpack", "sync", "remove", "sync again"];
const LARGE_CASES: [&str; 2] = ["write", "read"];

/// The data that are copied to the systems; they are in memory.
struct Sources {
    archive: PathBuf,
    large: PathBuf,
}

impl Sources {
    fn make(lab: &Lab, folders: usize, large_mib: u64) -> Result<Sources> {
        let (tree, archive) = (lab.memory().join("tree"), lab.memory().join("tree.tar"));
        make_tree(&tree, folders)?;
        let tar = Program::new("tar").arg("-cf").arg(&archive);
        tar.arg("-C").arg(lab.memory()).arg("tree").run()?;
        std::fs::remove_dir_all(&tree).map_err(Error::at(&tree))?;
        let large = lab.memory().join("large");
        let dd = Program::new("dd").args(["if=/dev/urandom", "bs=1M"]);
        dd.arg(format!("of={}", large.display())).arg(format!("count={large_mib}")).run()?;
        Ok(Sources { archive, large })
    }

    fn measure(&self, device: &Device, system: &Running, samples: &mut Samples) -> Result<()> {
        let key = |files, case: &str| Key::case(panel(device, files), case);
        let sync = || Program::new("sync").arg("-f").arg(&system.dir);
        let unpack = Program::new("tar").arg("-xf").arg(&self.archive).arg("-C").arg(&system.dir);
        let remove = Program::new("rm").arg("-r").arg(system.dir.join("tree"));
        for (case, program) in SMALL_CASES.iter().zip([unpack, sync(), remove, sync()]) {
            measure_one(&key(SMALL, case), program, system, samples)?;
        }
        let copy = system.dir.join("large");
        let write = dd(&self.large, &copy).arg("conv=fsync");
        measure_one(&key(LARGE, "write"), write, system, samples)?;
        crate::lab::drop_caches()?;
        let read = dd(&copy, Path::new("/dev/null"));
        measure_one(&key(LARGE, "read"), read, system, samples)?;
        std::fs::remove_file(&copy).map_err(Error::at(&copy))?;
        system.sync()
    }

    fn remove(self) -> Result<()> {
        for path in [self.archive, self.large] {
            std::fs::remove_file(&path).map_err(Error::at(&path))?;
        }
        Ok(())
    }
}

fn dd(from: &Path, to: &Path) -> Program {
    let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
    Program::new("dd").arg("bs=1M").arg(from).arg(to)
}

/// The program's time, and the number of requests that it makes.
fn measure_one(key: &Key, program: Program, system: &Running, samples: &mut Samples) -> Result<()> {
    let (seconds, asked) = system.during(|| {
        let start = Instant::now();
        program.run()?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    samples.add(key, &system.name, TIME, seconds);
    if let Some(requests) = asked.fuse_requests {
        samples.count_named(key, &system.name, TIME, 1, &[("FUSE requests", requests)]);
    }
    Ok(())
}

/// Files of the sizes that sources of programs have.
fn make_tree(tree: &Path, folders: usize) -> Result<()> {
    let mut rng = Rng::with_seed(1);
    let mut bytes = vec![0; 20_000];
    for folder in 0..folders {
        let path = tree.join(format!("d{}", folder / 20)).join(format!("s{folder}"));
        std::fs::create_dir_all(&path).map_err(Error::at(&path))?;
        for number in 0..FILES_A_FOLDER {
            let len = rng.choice([300, 1500, 4000, 9000, 20_000]).expect("five sizes");
            rng.fill(&mut bytes[..len]);
            let file = path.join(format!("file{number}.c"));
            std::fs::write(&file, &bytes[..len]).map_err(Error::at(&file))?;
        }
    }
    Ok(())
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    has_fuse2fs: bool,
) -> Result<()> {
    let (ours, ordered) = (OneJournal::new(), Ext4::ordered().name());
    let all_of = |files: &str, cases: &[&str], system: &str| -> f64 {
        let of = |case: &&str| samples.of(&Key::case(panel(device, files), *case), system, TIME);
        cases.iter().filter_map(of).map(measure::statistics::median).sum()
    };
    // What disturbs a large file only makes it slower, and some rounds of ext4 six times.
    let least = |case: &str, system: &str| -> f64 {
        let times = samples.of(&Key::case(panel(device, LARGE), case), system, TIME);
        times.unwrap_or_default().iter().copied().fold(f64::INFINITY, f64::min)
    };
    let mut peers = vec![(ordered, 0.25, [0.9, 0.8])];
    if has_fuse2fs {
        peers.push((Fuse2fs.name(), 1.0, [1.0, 1.0]));
    }
    let variants = [ours.clone(), ours.order_sync()].map(|ours| ours.name());
    for ((peer, small, large), ours) in
        peers.iter().flat_map(|peer| variants.iter().map(move |ours| (peer, ours)))
    {
        let speed = all_of(SMALL, &SMALL_CASES, peer) / all_of(SMALL, &SMALL_CASES, ours);
        let claim = format!("{ours}: small files, all four: speed over {peer}, at least {small}");
        section.verdicts.push(Verdict::at_least(claim, "", speed, *small));
        for (case, large) in LARGE_CASES.into_iter().zip(large) {
            let (theirs, own) = (least(case, peer), least(case, ours));
            let claim = format!("{ours}: large file, {case}: speed over {peer}, at least {large}");
            let sentence = format!("The fastest of all rounds: {own:.2} and {theirs:.2} s.");
            let verdict = Verdict::at_least(claim, "", theirs / own, *large);
            section.verdicts.push(verdict.saying(sentence));
        }
    }
    Ok(())
}
