//! Canaries: a SQLite extension that breaks its word must be found out by power cuts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onejournal_judge::campaign::{Plan, judge};
use onejournal_judge::crash::Fault;
use onejournal_judge::host::Programs;
use onejournal_judge::obstacle::obstacle;
use onejournal_judge::scenario::Scenario;

/// Failures of a run with an extension that has a fault, by its name in `worker`; `None` where it cannot be run.
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

/// Whether a fault matters at one of 16 cuts depends on how the threads run, also with the same seed.
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
