//! A virtual bridge in the network namespace of this process, and other namespaces on it.

use crate::error::Result;
use crate::lab::Program;

const BRIDGE: &str = "bridge";
/// The first three numbers of all addresses. The bridge has the address `.1`.
pub const NETWORK: &str = "10.77.0";
/// The device of a namespace that [`connect`] has connected.
pub const ETHERNET: &str = "ethernet";

/// Runs `ip` with these words.
pub fn ip(arguments: &str) -> Result<()> {
    Program::new("ip").args(arguments.split(' ')).run().map(drop)
}

/// Makes the bridge.
pub fn make_bridge() -> Result<()> {
    ip("link set lo up")?;
    ip(&format!("link add {BRIDGE} type bridge"))?;
    ip(&format!("addr add {NETWORK}.1/24 dev {BRIDGE}"))?;
    ip(&format!("link set {BRIDGE} up"))
}

/// Connects a network namespace with the bridge. `namespace` is its name, or the number of a
/// process in it. On the bridge its device has the name `port`.
pub fn connect(port: &str, namespace: &str) -> Result<()> {
    ip(&format!("link add {port} type veth peer name {ETHERNET} netns {namespace}"))?;
    ip(&format!("link set {port} master {BRIDGE} up"))
}
