//! Clusters of three members on one machine, each with a disk and a mount of its own.

use super::cluster_turn::{LargeFile, Neighbour, Turn};
use super::programs::{self, Goal};
use super::{Experiment, Scale};
use crate::clients::cluster::{Found, Load};
use crate::error::Result;
use crate::lab::processes::CpuTicks;
use crate::lab::{Device, Lab};
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::{ALL_HOME_KIB, Outcome, Plot, Section, Verdict};
use crate::systems::{self, Ext4, Node, OneJournal, Running, Site, System};

pub const EXPERIMENT: Experiment = Experiment {
    id: "clusters",
    title: "Clusters of three members",
    paper: "",
    figure: "",
    about: "Three members of etcd on one machine, each in a network namespace of its own on a \
            virtual bridge, and each with a disk and a mount of its own. A commit is a put of 256 \
            random characters, which do not compress, through the leader. Two members have synced \
            it when it is answered.\n\n\
            *Half of ext4's peak*, *a tenth*: 64 clients share a schedule that offers this part \
            of the commits a second that ext4 ordered answered to 64 clients without pauses \
            before the first round. Latency begins when a commit is due, so it contains the wait \
            for a free client. Requests and bytes are those of the three disks together, and of \
            their journals' disks; *all home* counts until etcd has stopped and the file systems \
            are unmounted. *With a neighbour*: half of ext4's peak while another program copies a \
            file of random bytes to the leader's disk and syncs it, again and again. A leader \
            that cannot sync its log for a second does not send a heartbeat in that time, so \
            another member is elected (all timeouts are etcd's defaults). *Clients without \
            pauses*: each commits when the commit before is answered.\n\n\
            Members, disks and clients share this machine's CPUs. *CPUs busy* says where the CPUs \
            are the limit: there a number of commits a second says little about the disk. On a \
            network disk, each write of which takes 1 ms (`cloud`), a Samsung 840 SSD (`ssd840`) \
            and a disk of 7200 rpm (`hdd`). *Journal on nvme* is a journal on a second device \
            with power-loss protection.",
    paper_claim: "",
    goal: "At half of ext4's peak, a 99th percentile of at most half of ext4 ordered's on the \
            network disk, and at most a fifth of its bytes with each load that is offered. A \
            leader on OneJournal stays where the neighbour makes one on ext4 lose elections.",
    sizes: &[],
    run,
};

const RATE: Metric = Metric::higher("commits a second", "1/s");
const P50: Metric = Metric::lower("latency, p50", "ms");
const P99: Metric = Metric::lower("latency, p99", "ms");
const CHANGES: Metric = Metric::lower("leader changes", "changes");
const FAILED: Metric = Metric::lower("failed commits", "%");
const BUSY: Metric = Metric::lower("CPUs busy", "%");
const NEIGHBOUR: Metric = Metric::higher("synced by the neighbour", "MB/s");

/// The cases with a load that is offered.
const TENTH: &str = "a tenth of ext4's peak";
const HALF: &str = "half of ext4's peak";
const BESIDE: &str = "with a neighbour";

const ENGINE: &str = "etcd";
const NODE_COUNT: usize = 3;
/// The preset of the second device.
const FAST: &str = "nvme";
const SIZE_MIB: u32 = 768;
const LARGE_FILE_MIB: u64 = 128;
const CLIENTS_MAX: u32 = 64;
/// More would take longer than ten minutes.
const FULL_ROUNDS: usize = 3;
/// The goals: how much lower the 99th percentile is, the device that it is about, and the part of
/// the bytes.
const WANTED: f64 = 2.0;
const WANTED_ON: &str = "cloud";
const WANTED_BYTES: f64 = 0.2;

fn ours() -> [OneJournal; 2] {
    [OneJournal::new(), OneJournal::new().journal_on(FAST)]
}

/// The systems, each for every node.
fn recipes() -> Vec<Box<dyn System>> {
    let mut all: Vec<_> = Node::each_of(&Ext4::ordered(), NODE_COUNT).collect();
    for ours in ours() {
        all.extend(Node::each_of(&ours, NODE_COUNT));
    }
    all
}

fn run(lab: &Lab, scale: &Scale, section: &mut Section, samples: &mut Samples) -> Result<()> {
    let needed = [("etcd", "etcd-server"), ("ip", "iproute2"), ("unshare", "util-linux")];
    if !programs::are_installed(section, &needed) {
        return Ok(());
    }
    let file = LargeFile::make(lab, LARGE_FILE_MIB)?;
    section.set("MiB of the neighbour's file", LARGE_FILE_MIB);
    plots(section);
    for device in scale.devices(scale.pick(&["cloud"][..], &["cloud", "hdd", "ssd840"])) {
        let running = systems::start(lab, &recipes(), &Site::new(&device, SIZE_MIB), section)?;
        let bench = Bench { lab, scale, device: &device, file: &file };
        bench.measure(&running, section, samples)?;
        systems::stop(running)?;
        bench.judge(section, samples)?;
    }
    file.remove()
}

