//! What a serving process keeps of the surroundings of the command that starts it, and what not.
//! `docs/reference/surroundings.md` has the whole list.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::memory;
use crate::output::complain;

const NO_LIMIT: u64 = u64::MAX;

/// The limits that a daemon does not keep, and what it is given instead.
const NEEDS: [(Resource, u64); 7] = [
    (Resource::Fsize, NO_LIMIT),
    (Resource::Cpu, NO_LIMIT),
    (Resource::As, NO_LIMIT),
    (Resource::Data, NO_LIMIT),
    (Resource::Stack, 8 << 20),
    (Resource::Nproc, NO_LIMIT),
    (Resource::Nofile, 65_536),
];

/// Limits of this list that end a process, as `ulimit` names them.
const DEADLY: [(Resource, &str); 3] =
    [(Resource::Cpu, "t"), (Resource::As, "v"), (Resource::Data, "d")];

/// For a process that serves, as its first action: other processes get none of its files, and the
/// soft limits that end it in mid-use are raised as far as the hard ones.
pub fn of_server() {
    keep_descriptors();
    for resource in [Resource::Fsize, Resource::Nofile] {
        let found = getrlimit(resource);
        // What cannot be raised is enough for fewer.
        let _ = setrlimit(resource, Rlimit { current: found.maximum, ..found });
    }
}

/// Processes that this one starts from now on get none of its files. A container may forbid the
/// system call: then they have them, as other programs do.
pub fn keep_descriptors() {
    let _ = host::keep_descriptors_from_children();
}

/// For the process that starts a daemon, which inherits all of this: it is neither slower than
/// other programs nor the first to be ended, and its limits are not those of a login.
pub fn of_daemon() {
    for (resource, need) in NEEDS {
        lift(resource, need);
    }
    for (resource, letter) in DEADLY {
        if let Some(limit) = getrlimit(resource).current {
            complain!(
                "onejournal: a limit of its user (ulimit -{letter}: {limit}) may end the daemon \
                 while the volume is in use; nothing that was synced is lost then"
            );
        }
    }
    // Without the privilege it stays slow.
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice > 0) {
        let _ = rustix::process::setpriority_process(None, 0);
    }
    host::reset_scheduling();
    if memory::oom_score().is_some_and(|score| score > 0) {
        let _ = memory::set_oom_score(0);
    }
}

/// Lifts a limit to `need`, or without the privilege as far as the hard limit.
fn lift(resource: Resource, need: u64) {
    let found = getrlimit(resource);
    let [soft, hard] = [found.current, found.maximum].map(|limit| limit.unwrap_or(NO_LIMIT));
    let set = |soft: u64, hard: u64| {
        let [current, maximum] = [soft, hard].map(|limit| (limit != NO_LIMIT).then_some(limit));
        setrlimit(resource, Rlimit { current, maximum })
    };
    if set(soft.max(need), hard.max(need)).is_err() {
        let _ = set(soft.max(need.min(hard)), hard);
    }
}
