//! Databases that write each page twice against torn pages, and the same databases without that.

mod mariadb;
mod postgres;
mod turns;

use super::programs::{Goal, is_part_there};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::Samples;
use crate::results::{Plot, Section};
use crate::systems::{self, Btrfs, Ext4, OneJournal, Running, Site, System, Xfs};
use turns::{DEVICE_KIB, DIP, LOG_KIB, P99, RATE, Turns};

pub const EXPERIMENT: Experiment = Experiment {
    id: "double-write",
    title: "Databases without their double write",
    paper: "",
    figure: "",
    about: "PostgreSQL writes each page whole into its write-ahead log when it changes first after \
            a checkpoint (`full_page_writes`). InnoDB writes each page twice \
            (`innodb_doublewrite`). Both do so because file systems tear pages when the power \
            fails. With `order=history` (the default) OneJournal does not tear a write of an \
            aligned page that arrives as one request, so both can be switched off. PostgreSQL \
            writes its pages in that way since version 16; with an older one the cases without are \
            shown for their cost only. Safety is not tested here: the judge cuts the power.\n\n\
            *PostgreSQL*: pgbench's `simple-update` on 1,000,000 accounts (130 MB) with a \
            `max_wal_size` of 16 MB, so that checkpoints come every few seconds or more often. \
            *MariaDB*: the same without its query, on 800,000 accounts (100 MB), with a redo log \
            of 4 MB, so that InnoDB always writes pages. All tables fit into the buffers. \
            *(unsafe)* marks ext4 without the double write: it is the ceiling for ext4, and a \
            power cut can destroy such a database. *Slowest quarter second* is the part of the \
            median quarter of a second's transactions that ended in the worst one, which shows \
            dips at checkpoints. PostgreSQL's device bytes include a checkpoint at the end of each \
            turn. OneJournal keeps up to 256 MiB of committed blocks before it writes them home, \
            so most of its way home is not in the bytes of such short turns; a database that \
            changes more than that pays for it. Without full pages the log grows more slowly, so \
            PostgreSQL also makes fewer checkpoints.\n\n\
            On this machine's disk (`loop`), a SATA SSD (`ssd840`) and a network disk (`cloud`). \
            *Journal on nvme* is a journal on a second device with power-loss protection.",
    paper_claim: "",
    goal: "OneJournal without the double write has at least 1.3 times the transactions of ext4 \
            ordered with it, with 1 and 16 clients; at least 3 times with the journal on NVRAM or \
            on the second device.",
    sizes: &[],
    run,
};

/// The preset of the second device.
const FAST: &str = "nvme";
const SIZE_MIB: u32 = 1024;
/// The wanted multiples of ext4's transactions.
const WANTED: f64 = 1.3;
const WANTED_FAST: f64 = 3.0;
/// Where all systems are measured, and MariaDB, too.
const MAIN_DEVICE: &str = "ssd840";

/// Whether all systems are measured on this device, and MariaDB, too. The others are for PostgreSQL
/// and for what is different there.
fn has_all(device: &Device) -> bool {
    !["loop", "cloud"].contains(&device.to_string().as_str())
}

/// A mounted system, and whether the database on it writes twice.
pub(super) struct Way<'a> {
    running: &'a Running,
    is_double: bool,
    /// Its name in the report.
    name: String,
}

fn fast_systems() -> [OneJournal; 2] {
    [OneJournal::new().nvram(), OneJournal::new().journal_on(FAST)]
}

/// The systems of a device. A cloud's machine has no NVRAM, but may have a second disk.
fn recipes(device: &Device) -> Vec<Box<dyn System>> {
    let (ext4, ours): (Box<dyn System>, Box<dyn System>) =
        (Box::new(Ext4::ordered()), Box::new(OneJournal::new()));
    let [nvram, fast] = fast_systems().map(|system| Box::new(system) as Box<dyn System>);
    match device.to_string().as_str() {
        "loop" => vec![ext4, ours, nvram],
        "cloud" => vec![ext4, Box::new(Xfs), ours, fast],
        _ => vec![ext4, Box::new(Xfs), Box::new(Btrfs), ours, nvram, fast],
    }
}

