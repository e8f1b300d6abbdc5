//! The members, from their start to their end.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::engine::{Engine, Member, State};
use super::load;
use super::messages::{Found, Load};
use crate::error::{Error, Result};
use crate::lab::{Child, Program, interrupt};
use crate::programs::latency::Latency;
use crate::programs::network::{self, ETHERNET, NETWORK};

const LEADER_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A server in a network namespace, which it enters when the namespace is connected: its address
/// is the line that the script reads.
const IN_NAMESPACE: &str = "echo ready; read -r address; ip link set lo up; \
    ip addr add \"$address\" dev \"$0\"; ip link set \"$0\" up; exec \"$@\"";

/// A cluster that runs.
pub struct Cluster<'a> {
    engine: &'a dyn Engine,
    members: Vec<Member>,
    servers: Vec<Child>,
}

impl<'a> Cluster<'a> {
    /// Starts a member for each directory, in network namespaces on a new bridge in the namespace
    /// of this process. Returns when there is a leader.
    pub fn start(engine: &'a dyn Engine, dirs: &[PathBuf]) -> Result<Cluster<'a>> {
        network::make_bridge()?;
        let members: Vec<Member> = (1..).zip(dirs).map(member).collect::<Result<_>>()?;
        let servers = members.iter().map(|member| serve(engine, member, &members));
        let servers = servers.collect::<Result<_>>()?;
        let mut cluster = Cluster { engine, members, servers };
        cluster.leader()?;
        Ok(cluster)
    }

    /// The index of the leader, when all members answer and one of them leads.
    pub fn leader(&mut self) -> Result<usize> {
        let deadline = Instant::now() + LEADER_LIMIT;
        loop {
            self.servers.iter_mut().try_for_each(Child::must_run)?;
            let states = self.states();
            if let Some(leader) = states.as_ref().ok().and_then(|states| only_leader(states)) {
                return Ok(leader);
            }
            interrupt::check()?;
            if Instant::now() > deadline {
                return Err(Error::other(format!("there is no leader: {states:?}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Commits through the leader.
    pub fn load(&mut self, load: &Load) -> Result<Found> {
        let leader = self.leader()?;
        let before = self.leader_changes()?;
        let connect = |number| self.engine.connect(&self.members[leader], load.seed, number);
        let (work, seconds) = load::run(load, &connect)?;
        self.leader()?;
        let changes = self.leader_changes()?.into_iter().zip(before);
        let changes = changes.map(|(after, before)| after - before).max();
        let commits = work.latencies_ns.len() as u64 - work.failed;
        let latency = Latency::of(work.latencies_ns);
        Ok(Found {
            commits,
            failed: work.failed,
            failure: work.failure,
            per_second: commits as f64 / seconds,
            latency: latency.ok_or_else(|| Error::other("no commit was due"))?,
            leader_changes: changes.unwrap_or_default(),
        })
    }

    /// Stops all members at the same time.
    pub fn stop(self) -> Result<()> {
        std::thread::scope(|scope| {
            let stops = self.servers.into_iter().map(|server| scope.spawn(|| server.stop()));
            let stops: Vec<_> = stops.collect();
            stops.into_iter().try_for_each(|stop| stop.join().expect("no panic"))
        })
    }

    fn states(&self) -> io::Result<Vec<State>> {
        self.members.iter().map(|member| self.engine.state(member)).collect()
    }

    /// The leaders that each member has seen.
    fn leader_changes(&self) -> Result<Vec<u64>> {
        let states = self.states().map_err(Error::io("the members' counters"))?;
        Ok(states.into_iter().map(|state| state.leader_changes).collect())
    }
}

/// The member that leads. During an election there is none, and the old leader may still believe
/// that it leads.
fn only_leader(states: &[State]) -> Option<usize> {
    let mut leaders = (0..).zip(states).filter(|(_, state)| state.is_leader);
    match (leaders.next(), leaders.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// The bridge has the first address.
fn member((number, data): (u8, &PathBuf)) -> Result<Member> {
    let address = format!("{NETWORK}.{}", number + 1);
    let address: Ipv4Addr =
        address.parse().map_err(|error| Error::other(format!("{address}: {error}")))?;
    Ok(Member { name: format!("node{number}"), data: data.clone(), address })
}

/// Starts the server of a member in a namespace of its own.
fn serve(engine: &dyn Engine, member: &Member, all: &[Member]) -> Result<Child> {
    let server = engine.server(member, all);
    let program = Program::new("unshare").args(["--net", "--", "sh", "-ec", IN_NAMESPACE]);
    let program = program.arg(ETHERNET).arg(server.get_program()).args(server.get_args());
    let mut server = program.start()?;
    server.wait_until_ready()?;
    network::connect(&member.name, &server.pid().to_string())?;
    server.send(&format!("{}/24", member.address))?;
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_leader_when_one_member_says_so() {
        let states =
            |leaders: [bool; 3]| leaders.map(|is_leader| State { is_leader, leader_changes: 1 });
        assert_eq!(only_leader(&states([false, true, false])), Some(1));
        assert_eq!(only_leader(&states([false, false, false])), None);
        assert_eq!(only_leader(&states([true, false, true])), None, "an election goes on");
    }

    #[test]
    fn members_have_addresses_after_that_of_the_bridge() {
        let member = member((1, &PathBuf::from("/data"))).unwrap();
        assert_eq!((&*member.name, member.address), ("node1", Ipv4Addr::new(10, 77, 0, 2)));
    }
}
