//! Canaries: power cuts must find the faults of a SQLite extension that breaks its promises.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onejournal_judge::campaign::{Plan, judge};
use onejournal_judge::crash;
use onejournal_judge::host::Programs;
use onejournal_judge::obstacle::obstacle;
use onejournal_judge::scenario::Scenario;
use onejournal_sqlite::Fault;

const LOG: &str = "log-sqlite";
const VOLUME: &str = "sqlite-extension";

/// The number of failures of a run of this kind with the faulty extension that is named in `worker`.
/// `None` if it cannot be run.
fn failures(scenario: &str, broken: &str, seed: u64) -> Option<usize> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: needs root and loop devices");
        return None;
    }
    let scenario = Scenario::named(scenario).unwrap();
    if let Some(why) = obstacle(scenario) {
        eprintln!("skipped: {why}");
        return None;
    }
    let judge_itself = env!("CARGO_BIN_EXE_onejournal-judge");
    let setting = format!("ONEJOURNAL_JUDGE_BROKEN={broken}");
    let worker = ["env", &setting, judge_itself, "worker"].map(OsString::from).to_vec();
    // On a log no command of ours is needed. `make test` has built the one that a volume needs.
    let onejournal = Path::new(judge_itself).with_file_name("onejournal");
    if scenario.name == VOLUME && !onejournal.exists() {
        eprintln!("skipped: there is no {}", onejournal.display());
        return None;
    }
    let programs = Programs { onejournal, worker };
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
/// a fault has an effect at one of the 16 cuts.
fn is_found_out(scenario: &str, broken: &str) -> bool {
    let is_found = |seed| failures(scenario, broken, seed).is_none_or(|count| count > 0);
    [2, 4, 6, 8].into_iter().any(is_found)
}

#[test]
fn canary_commits_that_are_not_logged_are_found_out() {
    assert!(is_found_out(LOG, "skips-append"));
}

#[test]
fn canary_records_that_are_not_synced_are_found_out() {
    assert!(is_found_out(LOG, "skips-record-sync"));
}

#[test]
fn canary_transactions_on_a_volume_that_are_not_one_change_are_found_out() {
    // On a volume the actors are threads of this process.
    assert!(fault::with(Fault::SplitsTransaction, || is_found_out(VOLUME, "nothing")));
}

#[test]
fn canary_transactions_on_a_volume_that_are_not_durable_are_found_out() {
    assert!(fault::with(Fault::SkipsChangeSync, || is_found_out(VOLUME, "nothing")));
}

#[test]
fn an_extension_that_is_not_broken_passes() {
    assert!(failures(LOG, "nothing", 2).is_none_or(|count| count == 0));
}
