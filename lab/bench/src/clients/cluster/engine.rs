//! The programs of which clusters are made.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

/// A member of a cluster.
pub struct Member {
    pub name: String,
    /// Its directory, which does not exist before the first start.
    pub data: PathBuf,
    /// The address of its network namespace.
    pub address: Ipv4Addr,
}

/// What a member says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub is_leader: bool,
    /// Leaders that it has seen so far.
    pub leader_changes: u64,
}

/// A program that copies each commit to a majority of its members.
pub trait Engine: Sync {
    /// The server of `member`.
    fn server(&self, member: &Member, all: &[Member]) -> Command;

    /// What a member says of itself; an error while it is not ready.
    fn state(&self, member: &Member) -> io::Result<State>;

    /// Connects client `number` with a member.
    fn connect(&self, member: &Member, seed: u64, number: u32) -> io::Result<Box<dyn Session>>;
}

/// A connection of one client.
pub trait Session: Send {
    /// Writes a new value and waits until it is durable on a majority.
    fn commit(&mut self) -> io::Result<()>;
}
