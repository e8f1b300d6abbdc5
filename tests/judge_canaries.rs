//! Canaries: power cuts must find the faults of a SQLite extension that breaks its promises.

use std::path::PathBuf;

use judge::campaign::{Plan, judge};
use judge::crash;
use judge::host::Programs;
use judge::obstacle::obstacle;
use judge::scenario::Scenario;
use onejournal_sqlite::Fault;
use onejournal_testing::tier::{Tier, tier};
use onejournal_testing::{Need, again_words, skip};

use crate::support;

const LOG: &str = "log-sqlite";
const VOLUME: &str = "sqlite-extension";

/// A process of a run with a sound extension.
#[test]
#[ignore = "a process of the judge"]
fn sound() {
    judge::worker::run().unwrap();
}

/// A process of a run whose commits are not logged.
#[test]
#[ignore = "a process of the judge"]
fn skips_append() {
    fault::for_process(Fault::SkipsAppend);
    judge::worker::run().unwrap();
}

/// A process of a run whose records are not synced.
#[test]
#[ignore = "a process of the judge"]
fn skips_record_sync() {
    fault::for_process(Fault::SkipsRecordSync);
    judge::worker::run().unwrap();
}

/// The number of failures of a run of this kind whose processes are the test `worker` above.
/// `None` if it cannot be run.
fn failures(scenario: &str, worker: &str, seed: u64) -> Option<usize> {
    if !support::can_mount() {
        return None;
    }
    let scenario = Scenario::named(scenario).unwrap();
    if let Some(obstacle) = obstacle(scenario) {
        skip(obstacle.need, obstacle);
        return None;
    }
    let programs = Programs {
        onejournal: support::ONEJOURNAL.into(),
        worker: again_words(module_path!(), worker),
    };
    let plan = Plan {
        programs,
        image_count: 16,
        fault: crash::Fault::Honest,
        cuts_commands: false,
        keep: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken"),
    };
    Some(judge(&plan, scenario, seed).unwrap().1.len())
}

/// The threads run differently each time, also with the same seed. So it depends on chance whether
/// a fault has an effect at one of the 16 cuts, and the gate does not try it.
fn is_found_out(scenario: &str, worker: &str) -> bool {
    if tier() == Tier::Gate {
        skip(Need::Tier, "whether the fault matters at a cut is luck");
        return true;
    }
    let is_found = |seed| failures(scenario, worker, seed).is_none_or(|count| count > 0);
    (2..42).step_by(2).any(is_found)
}

#[test]
fn canary_commits_that_are_not_logged_are_found_out() {
    assert!(is_found_out(LOG, "skips_append"));
}

#[test]
fn canary_records_that_are_not_synced_are_found_out() {
    assert!(is_found_out(LOG, "skips_record_sync"));
}

#[test]
fn canary_transactions_on_a_volume_that_are_not_one_change_are_found_out() {
    // On a volume the actors are threads of this process.
    assert!(fault::with(Fault::SplitsTransaction, || is_found_out(VOLUME, "sound")));
}

#[test]
fn canary_transactions_on_a_volume_that_are_not_durable_are_found_out() {
    assert!(fault::with(Fault::SkipsChangeSync, || is_found_out(VOLUME, "sound")));
}

#[test]
fn an_extension_that_is_not_broken_passes() {
    assert!(failures(LOG, "sound", 2).is_none_or(|count| count == 0));
}