/// How the databases on a system write. Peers that tear pages are measured only with the double
/// write, except ext4, whose ceiling is shown.
fn ways(running: &[Running]) -> Vec<Way<'_>> {
    let both = [Ext4::ordered().name(), OneJournal::new().name()];
    let without = fast_systems().map(|system| system.name());
    let of = |running| {
        let running: &Running = running;
        let (is_both, is_without) = (both.contains(&running.name), without.contains(&running.name));
        let doubles: &[bool] = match (is_both, is_without) {
            (true, _) => &[true, false],
            (false, true) => &[false],
            (false, false) => &[true],
        };
        doubles.iter().map(|is_double| Way {
            running,
            is_double: *is_double,
            name: way_name(&running.name, *is_double),
        })
    };
    running.iter().flat_map(of).collect()
}

fn way_name(system: &str, is_double: bool) -> String {
    match (is_double, system.starts_with("OneJournal")) {
        (true, _) => system.to_owned(),
        (false, true) => format!("{system}, no double write"),
        (false, false) => format!("{system}, no double write (unsafe)"),
    }
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let has_postgres = is_part_there(section, "PostgreSQL", crate::programs::postgres::need_it());
    let has_mariadb = is_part_there(section, "MariaDB", crate::programs::mariadb::need_it());
    if !has_postgres && !has_mariadb {
        return Ok(());
    }
    plots(section);
    let template = has_mariadb.then(|| mariadb::template(lab, scale)).transpose()?;
    for device in scale.devices(scale.pick(&[MAIN_DEVICE][..], &["loop", MAIN_DEVICE, "cloud"])) {
        let running = start(lab, &device, section)?;
        let turns = Turns::new(lab, scale, &running, section);
        if has_postgres {
            let panel = postgres::panel(&device);
            postgres::measure(scale, &turns, &panel, section, samples)?;
            judge(section, samples, &panel, &turns)?;
        }
        if let Some(template) = template.as_ref().filter(|_| has_all(&device)) {
            let panel = mariadb::panel(&device);
            mariadb::measure(&turns, template, &panel, section, samples)?;
            judge(section, samples, &panel, &turns)?;
        }
        systems::stop(running)?;
    }
    Ok(())
}

/// Mounts the systems. Systems of the section are the ways to use them.
fn start(lab: &Lab, device: &Device, section: &mut Section) -> Result<Vec<Running>> {
    let named = std::mem::take(&mut section.systems);
    let running = systems::start(lab, &recipes(device), &Site::new(device, SIZE_MIB), section)?;
    section.systems = named;
    for way in ways(&running) {
        if !section.systems.contains(&way.name) {
            section.systems.push(way.name);
        }
    }
    Ok(running)
}

fn judge(section: &mut Section, samples: &Samples, panel: &str, turns: &Turns<'_>) -> Result<()> {
    let plain = [(OneJournal::new().name(), WANTED)];
    let fast = fast_systems().map(|system| (system.name(), WANTED_FAST));
    for clients in &turns.clients {
        for (system, wanted) in plain.iter().chain(&fast) {
            let goal = Goal {
                key: turns::key(panel, *clients),
                metric: RATE,
                ours: way_name(system, false),
                theirs: Ext4::ordered().name(),
                paper: "",
                wanted: Some(*wanted),
            };
            goal.judge(section, samples)?;
        }
    }
    Ok(())
}

fn plots(section: &mut Section) {
    section.plots.extend([
        Plot::bars("Transactions a second", RATE.name, Vec::new()),
        Plot::bars("Bytes of the log for a transaction", RATE.name, Vec::new()).of_count(LOG_KIB),
        Plot::bars("Bytes of the device for a transaction", RATE.name, Vec::new())
            .of_count(DEVICE_KIB),
        Plot::bars("Latency that 99 % do not exceed", P99.name, Vec::new()).log_y(),
        Plot::bars("Dips", DIP.name, Vec::new()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tears_no_page_is_called_safe() {
        assert_eq!(way_name("ext4 ordered", true), "ext4 ordered");
        assert!(way_name("ext4 ordered", false).ends_with("(unsafe)"));
        assert_eq!(way_name("OneJournal, NVRAM", false), "OneJournal, NVRAM, no double write");
    }

    #[test]
    fn every_device_has_the_two_that_are_compared() {
        for device in ["loop", "ssd840", "cloud", "nvme"] {
            let names: Vec<String> =
                recipes(&device.parse().unwrap()).iter().map(|system| system.name()).collect();
            assert!(names.contains(&Ext4::ordered().name()), "{device}: {names:?}");
            assert!(names.contains(&OneJournal::new().name()), "{device}: {names:?}");
        }
    }
}
