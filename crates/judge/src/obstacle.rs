//! What is missing here for a scenario.

use crate::scenario::{Actor, Scenario};
use crate::{open_fuse, postgres};

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
    if scenario.hosted.is_some() && !has("/usr/bin/unshare") {
        return Some("needs unshare and nsenter".into());
    }
    if scenario.has_server() { postgres::obstacle() } else { None }
}
