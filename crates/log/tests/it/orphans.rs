//! Shared memory that processes left: what is brought home, what is kept, and what is in use.

use crate::common;

use std::path::{Path, PathBuf};

use common::{TestDirectory, on_both, records};
use onejournal::{Log, Options, Orphan, Outcome, collect_orphans};

fn open(directory: &Path, options: &Options) -> Log {
    Log::open(directory, options).expect("open")
}

/// Appends without a sync and leaves as a killed process does.
fn leave(directory: &Path, options: &Options) {
    let log = open(directory, options);
    let stream = log.stream("one").expect("stream");
    stream.append(b"first").expect("append");
    stream.append(b"second").expect("append");
    drop((stream, log));
}

fn collect(memory: &Path, given_up: &[PathBuf]) -> Vec<Orphan> {
    collect_orphans(memory, given_up, |_| false).expect("looked at")
}

/// The only one that there is, and what was done with it.
fn one(memory: &Path, given_up: &[PathBuf]) -> Orphan {
    let mut found = collect(memory, given_up);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn why(orphan: &Orphan) -> &str {
    let Outcome::Kept { why } = &orphan.outcome else { panic!("{orphan:?}") };
    assert!(orphan.path.exists(), "{orphan:?}");
    why
}

fn assert_all_there(directory: &Path, options: &Options) {
    let log = open(directory, options);
    let stream = log.existing_stream("one").expect("streams").expect("its stream");
    assert_eq!(records(&stream), [b"first".to_vec(), b"second".to_vec()]);
    drop(stream);
    log.close().expect("close");
}

#[test]
fn orphaned_records_are_brought_home() {
    on_both(|test_dir| {
        let (memory, options) = (test_dir.memory.path(), test_dir.options());
        leave(test_dir.root.path(), &options);
        let found = one(memory, &[]);
        let log = std::fs::canonicalize(test_dir.root.path()).expect("path");
        assert_eq!(found.outcome, Outcome::BroughtHome(log));
        assert!(!found.path.exists());
        assert_all_there(test_dir.root.path(), &options);
        assert_eq!(collect(memory, &[]), []);
    });
}

#[test]
fn memory_in_use_stays_whatever_is_given_up() {
    on_both(|test_dir| {
        let memory = test_dir.memory.path();
        let log = open(test_dir.root.path(), &test_dir.options());
        let stream = log.stream("one").expect("stream");
        stream.append(b"first").expect("append");
        let found = one(memory, &[]);
        assert_eq!(found.outcome, Outcome::InUse);
        assert_eq!(one(memory, std::slice::from_ref(&found.path)).outcome, Outcome::InUse);
        stream.append(b"second").expect("append");
        drop(stream);
        log.close().expect("close");
        assert_all_there(test_dir.root.path(), &test_dir.options());
    });
}

#[test]
fn memory_of_a_log_that_was_moved_is_kept() {
    let test_dir = TestDirectory::new(false);
    let (memory, options) = (test_dir.memory.path(), test_dir.options());
    let [here, there] = ["here", "there"].map(|name| test_dir.root.path().join(name));
    leave(&here, &options);
    std::fs::rename(&here, &there).expect("moved");
    assert!(why(&one(memory, &[])).contains("is not there"));
    std::fs::rename(&there, &here).expect("moved back");
    assert!(matches!(one(memory, &[]).outcome, Outcome::BroughtHome(_)));
    assert_all_there(&here, &options);
}

#[test]
fn memory_of_a_log_that_was_removed_goes_when_it_is_given_up() {
    let test_dir = TestDirectory::new(false);
    let memory = test_dir.memory.path();
    let directory = test_dir.root.path().join("log");
    leave(&directory, &test_dir.options());
    std::fs::remove_dir_all(&directory).expect("removed");
    let found = one(memory, &[]);
    assert!(why(&found).contains("is not there"));
    let named = [found.path.clone()];
    let used = collect_orphans(memory, &named, |path| path == found.path).expect("looked at");
    assert_eq!((used[0].outcome.clone(), found.path.exists()), (Outcome::InUse, true));
    assert_eq!(one(memory, &named).outcome, Outcome::GivenUp);
    assert!(!found.path.exists());
}

#[test]
fn memory_that_another_one_replaced_is_kept() {
    let test_dir = TestDirectory::new(false);
    let (memory, options) = (test_dir.memory.path(), test_dir.options());
    leave(test_dir.root.path(), &options);
    std::fs::remove_file(test_dir.root.path().join("incarnation")).expect("removed");
    let log = open(test_dir.root.path(), &options);
    assert_eq!(collect(memory, &[]).len(), 2, "in use or not: nothing is removed");
    drop(log);
    let found = collect(memory, &[]);
    let is_kept = |orphan: &&Orphan| matches!(orphan.outcome, Outcome::Kept { .. });
    let kept: Vec<&Orphan> = found.iter().filter(is_kept).collect();
    assert_eq!((found.len(), kept.len()), (2, 1), "{found:?}");
    assert!(why(kept[0]).contains("other shared memory"));
}

#[test]
fn nvram_beside_shared_memory_is_kept() {
    let test_dir = TestDirectory::new(true);
    let memory = test_dir.memory.path();
    let options = Options { nvram: Some(memory.into()), ..test_dir.options() };
    leave(test_dir.root.path(), &options);
    let found = collect(memory, &[]);
    let homes = found.iter().filter(|it| matches!(it.outcome, Outcome::BroughtHome(_)));
    assert_eq!((found.len(), homes.count()), (2, 1), "{found:?}");
    let nvram = one(memory, &[]);
    assert!(why(&nvram).contains("the NVRAM of the log"));
    assert_all_there(test_dir.root.path(), &options);
}
