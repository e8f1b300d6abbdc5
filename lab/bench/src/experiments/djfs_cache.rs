//! DJFS, figure 10: the efficiency of the cache while the file system keeps committed versions.

use onejournal_testing::MemoryGroup;
use serde::Deserialize;

use super::{DJFS, Experiment, PaperSize, Scale, programs};
use crate::error::{Error, Result};
use crate::lab::{Lab, Program, processes};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "djfs-cache",
    title: "Cache misses under memory pressure",
    paper: DJFS,
    figure: "Figure 10",
    about: "fio reads and overwrites blocks of 4 KiB of a file (half and half, zipf 1.1, fdatasync \
            every 32 writes) in a control group whose memory is a part of the file's size: so \
            large is the kernel's cache. Misses: blocks that the device read, over the blocks that \
            fio read. The daemon is not in the group: what it keeps (versions that are not home \
            yet, and bases of deltas) is memory beside the cache, shown as its own figure; a read \
            that the kernel's cache misses may still find its block there. So this is not the \
            paper's comparison, in which cache and original blocks share one memory.",
    paper_claim: "With memory for 10 % to 100 % of the I/O footprint, the cache that also holds \
            original blocks has a marginally worse miss ratio than one that is only a cache.",
    goal: "None: the difference to ext4 ordered is shown.",
    sizes: &[&FILE_MIB, &BLOCKS],
    run,
};

const MISSES: Metric = Metric::lower("cache misses", "% of reads");
const MEMORY: Metric = Metric::lower("memory of the daemon", "MiB");
const PANEL: &str = "4 KiB, half reads, half writes";
const SIZE_MIB: u32 = 512;
const FILE_MIB: PaperSize = PaperSize::own("MiB of the file", 192, 64);
const BLOCKS: PaperSize =
    PaperSize::own("blocks that are read or written, of a run", 40_000, 6_000);
/// Memory of the control group that fio itself needs.
const FIO_MIB: u64 = 24;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("fio", "fio")]) {
        return Ok(());
    }
    let group = match MemoryGroup::make("onejournal-bench") {
        Ok(group) => group,
        Err(error) => {
            section.leave_out("all of it", &format!("no control group for memory: {error}"));
            return Ok(());
        }
    };
    let parts: &[u64] = scale.pick(&[25, 100], &[10, 25, 50, 100]);
    let file_mib = scale.size(&FILE_MIB);
    let recipes: [Box<dyn System>; 3] = [
        Box::new(Ext4::ordered()),
        Box::new(OneJournal::new().data("journal")),
        Box::new(OneJournal::new().data("delta")),
    ];
    for device in scale.devices(&["nvme"]) {
        let mut running = systems::start(lab, &recipes, &Site::new(&device, SIZE_MIB), section)?;
        for system in &running {
            fill(system, file_mib)?;
        }
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for _ in 0..scale.rounds() {
            for part in parts {
                let mib = file_mib * part / 100 + FIO_MIB;
                measure::in_turns(&mut rng, &mut running, |_, system| {
                    group.set_limit(mib << 20).map_err(Error::io("the control group"))?;
                    let operations = scale.size(&BLOCKS);
                    let run = Run { system, group: &group, file_mib, operations };
                    run.measure(&Key::at(PANEL, *part as f64), samples)
                })?;
            }
            watch.end_round(&running, section)?;
        }
        systems::stop(running)?;
    }
    judge(section, samples, parts)?;
    let x = "memory, % of the file";
    section.plots.push(Plot::lines("Misses of the cache", MISSES.name, x, Vec::new()));
    section.plots.push(Plot::lines("Memory of the daemon", MEMORY.name, x, Vec::new()));
    Ok(())
}

fn fill(system: &Running, file_mib: u64) -> Result<()> {
    system.speed_up()?;
    let to = format!("of={}", system.dir.join("cache").display());
    let dd = Program::new("dd").args(["if=/dev/urandom", "bs=1M", "conv=fsync", &to]);
    dd.arg(format!("count={file_mib}")).run()?;
    system.slow_down()
}

/// One run of fio.
struct Run<'a> {
    system: &'a Running,
    group: &'a MemoryGroup,
    file_mib: u64,
    operations: u64,
}

impl Run<'_> {
    fn measure(&self, key: &Key, samples: &mut Samples) -> Result<()> {
        self.system.sync()?;
        crate::lab::drop_caches()?;
        // A first run fills the cache; the second is counted.
        self.fio()?;
        let before = self.system.counts()?;
        let reads = self.fio()?;
        let counts = self.system.counts()? - before;
        let misses = counts.device.read_bytes as f64 / 4096.0 / reads as f64 * 100.0;
        samples.add(key, &self.system.name, MISSES, misses);
        samples.count(key, &self.system.name, MISSES, self.operations as usize, &counts);
        if let Some(pid) = self.system.daemon()? {
            let kib = processes::status(pid, "VmRSS").unwrap_or(0);
            samples.add(key, &self.system.name, MEMORY, kib as f64 / 1024.0);
        }
        Ok(())
    }

    /// Number of reads that it made.
    fn fio(&self) -> Result<u64> {
        let arguments = [
            "--name=cache".to_owned(),
            format!("--filename={}", self.system.dir.join("cache").display()),
            format!("--size={}m", self.file_mib),
            format!("--number_ios={}", self.operations),
            format!("--io_size={}k", self.operations * 4),
        ];
        let [shell, words @ ..] = self.group.entering();
        let program = Program::new(shell).args(words).arg("fio").args(arguments).args([
            "--rw=randrw",
            "--bs=4k",
            "--random_distribution=zipf:1.1",
            "--norandommap",
            "--invalidate=0",
            "--fdatasync=32",
            "--ioengine=psync",
            "--refill_buffers=1",
            "--thread",
            "--output-format=json",
        ]);
        let output = program.run()?;
        let json = output.find('{').map_or("", |start| &output[start..]);
        let report: Report = serde_json::from_str(json).map_err(Error::json("fio"))?;
        let job = report.jobs.first().ok_or_else(|| Error::other("fio ran no job"))?;
        Ok(job.read.total_ios.max(1))
    }
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Reads,
}

#[derive(Deserialize)]
struct Reads {
    total_ios: u64,
}

fn judge(section: &mut Section, samples: &Samples, parts: &[u64]) -> Result<()> {
    let (ours, peer) = (OneJournal::new().data("delta").name(), Ext4::ordered().name());
    let median = |part: u64, system: &str| -> Result<f64> {
        let found = samples.of(&Key::at(PANEL, part as f64), system, MISSES);
        found.map(measure::statistics::median).ok_or_else(|| Error::other("no samples"))
    };
    let mut worst = f64::NEG_INFINITY;
    for part in parts {
        worst = worst.max(median(*part, &ours)? - median(*part, &peer)?);
    }
    let claim = format!("{ours}: misses more than {peer}'s, percentage points, the worst");
    section.verdicts.push(Verdict::shown(claim, "", worst));
    Ok(())
}
