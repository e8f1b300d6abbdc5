//! Canaries: power cuts must find the faults of a SQLite extension that breaks its promises.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onejournal_judge::campaign::{Plan, judge};
use onejournal_judge::crash::Fault;
use onejournal_judge::host::Programs;
use onejournal_judge::obstacle::obstacle;
use onejournal_judge::scenario::Scenario;

/// The number of failures of a run with the faulty extension that is named in `worker`. `None` if
/// it cannot be run.
fn failures(broken: &str, seed: u64) -> Option<usize> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: needs root and loop devices");
        return None;
    }
    let scenario = Scenario::named("log-sqlite").unwrap();
    if let Some(why) = obstacle(scenario) {
        eprintln!("skipped: {why}");
        return None;
    }
    let judge_itself = env!("CARGO_BIN_EXE_onejournal-judge");
    let setting = format!("ONEJOURNAL_JUDGE_BROKEN={broken}");
    let worker = ["env", &setting, judge_itself, "worker"].map(OsString::from).to_vec();
    // This kind of run needs no command of ours.
    let programs = Programs { onejournal: PathBuf::new(), worker };
    let plan = Plan {
        programs,
        image_count: 16,
        fault: Fault::Honest,
        cuts_commands: false,
        keep: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken"),
    };
    Some(judge(&plan, scenario, seed).unwrap().1.len())
}

/// The threads run differently each time, also with the same seed. So it depends on chance whether
/// a fault has an effect at one of the 16 cuts.
fn is_found_out(broken: &str) -> bool {
    [2, 4, 6, 8].into_iter().any(|seed| failures(broken, seed).is_none_or(|count| count > 0))
}

#[test]
fn canary_commits_that_are_not_logged_are_found_out() {
    assert!(is_found_out("skips-append"));
}

#[test]
fn canary_records_that_are_not_synced_are_found_out() {
    assert!(is_found_out("skips-record-sync"));
}

#[test]
fn an_extension_that_is_not_broken_passes() {
    assert!(failures("nothing", 2).is_none_or(|count| count == 0));
}
