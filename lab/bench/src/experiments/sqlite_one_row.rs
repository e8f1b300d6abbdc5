//! SQLite's one-row transactions compared with all peers, in each journal mode, and with a WAL that
//! is reused.

use super::sqlite_clients::{OneRow, TIME, worst_ratio};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Btrfs, Ext4, Fuse2fs, OneJournal, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-one-row",
    title: "SQLite, one row a transaction",
    paper: "",
    figure: "",
    about: "Insert, update and delete of one row with `synchronous=FULL` in each of SQLite's \
            journal modes, on a table of 2,000 rows. In WAL mode the WAL has grown before and is \
            written again from its beginning, with SQLite's checkpoints, which is what a WAL does \
            most of its life; and, as a second row, it grows. The bytes are what the disk gets \
            during the transactions, whose keys come in random order, each once. \
            [sqlite-bytes](#sqlite-bytes) has other figures: its table has 20,000 rows, its \
            inserts come in the order of the keys, and it counts everything that comes home later.",
    paper_claim: "",
    goal: "No slower than ext4 ordered (on this machine's disk, whose flushes are short, at most \
            1.1 times with a WAL in use), faster than ext4 data journaling, twice as fast as \
            fuse2fs; one device write and one flush for a transaction with a WAL in use (at most \
            1.01).",
    sizes: &[],
    run,
};

/// Journal modes; a WAL that is in use, and one that grows.
const STATES: [&str; 5] = ["WAL", GROWS, "DELETE", "TRUNCATE", "PERSIST"];
const GROWS: &str = "WAL that grows";
const SIZE_MIB: u32 = 320;
const OURS: &str = "OneJournal";

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let recipes: [Box<dyn System>; 10] = [
        Box::new(Ext4::ordered()),
        Box::new(Ext4::writeback_async()),
        Box::new(Ext4::fast_commit()),
        Box::new(Ext4::journal()),
        Box::new(Ext4::journal_async()),
        Box::new(Xfs),
        Box::new(Btrfs),
        Box::new(Fuse2fs),
        Box::new(OneJournal::new().data("journal")),
        Box::new(OneJournal::new()),
    ];
    for device in scale.devices(&["ssd311", "loop"]) {
        let running = systems::start(lab, &recipes, &Site::new(&device, SIZE_MIB), section)?;
        let (mut rng, mut watch) = (scale.rng(), Watch::begin(lab, &running)?);
        for round in 0..scale.rounds() {
            eprintln!("onejournal-bench: round {}", round + 1);
            for state in STATES {
                let panel = panel(&device, state);
                let is_wal_in_use = state == "WAL";
                let arguments = ["--journal-mode", state.split(' ').next().unwrap_or(state)];
                // With a WAL in use, enough for SQLite's checkpoints.
                let count = if is_wal_in_use { scale.pick(20, 1200) } else { scale.pick(10, 40) };
                let one_row = OneRow { panel: &panel, arguments: &arguments, is_wal_in_use, count };
                one_row.round(lab, &running, &mut rng, samples)?;
            }
            watch.end_round(&running, section)?;
        }
        let has_fuse2fs = running.iter().any(|system| system.name == "fuse2fs");
        systems::stop(running)?;
        judge(section, samples, &device, has_fuse2fs)?;
        let panels = STATES.map(|state| panel(&device, state)).to_vec();
        section.plots.push(Plot::bars(format!("Transaction time on {device}"), TIME.name, panels));
    }
    Ok(())
}

fn panel(device: &Device, mode: &str) -> String {
    format!("{device}: {mode}")
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    has_fuse2fs: bool,
) -> Result<()> {
    let panels = STATES.map(|state| panel(device, state));
    let mut peers = vec![(Ext4::ordered().name(), 1.0), (Ext4::journal().name(), 1.0)];
    if has_fuse2fs {
        peers.push(("fuse2fs".to_owned(), 0.5));
    }
    for (peer, wanted) in peers {
        let (ratio, place) = worst_ratio(samples, &panels, OURS, &peer)?;
        let claim = format!("{device}: time over that of {peer} in each of 15 cases");
        let verdict = Verdict::at_most(claim, "", ratio, wanted);
        section
            .verdicts
            .push(verdict.saying(format!("At most {wanted} is wanted. The worst: {place}.")));
    }
    let key = Key::case(panel(device, "WAL"), "update");
    for what in ["flushes", "writes"] {
        let count = samples.count_of(&key, OURS, TIME, what).unwrap_or(f64::NAN);
        let claim = format!(
            "{device}: {what} of a transaction with a WAL in use, its checkpoints included"
        );
        section.verdicts.push(Verdict::at_most(claim, "", count, 1.01));
    }
    let ordered = Ext4::ordered().name();
    let ratio = samples.ratio(&key, TIME, OURS, &ordered)?;
    let wanted = if device.to_string() == "loop" { 1.1 } else { 1.0 };
    let claim = format!("{device}: one row with a WAL in use, time over that of {ordered}");
    section.verdicts.push(Verdict::at_most(claim, "", ratio.of_medians, wanted).saying(format!(
        "At most {wanted} is wanted; {:.2} to {:.2} from round to round. {}",
        ratio.low,
        ratio.high,
        samples.costs(&key, TIME, &[OURS, &ordered])
    )));
    Ok(())
}
