//! What is missing here for a scenario.

use std::fmt;
use std::path::Path;

use onejournal_testing::Need;

use crate::open_fuse;
use crate::scenario::{Actor, Scenario};
use crate::store;

/// Why a scenario cannot be recorded here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub need: Need,
    pub why: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Why `scenario` cannot be recorded here.
pub fn obstacle(scenario: &Scenario) -> Option<Obstacle> {
    let has = |path: &str| Path::new(path).exists();
    let missing = |need, why: &str| Some(Obstacle { need, why: why.into() });
    if scenario.by_user && open_fuse::is_closed() {
        return missing(Need::Fuse, "/dev/fuse is for root only");
    }
    if scenario.by_user && !has("/usr/bin/fusermount3") && !has("/bin/fusermount3") {
        return missing(Need::Program, "needs fusermount3");
    }
    if scenario.actors.contains(&Actor::Mapped) && !has("/usr/bin/python3") {
        return missing(Need::Program, "needs /usr/bin/python3");
    }
    if scenario.has_kernel_ext4() && !has("/usr/bin/unshare") {
        return missing(Need::Program, "needs unshare and nsenter");
    }
    if scenario.is_contained() && !has("/proc/self/ns/time") {
        return missing(Need::Namespaces, "needs namespaces of clocks");
    }
    let is_missing = |actor: &Actor| match actor {
        Actor::Store(store) => store::program(store.plugin).is_none(),
        _ => false,
    };
    if scenario.actors.iter().any(is_missing) {
        return missing(Need::Database, "needs the plug-ins (make plugins)");
    }
    let why = scenario.engine.and_then(|engine| engine.obstacle())?;
    Some(Obstacle { need: Need::Database, why })
}
