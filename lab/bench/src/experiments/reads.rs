//! Reading a large file of which no cache holds anything.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fastrand::Rng;

use super::{Experiment, Scale};
use crate::error::{Error, Result};
use crate::lab::{Device, Lab};
use crate::measure::statistics::median;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "reads",
    title: "Cold reads",
    paper: "",
    figure: "",
    about: "A large file is read after the caches were dropped: from its beginning to its end in \
            pieces of 128 KiB, and 4 KiB at 2,000 random places. The file holds random bytes. The \
            disks are emulated ([`bulk`](#bulk) reads from memory). The kernel reads ahead 2 MiB \
            on OneJournal, and 2.5 on the devices of the others.",
    paper_claim: "",
    goal: "In sequence 0.9 of ext4 ordered's speed.",
    sizes: &[],
    run,
};

const TIME: Metric = Metric::lower("time", "s");
const IN_SEQUENCE: &str = "in sequence";
const AT_RANDOM: &str = "2,000 of 4 KiB";
const PIECE_BYTES: usize = 128 << 10;

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Xfs),
        Box::new(OneJournal::new().without_uring()),
        Box::new(OneJournal::new()),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let file_mib = scale.pick(64, 1024);
    section.set("file MiB", file_mib);
    for device in scale.devices(&["ssd840", "cloud"]) {
        let site = Site::new(&device, scale.pick(384, 1536));
        let mut running = systems::start(lab, &recipes(), &site, section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for system in &running {
            fill(&file_of(system), file_mib)?;
        }
        for round in 0..scale.rounds() {
            measure::in_turns(&mut rng, &mut running, |_, system| {
                measure_one(&device, system, round as u64, samples)
            })?;
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
        judge(section, samples, &device);
    }
    section.plots.push(Plot::bars("Time", TIME.name, Vec::new()));
    Ok(())
}

fn file_of(system: &Running) -> PathBuf {
    system.dir.join("large")
}

fn fill(path: &Path, mib: usize) -> Result<()> {
    let (mut rng, mut piece) = (Rng::with_seed(1), vec![0; 1 << 20]);
    let mut file = File::create(path).map_err(Error::at(path))?;
    for _ in 0..mib {
        rng.fill(&mut piece);
        file.write_all(&piece).map_err(Error::at(path))?;
    }
    file.sync_all().map_err(Error::at(path))
}

fn measure_one(device: &Device, system: &Running, seed: u64, samples: &mut Samples) -> Result<()> {
    let path = file_of(system);
    for (case, read) in [(IN_SEQUENCE, in_sequence as fn(_, _) -> _), (AT_RANDOM, at_random)] {
        crate::lab::drop_caches()?;
        let file = File::open(&path).map_err(Error::at(&path))?;
        let start = Instant::now();
        read(file, seed).map_err(Error::at(&path))?;
        let key = Key::case(device.to_string(), case);
        samples.add(&key, &system.name, TIME, start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn in_sequence(mut file: File, _seed: u64) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while file.read(&mut piece)? != 0 {}
    Ok(())
}

/// The same places on each system.
fn at_random(file: File, seed: u64) -> std::io::Result<()> {
    let (mut rng, mut block) = (Rng::with_seed(seed), [0; 4096]);
    let blocks = file.metadata()?.len() / 4096;
    (0..2000).try_for_each(|_| file.read_exact_at(&mut block, 4096 * rng.u64(0..blocks)))
}

fn judge(section: &mut Section, samples: &Samples, device: &Device) {
    let (ours, theirs) = (OneJournal::new().name(), Ext4::ordered().name());
    let key = Key::case(device.to_string(), IN_SEQUENCE);
    let of = |system: &str| samples.of(&key, system, TIME).map_or(f64::NAN, median);
    let claim = format!("{device}: reading in sequence: speed over {theirs}, at least 0.9");
    section.verdicts.push(Verdict::at_least(claim, "", of(&theirs) / of(&ours), 0.9));
}
