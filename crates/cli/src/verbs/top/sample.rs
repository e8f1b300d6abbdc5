//! One sample of all volumes and logs.

use std::collections::HashSet;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::inventory::{Logs, Mounts, SeenLogs, SeenMount};

/// Everything that is shown.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Instant,
    /// Seconds since 1970.
    pub now_s: u64,
    /// Each volume once, even if it is mounted several times.
    pub volumes: Vec<SeenMount>,
    pub logs: SeenLogs,
}

impl Sample {
    pub fn take(mounts: &mut Mounts, logs: &mut Logs) -> Sample {
        let mut volumes = mounts.look();
        let (at, now) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        let mut seen = HashSet::new();
        volumes.retain(|mount| seen.insert(mount.device));
        let now_s = now.map_or(0, |now| now.as_secs());
        Sample { at, now_s, volumes, logs: logs.look() }
    }
}
