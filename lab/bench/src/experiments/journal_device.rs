//! Volumes on a network disk, with the journal on a second, faster device.

use super::programs::{self, Goal, is_part_there};
use super::sqlite_clients::{OPERATIONS, OneRow, TIME};
use super::{Experiment, Scale};
use crate::error::Result;
use crate::lab::{Device, Lab};
use crate::measure::{Key, Metric, Samples, Watch};
use crate::programs::etcd::{self, EtcdArgs};
use crate::programs::pgbench::{Session, Setup};
use crate::programs::postgres::ClusterSettings;
use crate::results::{Plot, Section};
use crate::systems::{self, Ext4, OneJournal, Running, Site, System, Xfs, XfsLogOn};
use crate::values::ValuesArgs;

pub const EXPERIMENT: Experiment = Experiment {
    id: "journal-device",
    title: "The journal on a second, faster device",
    paper: "",
    figure: "",
    about: "A volume on a network disk, each write of which takes 1 ms (`cloud`: what AWS \
            publishes of EBS gp3), with its journal on an NVMe disk with power-loss protection \
            (`nvme`: a durable write takes 8 µs), made with `onejournal mkfs --journal`. Beside \
            it: everything on the network disk, and the external journals of ext4 and XFS on the \
            same NVMe disk. Ext4 with `data=ordered` and XFS write a file's data to the network \
            disk before a sync returns, so an external journal speeds up their metadata only. Each \
            external journal has 128 MiB.\n\n*PostgreSQL*: pgbench's TPC-B-like transactions. \
            *etcd*: puts of 8 clients, and the mean time of a sync of its log. *SQLite*: \
            transactions of one row with a WAL and `synchronous=FULL`.",
    paper_claim: "",
    goal: "With the journal on the second device, at least 5 times as fast as ext4 ordered on the \
            network disk in each case, all of which wait for synchronous commits.",
    sizes: &[],
    run,
};

const RATE: Metric = Metric::higher("transactions a second", "1/s");
const PUTS: Metric = Metric::higher("puts a second", "1/s");
const SYNC: Metric = Metric::lower("log sync", "ms");
/// The preset of the journal's device.
const FAST: &str = "nvme";
const SIZE_MIB: u32 = 1024;
const SECONDS: u64 = 1;
const ETCD_CLIENTS: u32 = 8;
const WANTED: f64 = 5.0;

fn ours() -> OneJournal {
    OneJournal::new().journal_on(FAST)
}

fn recipes() -> Vec<Box<dyn System>> {
    vec![
        Box::new(Ext4::ordered()),
        Box::new(Ext4::ordered().journal_on(FAST)),
        Box::new(Ext4::journal().journal_on(FAST)),
        Box::new(Xfs),
        Box::new(XfsLogOn(FAST)),
        Box::new(OneJournal::new()),
        Box::new(ours()),
    ]
}

/// What one device's measurement needs.
struct Bench<'a> {
    lab: &'a Lab,
    scale: &'a Scale,
    device: &'a Device,
    running: &'a [Running],
    clients: Vec<u32>,
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let has_postgres = is_part_there(section, "PostgreSQL", crate::programs::postgres::need_it());
    let mut etcd = ["etcd", "fio"].into_iter().zip(["etcd-server", "fio"]);
    let need = |(program, package): (&str, &str)| crate::programs::need(program, package);
    let has_etcd = is_part_there(section, "etcd", etcd.try_for_each(need));
    section.set("seconds of a turn", SECONDS);
    for device in scale.devices(&["cloud"]) {
        let running = systems::start(lab, &recipes(), &Site::new(&device, SIZE_MIB), section)?;
        let clients = scale.pick(vec![16], vec![1, 16]);
        let bench = Bench { lab, scale, device: &device, running: &running, clients };
        bench.measure(has_postgres, has_etcd, section, samples)?;
        bench.judge(section, samples)?;
        bench.plots(section);
        systems::stop(running)?;
    }
    Ok(())
}

