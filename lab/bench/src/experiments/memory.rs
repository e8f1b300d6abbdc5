//! Memory of the daemon while many processes write small pieces at random places.

use super::{Experiment, Scale, programs};
use crate::error::{Error, Result};
use crate::lab::{Lab, processes};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::fio::{self, FioArgs, Pattern, Sync};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "memory",
    title: "Memory of the daemon",
    paper: "",
    figure: "",
    about: "fio: eight processes write 100 bytes at random places of a file each, with an \
            fdatasync after every 50. The peak of the daemon's resident memory, and its bound: 256 \
            MiB of committed blocks that are not home, 64 MiB of clean ones, two transactions of \
            64 MiB, 4 MiB a thread, and the journal where it is mapped.",
    paper_claim: "",
    goal: "Below the bound.",
    sizes: &[],
    run,
};

const MEMORY: Metric = Metric::lower("resident memory", "MiB");
const PROCESSES: u32 = 8;
const FIXED_MIB: u64 = 256 + 64 + 2 * 64;
const THREAD_MIB: u64 = 4;

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::are_installed(section, &[("fio", "fio")]) {
        return Ok(());
    }
    let file_mib = scale.pick(64, 256);
    section.set("file MiB", file_mib);
    let recipes: [Box<dyn System>; 2] =
        [Box::new(OneJournal::new()), Box::new(OneJournal::new().nvram())];
    for device in scale.devices(&["nvme"]) {
        let size_mib = PROCESSES * file_mib + 512;
        let running = systems::start(lab, &recipes, &Site::new(&device, size_mib), section)?;
        let mut watch = Watch::begin(lab, &running)?;
        for system in &running {
            measure(system, u64::from(file_mib) << 10, scale.pick(4, 30), section, samples)?;
        }
        watch.end_round(&running, section)?;
        systems::stop(running)?;
    }
    section.plots.push(Plot::bars("Resident memory of the daemon", MEMORY.name, Vec::new()));
    Ok(())
}

fn measure(
    system: &Running,
    file_kib: u64,
    seconds: u64,
    section: &mut Section,
    samples: &mut Samples,
) -> Result<()> {
    let pid = system.daemon()?.ok_or_else(|| Error::other("no daemon"))?;
    let args = FioArgs {
        dir: system.dir.clone(),
        files: 1,
        file_kib,
        block_bytes: 100,
        pattern: Pattern::Overwrite,
        sync: Sync::Fdatasync(50),
        processes: PROCESSES,
        millis: seconds * 1000,
        seed: 7,
        environment: system.client.variables(),
    };
    let result = fio::run(&args)?;
    let status = |name: &str| {
        let missing = || Error::other(format!("{}: no {name}", system.name));
        processes::status(pid, name).ok_or_else(missing)
    };
    let peak_mib = status("VmHWM")? as f64 / 1024.0;
    let mapped_mib = status("RssShmem")? / 1024;
    let bound_mib = (FIXED_MIB + THREAD_MIB * status("Threads")? + mapped_mib) as f64;
    let key = |case| Key::case("100-byte writes by 8 processes", case);
    samples.add(&key("peak"), &system.name, MEMORY, peak_mib);
    samples.add(&key("bound"), &system.name, MEMORY, bound_mib);
    let claim = format!("{}: peak over the bound", system.name);
    section.verdicts.push(Verdict::at_most(claim, "", peak_mib / bound_mib, 1.0).saying(format!(
        "{} writes and {} syncs in {:.0} s, {peak_mib:.0} of {bound_mib:.0} MiB.",
        result.writes, result.syncs, result.seconds
    )));
    Ok(())
}
