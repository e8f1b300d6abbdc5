//! SQLite's one-row transactions compared with all peers, in each journal mode, and with a WAL that
//! is reused.

use super::sqlite_clients::{OneRow, SqliteClients, TIME, transactions, worst_ratio};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Samples, Watch};
use crate::results::{Plot, Section, Verdict};
use crate::systems::{self, Btrfs, Ext4, Fuse2fs, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "sqlite-one-row",
    title: "SQLite, one row a transaction",
    paper: "",
    figure: "",
    about: "Insert, update and delete of one row with `synchronous=FULL` in each of SQLite's journal modes, on a table of 2,000 rows; and \
            updates with a WAL that has grown before and is written again from its beginning, which is what a WAL does most of its life.",
    paper_claim: "",
    goal: "No slower than ext4 ordered (on this machine's disk, whose flushes are short, at most 1.1 times with a reused WAL), faster than ext4 data journaling, twice as fast as fuse2fs; one device write and one \
           flush for a transaction with a reused WAL.",
    run,
};

const MODES: [&str; 4] = ["WAL", "DELETE", "TRUNCATE", "PERSIST"];
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
            for mode in MODES {
                let panel = panel(&device, mode);
                let arguments = ["--journal-mode", mode];
                let one_row =
                    OneRow { panel: &panel, arguments: &arguments, count: scale.pick(10, 40) };
                one_row.round(lab, &running, &mut rng, samples)?;
            }
            reused_wal(lab, scale, &running, &panel(&device, "WAL, reused"), &mut rng, samples)?;
            watch.end_round(&running, section)?;
        }
        let has_fuse2fs = running.iter().any(|system| system.name == "fuse2fs");
        systems::stop(running)?;
        judge(section, samples, &device, has_fuse2fs)?;
        let mut panels = MODES.map(|mode| panel(&device, mode)).to_vec();
        panels.push(panel(&device, "WAL, reused"));
        section.plots.push(Plot::bars(format!("Transaction time on {device}"), TIME.name, panels));
    }
    Ok(())
}

fn panel(device: &Device, mode: &str) -> String {
    format!("{device}: {mode}")
}

/// Updates during which there is no checkpoint and the WAL does not grow.
fn reused_wal(
    lab: &Lab,
    scale: &Scale,
    running: &[Running],
    panel: &str,
    rng: &mut fastrand::Rng,
    samples: &mut Samples,
) -> Result<()> {
    let arguments = ["--journal-mode", "WAL", "--rows", "2000", "--autocheckpoint", "0"];
    let mut clients = SqliteClients::start(lab, running, "reused", &arguments)?;
    let count = scale.pick(20, 60);
    let mut keys: Vec<usize> = (0..2000).collect();
    rng.shuffle(&mut keys);
    // The WAL grows to more than will be measured, then starts over.
    let mut grow = transactions("update", &keys[..2 * count], 1);
    grow.extend(["checkpoint RESTART".to_owned(), "update 0".to_owned()]);
    for index in 0..running.len() {
        clients.tell(index, &grow)?;
    }
    let lines = transactions("update", &keys[..count], 1);
    clients.round(rng, &lines, 10, (samples, &Key::case(panel, "update"), TIME))?;
    clients.finish()
}

fn judge(
    section: &mut Section,
    samples: &Samples,
    device: &Device,
    has_fuse2fs: bool,
) -> Result<()> {
    let panels = MODES.map(|mode| panel(device, mode));
    let mut peers = vec![(Ext4::ordered().name(), 1.0), (Ext4::journal().name(), 1.0)];
    if has_fuse2fs {
        peers.push(("fuse2fs".to_owned(), 0.5));
    }
    for (peer, wanted) in peers {
        let (ratio, place) = worst_ratio(samples, &panels, OURS, &peer)?;
        let claim = format!("{device}: time over that of {peer} in each of 12 cases");
        let verdict = Verdict::at_most(claim, "", ratio, wanted);
        section
            .verdicts
            .push(verdict.saying(format!("At most {wanted} is wanted. The worst: {place}.")));
    }
    let key = Key::case(panel(device, "WAL, reused"), "update");
    let flushes = samples.count_of(&key, OURS, TIME, "flushes").unwrap_or(f64::NAN);
    let claim = format!("{device}: flushes of a transaction with a reused WAL, at most 1");
    section.verdicts.push(Verdict::at_most(claim, "", flushes, 1.0));
    let ordered = Ext4::ordered().name();
    let ratio = samples.ratio(&key, TIME, OURS, &ordered)?;
    let wanted = if device.to_string() == "loop" { 1.1 } else { 1.0 };
    let claim = format!("{device}: one row with a reused WAL, time over that of {ordered}");
    section.verdicts.push(Verdict::at_most(claim, "", ratio.of_medians, wanted).saying(format!(
        "At most {wanted} is wanted; {:.2} to {:.2} from round to round. {}",
        ratio.low,
        ratio.high,
        samples.costs(&key, TIME, &[OURS, &ordered])
    )));
    Ok(())
}