impl Bench<'_> {
    fn postgres_key(&self, clients: u32) -> Key {
        let unit = if clients == 1 { "client" } else { "clients" };
        Key::case(format!("{}: PostgreSQL", self.device), format!("{clients} {unit}"))
    }

    fn etcd_key(&self, metric: Metric) -> Key {
        Key::case(format!("{}: etcd", self.device), metric.name)
    }

    fn sqlite_panel(&self) -> String {
        format!("{}: SQLite", self.device)
    }

    fn measure(
        &self,
        has_postgres: bool,
        has_etcd: bool,
        section: &mut Section,
        samples: &mut Samples,
    ) -> Result<()> {
        let start = |running| Ok((running, self.start_postgres(running)?));
        let systems = self.running.iter().filter(|_| has_postgres);
        let sessions: Vec<(&Running, Session)> = systems.map(start).collect::<Result<_>>()?;
        let mut rng = self.scale.rng();
        let mut watch = Watch::begin(self.lab, self.running)?;
        for round in 0..self.scale.rounds() {
            self.scale.say_round(round, self.device);
            if has_postgres {
                self.postgres(&sessions, &mut rng, samples)?;
            }
            if has_etcd {
                self.etcd(&mut rng, samples)?;
            }
            let (panel, count) = (self.sqlite_panel(), self.scale.pick(10, 40));
            let one_row = OneRow {
                panel: &panel,
                arguments: &["--journal-mode", "WAL"],
                is_wal_in_use: true,
                count,
            };
            one_row.round(self.lab, self.running, &mut rng, samples)?;
            watch.end_round(self.running, section)?;
        }
        for running in self.running {
            running.speed_up()?;
        }
        sessions.into_iter().try_for_each(|(_, session)| session.finish())
    }

    /// A cluster with its tables, made without latency.
    fn start_postgres(&self, running: &Running) -> Result<Session> {
        running.speed_up()?;
        let environment = running.client.variables();
        let cluster = ClusterSettings { environment: &environment, ..Default::default() };
        let setup = Setup { scale: self.scale.pick(1, 16), cluster, ..Default::default() };
        let session = Session::start(&running.dir, &setup)?;
        session.checkpoint()?;
        running.sync()?;
        running.slow_down()?;
        Ok(session)
    }

    fn postgres(
        &self,
        sessions: &[(&Running, Session)],
        rng: &mut fastrand::Rng,
        samples: &mut Samples,
    ) -> Result<()> {
        for &clients in &self.clients {
            let key = self.postgres_key(clients);
            programs::round(rng, self.running, (&mut *samples, &key, RATE), |running| {
                let session = sessions.iter().find(|(other, _)| other.name == running.name);
                let found = session.expect("one for each").1.round(clients, SECONDS)?;
                Ok((found.transactions_per_second, found.transactions))
            })?;
        }
        Ok(())
    }

    fn etcd(&self, rng: &mut fastrand::Rng, samples: &mut Samples) -> Result<()> {
        let mut syncs = Vec::new();
        let key = self.etcd_key(PUTS);
        programs::round(rng, self.running, (&mut *samples, &key, PUTS), |running| {
            let found = etcd::run(&EtcdArgs {
                dir: running.dir.clone(),
                clients: ETCD_CLIENTS,
                seconds: SECONDS,
                value_bytes: 256,
                values: ValuesArgs::random(self.lab.next_seed()),
                disk_kib: 64,
                check_perf: false,
                environment: running.client.variables(),
            })?;
            syncs.push((running.name.clone(), found.puts.wal_fsync.mean_ns as f64 / 1e6));
            Ok((found.puts.per_second, found.puts.count))
        })?;
        for (name, sync_ms) in syncs {
            samples.add(&self.etcd_key(SYNC), &name, SYNC, sync_ms);
        }
        Ok(())
    }

    fn judge(&self, section: &mut Section, samples: &Samples) -> Result<()> {
        let postgres = self.clients.iter().map(|clients| (self.postgres_key(*clients), RATE));
        let etcd = [PUTS, SYNC].map(|metric| (self.etcd_key(metric), metric));
        let sqlite = OPERATIONS.map(|name| (Key::case(self.sqlite_panel(), name), TIME));
        for (key, metric) in postgres.chain(etcd).chain(sqlite) {
            let (ours, theirs) = (ours().name(), Ext4::ordered().name());
            Goal { key, metric, ours, theirs, paper: "", wanted: Some(WANTED) }
                .judge(section, samples)?;
        }
        Ok(())
    }

    fn plots(&self, section: &mut Section) {
        let bars = |title: &str, metric: Metric, key: Key| {
            Plot::bars(format!("{title} on {}", self.device), metric.name, vec![key.panel])
        };
        section.plots.extend([
            bars("PostgreSQL", RATE, self.postgres_key(1)),
            bars("etcd's puts", PUTS, self.etcd_key(PUTS)),
            bars("Syncs of etcd's log", SYNC, self.etcd_key(SYNC)),
            bars("SQLite's transactions", TIME, Key::case(self.sqlite_panel(), "")),
        ]);
    }
}
