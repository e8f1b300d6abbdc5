//! PostgreSQL on the file system under test.

use super::programs::{self, Goal, Removal, Turn};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::pgbench::{Session, Setup};
use crate::programs::postgres::ClusterSettings;
use crate::results::{ALL_HOME_KIB, Plot, Section};
use crate::systems::client::Eatmydata;
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs};
use crate::values::{RANDOM_AND_TEXT, ValueKind};

pub const EXPERIMENT: Experiment = Experiment {
    id: "pgbench",
    title: "PostgreSQL",
    paper: "",
    figure: "",
    about: "pgbench's TPC-B-like transactions on a PostgreSQL with its default settings \
            (`fdatasync` of its write-ahead log at each commit) and checksums. Transactions a \
            second with some clients, and what the disk gets for each while they run. Then, once \
            on each file system, a fixed number of transactions after a restart: *all home* is \
            what the disk gets for each until the server is down and the file system is unmounted, \
            with tables whose fillers do not compress, and with English words (*text*). Each \
            changed page then comes to the log whole, and home once. After the \
            rounds pgbench's balances must agree; at the end the server must go down in order, and \
            all of its pages must be sound. The \
            ceiling is libeatmydata, with which nothing is durable.",
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
    if !programs::is_there(section, crate::programs::postgres::need_it()) {
        return Ok(());
    }
    let clients = scale.pick(vec![4], vec![1, 16, 64]);
    let branches = scale.pick(1, 20);
    section.set("scale of pgbench", branches);
    section.set("seconds of a round", SECONDS);
    for device in scale.devices(&["ssd840"]) {
        let panels = vec![device.to_string()];
        section.plots.push(
            Plot::lines("Transactions a second", RATE.name, "clients", panels).log_x().log_y(),
        );
        let panels = RANDOM_AND_TEXT.map(|(_, values)| fixed(&device, values).panel);
        let bytes = Plot::bars("KiB written for a transaction, all home", RATE.name, panels.into());
        section.plots.push(bytes.of_count(ALL_HOME_KIB));
        let load = Load { clients: &clients, branches, of_each: scale.pick(20, 250) };
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
    /// Transactions of each client in the measurement of bytes.
    of_each: u64,
}

/// Clients in the measurement of bytes.
const CLIENTS: u32 = 16;

/// The measurement of bytes.
fn fixed(device: &Device, values: &str) -> Key {
    Key::case(format!("{device}: a fixed number, {values}"), format!("{CLIENTS} clients"))
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
    let start_one = |running| start(running, load, ValueKind::Random);
    let mut sessions = running.iter().map(start_one).collect::<Result<Vec<_>>>()?;
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
    for (kind, values) in RANDOM_AND_TEXT {
        let into = (&mut *samples, &fixed(device, values), RATE);
        programs::round_until_home(&mut rng, &running, into, |running| {
            let begun = sessions.iter().position(|(name, _)| *name == running.name);
            let session = match begun {
                Some(index) => sessions.swap_remove(index).1,
                None => start(running, load, kind)?.1,
            };
            Fixed::begin(running, session, load.of_each)
        })?;
    }
    systems::stop(running)
}

/// A session that ends with a fixed number of transactions.
struct Fixed {
    session: Session,
    of_each: u64,
}

impl Fixed {
    /// Begins with everything home, and with the tables in the system's cache.
    fn begin(running: &Running, session: Session, of_each: u64) -> Result<Fixed> {
        running.speed_up()?;
        session.check()?;
        let environment = running.client.variables();
        let cluster = ClusterSettings { environment: &environment, ..Default::default() };
        let session = session.restarted(cluster, || running.remount())?;
        running.speed_up()?;
        session.check()?;
        Ok(Fixed { session, of_each })
    }
}

impl Turn for Fixed {
    fn work(&mut self) -> Result<(f64, u64)> {
        let found = self.session.transactions(CLIENTS, self.of_each)?;
        Ok((found.transactions_per_second, found.transactions))
    }

    fn close(self) -> Result<Removal> {
        let stopped = self.session.stop()?;
        Ok(Box::new(|| stopped.remove()))
    }
}

/// A cluster with its tables, made without latency.
fn start(running: &Running, load: &Load<'_>, fillers: ValueKind) -> Result<(String, Session)> {
    running.speed_up()?;
    let environment = running.client.variables();
    let cluster = ClusterSettings { environment: &environment, ..Default::default() };
    let setup = Setup { scale: load.branches, fillers, cluster, ..Default::default() };
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
