//! etcd.

use std::path::Path;
use std::process::Command;

/// The only member of a cluster, with the URLs for its clients and for other members.
pub fn etcd(mut etcd: Command, data: &Path, [clients, peers]: [&str; 2]) -> Command {
    etcd.args(["--logger", "zap", "--data-dir"]).arg(data);
    etcd.args(["--listen-client-urls", clients, "--advertise-client-urls", clients]);
    etcd.args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    etcd
}
