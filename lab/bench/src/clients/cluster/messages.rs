//! The lines between an experiment and its cluster.

use serde::{Deserialize, Serialize};

use crate::programs::latency::Latency;

/// A line to the cluster.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Request {
    /// The answer is the index of the member that leads.
    Leader,
    /// The answer is a [`Found`].
    Load(Load),
}

/// Commits through the leader.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Load {
    /// Clients, each with a commit at a time.
    pub clients: u32,
    /// Commits that are offered. `None`: each client commits without pauses.
    pub per_second: Option<f64>,
    /// How long.
    pub seconds: f64,
    /// The seed of the values.
    pub seed: u64,
}

/// What a load found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Commits that were refused, or given up because the clients were too late.
    pub failed: u64,
    /// The first error.
    pub failure: Option<String>,
    /// Acknowledged commits until the last answer.
    pub per_second: f64,
    /// From the time at which a commit was due to its answer, failures included.
    pub latency: Latency,
    /// Leaders that were elected meanwhile.
    pub leader_changes: u64,
}
