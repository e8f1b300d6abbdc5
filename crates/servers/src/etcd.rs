//! etcd.

use std::path::Path;
use std::process::Command;

/// The only member of a cluster, with the URLs for its clients and for other members.
pub fn etcd(etcd: Command, data: &Path, urls: [&str; 2]) -> Command {
    member(etcd, data, "default", urls, &format!("default={}", urls[1]))
}

/// A member of a cluster. `all` has `NAME=URL` of each member, with commas between them.
pub fn member(
    mut etcd: Command,
    data: &Path,
    name: &str,
    [clients, peers]: [&str; 2],
    all: &str,
) -> Command {
    etcd.args(["--logger", "zap", "--name", name, "--data-dir"]).arg(data);
    etcd.args(["--listen-client-urls", clients, "--advertise-client-urls", clients]);
    etcd.args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]);
    etcd.args(["--initial-cluster", all]);
    etcd
}