/// The measurements on one kind of device.
struct Bench<'a> {
    lab: &'a Lab,
    scale: &'a Scale,
    device: &'a Device,
    file: &'a LargeFile,
}

impl Bench<'_> {
    fn key(&self, case: &str) -> Key {
        Key::case(format!("{}: {ENGINE}", self.device), case)
    }

    fn rounds(&self) -> usize {
        self.scale.wanted_rounds().unwrap_or(self.scale.pick(1, FULL_ROUNDS))
    }

    fn measure(
        &self,
        running: &[Running],
        section: &mut Section,
        samples: &mut Samples,
    ) -> Result<()> {
        let peak = self.peak(&running[..NODE_COUNT])?;
        let [tenth, half] = [10.0, 2.0].map(|part| (peak / part).round());
        section.set(&format!("{}: commits a second of ext4's peak", self.device), peak.round());
        section.set("rounds of each device", self.rounds());
        let mut clusters: Vec<&[Running]> = running.chunks(NODE_COUNT).collect();
        let mut rng = self.scale.rng();
        let mut watch = Watch::begin(self.lab, running)?;
        for round in 1..=self.rounds() {
            eprintln!("onejournal-bench: round {round} of {}: {}", self.rounds(), self.device);
            for (case, rate) in [(TENTH, tenth), (HALF, half)] {
                measure::in_turns(&mut rng, &mut clusters, |_, nodes| {
                    self.quiet(nodes, (case, rate), samples)
                })?;
            }
            measure::in_turns(&mut rng, &mut clusters, |_, nodes| self.busy(nodes, half, samples))?;
            watch.end_round(running, section)?;
        }
        Ok(())
    }

    fn load(&self, clients: u32, per_second: Option<f64>) -> Load {
        let seconds = match per_second {
            Some(_) => self.scale.pick(2.0, 5.0),
            None => 1.0,
        };
        Load { clients, per_second, seconds, seed: self.lab.next_seed() }
    }

    /// The commits a second of clients without pauses.
    fn peak(&self, nodes: &[Running]) -> Result<f64> {
        let mut turn = Turn::start(self.lab, ENGINE, nodes)?;
        let load = Load { seconds: self.scale.pick(1.0, 3.0), ..self.load(CLIENTS_MAX, None) };
        let (found, _) = turn.load(load)?;
        turn.finish()?;
        Ok(found.per_second)
    }

    /// A load at a rate alone, on a new cluster.
    fn quiet(
        &self,
        nodes: &[Running],
        (case, rate): (&str, f64),
        samples: &mut Samples,
    ) -> Result<()> {
        let (key, name) = (self.key(case), &nodes[0].name);
        let mut turn = Turn::start(self.lab, ENGINE, nodes)?;
        let load = self.load(CLIENTS_MAX, Some(rate));
        let found = self.record(&mut turn, &key, name, load, samples)?;
        samples.add(&key, name, CHANGES, found.leader_changes as f64);
        let home_kib = turn.finish()? as f64 / 1024.0;
        samples.count_named(&key, name, RATE, 0, &[(ALL_HOME_KIB, home_kib)]);
        Ok(())
    }

    /// Clients without pauses, then the offered load with a neighbour, on a new cluster.
    fn busy(&self, nodes: &[Running], half: f64, samples: &mut Samples) -> Result<()> {
        let name = &nodes[0].name;
        let mut turn = Turn::start(self.lab, ENGINE, nodes)?;
        for clients in self.scale.pick(vec![CLIENTS_MAX], vec![1, 16, CLIENTS_MAX]) {
            let unit = if clients == 1 { "client" } else { "clients" };
            let key = self.key(&format!("{clients} {unit} without pauses"));
            self.record(&mut turn, &key, name, self.load(clients, None), samples)?;
        }
        let key = self.key(BESIDE);
        let neighbour = Neighbour::start(self.file, turn.leader()?)?;
        let seconds = self.scale.pick(4.0, 10.0);
        let load = Load { seconds, ..self.load(CLIENTS_MAX, Some(half)) };
        let found = self.record(&mut turn, &key, name, load, samples)?;
        samples.add(&key, name, NEIGHBOUR, neighbour.stop()?);
        samples.add(&key, name, CHANGES, found.leader_changes as f64);
        let all = (found.commits + found.failed) as f64;
        samples.add(&key, name, FAILED, found.failed as f64 / all * 100.0);
        turn.finish()?;
        Ok(())
    }

    /// Runs a load and adds its samples.
    fn record(
        &self,
        turn: &mut Turn<'_>,
        key: &Key,
        name: &str,
        load: Load,
        samples: &mut Samples,
    ) -> Result<Found> {
        let before = CpuTicks::now()?;
        let (found, counts) = turn.load(load)?;
        let busy = CpuTicks::now()?.busy_since(before);
        samples.add(key, name, RATE, found.per_second);
        samples.count(key, name, RATE, found.commits as usize, &counts);
        samples.add(key, name, P50, found.latency.p50_ns as f64 / 1e6);
        samples.add(key, name, P99, found.latency.p99_ns as f64 / 1e6);
        samples.add(key, name, BUSY, busy * 100.0);
        Ok(found)
    }

    fn judge(&self, section: &mut Section, samples: &Samples) -> Result<()> {
        let theirs = Ext4::ordered().name();
        for ours in ours().map(|ours| ours.name()) {
            for case in [TENTH, HALF] {
                let is_wanted = case == HALF && self.device.to_string() == WANTED_ON;
                let goal = Goal {
                    key: self.key(case),
                    metric: P99,
                    ours: ours.clone(),
                    theirs: theirs.clone(),
                    paper: "",
                    wanted: is_wanted.then_some(WANTED),
                };
                goal.judge(section, samples)?;
                self.judge_bytes(section, samples, case, (&ours, &theirs));
            }
            self.judge_leader(section, samples, &ours, &theirs);
        }
        Ok(())
    }

    fn judge_bytes(
        &self,
        section: &mut Section,
        samples: &Samples,
        case: &str,
        (ours, theirs): (&str, &str),
    ) {
        let key = self.key(case);
        let home_kib = |system: &str| samples.count_of(&key, system, RATE, ALL_HOME_KIB);
        let (Some(own_kib), Some(their_kib)) = (home_kib(ours), home_kib(theirs)) else { return };
        let claim = format!("{}, {case}: bytes of {ours} as a part of {theirs}'s", key.panel);
        let sentence = format!(
            "KiB a commit, all home: {own_kib:.2} and {their_kib:.2}. {}",
            samples.costs(&key, RATE, &[ours, theirs])
        );
        let verdict = Verdict::at_most(claim, "", own_kib / their_kib, WANTED_BYTES);
        section.verdicts.push(verdict.saying(sentence));
    }

    /// Where ext4 keeps its leader, too, there is nothing to reach.
    fn judge_leader(&self, section: &mut Section, samples: &Samples, ours: &str, theirs: &str) {
        let key = self.key(BESIDE);
        let all = |system: &str| Some(samples.of(&key, system, CHANGES)?.iter().sum::<f64>());
        let (Some(own), Some(other)) = (all(ours), all(theirs)) else { return };
        section.verdicts.push(Verdict {
            claim: format!("{}, {BESIDE}: {ours} keeps its leader", key.panel),
            paper: String::new(),
            measured: format!("{own} {}", CHANGES.unit),
            outcome: leader_outcome(own, other),
            sentence: format!("In all rounds; {theirs} had {other}."),
        });
    }
}

