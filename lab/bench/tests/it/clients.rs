//! The workloads as programs, on an ordinary directory: their output must agree with what they did.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::UNIX_EPOCH;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_onejournal-bench");

fn output(arguments: &[&str], dir: &Path) -> Output {
    Command::new(PROGRAM).args(arguments).arg(dir).output().unwrap()
}

/// Runs a client on a directory. Returns its output, if it is JSON.
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
        // After what is there.
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
    let write = "streams write --count 2 --interval-ms 0 --sync none --seconds 1";
    let written = run(&write.split(' ').collect::<Vec<_>>(), dir.path());
    let records = written["records"].as_u64().unwrap();
    assert!(records > 2 && written["due_records"].is_null(), "{written}");
    assert_eq!(sizes(dir.path()).iter().sum::<u64>(), records * 125);
    assert!(written["since_due"].is_null());
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
    // A block that fills in three steps, and one after it.
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

/// A program that answers lines, and ends with its input.
struct Lines {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Lines {
    /// Started, and ready.
    fn start(arguments: &[&str]) -> Lines {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Lines { child, output };
        assert_eq!(lines.read(), "ready");
        lines
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
        self.read()
    }

    fn finish(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_sqlite_client_takes_its_databases_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a.db", "b.db"].map(|name| dir.path().join(name));
    let [first, second] = paths.each_ref().map(|path| path.to_str().unwrap());
    let options = ["sqlite", "--journal-mode", "WAL", "--rows", "1", "--value-bytes", "300"];
    let mut client = Lines::start(&[&options[..], &[first, second]].concat());
    // Several at once, each answered.
    let mut answers = vec![client.ask("insert 7\ninsert 8\ninsert 9 10")];
    answers.extend([client.read(), client.read()]);
    let first_value = |path: &PathBuf| -> String {
        let database = rusqlite::Connection::open(path).unwrap();
        database.query_row("SELECT v FROM t WHERE k = 0", (), |row| row.get(0)).unwrap()
    };
    let before = paths.each_ref().map(first_value);
    answers.push(client.ask("update 0"));
    for answer in answers {
        assert!(answer.parse::<f64>().unwrap() > 0.0, "{answer}");
    }
    client.finish();
    // The update was the second database's turn.
    let after = paths.each_ref().map(first_value);
    assert_eq!([before[0] == after[0], before[1] == after[1]], [true, false]);
    let found = paths.map(|path| {
        let database = rusqlite::Connection::open(path).unwrap();
        let sql = "SELECT group_concat(k), min(length(v)), max(length(v)) FROM t";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, [row.get(1)?, row.get(2)?]));
        database.query_row(sql, (), row).unwrap()
    });
    let expected = [("0,7,9,10", [300, 300]), ("0,8", [300, 300])];
    assert_eq!(found, expected.map(|(keys, sizes)| (keys.to_owned(), sizes)));
    let message = refused(&["sqlite", "--value-bytes", "15"], &dir.path().join("c.db"));
    assert!(message.contains("15 is not in 16.."), "{message}");
}

/// Payloads of a log file of xLog's layout.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let (bytes, mut at, mut found) = (fs::read(path).unwrap(), 0, Vec::new());
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        found.push(bytes[at + 20..at + 20 + len].to_vec());
        at += 20 + len;
    }
    found
}

#[test]
fn appends_reach_files_and_rings() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let append = |to: &str, path: &Path, more: &[&str]| {
        let arguments = ["append", "run", "--records", "30", "--record-bytes", "700", to];
        let appended = run(&[&arguments[..], more].concat(), path);
        assert_eq!((&appended["records"], &appended["latency"]["count"]), (&30.into(), &30.into()));
    };
    for to in ["fsync", "fdatasync"] {
        let file = dir.path().join(to);
        append(to, &file, &[]);
        assert_eq!(fs::metadata(file).unwrap().len(), 21_000);
    }
    let ring = dir.path().join("native-ring");
    append("native", dir.path(), &["--ring", ring.to_str().unwrap()]);
    let native = records(&dir.path().join("client-0.log"));
    assert!(native.len() == 30 && native.iter().all(|record| record.len() == 700));
    // Through its service, two clients.
    let socket = dir.path().join("socket");
    let mut service = Lines::start(&[
        "ringd",
        "--clients",
        "2",
        "--ring",
        dir.path().join("ring").to_str().unwrap(),
        "--dir",
        dir.path().to_str().unwrap(),
        "--listen",
        socket.to_str().unwrap(),
    ]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| append("ring", &socket, &[]));
        }
    });
    service.finish();
    for client in ["client-0.log", "client-1.log"] {
        assert_eq!(records(&dir.path().join(client)), native);
    }
}

#[test]
fn bursts_begin_when_they_are_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut client = Lines::start(&[
        "append",
        "burst",
        "--burst-us",
        "500",
        "fdatasync",
        path.to_str().unwrap(),
    ]);
    // A client that does not run in time says so; then it has more.
    let mut on_time = |line: &str| -> u64 {
        let now_ns = || UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let mut lead_ns = 30_000_000;
        loop {
            let begin_ns = now_ns() + lead_ns;
            let answer = client.ask(&format!("{line} {begin_ns}"));
            if answer != "late" {
                assert!(now_ns() >= begin_ns, "it did not wait");
                return answer.parse().unwrap();
            }
            assert!(now_ns() > begin_ns, "it was not late");
            lead_ns *= 2;
        }
    };
    let count = on_time("append");
    assert_eq!(fs::metadata(&path).unwrap().len(), 100 * (count + 1), "and one before the first");
    let checksums = on_time("checksum");
    assert!(checksums > 0 && checksums.is_multiple_of(50));
    assert_eq!(fs::metadata(&path).unwrap().len(), 100 * (count + 1));
    assert_eq!(client.ask("append 1"), "late");
    assert_eq!(fs::metadata(&path).unwrap().len(), 100 * (count + 1));
    client.finish();
}
