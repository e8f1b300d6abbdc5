//! PostgreSQL on the file system under test.

use super::programs::Goal;
use super::{Experiment, Scale, programs};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::pgbench::{Session, Setup};
use crate::programs::postgres::ClusterSettings;
use crate::results::{Plot, Section};
use crate::systems::client::Eatmydata;
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs};

pub const EXPERIMENT: Experiment = Experiment {
    id: "pgbench",
    title: "PostgreSQL",
    paper: "",
    figure: "",
    about: "pgbench's TPC-B-like transactions on a PostgreSQL with its default settings \
            (`fdatasync` of its write-ahead log at each commit) and checksums. Transactions a \
            second with some clients, and what the disk gets for each while they run: a volume \
            still has to bring home what its journal holds at the end of a turn, which is counted \
            only if it happens in a later turn. After the last round the server must go down in \
            order, all of its pages must be sound, and pgbench's balances must agree. The ceiling \
            is libeatmydata, with which nothing is durable.",
    paper_claim: "",
    goal: "As many transactions a second as ext4 ordered, or more.",
    sizes: &[],
    run,
};

const RATE: Metric = Metric::higher("transactions a second", "1/s");
/// Space for the tables, and for a write-ahead log whose files are not reused yet.
const SIZE_MIB: u32 = 1024;
const SECONDS: u64 = 1;

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Ext4::journal()),
        Box::new(Xfs),
        Box::new(OneJournal::new()),
        Box::new(OneJournal::new().nvram()),
        Box::new(Eatmydata(Box::new(Ext4::ordered()))),
    ]
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    if !programs::is_there(section, crate::programs::pgbench::need()) {
        return Ok(());
    }
    let clients = scale.pick(vec![4], vec![1, 16, 64]);
    let branches = scale.pick(1, 20);
    section.set("scale of pgbench", branches);
    section.set("seconds of a round", SECONDS);
    section.plots.push(
        Plot::lines("Transactions a second", RATE.name, "clients", Vec::new()).log_x().log_y(),
    );
    for device in scale.devices(&["ssd840"]) {
        let load = Load { clients: &clients, branches };
        on_device(lab, scale, section, &device, &load, samples)?;
        for &clients in &clients {
            judge(section, samples, &key(&device, clients))?;
        }
    }
    Ok(())
}

struct Load<'a> {
    clients: &'a [u32],
    branches: u32,
}

fn key(device: &Device, clients: u32) -> Key {
    Key::at(device.to_string(), f64::from(clients))
}

fn on_device(
    lab: &Lab,
    scale: &Scale,
    section: &mut Section,
    device: &Device,
    load: &Load<'_>,
    samples: &mut Samples,
) -> Result<()> {
    let running = systems::start(lab, &recipes(), &Site::new(device, SIZE_MIB), section)?;
    let sessions =
        running.iter().map(|running| start(running, load)).collect::<Result<Vec<_>>>()?;
    let session = |running: &Running| {
        let index = sessions.iter().position(|(name, _)| *name == running.name);
        &sessions[index.expect("one for each")].1
    };
    let mut rng = scale.rng();
    let mut watch = Watch::begin(lab, &running)?;
    for round in 0..scale.rounds() {
        for &clients in load.clients {
            scale.say_round(round, format_args!("{device}, {clients} clients"));
            let key = key(device, clients);
            programs::round(&mut rng, &running, (samples, &key, RATE), |running| {
                let found = session(running).round(clients, SECONDS)?;
                Ok((found.transactions_per_second, found.transactions))
            })?;
        }
        watch.end_round(&running, section)?;
    }
    for running in &running {
        running.speed_up()?;
    }
    for (_, session) in sessions {
        session.finish()?;
    }
    systems::stop(running)
}

/// A cluster with its tables, made without latency.
fn start(running: &Running, load: &Load<'_>) -> Result<(String, Session)> {
    running.speed_up()?;
    let environment = running.client.variables();
    let cluster = ClusterSettings { environment: &environment, ..Default::default() };
    let setup = Setup { scale: load.branches, cluster, ..Default::default() };
    let session = Session::start(&running.dir, &setup)?;
    running.sync()?;
    running.slow_down()?;
    Ok((running.name.clone(), session))
}

fn judge(section: &mut Section, samples: &Samples, key: &Key) -> Result<()> {
    for ours in [OneJournal::new(), OneJournal::new().nvram()] {
        let goal = Goal {
            key: key.clone(),
            metric: RATE,
            ours: ours.name(),
            theirs: Ext4::ordered().name(),
            paper: "",
            wanted: Some(1.0),
        };
        goal.judge(section, samples)?;
    }
    Ok(())
}