fn leader_outcome(own: f64, other: f64) -> Outcome {
    match (own > 0.0, other > 0.0) {
        (true, _) => Outcome::Missed,
        (false, true) => Outcome::Reached,
        (false, false) => Outcome::Shown,
    }
}

fn plots(section: &mut Section) {
    section.plots.extend([
        Plot::bars("Latency that 99 % do not exceed", P99.name, Vec::new()).log_y(),
        Plot::bars("Latency that 50 % do not exceed", P50.name, Vec::new()).log_y(),
        Plot::bars("KiB written a commit", RATE.name, Vec::new()).of_count("written KiB").log_y(),
        Plot::bars("KiB written a commit, all home", RATE.name, Vec::new()).of_count(ALL_HOME_KIB),
        Plot::bars("Leader changes", CHANGES.name, Vec::new()),
        Plot::bars("Commits a second", RATE.name, Vec::new()),
        Plot::bars("CPUs busy", BUSY.name, Vec::new()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_of_a_cluster_has_the_system_of_the_cluster() {
        let names: Vec<String> = recipes().iter().map(|system| system.name()).collect();
        assert_eq!(names.len() % NODE_COUNT, 0);
        for cluster in names.chunks(NODE_COUNT) {
            assert!(cluster.iter().all(|name| *name == cluster[0]), "{cluster:?}");
        }
        assert_eq!(names[0], Ext4::ordered().name(), "its peak decides the load");
    }

    #[test]
    fn leader_is_kept_only_where_ext4_lost_its_own() {
        use Outcome::{Missed, Reached, Shown};
        let outcomes = [(0.0, 2.0), (1.0, 2.0), (0.0, 0.0)].map(|(a, b)| leader_outcome(a, b));
        assert_eq!(outcomes, [Reached, Missed, Shown]);
    }
}
