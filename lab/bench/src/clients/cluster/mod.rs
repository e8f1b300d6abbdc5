//! A cluster of three members on one machine, and the clients that commit to it.
//!
//! Each member runs in a network namespace of its own on a virtual bridge, with its data in a
//! directory of its own. The experiment starts this subcommand with `unshare --net --pid --fork
//! --kill-child`: the bridge is in the outer network namespace, no name and no port of the machine
//! is used, and when this process ends, the kernel ends all members.
//!
//! The subcommand prints `ready` when there is a leader. Then each line of its input is a
//! [`Request`] as JSON, and a line of JSON is the answer. At the end of its input it stops the
//! members.
//!
//! Another program becomes a cluster with an implementation of `Engine` (`engine.rs`).

mod command;
mod engine;
mod etcd;
mod load;
mod members;
mod messages;

pub use command::{ClusterArgs, run};
pub use messages::{Found, Load, Request};
