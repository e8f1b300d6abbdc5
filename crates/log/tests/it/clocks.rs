//! Processes in time namespaces, where the kernel adds an offset to the clock.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::TestDirectory;
use onejournal::{Log, Server, ServerOptions, Usn};
use onejournal_testing::{Need, has_namespaces, has_program, skip};

const PATH: &str = "ONEJOURNAL_CLOCKS_PATH";
const MEMORY: &str = "ONEJOURNAL_CLOCKS_MEMORY";

/// Whether root can make time namespaces here; says why not.
fn has_time_namespaces() -> bool {
    let exist = Path::new("/proc/self/ns/time").exists();
    if !exist {
        skip(Need::Namespaces, "needs time namespaces");
    }
    exist && has_namespaces() && has_program("unshare")
}

/// Appends a record durably. Returns its USN.
fn append(log: &Log, name: &str) -> Usn {
    let stream = log.stream(name).expect("stream");
    let lsn = stream.append(b"record").expect("append");
    stream.sync(lsn).expect("sync");
    stream.release();
    let mut records = stream.read_from(lsn).expect("reader");
    records.next().expect("a record").expect("whole").usn
}

/// A process with another clock, started by the tests below.
#[test]
#[ignore = "a process of the other tests"]
fn process_with_another_clock() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut options = TestDirectory::new(false).options();
    options.memory = std::env::var_os(MEMORY).expect("its memory").into();
    let log = Log::open(path, &options).expect("open");
    println!("\nusn {}", append(&log, "other").0);
    log.close().expect("close");
}

/// The USN that a process gives whose clock is `offset_s` ahead.
fn append_elsewhere(path: &Path, test_dir: &TestDirectory, offset_s: i64) -> Usn {
    let mut command = Command::new("unshare");
    command.args(["--time", "--fork", &format!("--monotonic={offset_s}")]);
    command.args(onejournal_testing::again_words(module_path!(), "process_with_another_clock"));
    command.env(PATH, path).env(MEMORY, test_dir.memory.path());
    let output = command.output().expect("unshare");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let usn = said.lines().find_map(|line| line.strip_prefix("usn "));
    Usn(usn.and_then(|usn| usn.parse().ok()).unwrap_or_else(|| panic!("{output:?}")))
}

/// Half of the time since the machine was started: a clock cannot begin before 0.
fn half_uptime_s() -> i64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("uptime");
    let seconds = text.split('.').next().expect("seconds");
    seconds.parse::<i64>().expect("a number") / 2
}

/// Records are ordered by the time of their appends, whatever the clocks of the processes say.
fn keeps_order(test_dir: &TestDirectory, path: &Path, offset_s: i64) {
    let log = Log::open(path, &test_dir.options()).expect("open");
    let mut usns = Vec::new();
    for _ in 0..2 {
        usns.push(append(&log, "usual"));
        usns.push(append_elsewhere(path, test_dir, offset_s));
    }
    usns.push(append(&log, "usual"));
    log.close().expect("close");
    assert!(usns.windows(2).all(|pair| pair[0] < pair[1]), "{offset_s} s: {usns:?}");
}

#[test]
fn records_of_time_namespaces_are_in_the_order_of_their_appends() {
    if !has_time_namespaces() {
        return;
    }
    for offset_s in [10_000_000, -half_uptime_s()] {
        let test_dir = TestDirectory::new(false);
        // Also in the next incarnations, of which a process with another clock makes one.
        keeps_order(&test_dir, &test_dir.log(), offset_s);
        append_elsewhere(&test_dir.log(), &test_dir, offset_s);
        keeps_order(&test_dir, &test_dir.log(), offset_s);
    }
}

#[test]
fn records_of_clients_in_time_namespaces_are_in_the_order_of_their_appends() {
    if !has_time_namespaces() {
        return;
    }
    for offset_s in [10_000_000, -half_uptime_s()] {
        let test_dir = TestDirectory::new(false);
        for _ in 0..2 {
            let at = ServerOptions::at(test_dir.socket());
            let server = Server::start(test_dir.log(), &test_dir.options(), &at).expect("serve");
            keeps_order(&test_dir, &test_dir.socket(), offset_s);
            server.stop().expect("stop");
        }
    }
}
