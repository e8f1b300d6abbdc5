//! The workloads as programs, on an ordinary directory: what they print is what they did.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onejournal-bench");

fn output(arguments: &[&str], dir: &Path) -> Output {
    Command::new(PROGRAM).args(arguments).arg(dir).output().unwrap()
}

/// Runs a client on a directory; what it printed, if it is JSON.
#[track_caller]
fn run(arguments: &[&str], dir: &Path) -> Value {
    let output = output(arguments, dir);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Why a client refused.
#[track_caller]
fn refused(arguments: &[&str], dir: &Path) -> String {
    let output = output(arguments, dir);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sizes(dir: &Path) -> Vec<u64> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect();
    found.sort_by_key(|entry| entry.file_name());
    found.iter().map(|entry| entry.metadata().unwrap().len()).collect()
}

#[test]
fn streams_append_what_is_due_and_a_reader_reads_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let write =
        "streams write --count 5 --record-bytes 300 --interval-ms 20 --records 4 --seconds 60";
    for (sync, files) in [("dsync", 1), ("sync", 2), ("fdatasync", 3), ("fsync", 4), ("none", 5)] {
        let arguments: Vec<&str> = write.split(' ').chain(["--sync", sync]).collect();
        let written = run(&arguments, dir.path());
        assert_eq!((&written["due_records"], &written["records"]), (&20.into(), &20.into()));
        assert_eq!(
            (&written["latency"]["count"], &written["since_due"]["count"]),
            (&20.into(), &20.into())
        );
        // Behind what is there.
        assert_eq!(sizes(dir.path()), [1200 * files; 5]);
    }
    let first = fs::read(dir.path().join("stream-00000")).unwrap();
    let second = fs::read(dir.path().join("stream-00001")).unwrap();
    assert!(first != second && first[..300] != first[300..600], "all records are alike");
    let read = run(&["streams", "read"], dir.path());
    assert_eq!((&read["files"], &read["bytes"]), (&5.into(), &30_000.into()));
    assert_eq!(read["latency"]["count"], 10, "6000 bytes are two reads of 4096");
}

#[test]
fn a_stream_without_an_interval_ends_with_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let written = run(
        &["streams", "write", "--count", "2", "--interval-ms", "0", "--seconds", "0.2"],
        dir.path(),
    );
    let records = written["records"].as_u64().unwrap();
    assert!(records > 2 && written["due_records"].is_null(), "{written}");
    assert_eq!(sizes(dir.path()).iter().sum::<u64>(), records * 125);
    assert_eq!(written["since_due"]["count"], 0);
}

#[test]
fn writes_at_random_places_stay_inside_of_prepared_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = [
        "streams",
        "write",
        "--count",
        "3",
        "--interval-ms",
        "0",
        "--records",
        "50",
        "--place",
        "random",
    ];
    let message = refused(&write, dir.path());
    assert!(message.contains("stream-00000: No such file"), "{message}");
    run(&["streams", "prepare", "--count", "3", "--file-bytes", "5000"], dir.path());
    let before = fs::read(dir.path().join("stream-00002")).unwrap();
    assert_eq!(run(&write, dir.path())["records"], 150);
    assert_eq!(sizes(dir.path()), [5000; 3]);
    let after = fs::read(dir.path().join("stream-00002")).unwrap();
    let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
    assert!((1000..4900).contains(&changed), "{changed} of 5000 bytes changed");
    let large = [&write[..], &["--record-bytes", "6000"]].concat();
    let message = refused(&large, dir.path());
    assert!(message.contains("stream-00000 is smaller than a record"), "{message}");
}

#[test]
fn a_replay_leaves_what_the_server_left() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    // A block that fills in three steps, and one behind it.
    fs::write(
        &trace,
        "# a log\nw 0 0 512 0 300\ns 1\nw 9 0 512 212 200\ns 1\nw 9 0 1024 312 500\ns 1\n",
    )
    .unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let trace = trace.to_str().unwrap();
    let message = refused(&["replay", "run", trace], &logs);
    assert!(message.contains("redo-0000: No such file"), "{message}");
    run(&["replay", "prepare", trace, "--instances", "3"], &logs);
    assert_eq!(sizes(&logs), [1024; 3]);
    let fresh = fs::read(logs.join("redo-0001")).unwrap();
    let played = run(&["replay", "run", trace, "--instances", "3"], &logs);
    assert_eq!((&played["syncs"], &played["written_bytes"]), (&9.into(), &6144.into()));
    assert_eq!((&played["flush"]["count"], &played["instance"]["count"]), (&9.into(), &3.into()));
    let log = fs::read(logs.join("redo-0001")).unwrap();
    let changed = log.iter().zip(&fresh).take(524).filter(|(new, old)| new != old).count();
    assert!(changed > 500, "{changed} of the 524 bytes of records are new");
    assert!(log[524..].iter().all(|byte| *byte == 0), "what follows the records is zeros");
    assert_ne!(log, fs::read(logs.join("redo-0002")).unwrap(), "all logs are alike");
}

#[test]
fn a_paced_replay_takes_as_long_as_the_server_did() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, "w 0 0 100 0 0\ns 150000\nw 100000 100 100 0 0\ns 0\n").unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let trace = trace.to_str().unwrap();
    run(&["replay", "prepare", trace], &logs);
    let played = run(&["replay", "run", trace, "--paced"], &logs);
    assert!(played["seconds"].as_f64().unwrap() >= 0.25, "{played}");
}

#[test]
fn an_unknown_trace_names_those_there_are() {
    let message = refused(&["replay", "run", "mariadb-commit9"], Path::new("/"));
    assert!(message.contains("no built-in trace (mariadb-commit1, mariadb-commit2"), "{message}");
}
