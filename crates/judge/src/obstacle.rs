//! What is missing here for a scenario.

use crate::open_fuse;
use crate::scenario::{Actor, Scenario};

/// Why `scenario` cannot be recorded here.
pub fn obstacle(scenario: &Scenario) -> Option<String> {
    let has = |path: &str| std::path::Path::new(path).exists();
    if scenario.by_user && open_fuse::is_closed() {
        return Some("/dev/fuse is for root only".into());
    }
    if scenario.by_user && !has("/usr/bin/fusermount3") && !has("/bin/fusermount3") {
        return Some("needs fusermount3".into());
    }
    if scenario.actors.contains(&Actor::Mapped) && !has("/usr/bin/python3") {
        return Some("needs /usr/bin/python3".into());
    }
    if scenario.has_kernel_ext4() && !has("/usr/bin/unshare") {
        return Some("needs unshare and nsenter".into());
    }
    scenario.engine.and_then(|engine| engine.obstacle())
}
