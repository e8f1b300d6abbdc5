//! etcd: a commit is a put of a new key.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use super::engine::{Engine, Member, Session, State};
use crate::programs::etcd::{Client, metrics};
use crate::values::ValuesArgs;

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const VALUE_BYTES: usize = 256;

/// etcd with its default durability and timeouts.
pub struct Etcd;

impl Engine for Etcd {
    fn server(&self, member: &Member, all: &[Member]) -> Command {
        let peers = |member: &Member| url(member.address, PEER_PORT);
        let named = |member: &Member| format!("{}={}", member.name, peers(member));
        let cluster = all.iter().map(named).collect::<Vec<_>>().join(",");
        let urls = [url(member.address, CLIENT_PORT), peers(member)];
        let urls = [urls[0].as_str(), urls[1].as_str()];
        let etcd = Command::new("etcd");
        let mut etcd = servers::etcd::member(etcd, &member.data, &member.name, urls, &cluster);
        etcd.args(["--log-level", "error"]);
        etcd
    }

    fn state(&self, member: &Member) -> io::Result<State> {
        let metrics = metrics(address(member))?;
        let missing = || io::Error::other("etcd's metrics do not name the leader");
        parse(&metrics).ok_or_else(missing)
    }

    fn connect(&self, member: &Member, seed: u64, number: u32) -> io::Result<Box<dyn Session>> {
        let values = ValuesArgs::random(seed).generator_of(u64::from(number));
        Ok(Box::new(Client::connect(address(member), values, VALUE_BYTES)?))
    }
}

impl Session for Client {
    fn commit(&mut self) -> io::Result<()> {
        self.put().map(drop)
    }
}

fn url(address: Ipv4Addr, port: u16) -> String {
    format!("http://{address}:{port}")
}

fn address(member: &Member) -> SocketAddr {
    (member.address, CLIENT_PORT).into()
}

fn parse(metrics: &str) -> Option<State> {
    let value = |name: &str| -> Option<f64> {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    Some(State {
        is_leader: value("etcd_server_is_leader")? > 0.0,
        leader_changes: value("etcd_server_leader_changes_seen_total")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn state_of_a_member_is_in_its_metrics() {
        let metrics = "# HELP etcd_server_is_leader Whether or not this member is a leader.\n\
                       etcd_server_is_leader 1\n\
                       etcd_server_leader_changes_seen_total 3\n";
        assert_eq!(parse(metrics), Some(State { is_leader: true, leader_changes: 3 }));
        let follower = metrics.replace("is_leader 1", "is_leader 0");
        assert_eq!(parse(&follower), Some(State { is_leader: false, leader_changes: 3 }));
        assert_eq!(parse("etcd_server_is_leader 1\n"), None);
    }

    #[test]
    fn each_member_knows_all_addresses() {
        let member = |number: u8| Member {
            name: format!("node{number}"),
            data: PathBuf::from("/data"),
            address: Ipv4Addr::new(10, 77, 0, number),
        };
        let all = [member(2), member(3)];
        let server = Etcd.server(&all[1], &all);
        let words: Vec<_> = server.get_args().map(|word| word.to_string_lossy()).collect();
        assert!(words.contains(&"node2=http://10.77.0.2:2380,node3=http://10.77.0.3:2380".into()));
        assert!(words.contains(&"http://10.77.0.3:2379".into()), "{words:?}");
    }
}
